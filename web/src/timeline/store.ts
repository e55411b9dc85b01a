/** Tiles: kept while there is room, asked for when they become visible, given up when they no longer are. */

import type { Tile } from "../api/tile";
import { BLOCK_LANES } from "./layout";
import { TILE_PX, tileSpan } from "./viewport";

export interface Address {
  trace: number;
  block: number;
  power: number;
  place: number;
}

export type Fetch = (query: Record<string, string | number>, signal: AbortSignal) => Promise<Tile>;

/** what tiles may take together; a tile has at least this many bytes besides its columns */
const BUDGET_BYTES = 192 << 20;
const TILE_BYTES = 4096;
const ITEM_BYTES = 36;
const AT_ONCE = 6;
const COARSER = 8;

const keyOf = (one: Address): string => `${one.trace}/${one.block}/${one.power}/${one.place}`;

export class TileStore {
  private readonly tiles = new Map<string, Tile>();
  private readonly asked = new Map<string, AbortController>();
  private failed = new Set<string>();
  private wanted: Address[] = [];
  private size = 0;
  /** what the last request that failed said */
  problem: unknown = null;

  constructor(
    private readonly fetch: Fetch,
    private readonly lanesOf: (trace: number) => number,
    private readonly changed: () => void,
  ) {}

  /** Say which tiles are needed now, the most needed first. Requests for all others are given up. */
  want(addresses: readonly Address[]): void {
    const keys = new Set(addresses.map(keyOf));
    for (const [key, controller] of this.asked) {
      if (keys.has(key)) continue;
      controller.abort();
      this.asked.delete(key);
    }
    this.wanted = addresses.filter((one) => !this.tiles.has(keyOf(one)));
    this.next();
  }

  get waiting(): boolean {
    return this.asked.size > 0;
  }

  stop(): void {
    for (const controller of this.asked.values()) controller.abort();
    this.wanted = [];
  }

  /** A tile, or a coarser one that covers it while it is not there. */
  get(address: Address): Tile | null {
    for (let up = 0; up <= COARSER; up++) {
      const place = Math.floor(address.place / 2 ** up);
      const key = keyOf({ ...address, power: address.power + up, place });
      const found = this.tiles.get(key);
      if (!found) continue;
      // the last one used is the last one to go
      this.tiles.delete(key);
      this.tiles.set(key, found);
      return found;
    }
    return null;
  }

  private next(): void {
    for (const one of this.wanted) {
      if (this.asked.size >= AT_ONCE) return;
      const key = keyOf(one);
      if (this.asked.has(key) || this.tiles.has(key) || this.failed.has(key)) continue;
      void this.ask(one, key);
    }
  }

  private async ask(one: Address, key: string): Promise<void> {
    const controller = new AbortController();
    this.asked.set(key, controller);
    const span = tileSpan(one.power);
    const last = Math.min((one.block + 1) * BLOCK_LANES, this.lanesOf(one.trace));
    const lanes = Array.from({ length: last - one.block * BLOCK_LANES }, (_, place) => one.block * BLOCK_LANES + place);
    const query = {
      trace: one.trace,
      start_ns: one.place * span,
      end_ns: (one.place + 1) * span,
      pixels: TILE_PX,
      lanes: lanes.join(","),
    };
    try {
      const tile = await this.fetch(query, controller.signal);
      this.keep(key, tile);
    } catch (error) {
      if (controller.signal.aborted) return;
      this.failed.add(key);
      this.problem = error;
    }
    if (this.asked.get(key) === controller) this.asked.delete(key);
    this.changed();
    this.next();
  }

  private keep(key: string, tile: Tile): void {
    this.tiles.set(key, tile);
    this.size += TILE_BYTES + tile.items * ITEM_BYTES;
    for (const [oldest, one] of this.tiles) {
      if (this.size <= BUDGET_BYTES || oldest === key) return;
      this.tiles.delete(oldest);
      this.size -= TILE_BYTES + one.items * ITEM_BYTES;
    }
  }
}
