/** A difference with its interval of 95 % as a mark on a line: where it lies from 0, and whether the interval holds 0. */

import { svg } from "../../ui/dom";

const WIDE = 150;
const HIGH = 16;
const MARGIN = 5;
const CAP = 3.5;

/** What a difference is: more beyond chance, less beyond chance, or what chance may explain. */
export type Direction = "grew" | "shrank" | "unsure";

/** An error of null: too few steps tell. */
export function directionOf(value: number, error: number | null): Direction {
  if (error === null || Math.abs(value) <= error) return "unsure";
  return value > 0 ? "grew" : "shrank";
}

/** What a column of intervals has to hold: from the least to the most, 0 always. */
export interface Reach {
  least: number;
  most: number;
}

export const reachOf = (rows: readonly { difference_ns: number; error_ns: number | null }[]): Reach => ({
  least: Math.min(0, ...rows.map((row) => row.difference_ns - (row.error_ns ?? 0))),
  most: Math.max(0, ...rows.map((row) => row.difference_ns + (row.error_ns ?? 0))),
});

/** Places of the marks from the left, for a line of so many pixels. */
export function marksOf(
  value: number,
  error: number | null,
  { least, most }: Reach,
  wide = WIDE,
): { zero: number; low: number; at: number; high: number } {
  const scale = (wide - 2 * MARGIN) / (most - least || 1);
  const to = (one: number): number => MARGIN + (one - least) * scale;
  return { zero: to(0), low: to(value - (error ?? 0)), at: to(value), high: to(value + (error ?? 0)) };
}

/** The mark; figures stand beside it, so that it is not read aloud. */
export function intervalBar(value: number, error: number | null, reach: Reach): SVGElement {
  const { zero, low, at, high } = marksOf(value, error, reach);
  const middle = HIGH / 2;
  return svg(
    "svg",
    {
      class: `interval ${directionOf(value, error)}`,
      viewBox: `0 0 ${WIDE} ${HIGH}`,
      width: WIDE,
      height: HIGH,
      "aria-hidden": "true",
    },
    svg("line", { class: "interval-zero", x1: zero, x2: zero, y1: 0, y2: HIGH }),
    error === null
      ? null
      : svg("path", {
          class: "interval-line",
          d: `M${low} ${middle}H${high}M${low} ${middle - CAP}v${2 * CAP}M${high} ${middle - CAP}v${2 * CAP}`,
        }),
    svg("circle", { class: "interval-point", cx: at, cy: middle, r: 3.5 }),
  );
}
