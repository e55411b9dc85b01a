/** A tile in its binary form (docs/view.md): a JSON header, then one little-endian column after the other. */

export interface TileRow {
  lane: number;
  depth: number;
  first: number;
  count: number;
}

export interface Tile {
  start_ns: number;
  end_ns: number;
  bucket_ns: number;
  /** how many items there are, and for how many events they stand */
  items: number;
  events: number;
  rows: TileRow[];
  /** rows of a lane, by depth */
  byLane: Map<number, TileRow[]>;
  names: Map<number, string>;
  start: Float64Array;
  end: Float64Array;
  busy: Float64Array;
  /** id of the longest event of each item */
  event: Uint32Array;
  name: Uint32Array;
  /** events that an item stands for; an item is exact where it is 1 */
  count: Uint32Array;
}

interface Header {
  start_ns: number;
  end_ns: number;
  bucket_ns: number;
  items: number;
  events: number;
  rows: TileRow[];
  names: Record<string, string>;
  columns: { name: string; type: string; offset: number }[];
}

const MAGIC = "SLT1";

/** @throws RangeError where the bytes are no tile */
export function decode(buffer: ArrayBuffer): Tile {
  const magic = new TextDecoder("latin1").decode(new Uint8Array(buffer, 0, Math.min(4, buffer.byteLength)));
  if (magic !== MAGIC || buffer.byteLength < 8) throw new RangeError("these bytes are no tile of a timeline");
  const length = new DataView(buffer).getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length))) as Header;
  const column = <A>(name: string, type: string, make: new (buffer: ArrayBuffer, offset: number, length: number) => A): A => {
    const found = header.columns.find((one) => one.name === name && one.type === type);
    if (!found) throw new RangeError(`the tile has no column ${name} of type ${type}`);
    return new make(buffer, 8 + length + found.offset, header.items);
  };
  const byLane = new Map<number, TileRow[]>();
  for (const row of header.rows) {
    const rows = byLane.get(row.lane);
    if (rows) rows[row.depth] = row;
    else byLane.set(row.lane, Object.assign([], { [row.depth]: row }));
  }
  return {
    start_ns: header.start_ns,
    end_ns: header.end_ns,
    bucket_ns: header.bucket_ns,
    items: header.items,
    events: header.events,
    rows: header.rows,
    byLane,
    names: new Map(Object.entries(header.names).map(([place, name]) => [Number(place), name])),
    start: column("start_ns", "f8", Float64Array),
    end: column("end_ns", "f8", Float64Array),
    busy: column("busy_ns", "f8", Float64Array),
    event: column("event", "u4", Uint32Array),
    name: column("name", "u4", Uint32Array),
    count: column("count", "u4", Uint32Array),
  };
}

/** The item of a row at a time, or the nearest one within a tolerance; -1 where there is none. */
export function itemAt(tile: Tile, row: TileRow, time: number, tolerance: number): number {
  let low = row.first;
  let high = row.first + row.count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tile.start[middle]! <= time) low = middle + 1;
    else high = middle;
  }
  let best = -1;
  let nearest = tolerance;
  // events of a row follow one another, but for rows that are shared; a few before are enough there
  for (let place = Math.min(low, row.first + row.count - 1); place >= Math.max(row.first, low - 4); place--) {
    const distance = Math.max(tile.start[place]! - time, time - tile.end[place]!, 0);
    if (distance === 0 && time < tile.end[place]!) return place;
    if (distance <= nearest) [best, nearest] = [place, distance];
  }
  return best;
}
