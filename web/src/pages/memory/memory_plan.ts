/** The memory that MindSpore planned for its graphs: one graph's use over its nodes, and the tensors that live at a node. */

import type { NodeTensors, PlannedCurve, PlannedGraph } from "../../api/types";
import { numberOf } from "../../browser/route";
import { points } from "../../charts/bucket_chart";
import { bytesAxis, chart, tip, valueAxis } from "../../charts/chart";
import { h, replace, type Child } from "../../ui/dom";
import { problemBox } from "../../ui/notices";
import type { Context } from "../../ui/page";
import { card, choice, figure, figures, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { t } from "../../words/i18n";

const POINTS = 1500;
const HOVER_MS = 250;

/** A card about the graphs; nothing for a rank without a plan. */
export async function planCard(context: Context, trace: number): Promise<Child> {
  const graphs = await context.api.get("memory/graphs", { trace });
  const graph = graphs.find((one) => one.graph === numberOf(context.params, "graph")) ?? graphs[0];
  if (!graph) return null;
  const curve = await context.api.get("memory/graphs/{graph}", { trace, graph: graph.graph, points: POINTS });
  const alive = h("div", { "aria-live": "polite" });
  const show = async (node: number): Promise<void> => {
    const wanted = Math.min(Math.max(Math.round(node), 0), graph.nodes - 1);
    alive.dataset["node"] = String(wanted);
    try {
      const found = await context.api.get("memory/graphs/{graph}/tensors", { trace, graph: graph.graph, node: wanted });
      if (alive.dataset["node"] === String(wanted)) replace(alive, tensorTable(found));
    } catch (error) {
      if (!context.signal.aborted) replace(alive, problemBox(error));
    }
  };
  if (graph.peak_node !== null) void show(graph.peak_node);
  return card(
    t("plan.title"),
    [
      h(
        "div",
        { class: "controls" },
        choice(
          t("plan.graph"),
          graphs.map((one) => [String(one.graph), `${one.graph} (${format.bytes(one.peak_bytes)})`]),
          String(graph.graph),
          (value) => context.visit({ graph: value }),
        ),
        graph.peak_node === null
          ? null
          : h("button", { type: "button", onclick: () => void show(graph.peak_node!) }, t("memory.at_peak")),
      ),
      figures(
        figure(t("memory.capacity"), format.value(graph.capacity_bytes, "bytes")),
        figure(t("plan.static"), format.bytes(graph.static_bytes)),
        figure(
          t("memory.peak"),
          format.bytes(graph.peak_bytes),
          graph.peak_node === null ? null : t("plan.at", { node: format.count(graph.peak_node) }),
        ),
        figure(t("plan.nodes"), format.count(graph.nodes)),
        figure(t("plan.tensors"), format.count(graph.tensors)),
      ),
      planChart(context, graph, curve, show),
      alive,
    ],
    { wide: true, note: t("plan.what") },
  );
}

function planChart(
  context: Context,
  graph: PlannedGraph,
  curve: PlannedCurve,
  show: (node: number) => Promise<void>,
): HTMLElement {
  let timer = 0;
  const rest = (node: number): void => {
    clearTimeout(timer);
    timer = window.setTimeout(() => void show(node), HOVER_MS);
  };
  const marks = (
    [
      ["forward_node", "steps.forward_point"],
      ["backward_node", "steps.backward_point"],
    ] as const
  ).filter(([name]) => graph[name] !== null);
  return chart(
    {
      label: t("plan.title"),
      height: 280,
      onPlace: (node) => void show(node),
      option: (colours) => {
        const label = (name: string): object => ({
          formatter: name,
          color: colours.text,
          position: "insideEndTop",
          fontSize: 11,
        });
        return {
          grid: { left: 76, right: 20, top: 20, bottom: 48 },
          dataZoom: [{ type: "inside" }, { type: "slider", height: 14, bottom: 4 }],
          xAxis: valueAxis(colours, format.count, {
            min: 0,
            max: Math.max(graph.nodes - 1, 1),
            minInterval: 1,
            splitLine: { show: false },
          }),
          yAxis: bytesAxis(colours, Math.max(graph.peak_bytes, graph.capacity_bytes ?? 0, 1)),
          tooltip: {
            trigger: "axis",
            formatter: (hovered: { value: [number, number]; color: string }[]) => {
              const [node, bytes] = hovered[0]?.value ?? [0, 0];
              rest(node);
              return tip(t("plan.at", { node: format.count(node) }), [
                { colour: hovered[0]?.color, name: t("memory.allocated"), value: format.bytes(bytes) },
              ]);
            },
          },
          series: [
            {
              type: "line",
              step: "end",
              showSymbol: false,
              color: colours.series[0],
              data: points({ ...curve, place: curve.node, name: "", unit: "bytes", mean: null }),
              markLine: {
                symbol: "none",
                silent: true,
                lineStyle: { type: "dashed", color: colours.faint },
                data: [
                  ...(graph.capacity_bytes === null ? [] : [{ yAxis: graph.capacity_bytes, label: label(t("memory.capacity")) }]),
                  { yAxis: graph.static_bytes, label: label(t("plan.static")) },
                  ...marks.map(([name, words]) => ({ xAxis: graph[name]!, label: label(t(words)) })),
                ],
              },
            },
          ],
        };
      },
    },
    context.signal,
  );
}

function tensorTable(found: NodeTensors): Child {
  return [
    h(
      "h3",
      null,
      t("plan.alive", { node: format.count(found.node), count: format.count(found.count), bytes: format.bytes(found.bytes) }),
    ),
    smallTable(
      t("plan.tensors"),
      [t("plan.tensor"), t("plan.owner"), t("shapes.type"), t("plan.size"), t("plan.life")],
      found.tensors
        .slice(0, 40)
        .map((one) => [
          String(one.tensor),
          h("code", null, format.shorten(one.owner ?? format.NOTHING, 120)),
          [one.type, one.kind].filter(Boolean).join(", "),
          format.bytes(one.bytes),
          `${format.count(one.life_start)} – ${format.count(one.life_end)}`,
        ]),
      [3],
    ),
    found.count > 40 ? h("p", { class: "note" }, t("rest", { count: format.count(found.count - 40) })) : null,
  ];
}
