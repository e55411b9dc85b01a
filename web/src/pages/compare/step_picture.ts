/** The steps of both sides as they spread, and below them the change of the step with its interval, on one scale. */

import type { ComparedSide, Comparison, StepSpread } from "../../api/types";
import { fitted, roundTicks, textScale } from "../../charts/fitted";
import { type Child, h, svg } from "../../ui/dom";
import * as format from "../../words/format";
import { t } from "../../words/i18n";
import type { Direction } from "./interval_bar";

const NARROWEST = 480;
const NAMES = 92;
const RIGHT = 16;
/** bars of a side, the row of its recordings, room to the next */
const BARS = 46;
const DOTS = 14;
const GAP = 10;
const AXIS = 20;
const INTERVAL = 34;
const CAP = 7;
/** marks of the axis of percentages are so many pixels apart at least */
const APART = 100;

/** What the scale has to hold, from the shortest to the longest time, ns. */
export function scaleOf(found: Pick<Comparison, "before" | "after" | "step">): { start: number; end: number } {
  const ends: number[] = [];
  for (const { step_ns, spread, medians_ns } of [found.before, found.after]) {
    if (spread) ends.push(spread.edges_ns[0]!, spread.edges_ns.at(-1)!);
    ends.push(...medians_ns);
    if (step_ns !== null) ends.push(step_ns);
  }
  const { step } = found;
  const base = found.before.step_ns;
  if (step && base !== null)
    for (const change of [step.low, step.high, -step.least_change, step.least_change]) ends.push(base * (1 + change));
  const [start, end] = [Math.min(...ends), Math.max(...ends)];
  const margin = (end - start || end || 1) * 0.03;
  return { start: start - margin, end: end + margin };
}

/** Round changes between two, so many pixels apart or more; 0 is always one of them. */
export function changesBetween(low: number, high: number, pixels: number): number[] {
  const least = ((high - low) / Math.max(pixels, 1)) * APART;
  const power = 10 ** Math.floor(Math.log10(least));
  const by = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= least * (1 - 1e-9)) ?? least;
  const found: number[] = [];
  // -0 would be written as such
  for (let number = Math.ceil(low / by); number * by <= high; number++) found.push(number * by || 0);
  return found;
}

/** The picture; nothing where a side has too few steps to tell anything of their spread. */
export function stepPicture(found: Comparison, signal: AbortSignal): Child {
  if (!found.step) return null;
  return h(
    "div",
    { class: "step-picture" },
    fitted((width) => drawn(found, width), NARROWEST, signal),
    h("p", { class: "note" }, noteOf(found)),
  );
}

function noteOf(found: Comparison): string {
  const outside = [found.before, found.after].reduce((sum, side) => sum + (side.spread?.outside ?? 0), 0);
  return [
    t("compare.picture.what"),
    found.step ? t("compare.picture.interval", { least: format.share(found.step.least_change) }) : "",
    outside ? t("compare.picture.outside", { count: format.count(outside) }) : "",
  ]
    .filter(Boolean)
    .join(" ");
}

/** What the picture says, for those who do not see it. */
function spoken(found: Comparison): string {
  const side = (name: string, { step_ns, medians_ns }: ComparedSide): string =>
    `${name}: ${format.value(step_ns, "ns")}${
      medians_ns.length > 1 ? ` (${format.time(Math.min(...medians_ns))} – ${format.time(Math.max(...medians_ns))})` : ""
    }`;
  const { step } = found;
  return [
    side(t("compare.before"), found.before),
    side(t("compare.after"), found.after),
    step
      ? `${t("compare.change")}: ${format.signedShare(step.ratio)} (${format.signedShare(step.low)} – ${format.signedShare(step.high)})`
      : "",
  ]
    .filter(Boolean)
    .join("; ");
}

function drawn(found: Comparison, width: number): SVGElement {
  const scale = textScale();
  const names = NAMES * scale;
  const room = width - names - RIGHT;
  const { start, end } = scaleOf(found);
  const xOf = (ns: number): number => names + ((ns - start) / (end - start)) * room;
  const row = (BARS + DOTS + GAP) * scale;
  const axis = 2 * row;
  const base = found.before.step_ns;
  const interval = found.step && base !== null ? { step: found.step, base } : null;
  const height = axis + AXIS * scale + (interval ? (INTERVAL + AXIS) * scale : 0);
  const marks = roundTicks(start, end, room / scale, 90);
  const places = marks.at.map((at): [x: number, text: string] => [xOf(at), format.rounded(at, marks.step)]);
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spoken(found) },
    marks.at.map((at) => svg("line", { class: "rule", x1: xOf(at), x2: xOf(at), y1: 0, y2: axis })),
    sideRow(t("compare.before"), found.before, 0, xOf, scale),
    sideRow(t("compare.after"), found.after, row, xOf, scale),
    axisRow(axis, names, width - RIGHT, places, scale),
    interval ? intervalRow(found, interval.base, { top: axis + AXIS * scale, names, width, xOf, start, end }, scale) : null,
  );
}

