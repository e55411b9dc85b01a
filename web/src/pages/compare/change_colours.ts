/** Colours of a difference: red took longer, blue shorter, and the more the stronger; what hardly changed is grey. */

import type { Palette } from "../../browser/theme";

/** small changes are to be told from none, so that colours grow faster than changes */
const POWER = 0.7;

/** The ground of a box whose time changed by so much, where the largest change is `most`. */
export function changeColour(
  difference: number,
  most: number,
  { grew, shrank, unchanged }: Pick<Palette, "grew" | "shrank" | "unchanged">,
): string {
  const share = most > 0 ? Math.min(Math.abs(difference) / most, 1) ** POWER : 0;
  return mixed(unchanged, difference > 0 ? grew : shrank, share);
}

/** Between two colours `#rrggbb`: 0 is the first, 1 the second. */
export function mixed(one: string, other: string, share: number): string {
  const [first, second] = [channels(one), channels(other)];
  return `#${first
    .map((value, place) =>
      Math.round(value + (second[place]! - value) * share)
        .toString(16)
        .padStart(2, "0"),
    )
    .join("")}`;
}

/** Red, green and blue of `#rrggbb`, or of `#rgb`, which the build makes of it. */
function channels(colour: string): number[] {
  const long = colour.length === 4 ? colour.replace(/[0-9a-f]/gi, "$&$&") : colour;
  return [1, 3, 5].map((at) => parseInt(long.slice(at, at + 2), 16));
}
