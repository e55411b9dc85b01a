/** One step of both runs on a common axis of time: each kind of part of one above that of the other, the same parts joined. */

import { alignedSteps } from "../../api/client";
import type { AlignedStep, AlignedSteps, StepPart } from "../../api/types";
import { fitted, roundTicks, textScale } from "../../charts/fitted";
import { formatRoute } from "../../browser/route";
import { report } from "../../report/embedded";
import { h, replace, svg, type Child } from "../../ui/dom";
import { parts } from "../../ui/later";
import type { Context } from "../../ui/page";
import { card, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

const BAR = 22;
const BETWEEN = 46;
const GAP = 26;
const AXIS = 24;
const LEFT = 92;
const NARROWEST = 420;
/** width of a character, px: a name with less room is left out */
const CHARACTER = 7;
/** bands of parts that differ by less than this share of the step are grey */
const LEAST_DIFFERENCE = 0.005;
/** rows of the table below */
const MOST_ROWS = 8;
/** of each kind the threads that are drawn */
const MOST_THREADS = 2;
/** phases by the class of their colour */
const LOOKS: Readonly<Record<string, string>> = {
  data: "data-wait",
  forward: "forward",
  backward: "backward",
  optimizer: "optimizer",
  device_wait: "device-wait",
  between: "between",
};
/** and by the part of a step that they are */
const PARTS: Readonly<Record<string, string>> = { data: "data_wait" };

export interface Section {
  kind: string;
  thread: number;
}

/** What is drawn, from above: phases, calls by thread, the device. */
export function sectionsOf(before: AlignedStep, after: AlignedStep): Section[] {
  const sections: Section[] = [];
  for (const { kind, thread } of [...before.parts, ...after.parts])
    if (thread < MOST_THREADS && !sections.some((one) => one.kind === kind && one.thread === thread))
      sections.push({ kind, thread });
  const order = ["phase", "call", "device"];
  return sections.sort((one, other) => order.indexOf(one.kind) - order.indexOf(other.kind) || one.thread - other.thread);
}

const lengthOf = (part: StepPart): number => part.end_ns - part.start_ns;

export interface Moved {
  before: StepPart | null;
  after: StepPart | null;
  /** after less before, ns */
  difference: number;
  /** how many calls of the name one run makes alone; 1 of a pair */
  count: number;
}

/** The parts of a kind that differ the most: those of both, and what one has alone, of each name all together. */
export function mostMoved(before: AlignedStep, after: AlignedStep, kind: string): Moved[] {
  const pairs = before.parts
    .filter((part) => part.kind === kind)
    .map((part): Moved => {
      const same = after.parts[part.match] ?? null;
      return { before: part, after: same, difference: (same ? lengthOf(same) : 0) - lengthOf(part), count: 1 };
    });
  const added = after.parts
    .filter((part) => part.kind === kind && part.match < 0)
    .map((part): Moved => ({ before: null, after: part, difference: lengthOf(part), count: 1 }));
  const moved = [
    ...pairs.filter((pair) => pair.before && pair.after),
    ...joinByName(pairs.filter((pair) => !pair.after)),
    ...joinByName(added),
  ];
  return moved.sort((one, other) => Math.abs(other.difference) - Math.abs(one.difference));
}

/** Parts that one run has alone, those of a name as one: a thousand short calls are more than a long one. */
function joinByName(alone: readonly Moved[]): Moved[] {
  const byName = new Map<string, Moved>();
  for (const one of alone) {
    const { name } = (one.before ?? one.after)!;
    const earlier = byName.get(name);
    if (!earlier) byName.set(name, { ...one });
    else {
      earlier.difference += one.difference;
      earlier.count += one.count;
    }
  }
  return [...byName.values()];
}

/** The card, once the server has answered; a report has none, since nobody can ask it for the calls of a step. */
export async function alignedCard(context: Context, before: number, after: number): Promise<Child> {
  if (report()) return null;
  const title = t("compare.aligned");
  return parts(context, [[title, alignedSteps(before, after, context.signal).then((found) => shown(context, title, found))]]);
}

function shown(context: Context, title: string, { before, after }: AlignedSteps): Child {
  if (!before || !after) return null;
  return card(title, picture(context, before, after), { wide: true, note: stepsNote(before, after) });
}

/** What is drawn, and of which recording where a side has several. */
export function stepsNote(before: AlignedStep, after: AlignedStep): string {
  const of = ({ recording, recordings }: AlignedStep): Record<string, string> => ({
    recording,
    count: format.count(recordings),
  });
  return [
    t("compare.aligned.what", { before: before.step, after: after.step }),
    before.recordings > 1 ? t("compare.aligned.of.before", of(before)) : "",
    after.recordings > 1 ? t("compare.aligned.of.after", of(after)) : "",
  ]
    .filter(Boolean)
    .join(" ");
}

const nameOf = (part: StepPart): string => (part.kind === "phase" ? named("part", PARTS[part.name] ?? part.name) : part.name);

const callersOf = (part: StepPart): string =>
  part.callers.length
    ? t("compare.aligned.in", { callers: part.callers.map((name) => format.shorten(name, 60)).join(" › ") })
    : "";

function titleOf(section: Section): string {
  if (section.kind === "phase") return t("compare.aligned.phases");
  if (section.kind === "device") return t("compare.aligned.device");
  return section.thread ? t("compare.aligned.thread", { thread: section.thread + 1 }) : t("compare.aligned.calls");
}

function picture(context: Context, before: AlignedStep, after: AlignedStep): Child {
  const tip = h("div", { class: "history-tip", role: "status" });
  tip.hidden = true;
  const frame = h(
    "div",
    { class: "trend aligned-steps" },
    fitted((width) => draw(before, after, width), NARROWEST, context.signal),
    tip,
  );
  frame.addEventListener("pointermove", (event) => {
    const at = (event.target as Element).closest("[data-part]");
    tip.hidden = !at;
    if (!at) return;
    replace(tip, pairWords(partsAt(before, after, at)));
    const box = frame.getBoundingClientRect();
    const x = event.clientX - box.left;
    tip.style.left = x > box.width / 2 ? "" : `${x + 16}px`;
    tip.style.right = x > box.width / 2 ? `${box.width - x + 16}px` : "";
    tip.style.top = `${event.clientY - box.top + 14}px`;
  });
  frame.addEventListener("pointerleave", () => (tip.hidden = true));
  return [frame, differences(before, after)];
}

/** What both runs have at an element of the picture. */
function partsAt(before: AlignedStep, after: AlignedStep, at: Element): Moved {
  const place = Number(at.getAttribute("data-part"));
  const isFirst = at.getAttribute("data-side") === "before";
  const one = (isFirst ? before : after).parts[place]!;
  const other = (isFirst ? after : before).parts[one.match] ?? null;
  const [first, second] = isFirst ? [one, other] : [other, one];
  return { before: first, after: second, difference: (second ? lengthOf(second) : 0) - (first ? lengthOf(first) : 0), count: 1 };
}

const movedName = (pair: Moved): string =>
  nameOf((pair.before ?? pair.after)!) + (pair.count > 1 ? ` × ${format.count(pair.count)}` : "");

const signedTime = (ns: number): string => `${ns > 0 ? "+" : ""}${format.time(ns)}`;

function pairWords(pair: Moved): Child {
  const { before, after } = pair;
  const length = (part: StepPart | null): string => (part ? format.time(lengthOf(part)) : format.NOTHING);
  return [
    h("strong", null, nameOf((before ?? after)!)),
    callersOf((before ?? after)!) ? h("div", { class: "note" }, callersOf((before ?? after)!)) : null,
    h("div", null, `${length(before)} → ${length(after)} (${signedTime(pair.difference)})`),
    before && after
      ? h("div", { class: "note" }, t("compare.aligned.begins", { time: signedTime(after.start_ns - before.start_ns) }))
      : null,
    before && after ? null : h("div", { class: "note" }, t(before ? "compare.aligned.gone" : "compare.aligned.new")),
  ];
}

function draw(before: AlignedStep, after: AlignedStep, width: number): SVGElement {
  const scale = textScale();
  const [bar, between, gap, axis, left] = [BAR, BETWEEN, GAP, AXIS, LEFT].map((pixels) => pixels * scale) as [
    number,
    number,
    number,
    number,
    number,
  ];
  const sections = sectionsOf(before, after);
  const high = 2 * bar + between;
  const height = axis + sections.length * (high + gap);
  const ends = [...before.parts, ...after.parts].map((part) => part.end_ns);
  const whole = Math.max(before.length_ns, after.length_ns, ...ends);
  const xOf = (ns: number): number => left + (Math.max(ns, 0) / whole) * (width - left - 2);
  const least = LEAST_DIFFERENCE * whole;
  const said = mostMoved(before, after, "call")
    .slice(0, MOST_ROWS)
    .map((pair) => `${movedName(pair)} ${signedTime(pair.difference)}`);
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${t("compare.aligned")}: ${said.join("; ")}` },
    roundTicks(0, whole, width - left).at.map((at) => [
      svg("line", { class: "rule", x1: xOf(at), x2: xOf(at), y1: axis - 4 * scale, y2: height - gap }),
      svg(
        "text",
        { class: "tick", x: xOf(at), y: 12 * scale, "text-anchor": at === 0 ? "start" : xOf(at) + 30 > width ? "end" : "middle" },
        at === 0 ? "0" : format.time(at),
      ),
    ]),
    sections.map((section, place) => {
      const top = axis + place * (high + gap);
      const isHere = (part: StepPart): boolean => part.kind === section.kind && part.thread === section.thread;
      return [
        svg("text", { class: "strong", x: 0, y: top + bar + between / 2 + 4 * scale }, titleOf(section)),
        svg("text", { class: "tick", x: 0, y: top + bar * 0.7 }, t("compare.before")),
        svg("text", { class: "tick", x: 0, y: top + bar + between + bar * 0.7 }, t("compare.after")),
        before.parts.map((part, number) =>
          isHere(part) && part.match >= 0 ? band(part, number, after.parts[part.match]!, xOf, top + bar, between, least) : null,
        ),
        before.parts.map((part, number) =>
          isHere(part) ? drawnPart(before, part, number, "before", xOf, top, bar, scale) : null,
        ),
        after.parts.map((part, number) =>
          isHere(part) ? drawnPart(after, part, number, "after", xOf, top + bar + between, bar, scale) : null,
        ),
      ];
    }),
  );
}

/** Between the same part of both: red where the later one takes longer, green where it takes less. */
function band(
  part: StepPart,
  number: number,
  same: StepPart,
  xOf: (ns: number) => number,
  top: number,
  high: number,
  least: number,
): SVGElement {
  const difference = lengthOf(same) - lengthOf(part);
  const look = Math.abs(difference) < least ? "alike" : difference > 0 ? "longer" : "shorter";
  const [from, to] = [xOf(part.start_ns), Math.max(xOf(part.end_ns), xOf(part.start_ns) + 1)];
  const [below, end] = [xOf(same.start_ns), Math.max(xOf(same.end_ns), xOf(same.start_ns) + 1)];
  return svg("path", {
    class: `aligned-band ${look}`,
    "data-part": number,
    "data-side": "before",
    d: `M${from} ${top}H${to}L${end} ${top + high}H${below}Z`,
  });
}

function drawnPart(
  step: AlignedStep,
  part: StepPart,
  number: number,
  side: "before" | "after",
  xOf: (ns: number) => number,
  y: number,
  high: number,
  scale: number,
): SVGElement {
  const x = xOf(part.start_ns);
  const wide = Math.max(xOf(part.end_ns) - x, 1);
  const look =
    part.kind === "device" ? "computing" : (LOOKS[part.kind === "phase" ? part.name : phaseAt(step, part)] ?? "python");
  const room = Math.floor(wide / (CHARACTER * scale)) - 1;
  const href = formatRoute(step.run, "timeline", {
    rank: step.trace || null,
    start: Math.max(step.start_ns + part.start_ns, 0),
    end: step.start_ns + part.end_ns,
  });
  return svg(
    "g",
    {
      class: `aligned-part${part.match < 0 ? " alone" : ""}`,
      "data-part": number,
      "data-side": side,
      onclick: () => (location.hash = href),
    },
    svg("rect", { class: `fill-${look}`, x, y, width: wide, height: high }),
    room > 3 ? svg("text", { x: x + 4 * scale, y: y + high * 0.68 }, format.shorten(nameOf(part), room)) : null,
  );
}

/** In which phase a call begins. */
function phaseAt(step: AlignedStep, part: StepPart): string {
  const at = step.parts.find((one) => one.kind === "phase" && one.start_ns <= part.start_ns && part.start_ns < one.end_ns);
  return at?.name ?? "";
}

/** The calls that differ the most, as a table: what the picture shows to those who see it. */
function differences(before: AlignedStep, after: AlignedStep): Child {
  const kind = [...before.parts, ...after.parts].some((part) => part.kind === "call") ? "call" : "phase";
  const rows = mostMoved(before, after, kind)
    .filter((pair) => pair.difference !== 0)
    .slice(0, MOST_ROWS)
    .map((pair): Child[] => {
      const cell = (step: AlignedStep, part: StepPart | null): Child => {
        if (!part) return format.NOTHING;
        const href = formatRoute(step.run, "timeline", {
          rank: step.trace || null,
          start: Math.max(step.start_ns + part.start_ns, 0),
          end: step.start_ns + part.end_ns,
        });
        return h("a", { href }, format.time(pair.count > 1 ? Math.abs(pair.difference) : lengthOf(part)));
      };
      const { before: first, after: second } = pair;
      return [
        h("span", { title: callersOf((first ?? second)!) }, format.shorten(movedName(pair), 90)),
        cell(before, first),
        cell(after, second),
        signedTime(pair.difference),
        first && second ? signedTime(second.start_ns - first.start_ns) : format.NOTHING,
      ];
    });
  const heads = [t("compare.part"), t("compare.before"), t("compare.after"), t("compare.difference"), t("compare.aligned.later")];
  return rows.length
    ? [smallTable(t("compare.aligned"), heads, rows, [1, 2, 3, 4]), h("p", { class: "note" }, t("compare.aligned.later.what"))]
    : null;
}
