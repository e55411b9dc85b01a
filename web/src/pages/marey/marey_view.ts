/** Operators joined across ranks: one row per rank, a ribbon per operator. Where ribbons slant, the ranks are apart. */

import type { Band, Joined, JoinedOperator, Load, RankStep } from "../../api/types";
import { roundTicks, textScale } from "../../charts/fitted";
import { svg, type Child } from "../../ui/dom";
import * as format from "../../words/format";
import { t } from "../../words/i18n";

/** a narrower picture scrolls */
export const NARROWEST = 640;
const NAMES = 86;
const RIGHT = 14;
/** height of a row of a picture as wide as on a usual screen, and on how much wider ones rows are higher */
const ROW = 46;
const USUAL_WIDTH = 1100;
const HIGHEST = 1.8;
const BAR = 9;
const BAND = 26;
/** a drag that is shorter is a click */
const SHORTEST_DRAG = 4;

/** What is drawn over the rows of ranks. */
export type Overlay = "none" | "memory" | "flops";

export interface MareyOptions {
  /** px */
  width: number;
  label: string;
  from: number;
  to: number;
  overlay: Overlay;
  chosen: string;
  onPick: (operator: JoinedOperator) => void;
  onBrush: (from: number, to: number) => void;
}

/** Where the rows begin, right of the names of the ranks. */
const leftOf = (): number => NAMES * textScale();

/** Rows are higher in a wide picture, so that ribbons slant as they do on a usual screen. */
const rowOf = (width: number): number => ROW * Math.min(Math.max(width / USUAL_WIDTH, 1), HIGHEST);

export const keyOf = (one: { name: string; number: number }): string => `${one.number}:${one.name}`;

/** The diagram: ribbons of ranks that lie beside each other in a stage, and below each stage the spread of its ranks. */
export function marey(found: Joined, options: MareyOptions): SVGElement {
  const { from, to } = options;
  const [left, right] = [leftOf(), options.width - RIGHT];
  const x = (ns: number): number => left + Math.min(Math.max((ns - from) / Math.max(to - from, 1), 0), 1) * (right - left);
  const rows = new Map<number, number>();
  const bands = new Map<number, number>();
  const high = rowOf(options.width);
  let bottom = 24;
  for (const stage of [...new Set(found.ranks.map((one) => one.stage))]) {
    for (const one of found.ranks.filter((rank) => rank.stage === stage)) {
      rows.set(one.rank, bottom + high / 2);
      bottom += high;
    }
    bands.set(stage, bottom);
    bottom += BAND;
  }
  const stageOf = new Map(found.ranks.map((one) => [one.rank, one.stage]));
  const root = svg(
    "svg",
    { class: "marey", viewBox: `0 0 ${options.width} ${bottom + 6}`, role: "img", "aria-label": options.label },
    axis(from, to, x, bottom),
    found.ranks.map((one) => row(one, rows.get(one.rank)!, x)),
    options.overlay === "none" ? null : loads(found, options.overlay, rows, high, x),
    found.operators.map((one) => ribbon(one, rows, stageOf, x, options)),
    found.bands.map((one) => band(one, bands.get(one.stage), x)),
    [...bands].map(([stage, top]) =>
      svg(
        "text",
        { class: "marey-label", x: 4, y: top + 15 },
        bands.size > 1 ? t("marey.spread", { stage }) : t("marey.spread.all"),
      ),
    ),
  );
  brush(root, options, left);
  return root;
}

function axis(from: number, to: number, x: (ns: number) => number, bottom: number): Child {
  const { step, at } = roundTicks(from, to, x(to) - x(from), 110);
  return at.map((ns) => [
    svg("line", { class: "marey-tick", x1: x(ns), x2: x(ns), y1: 18, y2: bottom }),
    svg(
      "text",
      {
        class: "marey-label",
        x: x(ns),
        y: 12,
        "text-anchor": x(ns) - x(from) < 20 ? "start" : x(to) - x(ns) < 20 ? "end" : "middle",
      },
      ns === 0 ? "0" : format.rounded(ns, step),
    ),
  ]);
}

function row(one: Omit<RankStep, "step">, y: number, x: (ns: number) => number): Child {
  return [
    svg("text", { class: "marey-label", x: 4, y: y + 4 }, t("rank.n", { number: one.rank })),
    svg("line", { class: "marey-row", x1: x(one.start_ns), x2: x(one.end_ns), y1: y, y2: y }),
  ];
}

function ribbon(
  one: JoinedOperator,
  rows: ReadonlyMap<number, number>,
  stageOf: ReadonlyMap<number, number>,
  x: (ns: number) => number,
  options: MareyOptions,
): SVGElement {
  const parts: SVGElement[] = [];
  for (let place = 0; place < one.ranks.length; place++) {
    const rank = one.ranks[place]!;
    const y = rows.get(rank)!;
    const [start, end] = [one.start_ns[place]!, one.end_ns[place]!];
    if (end < options.from || start > options.to) continue;
    parts.push(svg("rect", { x: x(start), y: y - BAR / 2, width: Math.max(x(end) - x(start), 0.7), height: BAR }));
    const next = one.ranks[place + 1];
    if (next === undefined || stageOf.get(next) !== stageOf.get(rank)) continue;
    const below = rows.get(next)!;
    const [first, last] = [one.start_ns[place + 1]!, one.end_ns[place + 1]!];
    parts.push(
      svg("polygon", {
        points: `${x(start)},${y + BAR / 2} ${x(end) + 0.5},${y + BAR / 2} ${x(last) + 0.5},${below - BAR / 2} ${x(first)},${below - BAR / 2}`,
      }),
    );
  }
  const key = keyOf(one);
  return svg(
    "g",
    {
      class: `marey-operator marey-${one.kind}${options.chosen === key ? " chosen" : ""}`,
      "data-operator": key,
      onclick: () => options.onPick(one),
    },
    svg("title", null, `${one.name} #${one.number + 1}`),
    parts,
  );
}

