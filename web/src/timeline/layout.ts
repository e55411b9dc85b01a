/** Where the lanes and curves of the chosen ranks lie, from top to bottom. */

import type { Lane, Series } from "../api/types";

export const ROW_PX = 18;
export const HEAD_PX = 24;
export const SERIES_PX = 46;
const GAP_PX = 6;
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
/** `of` names the rank of a lane that does not lie below the name of its rank. */
export type LaneBand = Place & { kind: "lane"; lane: Lane; open: boolean; depths: number; of: string };
export type SeriesBand = Place & { kind: "series"; series: Series };
export type Band = (Place & { kind: "head"; text: string }) | LaneBand | SeriesBand;

export const laneKey = (trace: number, lane: Lane): string => `${trace}/${lane.source}/${lane.label}`;
export const seriesKey = (trace: number, series: Series): string => `${trace}/${series.label}`;

/** What is said of each lane and curve. */
export interface Choices {
  isOpen: (trace: number, lane: Lane) => boolean;
  isHidden: (trace: number, lane: Lane) => boolean;
  isHeld: (trace: number, lane: Lane) => boolean;
  isShown: (trace: number, series: Series) => boolean;
}

export interface Layout {
  bands: Band[];
  height: number;
  held: number;
}

/** Held lanes come first, `held` pixels in all. A closed lane shows its outermost events only. */
export function layout(tracks: readonly Track[], choices: Choices): Layout {
  const bands: Band[] = [];
  let top = 0;
  const add = (track: Track, lane: Lane, held: boolean): void => {
    const open = choices.isOpen(track.trace, lane);
    const depths = open ? lane.depths : 1;
    const height = depths * ROW_PX + GAP_PX;
    bands.push({
      kind: "lane",
      trace: track.trace,
      top,
      height,
      held,
      lane,
      open,
      depths,
      of: held && tracks.length > 1 ? track.name : "",
    });
    top += height;
  };
  const shown = tracks.map((track) => ({ track, lanes: track.lanes.filter((lane) => !choices.isHidden(track.trace, lane)) }));
  for (const { track, lanes } of shown) for (const lane of lanes) if (choices.isHeld(track.trace, lane)) add(track, lane, true);
  const held = top;
  for (const { track, lanes } of shown) {
    if (tracks.length > 1) {
      bands.push({ kind: "head", trace: track.trace, top, height: HEAD_PX, held: false, text: track.name });
      top += HEAD_PX;
    }
    for (const lane of lanes) if (!choices.isHeld(track.trace, lane)) add(track, lane, false);
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
