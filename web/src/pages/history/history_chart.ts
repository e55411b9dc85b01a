/** One figure over all versions: dots with their intervals, the levels between changes, and the changes marked. */

import { fitted, textScale } from "../../charts/fitted";
import { h, replace, svg, type Child } from "../../ui/dom";
import * as format from "../../words/format";
import { t } from "../../words/i18n";
import type { FigureHistory, HistoryChange, HistoryVersion } from "../../api/types";

const HEIGHT = 300;
const LEFT = 76;
const RIGHT = 12;
/** room for what changes are called */
const TOP = 26;
const BOTTOM = 36;
/** of the bar below a version that is chosen for comparing */
const BAR = 6;
/** of the sign of an interval that goes on beyond the axis */
const ARROW = 4;
const NARROWEST = 320;
const DOT = 3.2;
/** names of versions with less room than this are left out */
const NAME_APART = 90;
/** the values take this share of the height, the rest is room around them */
const AROUND = 0.12;
/** a series that does not move is drawn so large at most: a share of its value */
const LEAST_RANGE = 0.02;
const MARKS = 5;

/** From which to which value the axis goes: all values, and of their intervals what does not make these a line. */
export function valueRange(figure: FigureHistory): [number, number] {
  const [least, most] = [Math.min(...figure.values), Math.max(...figure.values)];
  const halves = figure.high.map((high, place) => (high - figure.low[place]!) / 2).sort((one, other) => one - other);
  const usual = halves[Math.floor(halves.length / 2)] ?? 0;
  const room = Math.max(AROUND * (most - least), Math.min(usual, most - least + LEAST_RANGE * most), (LEAST_RANGE * most) / 2);
  return [Math.max(least - room, 0), most + room];
}

/** Round values for the axis. */
export function valueMarks([low, high]: readonly [number, number]): number[] {
  const rough = (high - low) / MARKS;
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((one) => one >= rough)!;
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, place) => (first + place) * step);
}

/** What a change is called in the picture. */
export const moved = (change: HistoryChange): string =>
  change.ratio === null ? t("history.new") : `${format.signedShare(change.ratio)}${change.lasts ? "" : " ?"}`;

/** Whether it is not known which one of several versions made a change. */
export const isStretch = (change: HistoryChange): boolean => change.latest > change.earliest;

/** The picture; `say` is what is told of a version that the pointer is near, `pick` is told of a click. */
export function historyChart(
  name: string,
  figure: FigureHistory,
  versions: readonly HistoryVersion[],
  marked: readonly number[],
  say: (place: number) => Child,
  pick: (version: number) => void,
  signal: AbortSignal,
): HTMLElement {
  const tip = h("div", { class: "history-tip", role: "status" });
  tip.hidden = true;
  const picture = fitted((width) => draw(name, figure, versions, marked, width), NARROWEST, signal);
  const frame = h("div", { class: "trend history-chart" }, picture, tip);
  const nearest = (event: PointerEvent | MouseEvent): number | null => {
    const box = picture.getBoundingClientRect();
    const scale = textScale();
    const inside = event.clientX - box.left - LEFT * scale;
    const room = box.width - (LEFT + RIGHT) * scale;
    const at = (inside / room) * versions.length - 0.5;
    if (at < -1 || at > versions.length) return null;
    const distance = (place: number): number => Math.abs(figure.versions[place]! - at);
    return figure.versions.reduce((best, _, place) => (distance(place) < distance(best) ? place : best), 0);
  };
  picture.addEventListener("pointermove", (event) => {
    const place = nearest(event);
    tip.hidden = place === null;
    for (const dot of picture.querySelectorAll(".history-dot"))
      dot.classList.toggle("near", dot.getAttribute("data-place") === String(place));
    if (place === null) return;
    replace(tip, say(place));
    const box = frame.getBoundingClientRect();
    const x = event.clientX - box.left;
    tip.style.left = x > box.width / 2 ? "" : `${x + 16}px`;
    tip.style.right = x > box.width / 2 ? `${box.width - x + 16}px` : "";
    tip.style.top = `${Math.max(event.clientY - box.top - 30, 0)}px`;
  });
  picture.addEventListener("pointerleave", () => {
    tip.hidden = true;
    for (const dot of picture.querySelectorAll(".near")) dot.classList.remove("near");
  });
  picture.addEventListener("click", (event) => {
    const place = nearest(event);
    if (place !== null) pick(figure.versions[place]!);
  });
  return frame;
}

