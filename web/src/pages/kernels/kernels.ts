/** What ran on the device: tasks by name, type, category, kind and core, down to single ones, and how they were launched. */

import type { Condition, Row } from "../../api/types";
import { numberOf } from "../../browser/route";
import { shareChart } from "../../charts/share_chart";
import { instancesCard } from "../../tables/instances";
import { table } from "../../tables/table";
import { topicTables } from "../../tables/topic_tables";
import { h } from "../../ui/dom";
import type { Context, Page } from "../../ui/page";
import {
  basisChoice,
  basisNote,
  card,
  choice,
  grid,
  has,
  nothing,
  ofRecording,
  outsideSteps,
  rankChoice,
  tabs,
} from "../../ui/ui";
import { type Key, PER_STEP, named, t } from "../../words/i18n";
import { kernelLabel } from "../../words/kernel_names";

const VIEWS = {
  name: { table: "kernels", column: "name" },
  type: { table: "kernels_by_type", column: "type" },
  category: { table: "kernels_by_category", column: "category" },
  kind: { table: "kernels_by_kind", column: "kind" },
  core: { table: "op_statistic", column: "type" },
} as const;
/** of Ascend devices alone */
const OF_CORES = ["core_types", "core_operators", "ai_cpu_types"];
/** of the whole recording, without steps */
const WHOLE = ["device_timeline", "device_kinds", "task_launches", "storms"];
const MORE = ["stored_gpu_activity_data", "device_timeline", "device_kinds", "idle", "task_launches", "storms"];
type View = keyof typeof VIEWS;
/** the kind of tasks during which a device does nothing */
const WAITING = "other";

