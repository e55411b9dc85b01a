/** Where the ranks of a picture stand: in groups beside each other; and what is at a place of it. */

/** `columns`: the row of the answer that each column shows; `groups`: which columns belong together, in order. */
export interface Layout {
  columns: readonly number[];
  groups: readonly { name: string; first: number; count: number }[];
}

/** `row` of the picture, and the `rank` at it: its place in the answer. */
export interface Cell {
  row: number;
  rank: number;
}

/** a picture is no higher, whatever the number of steps */
const MOST_HEIGHT = 420;

/** values that differ by less than this share are alike */
const ALIKE = 0.02;

/** How high a row is drawn. */
export const rowHeight = (rows: number): number => Math.max(Math.min(26, MOST_HEIGHT / Math.max(rows, 1)), 1);

/** The groups one behind the other. */
export function layOut(groups: readonly { name: string; rows: readonly number[] }[]): Layout {
  const columns: number[] = [];
  const placed = groups.map((one) => {
    const first = columns.length;
    columns.push(...one.rows);
    return { name: one.name, first, count: one.rows.length };
  });
  return { columns, groups: placed };
}

export const columnOf = (layout: Layout, rank: number): number => layout.columns.indexOf(rank);

/** What is at a place, told from where the cells begin; null beside them. */
export function cellAt(layout: Layout, rows: number, height: number, x: number, y: number, width: number): Cell | null {
  const row = Math.floor(y / height);
  const column = Math.floor((x / width) * layout.columns.length);
  const rank = layout.columns[column];
  return x < 0 || y < 0 || row >= rows || rank === undefined ? null : { row, rank };
}

/** A colour between two, as `#rrggbb` each: the first at the least value of the range, the second at the most. */
export function shade(value: number, [least, most]: readonly [number, number], from: string, to: string): string {
  // what is least is still seen
  const share = most > least ? 0.08 + 0.92 * Math.min(Math.max((value - least) / (most - least), 0), 1) : 0.5;
  const [a, b] = [channels(from), channels(to)];
  return `rgb(${a.map((one, place) => Math.round(one + (b[place]! - one) * share)).join(" ")})`;
}

function channels(colour: string): number[] {
  const text = /^#([0-9a-f]{3}|[0-9a-f]{6})$/i.exec(colour.trim())?.[1] ?? "808080";
  const wide = text.length === 3 ? [...text].map((one) => one + one).join("") : text;
  return [0, 2, 4].map((place) => parseInt(wide.slice(place, place + 2), 16));
}

/** The range that colours are spread over: most values lie in it, so that one far off does not leave the others pale. */
export function rangeOf(values: readonly (number | null)[]): [number, number] {
  const known = values.filter((one): one is number => one !== null).sort((one, other) => one - other);
  if (!known.length) return [0, 1];
  const at = (share: number): number => known[Math.min(Math.floor(share * known.length), known.length - 1)]!;
  const [least, most] = [at(0.01), at(0.995)];
  // what hardly differs is not shown as if it did
  return [Math.min(least, most - ALIKE * Math.abs(most)), most];
}