function axisRow(top: number, left: number, right: number, marks: readonly (readonly [number, string])[], scale: number): Child {
  return [
    svg("line", { class: "axis", x1: left, x2: right, y1: top, y2: top }),
    marks.map(([x, text]) =>
      svg("text", { class: "tick", x, y: top + 14 * scale, "text-anchor": x > right - 30 ? "end" : "middle" }, text),
    ),
  ];
}

/** The steps of a side as bars, its recordings as dots, its usual step as a line. */
function sideRow(name: string, side: ComparedSide, top: number, xOf: (ns: number) => number, scale: number): Child {
  const base = top + BARS * scale;
  const { step_ns } = side;
  return [
    svg("text", { class: "row-name", x: 0, y: top + 18 * scale }, name),
    svg("text", { class: "tick", x: 0, y: top + 34 * scale }, format.value(step_ns, "ns")),
    side.spread ? barsOf(side.spread, base, BARS * scale * 0.9, xOf) : null,
    step_ns === null
      ? null
      : svg("line", { class: "usual", x1: xOf(step_ns), x2: xOf(step_ns), y1: top + 2, y2: base + DOTS * scale }),
    side.medians_ns.map((median) =>
      svg(
        "circle",
        { class: "recording", cx: xOf(median), cy: base + (DOTS / 2) * scale, r: 3.5 * scale },
        svg("title", null, t("compare.picture.recording", { time: format.time(median) })),
      ),
    ),
  ];
}

function barsOf(spread: StepSpread, base: number, high: number, xOf: (ns: number) => number): Child {
  const most = Math.max(...spread.counts, 1);
  return spread.counts.map((count, place) => {
    const [low, top] = [spread.edges_ns[place]!, spread.edges_ns[place + 1]!];
    const tall = (count / most) * high;
    return count
      ? svg(
          "rect",
          { class: "bin", x: xOf(low), y: base - tall, width: Math.max(xOf(top) - xOf(low) - 0.5, 0.8), height: tall },
          svg(
            "title",
            null,
            `${format.time(low)} – ${format.time(top)}: ${t("compare.picture.steps", { count: format.count(count) })}`,
          ),
        )
      : null;
  });
}

interface Place {
  top: number;
  names: number;
  width: number;
  xOf: (ns: number) => number;
  start: number;
  end: number;
}

/** The change of the step with its interval, beside 0 and the changes that are of no interest. */
function intervalRow(found: Comparison, base: number, place: Place, scale: number): Child {
  const step = found.step!;
  const { top, names, width, xOf, start, end } = place;
  const at = (change: number): number => xOf(base * (1 + change));
  const middle = top + (INTERVAL / 2) * scale;
  const bottom = top + INTERVAL * scale;
  const look: Direction = step.low > 0 ? "grew" : step.high < 0 ? "shrank" : "unsure";
  const marks = changesBetween(start / base - 1, end / base - 1, (width - names - RIGHT) / scale);
  return [
    svg("rect", {
      class: "of-no-interest",
      x: at(-step.least_change),
      y: top + 4 * scale,
      width: at(step.least_change) - at(-step.least_change),
      height: (INTERVAL - 4) * scale,
    }),
    svg("line", { class: "interval-zero", x1: at(0), x2: at(0), y1: top + 4 * scale, y2: bottom }),
    svg("text", { class: "row-name", x: 0, y: middle + 5 * scale }, t("compare.change")),
    svg(
      "g",
      { class: `interval ${look}` },
      svg(
        "title",
        null,
        `${format.signedShare(step.ratio)} (${format.signedShare(step.low)} – ${format.signedShare(step.high)})`,
      ),
      svg("path", {
        class: "interval-line",
        d: `M${at(step.low)} ${middle}H${at(step.high)}M${at(step.low)} ${middle - CAP}v${2 * CAP}M${at(step.high)} ${middle - CAP}v${2 * CAP}`,
      }),
      svg("circle", { class: "interval-point", cx: at(step.ratio), cy: middle, r: 5 * scale }),
    ),
    axisRow(
      bottom,
      names,
      width - RIGHT,
      marks.map((change) => [at(change), change ? format.signedShare(change) : "0"]),
      scale,
    ),
  ];
}
