/** The calls of both sides as flame graphs, and their difference as one: a click on a box enlarges it in all three. */

import type { ComparedCall, ComparedCalls } from "../../api/types";
import { formatRoute } from "../../browser/route";
import { palette } from "../../browser/theme";
import { Colours } from "../../timeline/colours";
import { type FlameBoxes, flameBoxes, flameWay } from "../../timeline/flame_boxes";
import { type Child, h, replace } from "../../ui/dom";
import { choice, headedTable, nothing } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";
import { changeColour } from "./change_colours";
import { signedTime } from "./changes";
import { percentText } from "./verdict";

const SIDES = ["before", "after"] as const;
export type Width = (typeof SIDES)[number];
/** of the table that says the same */
const MOST_ROWS = 50;
const LONGEST_PATH = 110;
/** the strongest colour is of no less than so many times what chance may explain */
const OF_CHANCE = 2;
/** how many boxes of the way to one are named in the table */
const NAMED = 3;

const sizeOf = (call: ComparedCall, side: Width): number => (side === "before" ? call.before_ns : call.after_ns);
const differenceOf = (call: ComparedCall): number => call.after_ns - call.before_ns;
const ownDifferenceOf = (call: ComparedCall): number => call.after_self_ns - call.before_self_ns;

/** The name of a call, behind that of its module. */
export const callName = ({ name, module }: Pick<ComparedCall, "name" | "module">): string =>
  module ? `${module}: ${name}` : name;

/** The side whose times the boxes of the difference are as wide as: the one that was asked for, unless it has nothing there. */
export function widthOf(found: Pick<ComparedCalls, "nodes" | "before_ns" | "after_ns">, top: number, wanted: Width): Width {
  const call = found.nodes[top];
  const size = (side: Width): number => (call ? sizeOf(call, side) : side === "before" ? found.before_ns : found.after_ns);
  const other = wanted === "before" ? "after" : "before";
  return size(wanted) > 0 ? wanted : other;
}

/** The names from the outermost call to one. */
export function pathOf(nodes: readonly ComparedCall[], place: number): string[] {
  const names: string[] = [];
  for (let at = place; at >= 0; at = nodes[at]!.parent) names.unshift(callName(nodes[at]!));
  return names;
}

/** The calls whose own time, without what they call, changed the most. */
export const largestChanges = (nodes: readonly ComparedCall[]): number[] =>
  nodes
    .map((_, place) => place)
    .filter((place) => ownDifferenceOf(nodes[place]!) !== 0)
    .sort((one, other) => Math.abs(ownDifferenceOf(nodes[other]!)) - Math.abs(ownDifferenceOf(nodes[one]!)) || one - other)
    .slice(0, MOST_ROWS);

/**
 * The three graphs, the choice of their widths, and a table that says the same.
 *
 * @param runs the numbers of the runs, for links to their pages
 * @param chance_ns a difference of the step that chance may explain, which is no strong colour
 * @param chooser stands in front of the choice of widths
 */
