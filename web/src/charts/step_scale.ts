/** A step as one figure: a bar of the host above one of the device on a common scale, each part labelled, what is exposed marked. */

import { type Child, h, svg } from "../ui/dom";
import * as format from "../words/format";
import { t } from "../words/i18n";
import { fitted, roundTicks, textScale } from "./fitted";

export interface ScalePart {
  /** class of its colour, without `part-` */
  look: string;
  name: string;
  ns: number;
  /** of what shares are of in this bar */
  share: number;
  /** time in which a device only waits or only moves data: hatched, and labelled however narrow it is */
  exposed?: boolean;
  /** the rest of the step, in which nothing was recorded: outlined */
  rest?: boolean;
  href?: string | undefined;
  /** what else is said of it in the legend */
  note?: string | undefined;
}

export interface ScaleBar {
  name: string;
  ns: number;
  parts: readonly ScalePart[];
}

const BAR = 30;
const LINE = 18;
/** a label above the bar, the bar, one below it, and room to the next */
const ROW = LINE + BAR + LINE + 8;
const AXIS = 22;
const NAMES = 104;
/** width of a character, px, and of one of CJK */
const CHARACTER = 7;
const WIDE_CHARACTER = 13.5;
/** how much wider the characters of marked parts are */
const BOLD = 1.1;
const NARROWEST = 420;
const GAP = 10;
/** a label below the bar begins at most so far behind its part */
const FARTHEST = 12;
/** a part below this share is told in the legend alone, a marked one below the other */
const LEAST_TOLD = 0.04;
const LEAST_MARKED = 0.01;

const widthOf = (text: string): number =>
  [...text].reduce((sum, one) => sum + (one > "\u2e80" ? WIDE_CHARACTER : CHARACTER), 0) * textScale();

/** How a part reads, from all of it to the least. */
const readings = (part: ScalePart): string[] => [
  `${part.name} ${format.time(part.ns)} (${format.share(part.share)})`,
  `${part.name} ${format.time(part.ns)}`,
  part.name,
];

/** The bars, and below them every part with its length; `whole_ns` is the length of the scale. */
export function stepScale(bars: readonly ScaleBar[], whole_ns: number, signal: AbortSignal): HTMLElement {
  return h(
    "div",
    { class: "step-scale" },
    fitted((width) => drawn(bars, whole_ns, width), NARROWEST, signal),
    bars.map((bar) =>
      h(
        "div",
        { class: "scale-legend" },
        h("strong", null, bar.name),
        h(
          "ul",
          { class: "legend" },
          bar.parts.map((part) =>
            h(
              "li",
              null,
              h("span", { class: `swatch part-${part.rest ? "rest" : part.look}${part.exposed ? " exposed" : ""}` }),
              part.href ? h("a", { href: part.href }, part.name) : part.name,
              " ",
              h("b", null, `${format.time(part.ns)} (${format.share(part.share)})`),
              part.note ? h("span", { class: "note" }, part.note) : null,
            ),
          ),
        ),
      ),
    ),
  );
}

function drawn(bars: readonly ScaleBar[], whole_ns: number, width: number): SVGElement {
  const scale = textScale();
  // the names of ranks of a large job have more digits
  const names = Math.max(NAMES * scale, ...bars.map((bar) => widthOf(bar.name) * BOLD + GAP));
  const perNs = (width - names) / Math.max(whole_ns, 1);
  const height = (bars.length * ROW + AXIS) * scale;
  const marks = roundTicks(0, whole_ns, width - names).at;
  const told = bars.map((bar) => `${bar.name} ${format.time(bar.ns)}: ${bar.parts.map((part) => readings(part)[0]).join(", ")}`);
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${t("overview.step")}. ${told.join("; ")}` },
    svg(
      "defs",
      null,
      svg(
        "pattern",
        { id: "exposed", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        svg("rect", { class: "hatch", width: 2.5, height: 7 }),
      ),
    ),
    marks.map((at) => {
      const x = names + at * perNs;
      return [
        svg("line", { class: "rule", x1: x, x2: x, y1: LINE * scale, y2: height - AXIS * scale }),
        svg(
          "text",
          { class: "tick", x, y: height - 5 * scale, "text-anchor": at === 0 ? "start" : x + 30 > width ? "end" : "middle" },
          at === 0 ? "0" : format.time(at),
        ),
      ];
    }),
    bars.map((bar, row) => drawnBar(bar, row * ROW * scale, names, perNs, scale, width)),
  );
}

function drawnBar(bar: ScaleBar, top: number, names: number, perNs: number, scale: number, width: number): Child {
  const [y, high] = [top + LINE * scale, BAR * scale];
  let x = names;
  let below = 0;
  const shapes: Child[] = [];
  const labels: Child[] = [];
  for (const part of bar.parts) {
    const long = part.ns * perNs;
    const { href } = part;
    shapes.push(
      svg(
        "g",
        { class: `scale-part${part.rest ? " rest" : ""}`, onclick: href ? () => (location.hash = href) : null },
        svg("title", null, readings(part)[0]!),
        svg("rect", { class: `fill-${part.look}`, x, y, width: Math.max(long, 0.5), height: high }),
        part.exposed ? svg("rect", { fill: "url(#exposed)", x, y, width: Math.max(long, 0.5), height: high }) : null,
      ),
    );
    const marked = part.exposed ? "marked" : null;
    const inside = readings(part).find((text) => widthOf(text) * (part.exposed ? BOLD : 1) <= long - GAP / 2);
    if (inside !== undefined) labels.push(svg("text", { class: marked, x: x + 1, y: y - 5 * scale }, inside));
    else if (!part.rest && part.share >= (part.exposed ? LEAST_MARKED : LEAST_TOLD)) {
      const text = readings(part)[1]!;
      const wide = widthOf(text) * (part.exposed ? BOLD : 1);
      const at = Math.min(Math.max(x, below), width - wide);
      const middle = x + long / 2;
      // under another part it would be taken for that one's; the legend tells it too
      if (at >= below && at <= Math.max(middle, x + FARTHEST)) {
        below = at + wide + GAP;
        labels.push(
          svg("path", { class: "lead", d: `M${middle} ${y + high}v${4 * scale}` }),
          svg("text", { class: marked, x: at, y: y + high + 15 * scale }, text),
        );
      }
    }
    x += long;
  }
  return [
    svg("text", { class: "row-name", x: 0, y: y + 13 * scale }, bar.name),
    svg("text", { class: "tick", x: 0, y: y + 27 * scale }, format.time(bar.ns)),
    shapes,
    labels,
  ];
}
