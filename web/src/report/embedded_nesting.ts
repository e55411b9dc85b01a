/** Which event of a report lies inside which, as the server finds it (`timeline/nested.py`). */

import type { Brief } from "../api/types";

/** Of events of one lane the one of the row above that each lies inside; those without one are left out. */
export function parents<E extends Brief>(events: readonly E[]): Map<E, E> {
  const rows = new Map<number, E[]>();
  for (const one of events) {
    const row = rows.get(one.depth);
    if (row) row.push(one);
    else rows.set(one.depth, [one]);
  }
  for (const row of rows.values()) row.sort((one, other) => one.start_ns - other.start_ns || one.event - other.event);
  const of = new Map<E, E>();
  for (const [depth, row] of rows) {
    const above = rows.get(depth - 1);
    if (!above) continue;
    let place = 0;
    for (const one of row) {
      while (place < above.length && above[place]!.start_ns <= one.start_ns) place++;
      const parent = above[place - 1];
      if (parent && parent.end_ns >= one.end_ns) of.set(one, parent);
    }
  }
  return of;
}

/** The events around one on its lane, the outermost first. */
export function callers(events: readonly Brief[], { lane, depth, start_ns, end_ns }: Brief): Brief[] {
  return events
    .filter((one) => one.lane === lane && one.depth < depth && one.start_ns <= start_ns && one.end_ns >= end_ns)
    .sort((one, other) => one.depth - other.depth)
    .map(({ event, name, ...rest }) => ({ event, name, lane, depth: rest.depth, start_ns: rest.start_ns, end_ns: rest.end_ns }));
}
