/** The tab about data processing: how full the queues are, the graph of the operations, and one of them with what helps it. */

import type { Operation, OperationShown, Pipeline, QueueCurve } from "../../api/types";
import { numberOf } from "../../browser/route";
import { bucketChart } from "../../charts/bucket_chart";
import { chart, nameAxis, tip, valueAxis } from "../../charts/chart";
import { table } from "../../tables/table";
import { h, replace, type Child } from "../../ui/dom";
import { problemBox } from "../../ui/notices";
import type { Context } from "../../ui/page";
import { card, choice, figure, figures, findingLine, grid } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";
import { operationGraph } from "./graph";

const POINTS = 1000;
/** of the table: the name of an operation has its type and its number */
const COLUMNS = [
  "operation",
  "workers",
  "parent",
  "children",
  "queue_capacity",
  "queue_sizes",
  "mean_size",
  "usage",
  "empty_share",
];
/** more are in the table only */
const MOST_DRAWN = 300;

/** Cards of the tab. */
export function processingCards(context: Context, trace: number, found: Pipeline): Child {
  const drawn = found.operations.slice(0, MOST_DRAWN);
  const wanted = numberOf(context.params, "op");
  const chosen =
    (
      drawn.find((one) => one.id === wanted)
      ?? drawn.find((one) => found.bottlenecks.includes(one.id))
      ?? drawn.find((one) => one.usage !== null)
      ?? drawn[0]
    )?.id ?? null;
  const detail = h("div", { "aria-live": "polite" });
  const graph = h("div");
  const show = (id: number): void => {
    replace(graph, operationGraph(drawn, found.bottlenecks, id, pick));
    void fill(context, trace, id, detail);
  };
  const pick = (id: number): void => {
    context.note({ op: id });
    show(id);
  };
  if (chosen !== null) show(chosen);
  return grid(
    card(t("pipeline.usages"), usageBars(context, drawn, pick), { wide: true, note: t("pipeline.usages.what") }),
    card(
      t("pipeline.graph"),
      [
        h(
          "div",
          { class: "controls" },
          choice(
            t("pipeline.operation"),
            drawn.map((one) => [String(one.id), one.operation]),
            String(chosen ?? ""),
            (value) => pick(Number(value)),
          ),
        ),
        graph,
      ],
      { wide: true, note: t("pipeline.read") },
    ),
    card(t("pipeline.chosen"), detail, { wide: true }),
    card(named("table", "pipeline"), table(context, { name: "pipeline", trace, height: 300, optional: true, columns: COLUMNS }), {
      wide: true,
    }),
  );
}

/** How full every queue is on average, the fullest first. */
function usageBars(context: Context, operations: readonly Operation[], pick: (id: number) => void): HTMLElement {
  const shown = operations
    .filter((one) => one.usage !== null)
    .sort((one, other) => other.usage! - one.usage!)
    .slice(0, 40);
  return chart(
    {
      label: t("pipeline.usages"),
      height: Math.max(shown.length * 24 + 40, 90),
      onPick: ({ dataIndex }) => {
        const one = shown[shown.length - 1 - dataIndex];
        if (one) pick(one.id);
      },
      option: (colours) => ({
        grid: { left: 8, right: 60, top: 4, bottom: 24, containLabel: true },
        xAxis: valueAxis(colours, format.share, { min: 0, max: 1 }),
        yAxis: nameAxis(colours, shown.map((one) => one.operation).reverse(), {
          axisLabel: { color: colours.text, width: 220, overflow: "truncate", interval: 0 },
        }),
        tooltip: {
          formatter: (one: { dataIndex: number; value: number }) =>
            tip(shown[shown.length - 1 - one.dataIndex]!.operation, [
              { name: t("pipeline.usage"), value: format.share(one.value) },
            ]),
        },
        series: [
          {
            type: "bar",
            data: shown.map((one) => one.usage).reverse(),
            color: colours.accent,
            barMaxWidth: 16,
            cursor: "pointer",
            label: {
              show: true,
              position: "right",
              color: colours.text,
              formatter: (one: { value: number }) => format.share(one.value),
            },
          },
        ],
      }),
    },
    context.signal,
  );
}

async function fill(context: Context, trace: number, id: number, place: HTMLElement): Promise<void> {
  place.dataset["op"] = String(id);
  try {
    const [one, curve] = await Promise.all([
      context.api.get("pipeline/operation", { trace, op: id }),
      context.api.get("pipeline/queue", { trace, op: id, points: POINTS }),
    ]);
    if (place.dataset["op"] === String(id)) replace(place, operationShown(context, one, curve));
  } catch (error) {
    if (!context.signal.aborted) replace(place, problemBox(error));
  }
}

function operationShown(context: Context, one: OperationShown, curve: QueueCurve): Child {
  const side = (other: Pick<OperationShown, "operation" | "workers">): string =>
    `${other.operation}${other.workers === null ? "" : ` (${t("pipeline.workers", { count: other.workers })})`}`;
  return [
    h("h3", null, one.operation),
    figures(
      figure(
        t("pipeline.usage"),
        one.usage === null ? t("pipeline.no_queue") : format.share(one.usage),
        one.usage === null ? null : t("mean"),
      ),
      figure(
        t("pipeline.mean_size"),
        one.mean_size === null ? format.NOTHING : format.plain(one.mean_size),
        one.capacity === null ? null : t("pipeline.capacity", { capacity: format.count(one.capacity) }),
      ),
      figure(
        t("pipeline.interval"),
        one.interval_ms === null ? format.NOTHING : format.time(one.interval_ms * 1e6),
        t("pipeline.samples", { count: format.count(one.samples) }),
      ),
      figure(t("pipeline.threads"), one.workers === null ? format.NOTHING : format.count(one.workers)),
    ),
    h(
      "p",
      { class: "note" },
      t("pipeline.between", {
        from: one.children.map(side).join(", ") || t("pipeline.source"),
        to: one.parent ? side(one.parent) : t("pipeline.loop"),
      }),
    ),
    curve.samples
      ? bucketChart(
          context,
          t("pipeline.queue"),
          t("pipeline.sample"),
          [{ ...curve, place: curve.sample, name: t("pipeline.queue"), unit: "", mean: one.mean_size }],
          220,
        )
      : null,
    h("h3", null, t("pipeline.remedy")),
    h("p", null, t(`pipeline.remedy.${one.remedy}`)),
    one.findings.length
      ? h(
          "ul",
          { class: "findings" },
          one.findings.map((finding) => findingLine(finding, context.to("advice", { finding: finding.id }))),
        )
      : null,
  ];
}
