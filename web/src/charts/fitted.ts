/** Pictures that are drawn for the width of their place: their texts keep their size on a wide screen. */

import { ticks } from "../timeline/viewport";
import { type Child, h, replace } from "../ui/dom";

/** What is drawn until the place is on the page and has a width. */
const FIRST_WIDTH = 1000;
/** of the root when the sizes of pictures were chosen, px */
const ROOT_PX = 14;

/** A place that draws anew whenever its width changes, until the signal is given; `width` is in pixels, and never below `least`. */
export function fitted(draw: (width: number) => Child, least: number, signal: AbortSignal): HTMLElement {
  let drawn = FIRST_WIDTH;
  const place = h("div", { class: "fitted" }, draw(drawn));
  const sizes = new ResizeObserver(() => {
    const width = Math.max(Math.floor(place.clientWidth), least);
    if (place.clientWidth === 0 || width === drawn) return;
    drawn = width;
    replace(place, draw(width));
  });
  sizes.observe(place);
  signal.addEventListener("abort", () => sizes.disconnect());
  return place;
}

/** How much larger texts are than on a usual screen: style.css makes them larger on a very wide one. */
export const textScale = (): number => parseFloat(getComputedStyle(document.documentElement).fontSize) / ROOT_PX;

/** Round places between two times, so many pixels or more from each other. */
export const roundTicks = (start: number, end: number, pixels: number, apart = 90): { step: number; at: number[] } =>
  ticks({ start, end }, pixels, apart);
