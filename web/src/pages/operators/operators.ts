/** Operators: the largest as a picture, all of them as a table; by name, input shape, call stack or module. */

import type { Row } from "../../api/types";
import { numberOf } from "../../browser/route";
import { shareChart } from "../../charts/share_chart";
import { instancesCard } from "../../tables/instances";
import { table } from "../../tables/table";
import { topicTables } from "../../tables/topic_tables";
import { type Child, h } from "../../ui/dom";
import type { Context, Page } from "../../ui/page";
import { type Part } from "../../ui/not_recorded";
import { basisChoice, basisNote, card, choice, has, nothing, ofRecording, outsideSteps, rankChoice, tabs } from "../../ui/ui";
import * as format from "../../words/format";
import { type Key, PER_STEP, named, t } from "../../words/i18n";
import { isHostBound } from "../../ui/verdict_words";
import { flopsPlace } from "./flops_card";

const VIEWS = {
  name: { table: "operators", column: "name", extra: [] },
  shape: { table: "operators_by_shape", column: "name", extra: ["input_shapes"] },
  stack: { table: "operators_by_stack", column: "name", extra: ["stack"] },
  module: { table: "operators_by_module", column: "name", extra: [] },
  category: { table: "operators_by_category", column: "category", extra: [] },
  line: { table: "operators_by_line", column: "line", extra: [] },
} as const;
const MORE = [
  "bound_by_operator",
  "flops",
  "flops_by_shape",
  "flops_by_module",
  "flops_by_line",
  "flops_by_step",
  "shapes",
  "shapes_by_step",
  "dynamic_shapes",
  "dynamic_shapes_by_kernel",
  "storms",
  "bound",
];
/** what MindSpore's profiler stores of operators without recording their calls */
const HOST_AND_GPU = [
  "stored_gpu_op_type_info",
  "stored_gpu_op_detail_info",
  "stored_cpu_op_type_info",
  "stored_cpu_op_detail_info",
];
const STORED = [...HOST_AND_GPU, "core_types", "core_operators", "ai_cpu_types", "dynamic_shapes", "dynamic_shapes_by_kernel"];
type View = keyof typeof VIEWS;

/** tables that are empty without a part of a recording */
const OF_PART: Readonly<Record<string, Part>> = {
  flops_by_shape: "shapes",
  flops_by_module: "modules",
  flops_by_line: "stacks",
  shapes: "shapes",
  shapes_by_step: "shapes",
  dynamic_shapes: "shapes",
};

/** what groups need that is recorded only when somebody asks for it: by the column that has no value without it */
const MISSING: Readonly<Partial<Record<View, { column: string; words: Key; part: Part }>>> = {
  shape: { column: "input_shapes", words: "operators.no_shapes", part: "shapes" },
  stack: { column: "stack", words: "operators.no_stacks", part: "stacks" },
  line: { column: "line", words: "operators.no_stacks", part: "stacks" },
  module: { column: "name", words: "operators.no_modules", part: "modules" },
};

const METRICS = ["self_ns", "total_ns", "device_self_ns", "device_total_ns"] as const;
/** of a device, which on a CPU are what the host has */
const DEVICE_COLUMNS = ["device_self_ns", "device_total_ns", "device_percent"];
/** on a CPU the operators are the tasks: nothing tells host and device apart */
const OF_DEVICES = ["bound_by_operator", "bound"];

