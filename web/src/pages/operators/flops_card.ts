/** Arithmetic: how much, how fast, and in which part of the model, as areas or as a flow to drill into. */

import type { FlopNode, Flops } from "../../api/types";
import { chart, tip } from "../../charts/chart";
import { h, replace, type Child } from "../../ui/dom";
import { problemBox } from "../../ui/notices";
import type { Context } from "../../ui/page";
import { card, choice, figure, figures } from "../../ui/ui";
import * as format from "../../words/format";
import { t } from "../../words/i18n";

const KINDS = ["treemap", "sankey"] as const;
/** scopes of one level that a flow shows one by one */
const MOST_BESIDE = 12;

/** The card once its figures are there: of millions of calls they take a while, for which no page waits. */
export function flopsPlace(context: Context, trace: number | null): HTMLElement {
  const place = h("div");
  context.api
    .get("flops", { trace })
    .then((found) => replace(place, flopsCard(context, found)))
    .catch((error: unknown) => {
      if (!context.signal.aborted) replace(place, problemBox(error));
    });
  return place;
}

/** The card; nothing for a rank whose arithmetic is not known. */
function flopsCard(context: Context, found: Flops): Child {
  if (!found.work && !found.nodes.length) return null;
  const { work, cube, vector } = found;
  const place = h("div");
  const deepest = deepestOf(found.nodes);
  const state = {
    kind: KINDS.find((one) => one === context.params["flops"]) ?? "treemap",
    depth: Math.min(Number(context.params["levels"] ?? 4) || 4, Math.max(deepest, 1)),
  };
  const draw = (): void => {
    context.note({ flops: state.kind === "treemap" ? null : state.kind, levels: state.depth === 4 ? null : state.depth });
    replace(place, state.kind === "treemap" ? treemap(context, found.nodes) : sankey(context, found.nodes, state.depth));
  };
  draw();
  // scopes between the whole and the operators
  const modules = deepest > 1;
  return card(
    t(modules ? "flops.title" : "flops.title.operators"),
    [
      figures(
        work
          ? figure(
              t("flops.work"),
              format.value(work.flops, "FLOP"),
              t(work.source === "operator shapes" ? (found.steps ? "flops.from_shapes" : "flops.from_all") : "flops.from_device"),
            )
          : null,
        work?.flops_per_s == null
          ? null
          : figure(
              t("flops.rate"),
              format.value(work.flops_per_s, "FLOP/s"),
              found.peak_flops_per_s === null
                ? t("flops.rate.what")
                : t("flops.peak", { peak: format.value(found.peak_flops_per_s, "FLOP/s"), device: found.peak_name ?? "" }),
            ),
        work?.utilization_percent == null ? null : figure(t("flops.utilization"), format.percent(work.utilization_percent)),
        cube
          ? figure(
              t("flops.cube"),
              format.value(cube.flops, "FLOP"),
              cube.best_flops_per_s === null ? null : t("flops.best", { rate: format.value(cube.best_flops_per_s, "FLOP/s") }),
            )
          : null,
        vector
          ? figure(
              t("flops.vector"),
              format.value(vector.flops, "FLOP"),
              vector.best_flops_per_s === null
                ? null
                : t("flops.best", { rate: format.value(vector.best_flops_per_s, "FLOP/s") }),
            )
          : null,
      ),
      found.nodes.length > 1
        ? [
            h(
              "div",
              { class: "controls" },
              choice(
                t("chart.kind"),
                KINDS.map((one) => [one, t(`flops.${one}`)]),
                state.kind,
                (value) => {
                  state.kind = value === "sankey" ? "sankey" : "treemap";
                  draw();
                },
              ),
              choice(
                t("flops.levels"),
                Array.from({ length: deepest }, (_, level): [string, string] => [String(level + 1), String(level + 1)]),
                String(state.depth),
                (value) => {
                  state.depth = Number(value);
                  draw();
                },
              ),
              h("button", { type: "button", onclick: draw }, t("flops.reset")),
            ),
            place,
            found.left_out ? h("p", { class: "note" }, t("rest", { count: format.count(found.left_out) })) : null,
          ]
        : null,
    ],
    { wide: true, note: [ofRanks(found), t(modules ? "flops.what" : "flops.what.operators")] },
  );
}

const deepestOf = (nodes: readonly FlopNode[]): number => nodes.reduce((most, one) => Math.max(most, one.depth), 0);

/** Of several ranks: that it is their mean, and how far they are apart. */
function ofRanks(found: Flops): string | null {
  const [least, most] = [found.ranks[0], found.ranks.at(-1)];
  if (!least || !most || found.ranks.length < 2) return null;
  const name = (one: typeof least): string => (one.rank === null ? format.count(one.trace) : format.count(one.rank));
  return `${t("flops.ranks", {
    count: format.count(found.ranks.length),
    least: format.value(least.flops, "FLOP"),
    least_rank: name(least),
    most: format.value(most.flops, "FLOP"),
    most_rank: name(most),
  })} `;
}