export const kernels: Page = {
  id: "kernels",
  title: "page.kernels",
  async show(context) {
    const [ranks, listed] = await Promise.all([context.api.get("ranks"), context.api.get("tables")]);
    if (!has(ranks, "kernels")) {
      const stored = topicTables(context, t("kernels.more"), listed, [...OF_CORES, ...MORE], numberOf(context.params, "rank"));
      return [nothing(t("kernels.none"), t("kernels.none.why")), stored];
    }
    const by = (Object.keys(VIEWS).find((one) => one === context.params["by"]) ?? "name") as View;
    const view = VIEWS[by];
    const trace = numberOf(context.params, "rank");
    const whole = ofRecording(context);
    const end = whole ? "" : PER_STEP;
    const statistics = await context.api.rows(`op_statistic${end}`, { trace });
    const cores = [...new Set(statistics.map((row) => String(row["core"] ?? "–")))].sort();
    const core = by === "core" ? cores.find((one) => one === context.params["core"]) : undefined;
    const only: Condition[] = core === undefined ? [] : [{ column: "core", one_of: [core] }];
    const rows = await context.api.rows(view.table + end, {
      trace,
      where: only,
      sort: [{ column: "total_ns", descending: true }],
    });
    const totals = new Map<string, number>();
    // what only waits, and the parts of collectives beside them, would count again what it lies in
    const types = by === "core" ? await context.api.rows(`kernels_by_type${end}`, { trace }) : [];
    const waiting = new Set(types.filter((row) => row["kind"] === WAITING).map((row) => String(row["type"])));
    const busy = rows.filter((row) => row["kind"] !== WAITING && !waiting.has(String(row["type"])));
    for (const row of busy) {
      const name = String(row[view.column] ?? "–");
      totals.set(name, (totals.get(name) ?? 0) + Number(row["total_ns"] ?? 0));
    }
    // each rank has rows of its own, and a step is the mean of their steps
    const traces = whole ? 1 : Math.max(new Set(busy.map((row) => row["trace"])).size, 1);
    const basis = basisNote(ranks, trace, whole, true);
    const apart = basisNote(ranks, trace, whole, false);
    const slices = [...totals].map(([name, value]) => ({ name, value: value / traces }));
    const outside = outsideSteps(context, ranks, rows.length);
    const cpu = ranks.every((one) => one.device_kind === "CPU");
    const recorded = has(ranks, "api");
    const of = context.params["of"];
    const where: Condition[] = of === undefined ? [] : [{ column: view.column, one_of: [of] }, ...only];
    const timeline = (name: string): string => context.to("timeline", { ...(trace === null ? {} : { rank: trace }), find: name });
    const drill = (name: string): string =>
      context.to("kernels", { ...kept(context), by: by === "name" ? null : by, core: core ?? null, of: name });
    return [
      tabs(
        t("kernels.by"),
        (Object.keys(VIEWS) as View[]).map((id) => ({
          id,
          title: t(`kernels.by.${id}` as Key),
          href: context.to("kernels", { ...kept(context), by: id === "name" ? null : id }),
        })),
        by,
      ),
      h(
        "div",
        { class: "controls" },
        rankChoice(context, ranks, true),
        basisChoice(context, ranks),
        by === "core" && cores.length > 1
          ? choice(
              t("kernels.core"),
              [["", t("kernels.cores")], ...cores.map((one): [string, string] => [one, named("value", `core.${one}`, one)])],
              core ?? "",
              (value) => context.visit({ core: value || null, of: null }),
            )
          : null,
      ),
      cpu ? h("p", { class: "note" }, t("kernels.cpu")) : null,
      grid(
        outside
          ?? card(
            t("kernels.share"),
            shareChart(context, t("kernels.share"), slices, (name) => (location.hash = drill(name)), {
              labels: by === "name" ? kernelLabel : (name) => name,
            }),
            {
              wide: true,
              note: [
                basis,
                " ",
                t("kernels.shares"),
                " ",
                busy.length < rows.length ? t("kernels.waits") : null,
                " ",
                t("kernels.drill"),
              ],
            },
          ),
        instancesCard(context, listed, {
          source: "recorded_kernels",
          trace,
          where,
          title: t("instances.title", { name: of ?? "" }),
          away: context.to("kernels", { ...context.params, of: null }),
        }),
        outside
          ? null
          : card(
              t("kernels.table"),
              table(context, {
                name: view.table + end,
                id: view.table,
                trace,
                height: 480,
                where: only,
                sort: [{ column: "total_ns", descending: true }],
                labels: { name: kernelLabel },
                links: {
                  [view.column]: (row: Row) => (by === "name" ? timeline(String(row["name"])) : drill(String(row[view.column]))),
                  count: (row: Row) => drill(String(row[view.column])),
                },
              }),
              { wide: true, note: apart },
            ),
        topicTables(
          context,
          t("kernels.more"),
          listed,
          ranks.some((one) => one.device_kind === "NPU") ? [...OF_CORES, ...MORE] : [...MORE.slice(1), MORE[0]!],
          trace,
          [],
          (name) => (name === "device_timeline" ? t("kernels.states") : WHOLE.includes(name) ? t("basis.whole") : null),
        ),
        card(named("table", "device_time"), table(context, { name: "device_time", trace, height: 300, optional: true }), {
          note: t("basis.whole"),
        }),
        card(named("table", "stream_idle"), table(context, { name: "stream_idle", trace, height: 300, optional: true }), {
          note: [t("kernels.stream_idle"), " ", t("basis.whole")],
        }),
        recorded
          ? card(
              named("table", "api_calls"),
              table(context, {
                name: "api_calls",
                trace,
                height: 360,
                optional: true,
                sort: [{ column: "total_ns", descending: true }],
                without: ["variance_ns2"],
              }),
              { wide: true, note: t("basis.whole") },
            )
          : null,
        recorded
          ? card(
              named("table", "launches"),
              table(context, { name: "launches", trace, height: 300, optional: true, without: ["long_delays"] }),
              { note: t("basis.whole") },
            )
          : null,
        recorded ? card(named("table", "queues"), table(context, { name: "queues", trace, height: 300, optional: true })) : null,
      ),
    ];
  },
};

/** The parameters that stay when the view changes. */
const kept = (context: Context): Record<string, string | undefined> => ({
  rank: context.params["rank"],
  chart: context.params["chart"],
  basis: context.params["basis"],
});