/** From the first to the last rank of a stage to begin the operator, with the mean. */
function band(one: Band, top: number | undefined, x: (ns: number) => number): Child {
  if (top === undefined) return null;
  return svg(
    "g",
    { class: "marey-band" },
    svg(
      "title",
      null,
      `${one.name} #${one.number + 1}: ${t("marey.band", { min: format.time(one.start_min_ns), mean: format.time(one.start_mean_ns), max: format.time(one.start_max_ns) })}`,
    ),
    svg("rect", {
      x: x(one.start_min_ns),
      y: top + 5,
      width: Math.max(x(one.start_max_ns) - x(one.start_min_ns), 0.7),
      height: 12,
    }),
    svg("line", { x1: x(one.start_mean_ns), x2: x(one.start_mean_ns), y1: top + 2, y2: top + 20 }),
  );
}

/** Memory as steps, or operations per bucket as columns, above the row of each rank. */
function loads(
  found: Joined,
  overlay: Overlay,
  rows: ReadonlyMap<number, number>,
  high: number,
  x: (ns: number) => number,
): Child {
  const value = (one: Load): number => (overlay === "memory" ? one.allocated_bytes : one.flops) ?? 0;
  const most = Math.max(...found.loads.map(value), 1);
  const width = found.end_ns / found.buckets;
  const said = (one: Load): string => (overlay === "memory" ? format.bytes(value(one)) : format.value(value(one), "FLOP"));
  return found.loads
    .filter((one) => value(one) > 0)
    .map((one) => {
      const height = ((high / 2 - BAR / 2 - 3) * value(one)) / most;
      const y = rows.get(one.rank)! - BAR / 2 - height;
      const [left, right] = [x(one.bucket * width), x((one.bucket + 1) * width)];
      return right <= left
        ? null
        : svg("rect", { class: "marey-load", x: left, y, width: right - left, height }, svg("title", null, said(one)));
    });
}

/** Dragging over the diagram chooses a window. */
function brush(root: SVGElement, { from, to, width, onBrush }: MareyOptions, left: number): void {
  const chosen = svg("rect", { class: "marey-brush", y: 18, height: 100_000, width: 0 });
  root.append(chosen);
  let begun: number | null = null;
  const place = (event: PointerEvent): number => {
    const box = root.getBoundingClientRect();
    return ((event.clientX - box.left) / box.width) * width;
  };
  const time = (at: number): number =>
    Math.round(from + Math.min(Math.max((at - left) / (width - RIGHT - left), 0), 1) * (to - from));
  root.addEventListener("pointerdown", (event) => {
    begun = place(event);
  });
  root.addEventListener("pointermove", (event) => {
    if (begun === null) return;
    const at = place(event);
    chosen.setAttribute("x", String(Math.min(begun, at)));
    chosen.setAttribute("width", String(Math.abs(at - begun)));
  });
  root.addEventListener("pointerleave", () => {
    begun = null;
    chosen.setAttribute("width", "0");
  });
  root.addEventListener("pointerup", (event) => {
    const [first, last] = [begun, place(event)];
    begun = null;
    chosen.setAttribute("width", "0");
    if (first !== null && Math.abs(last - first) >= SHORTEST_DRAG)
      onBrush(time(Math.min(first, last)), time(Math.max(first, last)));
  });
}

/** When every rank ran every step: one line per rank; a click chooses the step. */
export function stepOverview(
  rows: readonly RankStep[],
  chosen: number | null,
  label: string,
  full: number,
  onPick: (step: number) => void,
): SVGElement {
  const height = 16;
  const ranks = [...new Set(rows.map((one) => one.rank))];
  const end = Math.max(...rows.map((one) => one.end_ns), 1);
  const left = leftOf();
  const x = (ns: number): number => left + (ns / end) * (full - left - RIGHT);
  return svg(
    "svg",
    { class: "marey steps-overview", viewBox: `0 0 ${full} ${ranks.length * height + 26}`, role: "img", "aria-label": label },
    axis(0, end, x, ranks.length * height + 22),
    ranks.map((rank, place) =>
      svg("text", { class: "marey-label", x: 4, y: 22 + place * height + 12 }, t("rank.n", { number: rank })),
    ),
    rows.map((one) =>
      svg(
        "rect",
        {
          class: `marey-step${one.step % 2 ? " odd" : ""}${one.step === chosen ? " chosen" : ""}`,
          x: x(one.start_ns),
          y: 22 + ranks.indexOf(one.rank) * height + 2,
          width: Math.max(x(one.end_ns) - x(one.start_ns) - 0.5, 0.7),
          height: height - 4,
          "data-step": one.step,
          onclick: () => onPick(one.step),
        },
        svg(
          "title",
          null,
          `${t("rank.n", { number: one.rank })}, ${t("step")} ${one.step}: ${format.time(one.end_ns - one.start_ns)}`,
        ),
      ),
    ),
  );
}