export const operators: Page = {
  id: "operators",
  title: "page.operators",
  async show(context) {
    const [ranks, listed] = await Promise.all([context.api.get("ranks"), context.api.get("tables")]);
    if (!has(ranks, "ops")) {
      const rank = numberOf(context.params, "rank");
      const stored = [flopsPlace(context, rank), topicTables(context, t("operators.more"), listed, STORED, rank)];
      return [
        h("div", { class: "controls" }, rankChoice(context, ranks, true)),
        nothing(t("operators.none"), t("operators.none.why")),
        stored,
      ];
    }
    const by = (Object.keys(VIEWS).find((one) => one === context.params["by"]) ?? "name") as View;
    const view = VIEWS[by];
    const trace = numberOf(context.params, "rank");
    // where there is a device, its time is what a step takes, unless it waits for the host
    const cpu = ranks.every((one) => one.device_kind === "CPU");
    const asked = METRICS.find((one) => one === context.params["metric"]);
    const by_host = cpu || (!asked && isHostBound((await context.api.get("overview")).verdict));
    const metric = asked ?? (by_host ? "self_ns" : "device_self_ns");
    const of = context.params["of"];
    const whole = ofRecording(context);
    const name = whole ? view.table : view.table + PER_STEP;
    const sorted = { trace, sort: [{ column: metric, descending: true }] };
    const found = await context.api.table(name, { ...sorted, limit: 1000 });
    const missing = MISSING[by];
    const outside = outsideSteps(context, ranks, found.rows.length);
    const untold = missing !== undefined && (!found.total || found.empty.includes(missing.column));
    const at = (name: string): number => found.columns.findIndex((one) => one.name === name);
    const slices = found.rows.map((row) => ({
      name: title(
        row[at(view.column)],
        view.extra.map((one) => row[at(one)]),
      ),
      value: Number(row[at(metric)] ?? 0),
      plain: String(row[at(view.column)] ?? ""),
    }));
    const nested = metric.endsWith("total_ns");
    const basis = basisNote(ranks, trace, whole, true);
    const unknown = view.column === "line" && found.rows.some((row) => row[at("line")] === null);
    const plain = new Map(slices.map((one) => [one.name, one.plain]));
    const head = [
      tabs(
        t("operators.by"),
        recordedViews(context, by).map((id) => ({
          id,
          title: t(`operators.by.${id}` as Key),
          href: context.to("operators", { ...kept(context), by: id === "name" ? null : id }),
        })),
        by,
      ),
      untold && !outside ? null : notRecorded(context),
      h(
        "div",
        { class: "controls" },
        rankChoice(context, ranks, true),
        basisChoice(context, ranks),
        choice(
          t("operators.metric"),
          METRICS.filter((one) => !cpu || !DEVICE_COLUMNS.includes(one)).map((one) => [one, named("column", one)]),
          metric,
          (value) => context.visit({ metric: value }),
        ),
      ),
    ];
    if (outside) return [...head, outside];
    return [
      ...head,
      untold
        ? nothing(t(missing.words))
        : card(
            t("operators.share"),
            slices.some((one) => one.value > 0)
              ? shareChart(
                  context,
                  t("operators.share"),
                  slices,
                  view.column === "name" ? (name) => drill(context, plain.get(name) ?? name) : undefined,
                  { nested },
                )
              : nothing(t("operators.none")),
            {
              wide: true,
              note: [
                basis,
                " ",
                nested ? t("operators.nested") : t("operators.shares"),
                " ",
                unknown ? t("operators.no_line") : null,
                " ",
                found.matching > found.rows.length ? t("operators.largest", { count: format.count(found.rows.length) }) : null,
              ],
            },
          ),
      instancesCard(context, listed, {
        source: "recorded_ops",
        trace,
        where: of === undefined ? [] : [{ column: "name", one_of: [of] }],
        title: t("instances.title", { name: of ?? "" }),
        away: context.to("operators", { ...context.params, of: null }),
      }),
      untold
        ? null
        : card(
            t("operators.table"),
            table(context, {
              name,
              id: view.table,
              ...sorted,
              height: 560,
              without: cpu ? DEVICE_COLUMNS : [],
              links: {
                name: (row: Row) =>
                  context.to("timeline", { ...(trace === null ? {} : { rank: trace }), find: String(row["name"]) }),
                ...(by === "name"
                  ? { calls: (row: Row) => context.to("operators", { ...kept(context), of: String(row["name"]) }) }
                  : {}),
              },
            }),
            {
              wide: true,
              note: [
                basis,
                " ",
                t("operators.marks"),
                " ",
                by === "name" ? t("operators.links") : "name" === view.column ? t("operators.link") : null,
              ],
            },
          ),
      flopsPlace(context, trace),
      // the device's time against the host's is no share, and Limited by says what it means
      topicTables(
        context,
        t("operators.more"),
        listed,
        [...recordedTables(context).filter((one) => !cpu || !OF_DEVICES.includes(one)), ...HOST_AND_GPU],
        trace,
        ["device_percent"],
        (table) => (table.endsWith(PER_STEP) ? basisNote(ranks, trace, whole, false) : null),
      ),
    ];
  },
};

const lacks = (context: Context, id: View): boolean => context.run.not_recorded.includes(MISSING[id]?.part ?? "");

/** The groups that the recording has something for, and the one that the address asks for. */
const recordedViews = (context: Context, by: View): View[] =>
  (Object.keys(VIEWS) as View[]).filter((id) => id === by || !lacks(context, id));

/** The tables below that the recording has something for. */
const recordedTables = (context: Context): string[] =>
  MORE.filter((name) => !context.run.not_recorded.includes(OF_PART[name] ?? ""));

/** Which groups there would be with more options; nothing where all were recorded. */
function notRecorded(context: Context): Child {
  const words = new Set((Object.keys(VIEWS) as View[]).flatMap((id) => (lacks(context, id) ? [MISSING[id]!.words] : [])));
  return words.size ? h("p", { class: "note" }, [...words].map((one) => t(one)).join(" ")) : null;
}

/** The parameters that stay when the view changes: the rank and the metric. */
function kept(context: Context): Record<string, string | undefined> {
  const { rank, metric, chart, basis } = context.params;
  return { rank, metric, chart, basis };
}

/** The shapes with which an operator was called. */
function drillTo(context: Context, name: string, by: View): string {
  return context.to("operators", {
    ...kept(context),
    by,
    [`${VIEWS[by].table}.where`]: JSON.stringify([{ column: "name", one_of: [name] }]),
  });
}

function drill(context: Context, name: string): void {
  location.hash = drillTo(context, name, "shape");
}

function title(name: unknown, extra: readonly unknown[]): string {
  return [name ?? "–", ...extra.filter((one) => one !== null && one !== "").map((one) => format.shorten(String(one), 60))].join(
    "  ",
  );
}
