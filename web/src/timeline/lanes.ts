/** Which lanes are shown, open, or held at the top, and where they lie because of it. */

import type { Lane, Series } from "../api/types";
import type { Curves } from "./curves";
import {
  type Band,
  GAP_PX,
  HEAD_PX,
  type LaneBand,
  type Layout,
  ROW_PX,
  SERIES_PX,
  type Track,
  bandAt,
  laneKey,
  layout,
  seriesKey,
  visible,
} from "./layout";

/** lanes with more rows than this start closed */
const OPEN_ROWS = 14;
const OPEN_OPERATOR_ROWS = 32;
const CLOSED_SOURCES = ["python", "enqueue", "dequeue", "device_states"];
const LEAST_PX = 40;
/** rows are so much higher at most where there is room for it */
const HIGHEST_ROW_PX = 28;

export interface LaneId {
  trace: number;
  lane: number;
}

export class Lanes {
  private placed: Layout = { bands: [], height: 0, held: 0 };
  private readonly toggled = new Map<string, boolean>();
  private readonly hidden = new Set<string>();
  private readonly shut = new Set<string>();
  private readonly pinned: Set<string>;
  private row = ROW_PX;

  /** `held` lanes are at the top from the start. */
  constructor(
    private readonly tracks: readonly Track[],
    private readonly curves: Curves,
    held: readonly LaneId[],
  ) {
    this.pinned = new Set(
      held.flatMap(({ trace, lane }) => {
        const found = tracks.find((one) => one.trace === trace)?.lanes[lane];
        return found ? [laneKey(trace, found)] : [];
      }),
    );
    this.arrange();
  }

  private isOpen = (trace: number, lane: Lane): boolean =>
    this.toggled.get(laneKey(trace, lane))
    ?? (lane.depths <= (lane.source === "operators" ? OPEN_OPERATOR_ROWS : OPEN_ROWS) && !CLOSED_SOURCES.includes(lane.source));

  /** Place everything anew. */
  arrange(): void {
    const choices = {
      isOpen: this.isOpen,
      isHidden: (_: number, lane: Lane) => this.hidden.has(lane.source),
      isHeld: (trace: number, lane: Lane) => this.pinned.has(laneKey(trace, lane)),
      isShown: (trace: number, series: Series) => this.curves.shown(seriesKey(trace, series)),
      isShut: (key: string) => this.shut.has(key),
    };
    this.placed = layout(this.tracks, choices, this.row);
  }

  /** Make the rows as high as they fill some room with; true where they lie elsewhere now. */
  fill(room: number): boolean {
    let [rows, beside] = [0, 0];
    for (const band of this.placed.bands) {
      rows += band.kind === "lane" ? band.depths : 0;
      beside += { head: HEAD_PX, series: SERIES_PX, lane: GAP_PX }[band.kind];
    }
    const row = Math.min(Math.max(Math.floor((room - beside) / Math.max(rows, 1)), ROW_PX), HIGHEST_ROW_PX);
    if (row === this.row) return false;
    this.row = row;
    this.arrange();
    return true;
  }

  get all(): readonly Band[] {
    return this.placed.bands;
  }

  get height(): number {
    return Math.max(this.placed.height, LEAST_PX);
  }

  /** height of the lanes that are held at the top */
  get held(): number {
    return this.placed.held;
  }

  get heldLanes(): LaneId[] {
    return this.placed.bands.flatMap((band) =>
      band.held && band.kind === "lane" ? [{ trace: band.trace, lane: band.lane.lane }] : [],
    );
  }

  visible(scroll: number, from: number, to: number): Band[] {
    return visible(this.placed, scroll, from, to);
  }

  at(scroll: number, y: number): Band | undefined {
    return bandAt(this.placed, scroll, y);
  }

  bandOf(trace: number, lane: number): LaneBand | undefined {
    return this.placed.bands.find((one): one is LaneBand => one.kind === "lane" && one.trace === trace && one.lane.lane === lane);
  }

  /** Show or hide everything below the name of a rank, thread or device. */
  toggleHead(key: string): void {
    if (!this.shut.delete(key)) this.shut.add(key);
    this.arrange();
  }

  toggle(trace: number, lane: Lane): void {
    this.toggled.set(laneKey(trace, lane), !this.isOpen(trace, lane));
    this.arrange();
  }

  /** Make sure that a row of a lane is shown; true where something had to change. */
  reveal(trace: number, lane: number, depth: number): boolean {
    const found = this.tracks.find((one) => one.trace === trace)?.lanes[lane];
    if (!found) return false;
    const closed = depth > 0 && !this.isOpen(trace, found);
    if (closed) this.toggled.set(laneKey(trace, found), true);
    const shown = this.hidden.delete(found.source);
    const covered = !this.bandOf(trace, lane);
    if (covered) for (const key of [...this.shut]) if (key.split("/")[0] === String(trace)) this.shut.delete(key);
    if (closed || shown || covered) this.arrange();
    return closed || shown || covered;
  }

  pin(trace: number, lane: Lane): void {
    const key = laneKey(trace, lane);
    if (!this.pinned.delete(key)) this.pinned.add(key);
    this.arrange();
  }

  setSource(source: string, shown: boolean): void {
    if (shown) this.hidden.delete(source);
    else this.hidden.add(source);
    this.arrange();
  }
}