export function callFlames(
  found: ComparedCalls,
  runs: Readonly<Record<Width, number>>,
  chance_ns: number,
  chooser: Child = null,
): Child {
  const { nodes } = found;
  if (!nodes.length) return [chooser, nothing(t("compare.calls.none"))];
  const parents = nodes.map((node) => node.parent);
  const colours = new Colours(palette());
  const most = Math.max(...nodes.map((node) => Math.abs(differenceOf(node))), OF_CHANCE * chance_ns);
  const said = h("p", { class: "note flame-said", role: "status" });
  const way = h("p", { class: "flame-way note" });
  const picked = h("p", { class: "flame-links" });
  const absent = { before: h("p", { class: "note" }), after: h("p", { class: "note" }) };
  const times = {
    before: h("span", { class: "note" }),
    after: h("span", { class: "note" }),
    difference: h("span", { class: "note" }),
  };
  const graphs = h("div", { class: "flame-difference" });
  let [top, wanted]: [number, Width] = [-1, "after"];

  // begins with what is written on the box
  const shortText = (node: ComparedCall): string => `${signedTime(differenceOf(node))} ${node.name}`;
  const say = (place: number): string => {
    const node = nodes[place]!;
    const [before, after] = [node.before_calls, node.after_calls].map((count) => format.value(count, ""));
    return [
      shortText(node),
      node.module,
      `${format.time(node.before_ns)} → ${format.time(node.after_ns)}`,
      node.before_ns ? percentText(differenceOf(node) / node.before_ns) : "",
      `${named("column", "self_ns")} ${signedTime(ownDifferenceOf(node))}`,
      `${before === after ? before! : `${before!} → ${after!}`} ×`,
    ]
      .filter(Boolean)
      .join(" · ");
  };
  const shared = {
    parents,
    says: say,
    onPick: (place: number) => show(place, true),
    onLook: (place: number) => (said.textContent = say(place)),
  };
  const sideGraph = (side: Width): FlameBoxes =>
    flameBoxes({
      ...shared,
      label: t(`compare.${side}`),
      sizes: nodes.map((node) => sizeOf(node, side)),
      name: (place) => nodes[place]!.name,
      colour: (place) => {
        const ground = colours.of(nodes[place]!.name, "operators");
        return [ground, colours.on(ground)];
      },
    });
  const ofSides = { before: sideGraph("before"), after: sideGraph("after") };
  const differences = Object.fromEntries(
    SIDES.map((side) => [
      side,
      flameBoxes({
        ...shared,
        label: t("compare.difference"),
        sizes: nodes.map((node) => sizeOf(node, side)),
        name: (place) => shortText(nodes[place]!),
        colour: (place) => {
          const ground = changeColour(differenceOf(nodes[place]!), most, palette());
          return [ground, colours.on(ground)];
        },
      }),
    ]),
  ) as Record<Width, FlameBoxes>;

  const whole = (side: Width): number =>
    top < 0 ? (side === "before" ? found.before_ns : found.after_ns) : sizeOf(nodes[top]!, side);
  const show = (place: number, focus = false): void => {
    top = place;
    const width = widthOf(found, top, wanted);
    // both on one scale, so that what took longer is longer
    const longest = Math.max(whole("before"), whole("after"));
    const { element } = differences[width];
    // what is put in its place once more loses the keys
    if (graphs.firstChild !== element) replace(graphs, element);
    differences[width].show(top, { focus, whole: whole(width) });
    for (const side of SIDES) {
      ofSides[side].show(top, { whole: longest });
      absent[side].textContent = whole(side) > 0 ? "" : t("compare.calls.absent");
      times[side].textContent = t("compare.calls.length", { time: format.time(whole(side)) });
    }
    times.difference.textContent = signedTime(whole("after") - whole("before"));
    replace(
      way,
      flameWay(
        parents,
        top,
        (one) => callName(nodes[one]!),
        (one) => show(one, true),
      ),
    );
    said.textContent = top < 0 ? "" : say(top);
    replace(picked, top < 0 ? null : linksOf(nodes[top]!, runs));
  };
  show(-1);

  const heading = (text: string, time: HTMLElement): HTMLElement => h("h3", null, text, " ", time);
  return [
    h(
      "div",
      { class: "controls" },
      chooser,
      choice(
        t("compare.calls.width"),
        SIDES.map((side) => [side, t(`compare.${side}`)] as const),
        wanted,
        (value) => {
          wanted = value === "before" ? "before" : "after";
          show(top);
        },
      ),
      legend(most),
    ),
    way,
    heading(t("compare.difference"), times.difference),
    graphs,
    said,
    picked,
    heading(t("compare.before"), times.before),
    ofSides.before.element,
    absent.before,
    heading(t("compare.after"), times.after),
    ofSides.after.element,
    absent.after,
    found.left_out ? h("p", { class: "note" }, t("timeline.flame.left_out", { count: format.count(found.left_out) })) : null,
    asTable(found),
  ];
}

/** What the colours mean, from the largest change for the better to the largest for the worse. */
function legend(most: number): HTMLElement {
  const colours = palette();
  return h(
    "span",
    { class: "flame-legend note" },
    t("compare.calls.shorter"),
    [-1, -0.5, 0, 0.5, 1].map((share) =>
      h("span", {
        class: "swatch",
        style: { background: changeColour(share * most, most, colours) },
        title: signedTime(share * most),
      }),
    ),
    t("compare.calls.longer"),
  );
}

/** Where the calls of a name are shown, of both sides. */
function linksOf(node: ComparedCall, runs: Readonly<Record<Width, number>>): Child {
  const link = (side: Width, page: string, params: Record<string, string>): HTMLElement =>
    h("a", { href: formatRoute(runs[side], page, params) }, t(`compare.${side}`));
  return [
    [t("page.operators"), "operators", { of: node.name }] as const,
    [t("page.timeline"), "timeline", { find: node.name }] as const,
  ].map(([title, page, params], number) => [
    number ? " · " : `${t("compare.calls.links", { name: callName(node) })} `,
    `${title} `,
    node.before_ns > 0 ? link("before", page, params) : null,
    node.before_ns > 0 && node.after_ns > 0 ? ", " : "",
    node.after_ns > 0 ? link("after", page, params) : null,
  ]);
}

/** The same as rows, the largest change of a call's own time first. */
function asTable({ nodes }: ComparedCalls): Child {
  const places = largestChanges(nodes);
  if (!places.length) return null;
  return h(
    "details",
    null,
    h("summary", null, t("compare.calls.table")),
    headedTable(
      t("compare.calls.table"),
      [
        { title: t("compare.calls.path") },
        { title: t("compare.before"), numeric: true },
        { title: t("compare.after"), numeric: true },
        { title: t("compare.difference"), numeric: true },
        { title: t("compare.calls.own"), numeric: true },
      ],
      places.map((place) => {
        const node = nodes[place]!;
        const path = pathOf(nodes, place);
        return [
          h(
            "span",
            { title: path.join(" › ") },
            format.shorten((path.length > NAMED ? "… › " : "") + path.slice(-NAMED).join(" › "), LONGEST_PATH),
          ),
          format.time(node.before_ns),
          format.time(node.after_ns),
          signedTime(differenceOf(node)),
          signedTime(ownDifferenceOf(node)),
        ];
      }),
    ),
  );
}