function draw(
  name: string,
  figure: FigureHistory,
  versions: readonly HistoryVersion[],
  marked: readonly number[],
  width: number,
): SVGElement {
  const scale = textScale();
  const [left, right, top, bottom, high] = [LEFT, RIGHT, TOP, BOTTOM, HEIGHT].map((pixels) => pixels * scale) as [
    number,
    number,
    number,
    number,
    number,
  ];
  const base = high - bottom;
  const range = valueRange(figure);
  const room = (width - left - right) / versions.length;
  const xOf = (version: number): number => left + room * (version + 0.5);
  const yOf = (value: number): number => {
    const part = (value - range[0]) / Math.max(range[1] - range[0], Number.MIN_VALUE);
    return base - Math.min(Math.max(part, 0), 1) * (base - top);
  };
  const say = (value: number): string => format.value(value, figure.unit);
  const every = Math.max(Math.ceil((NAME_APART * scale) / room), 1);
  const changes = figure.changes.map((change) => `${versions[change.version]!.name} ${moved(change)}`).join("; ");
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${high}`, role: "img", "aria-label": `${name}: ${changes || t("history.unmoved")}` },
    valueMarks(range).map((value) => [
      svg("line", { class: "rule", x1: left, x2: width - right, y1: yOf(value), y2: yOf(value) }),
      svg("text", { class: "tick", x: left - 8, y: yOf(value) + 4 * scale, "text-anchor": "end" }, say(value)),
    ]),
    marked.map((version, place) =>
      svg(
        "rect",
        {
          class: "history-marked",
          x: xOf(version) - room * 0.4,
          y: base + 3 * scale,
          width: Math.max(room * 0.8, 2),
          height: BAR * scale,
        },
        svg("title", null, t(place ? "compare.after" : "compare.before")),
      ),
    ),
    figure.changes.map((change) => drawnChange(change, xOf, room, top, base, width - right, scale)),
    figure.versions.map((version, place) => {
      const [x, from, to] = [xOf(version), yOf(figure.low[place]!), yOf(figure.high[place]!)];
      return [
        svg("line", { class: "history-interval", x1: x, x2: x, y1: from, y2: to }),
        figure.low[place]! < range[0] ? arrow(x, base, -ARROW * scale) : null,
        figure.high[place]! > range[1] ? arrow(x, top, ARROW * scale) : null,
      ];
    }),
    figure.levels.map((level) =>
      svg("line", {
        class: "history-level",
        x1: xOf(level.first) - room / 2,
        x2: xOf(level.last) + room / 2,
        y1: yOf(level.value),
        y2: yOf(level.value),
      }),
    ),
    figure.versions.map((version, place) =>
      svg("circle", {
        class: "history-dot",
        "data-place": place,
        cx: xOf(version),
        cy: yOf(figure.values[place]!),
        r: Math.min(DOT * scale, Math.max(room, 1.5)),
      }),
    ),
    versions.map((version, place) =>
      place % every === 0
        ? svg(
            "text",
            { class: "tick", x: xOf(place), y: high - 6 * scale, "text-anchor": "middle" },
            format.shorten(version.name, 14),
          )
        : null,
    ),
  );
}

/** The sign of an interval that goes on beyond the edge of the axis. */
const arrow = (x: number, edge: number, back: number): Child =>
  svg("path", {
    class: "history-beyond",
    d: `M${x - Math.abs(back)} ${edge + back}L${x} ${edge}L${x + Math.abs(back)} ${edge + back}`,
  });

/** Where a figure moved: the versions that may have moved it, and by how much. */
function drawnChange(
  change: HistoryChange,
  xOf: (version: number) => number,
  room: number,
  top: number,
  base: number,
  end: number,
  scale: number,
): Child {
  const look = `history-change ${change.ratio !== null && change.ratio < 0 ? "less" : "more"}${change.lasts ? "" : " unsure"}`;
  const x = xOf(change.version) - room / 2;
  const [from, to] = [xOf(change.earliest) - room / 2, xOf(change.latest) + room / 2];
  const anchor = x > end - 60 * scale ? "end" : "middle";
  return svg(
    "g",
    { class: look },
    isStretch(change) ? svg("rect", { x: from, y: top, width: to - from, height: base - top }) : null,
    svg("line", { x1: x, x2: x, y1: top - 4 * scale, y2: base }),
    svg("text", { class: "strong", x, y: top - 9 * scale, "text-anchor": anchor }, moved(change)),
  );
}