/** The names from the whole to a node. */
export function pathOf(nodes: readonly FlopNode[], node: FlopNode): string {
  const names: string[] = [];
  for (let at: FlopNode | undefined = node; at && at.parent !== null; at = nodes[at.parent]) names.unshift(at.name);
  return names.join(" / ") || node.name;
}

const told = (nodes: readonly FlopNode[], one: FlopNode): HTMLElement =>
  tip(format.shorten(pathOf(nodes, one), 160), [
    { name: t("flops.work"), value: `${format.value(one.flops, "FLOP")} (${format.percent(one.percent)})` },
    { name: t("flops.operators"), value: format.count(one.operators) },
  ]);

/** The first scope that divides: one that is alone in its own says nothing. */
export function topOf(nodes: readonly FlopNode[]): number {
  const children = new Map<number, number[]>();
  for (const one of nodes)
    if (one.parent !== null) (children.get(one.parent) ?? children.set(one.parent, []).get(one.parent)!).push(one.id);
  let top = 0;
  for (let below = children.get(top); below?.length === 1 && children.has(below[0]!); below = children.get(top)) top = below[0]!;
  return top;
}

interface Leaf {
  name: string;
  id: number;
  value: number;
  children?: Leaf[];
}

function treemap(context: Context, nodes: readonly FlopNode[]): HTMLElement {
  const made = nodes.map((one): Leaf => ({ name: one.name, id: one.id, value: one.flops }));
  for (const one of nodes) if (one.parent !== null) (made[one.parent]!.children ??= []).push(made[one.id]!);
  const top = made[topOf(nodes)];
  return chart(
    {
      label: t("flops.title"),
      height: 380,
      option: (colours) => ({
        tooltip: { formatter: (one: { data?: Leaf }) => (one.data?.id === undefined ? "" : told(nodes, nodes[one.data.id]!)) },
        series: [
          {
            type: "treemap",
            data: top?.children ?? [],
            name: top && top.id > 0 ? top.name : t(deepestOf(nodes) > 1 ? "flops.whole" : "flops.operators"),
            leafDepth: 2,
            roam: false,
            left: 0,
            right: 0,
            top: 4,
            bottom: 34,
            breadcrumb: { bottom: 4, itemStyle: { color: colours.accent, textStyle: { color: colours.surface } } },
            label: {
              formatter: (one: { name: string; value: number }) =>
                `${format.shorten(one.name, 40)}\n${format.value(one.value, "FLOP")}`,
              color: "#ffffff",
              lineHeight: 17,
              textShadowColor: "#10141c",
              textShadowBlur: 3,
            },
            upperLabel: {
              show: true,
              height: 20,
              formatter: (one: { name: string; value: number }) =>
                `${format.shorten(one.name, 40)}  ${format.value(one.value, "FLOP")}`,
              color: "#ffffff",
              textShadowColor: "#10141c",
              textShadowBlur: 3,
            },
            itemStyle: { borderColor: colours.surface, borderWidth: 1, gapWidth: 1 },
            levels: [
              { itemStyle: { gapWidth: 3 }, upperLabel: { show: false } },
              { colorSaturation: [0.35, 0.6], itemStyle: { gapWidth: 1, borderColorSaturation: 0.5 } },
            ],
          },
        ],
      }),
    },
    context.signal,
  );
}

function sankey(context: Context, nodes: readonly FlopNode[], levels: number): HTMLElement {
  const beside = new Map<number, number>();
  const top = nodes[topOf(nodes)]!.depth;
  const shown = nodes.filter(
    (one) =>
      one.depth >= top
      && one.depth <= top + levels
      && (beside.set(one.depth, (beside.get(one.depth) ?? 0) + 1).get(one.depth)! <= MOST_BESIDE * 4 || one.percent > 2),
  );
  const kept = new Set(shown.map((one) => one.id));
  return chart(
    {
      label: t("flops.title"),
      height: Math.min(Math.max(shown.length * 16, 300), 900),
      option: (colours) => ({
        tooltip: {
          formatter: (one: { data?: { id?: number; target?: string } }) => {
            const id = one.data?.id ?? Number(one.data?.target);
            return Number.isInteger(id) ? told(nodes, nodes[id]!) : "";
          },
        },
        series: [
          {
            type: "sankey",
            left: 8,
            right: 230,
            top: 10,
            bottom: 10,
            emphasis: { focus: "adjacency" },
            draggable: true,
            nodeGap: 8,
            label: {
              color: colours.text,
              formatter: (one: { data: { id: number } }) => {
                const node = nodes[one.data.id]!;
                return `${format.shorten(node.name, 28)} ${format.value(node.flops, "FLOP")}`;
              },
            },
            lineStyle: { color: "gradient", opacity: 0.35 },
            data: shown.map((one, place) => ({
              name: String(one.id),
              id: one.id,
              itemStyle: { color: colours.series[place % colours.series.length] },
            })),
            links: shown
              .filter((one) => one.parent !== null && kept.has(one.parent))
              .map((one) => ({ source: String(one.parent), target: String(one.id), value: one.flops })),
          },
        ],
      }),
    },
    context.signal,
  );
}
