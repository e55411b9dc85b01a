/** Where the tracks and curves of the chosen ranks lie, from top to bottom: rank, thread or device, and what belongs to it. */

import type { Lane, Series } from "../api/types";

export const ROW_PX = 18;
export const HEAD_PX = 24;
export const SERIES_PX = 46;
export const GAP_PX = 6;
/** lanes that are asked for together */
export const BLOCK_LANES = 16;

export interface Track {
  trace: number;
  name: string;
  lanes: readonly Lane[];
  series: readonly Series[];
}

/** `held` bands stay at the top while the others scroll away below them. */
interface Place {
  trace: number;
  top: number;
  height: number;
  held: boolean;
}
/** The name of a rank (`level` 0), thread or device (1); `lanes` is how many lie below it, shown or not. */
export type HeadBand = Place & { kind: "head"; text: string; key: string; level: 0 | 1; open: boolean; lanes: number };
/** `of` names the rank of a lane that does not lie below it; `text` is what it is called below its head; `row`: px of a row. */
export type LaneBand = Place & {
  kind: "lane";
  lane: Lane;
  open: boolean;
  depths: number;
  of: string;
  text: string;
  row: number;
};
export type SeriesBand = Place & { kind: "series"; series: Series };
export type Band = HeadBand | LaneBand | SeriesBand;

export const laneKey = (trace: number, lane: Lane): string => `${trace}/${lane.source}/${lane.label}`;
export const seriesKey = (trace: number, series: Series): string => `${trace}/${series.label}`;

/** What is said of each lane and curve. */
export interface Choices {
  isOpen: (trace: number, lane: Lane) => boolean;
  isHidden: (trace: number, lane: Lane) => boolean;
  isHeld: (trace: number, lane: Lane) => boolean;
  isShown: (trace: number, series: Series) => boolean;
  /** whether a head is closed, so that nothing below it is shown */
  isShut: (key: string) => boolean;
}

export interface Layout {
  bands: Band[];
  height: number;
  held: number;
}

/** Lanes that belong together: those of a thread or of a device. `text` is empty where there is nothing to put above them. */
export interface Group {
  key: string;
  text: string;
  lanes: Lane[];
}

/** What lanes belong to: a thread, a device, or the whole process. */
function keyOf({ group, key }: Lane): string {
  if (group === "host" && "tid" in key && key["tid"] !== null) return `thread ${String(key["pid"])} ${String(key["tid"])}`;
  if (group === "device") return `device ${String(key["device"] ?? 0)}`;
  return "";
}

/** The lanes of a rank by thread and device, in the order in which the first one of each comes. */
export function groups(lanes: readonly Lane[]): Group[] {
  const found = new Map<string, Group>();
  for (const lane of lanes) {
    const key = keyOf(lane);
    const group = found.get(key) ?? { key, text: "", lanes: [] };
    found.set(key, group);
    group.lanes.push(lane);
  }
  for (const group of found.values()) if (group.key && group.lanes.length > 1) group.text = nameOf(group.lanes);
  return [...found.values()];
}

/** Whether a lane is that of the main thread: on Linux it has the number of its process. */
export const mainThread = ({ group, label, key }: Lane): boolean =>
  group === "host" && /^thread \d/.test(label) && "tid" in key && Number(key["tid"]) > 0 && key["tid"] === key["pid"];

function nameOf(lanes: readonly Lane[]): string {
  const calls = lanes.find((lane) => lane.source === "operators");
  if (calls) return calls.label;
  const stream = lanes.map((lane) => /^(.+ \d+) stream /.exec(lane.label)?.[1]).find((one) => one !== undefined);
  return stream ?? /(?:, | of )(thread .+)$/.exec(lanes[0]!.label)?.[1] ?? lanes[0]!.label;
}

/** What a lane is called below the name of its group: without that name; empty where nothing else is left. */
export function below(lane: Lane, group: string): string {
  if (!group) return lane.label;
  if (lane.label === group) return "";
  for (const tail of [`, ${group}`, ` of ${group}`]) if (lane.label.endsWith(tail)) return lane.label.slice(0, -tail.length);
  return lane.label.startsWith(`${group} `) ? lane.label.slice(group.length + 1) : lane.label;
}

/** Held lanes come first, `held` pixels in all. A closed lane shows its outermost events only; `row`: pixels of a row. */
export function layout(tracks: readonly Track[], choices: Choices, row = ROW_PX): Layout {
  const bands: Band[] = [];
  let top = 0;
  const add = (track: Track, lane: Lane, held: boolean, text: string): void => {
    const open = choices.isOpen(track.trace, lane);
    const depths = open ? lane.depths : 1;
    const height = depths * row + GAP_PX;
    const of = held && tracks.length > 1 ? track.name : "";
    bands.push({ kind: "lane", trace: track.trace, top, height, held, lane, open, depths, of, text, row });
    top += height;
  };
  const head = (trace: number, text: string, key: string, level: 0 | 1, lanes: number): boolean => {
    const open = !choices.isShut(key);
    bands.push({ kind: "head", trace, top, height: HEAD_PX, held: false, text, key, level, open, lanes });
    top += HEAD_PX;
    return open;
  };
  const shown = tracks.map((track) => ({ track, lanes: track.lanes.filter((lane) => !choices.isHidden(track.trace, lane)) }));
  for (const { track, lanes } of shown)
    for (const lane of lanes) if (choices.isHeld(track.trace, lane)) add(track, lane, true, lane.label);
  const held = top;
  for (const { track, lanes } of shown) {
    if (tracks.length > 1 && !head(track.trace, track.name, `${track.trace}`, 0, lanes.length)) continue;
    for (const group of groups(lanes)) {
      const left = group.lanes.filter((lane) => !choices.isHeld(track.trace, lane));
      if (!left.length) continue;
      // what is below a head is named without it, and the head says more
      const text = group.lanes.some(mainThread) ? `main ${group.text}` : group.text;
      if (group.text && !head(track.trace, text, `${track.trace}/${group.key}`, 1, left.length)) continue;
      for (const lane of left) add(track, lane, false, below(lane, group.text));
    }
    for (const series of track.series) {
      if (!choices.isShown(track.trace, series)) continue;
      bands.push({ kind: "series", trace: track.trace, top, height: SERIES_PX, held: false, series });
      top += SERIES_PX;
    }
  }
  return { bands, height: top, held };
}

/** How far a band is moved up when the lanes are scrolled. */
export const shift = (band: Band, scroll: number): number => (band.held ? 0 : scroll);

/** The bands that are visible between two heights of the canvas; held ones hide what would lie below them. */
export function visible({ bands, held }: Layout, scroll: number, from: number, to: number): Band[] {
  return bands.filter((band) => {
    const top = band.top - shift(band, scroll);
    return top + band.height > (band.held ? from : Math.max(from, held)) && top < to;
  });
}

/** The band at a height of the canvas. */
export function bandAt(found: Layout, scroll: number, y: number): Band | undefined {
  return visible(found, scroll, y, y + 1)[0];
}
