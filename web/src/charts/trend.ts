/** Small charts of what changes over time: bars of steps, stacked where they have parts, and a curve with its peak named. */

import { h, svg } from "../ui/dom";
import * as format from "../words/format";
import { fitted, textScale } from "./fitted";

export interface TrendBar {
  /** what a hint says of it */
  title: string;
  label: string;
  /** class of the colour and length of each part */
  parts: readonly { look: string; value: number }[];
  /** not one of those that figures are of */
  faded?: boolean;
  href?: string;
}

const HEIGHT = 120;
/** On a very wide screen a chart as low as elsewhere would be all slope and no height. */
const heightOf = (): number => HEIGHT * textScale() * (innerWidth >= 2200 ? 1.35 : 1);
const NARROWEST = 180;
const LABEL = 18;
/** bars with less room than this have no number below them */
const LABEL_APART = 44;
/** bars with more have their length above them */
const VALUE_APART = 62;
const WIDEST_BAR = 72;
/** bars may be so many times as long as the longest of those that figures are of */
const BEYOND = 1.8;

/** Bars from left to right; `line` is a value to compare them with, and what it is called. */
export function trendBars(
  label: string,
  bars: readonly TrendBar[],
  line: { value: number; name: string } | null,
  say: (value: number) => string,
  signal: AbortSignal,
): HTMLElement {
  const sum = (bar: TrendBar): number => bar.parts.reduce((all, part) => all + part.value, 0);
  const usual = Math.max(...bars.filter((bar) => !bar.faded).map(sum), line?.value ?? 0, 1);
  const longest = Math.max(...bars.map(sum), usual);
  // a first step of ten times the others would make these one line: it goes beyond the scale, with its length
  const most = longest > BEYOND * usual ? usual * BEYOND : longest;
  const draw = (width: number): SVGElement => {
    const scale = textScale();
    const high = heightOf();
    const base = high - LABEL * scale;
    const room = width / bars.length;
    const valued = room >= VALUE_APART * scale;
    // above the bars there is what the line is called, and below that their lengths
    const top = (valued ? 2 : 1) * LABEL * scale;
    const wide = Math.min(Math.max(room * 0.72, 0.6), WIDEST_BAR * scale);
    const every = Math.ceil((LABEL_APART * scale) / room);
    // a line lies at the end of most bars: above all of them their lengths have a row that it does not cross
    const valueAt = (length: number): number => (line ? top : yOf(length)) - 4 * scale;
    const yOf = (value: number): number => base - (Math.min(value, most) / most) * (base - top);
    return svg(
      "svg",
      {
        viewBox: `0 0 ${width} ${high}`,
        role: "img",
        "aria-label": `${label}: ${bars
          .map((bar) => bar.title)
          .slice(0, 60)
          .join("; ")}`,
      },
      svg("line", { class: "rule", x1: 0, x2: width, y1: base, y2: base }),
      bars.map((bar, place) => {
        const x = room * (place + 0.5) - wide / 2;
        const { href } = bar;
        let below = 0;
        return svg(
          "g",
          { class: `trend-bar${bar.faded ? " faded" : ""}`, onclick: href ? () => (location.hash = href) : null },
          svg("title", null, bar.title),
          svg("rect", { class: "hit", x: room * place, y: 0, width: room, height: high }),
          bar.parts.map((part) => {
            const [from, to] = [yOf(below), yOf((below += part.value))];
            return svg("rect", { class: `fill-${part.look}`, x, y: to, width: wide, height: Math.max(from - to, 0) });
          }),
          sum(bar) > most
            ? svg(
                "text",
                {
                  class: "tick beyond",
                  x: place || valued ? x + wide / 2 : x,
                  y: valued && line ? valueAt(most) : 12 * scale,
                  "text-anchor": place || valued ? "middle" : "start",
                },
                `↑ ${say(sum(bar))}`,
              )
            : null,
          place % every === 0
            ? svg("text", { class: "tick", x: x + wide / 2, y: high - 4 * scale, "text-anchor": "middle" }, bar.label)
            : null,
        );
      }),
      line
        ? [
            svg("line", { class: "trend-line", x1: 0, x2: width, y1: yOf(line.value), y2: yOf(line.value) }),
            svg("text", { class: "tick strong", x: width, y: 12 * scale, "text-anchor": "end" }, line.name),
          ]
        : longest > most || valued
          ? null
          : svg("text", { class: "tick", x: 0, y: 12 * scale }, say(most)),
      // in front of the line, which is no higher than some of them
      bars.map((bar, place) =>
        valued && sum(bar) <= most
          ? svg(
              "text",
              { class: "tick value", x: room * (place + 0.5), y: valueAt(sum(bar)), "text-anchor": "middle" },
              say(sum(bar)),
            )
          : null,
      ),
    );
  };
  return h("div", { class: "trend" }, fitted(draw, NARROWEST, signal));
}

/** A curve that holds each value until the next, with a dot at its peak and what is said of that. */
export function sparkline(
  label: string,
  times: readonly number[],
  values: readonly number[],
  peak: { at: number; value: number; name: string },
  signal: AbortSignal,
): HTMLElement {
  const [start, end] = [times[0] ?? 0, Math.max(times.at(-1) ?? 0, peak.at)];
  const most = Math.max(peak.value, 1);
  const draw = (width: number): SVGElement => {
    const scale = textScale();
    const [high, top] = [heightOf(), LABEL * scale];
    const base = high - top;
    const xOf = (at: number): number => 4 + ((at - start) / Math.max(end - start, 1)) * (width - 8);
    const yOf = (value: number): number => base - (value / most) * (base - top);
    const steps = times.map((at, place) => `H${xOf(at)}V${yOf(values[place]!)}`).join("");
    const outline = `M${xOf(start)} ${yOf(values[0] ?? 0)}${steps}H${xOf(end)}`;
    const x = xOf(peak.at);
    const right = x > width / 2;
    return svg(
      "svg",
      { viewBox: `0 0 ${width} ${high}`, role: "img", "aria-label": `${label}: ${peak.name}` },
      svg("path", { class: "spark-area", d: `${outline}V${base}H${xOf(start)}Z` }),
      svg("path", { class: "spark-line", d: outline }),
      svg("line", { class: "rule", x1: 0, x2: width, y1: base, y2: base }),
      svg("circle", { class: "spark-peak", cx: x, cy: yOf(peak.value), r: 4 * scale }),
      svg(
        "text",
        { class: "tick strong", x: right ? x - 8 : x + 8, y: 12 * scale, "text-anchor": right ? "end" : "start" },
        peak.name,
      ),
      svg("text", { class: "tick", x: 0, y: high - 4 * scale }, "0"),
      svg("text", { class: "tick", x: width, y: high - 4 * scale, "text-anchor": "end" }, format.time(end - start)),
    );
  };
  return h("div", { class: "trend" }, fitted(draw, NARROWEST, signal));
}
