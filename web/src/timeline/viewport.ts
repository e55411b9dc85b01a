/** Windows of time and the tiles that cover them. */

export interface Window {
  start: number;
  end: number;
}

/** pixels that a tile is wide when it is shown at its own resolution; at most twice as many are used */
export const TILE_PX = 1024;
const NARROWEST_NS = 20;
/** time that may be shown beside the run, as a share of it */
const MARGIN = 0.05;

/** A window of at least 20 ns that lies within the bounds and a small margin. */
export function clamped(window: Window, bounds: Window): Window {
  const whole = Math.max(bounds.end - bounds.start, NARROWEST_NS);
  const low = bounds.start - whole * MARGIN;
  const high = bounds.end + whole * MARGIN;
  const span = Math.min(Math.max(window.end - window.start, NARROWEST_NS), high - low);
  const middle = (window.start + window.end) / 2;
  const start = Math.min(Math.max(window.end - window.start === span ? window.start : middle - span / 2, low), high - span);
  return { start, end: start + span };
}

/** Zoom by a factor (below 1 is closer) around a time that stays where it is. */
export function zoomed(window: Window, bounds: Window, factor: number, at: number): Window {
  const whole = (bounds.end - bounds.start) * (1 + 2 * MARGIN);
  const span = Math.min(Math.max((window.end - window.start) * factor, NARROWEST_NS), Math.max(whole, NARROWEST_NS));
  const real = span / (window.end - window.start);
  const start = at - (at - window.start) * real;
  return clamped({ start, end: start + span }, bounds);
}

/** Move by a share of the width. */
export function panned(window: Window, bounds: Window, share: number): Window {
  const by = (window.end - window.start) * share;
  return clamped({ start: window.start + by, end: window.end + by }, bounds);
}

/** A window in which something is well visible. */
export function around(start: number, end: number, bounds: Window): Window {
  const span = Math.max((end - start) * 3, NARROWEST_NS * 4);
  const middle = (start + end) / 2;
  return clamped({ start: middle - span / 2, end: middle + span / 2 }, bounds);
}

/** The resolution for a window: buckets of `2 ** power` ns are no wider than a pixel. */
export function powerOf(window: Window, pixels: number): number {
  return Math.max(Math.floor(Math.log2((window.end - window.start) / Math.max(pixels, 1))), 0);
}

export const tileSpan = (power: number): number => 2 ** power * TILE_PX;

/** First and last tile of a resolution that a window needs, of those that lie within the bounds. */
export function tilesOf(window: Window, bounds: Window, power: number): [number, number] {
  const span = tileSpan(power);
  const first = Math.floor(Math.max(window.start, bounds.start) / span);
  const last = Math.floor(Math.min(window.end, bounds.end) / span);
  return [first, last];
}

/** Round places for the ticks of a ruler, at least `apart` pixels from each other. */
export function ticks(window: Window, pixels: number, apart: number): { step: number; at: number[] } {
  const least = ((window.end - window.start) / Math.max(pixels, 1)) * apart;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= least) ?? least;
  const at: number[] = [];
  for (let place = Math.ceil(window.start / step); place * step <= window.end; place++) at.push(place * step);
  return { step, at };
}
