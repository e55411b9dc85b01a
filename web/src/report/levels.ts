/** Tiles of a report: one of the whole run, and finer ones of a window of it, put together to what a view asks for. */

import type { Tile, TileRow } from "../api/tile";

/** The coarsest level whose buckets are no wider than wanted; the finest where none is. */
export function choose(levels: readonly Tile[], bucket_ns: number): number {
  const found = levels.findIndex((one) => one.bucket_ns <= Math.max(bucket_ns, 1));
  return found < 0 ? levels.length - 1 : found;
}

export interface Finer {
  tile: Tile;
  start: number;
  end: number;
}

/**
 * What some lanes look like between two times: items of the finer tile for what begins in its window, and of the coarse one for
 * everything else. No bucket of the coarse one lies half inside that window.
 */
export function combined(coarse: Tile, finer: Finer | null, lanes: readonly number[] | null, start: number, end: number): Tile {
  const wanted = coarse.rows.filter((row) => !lanes || lanes.includes(row.lane));
  const parts: { tile: Tile; at: number }[] = [];
  const rows: TileRow[] = [];
  const byLane = new Map<number, TileRow[]>();
  for (const { lane, depth } of wanted) {
    const first = parts.length;
    const take = (tile: Tile, from: number, to: number): void => {
      const row = tile.byLane.get(lane)?.[depth];
      if (!row) return;
      for (let at = row.first; at < row.first + row.count; at++) {
        const begin = tile.start[at]!;
        if (begin >= to || begin >= end) return;
        if (begin >= from && (tile.end[at]! > start || begin >= start)) parts.push({ tile, at });
      }
    };
    if (finer) {
      take(coarse, -Infinity, finer.start);
      take(finer.tile, finer.start, finer.end);
      take(coarse, finer.end, Infinity);
    } else take(coarse, -Infinity, Infinity);
    const row = { lane, depth, first, count: parts.length - first };
    rows.push(row);
    const known = byLane.get(lane);
    if (known) known[depth] = row;
    else byLane.set(lane, Object.assign([], { [depth]: row }));
  }
  const column = <A extends Float64Array | Uint32Array>(
    made: A,
    name: "start" | "end" | "busy" | "event" | "name" | "count",
  ): A => {
    parts.forEach(({ tile, at }, place) => (made[place] = tile[name][at]!));
    return made;
  };
  const size = parts.length;
  const count = column(new Uint32Array(size), "count");
  return {
    start_ns: start,
    end_ns: end,
    bucket_ns: (finer?.tile ?? coarse).bucket_ns,
    items: size,
    events: count.reduce((sum, one) => sum + one, 0),
    rows,
    byLane,
    names: finer ? new Map([...coarse.names, ...finer.tile.names]) : coarse.names,
    start: column(new Float64Array(size), "start"),
    end: column(new Float64Array(size), "end"),
    busy: column(new Float64Array(size), "busy"),
    event: column(new Uint32Array(size), "event"),
    name: column(new Uint32Array(size), "name"),
    count,
  };
}
