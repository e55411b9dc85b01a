/** The parts of a step of every rank as the kind of parallelism tells them: a stacked bar, and a table to sort and page. */

import type { ClusterSteps, RankParts } from "../../api/types";
import { numberOf } from "../../browser/route";
import { chart, nameAxis, tipOfTimes, valueAxis } from "../../charts/chart";
import { clusterStage, clusterStep, pager, sortedTable, type SortedColumn } from "../../ui/cluster_controls";
import { h, type Child } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { card, figure, figures, nothing } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

const PAGE = 20;

/** What the address asks for. */
export function askForParts(context: Context): Promise<ClusterSteps> {
  const { params } = context;
  return context.api.get("cluster/steps", {
    step: numberOf(params, "step"),
    stage: numberOf(params, "stage"),
    sort: params["sort"] ?? "rank",
    descending: params["descending"] === "1",
    offset: numberOf(params, "offset") ?? 0,
    limit: PAGE,
  });
}

export function rankParts(context: Context, found: ClusterSteps): Child {
  const { job } = found;
  const mode = named("value", `mode.${job.mode || "unknown"}`);
  return card(
    t("cluster.parts"),
    [
      h("div", { class: "controls" }, clusterStep(context, found.steps), clusterStage(context, job.stages)),
      figures(
        figure(t("cluster.mode"), mode, job.stages > 1 ? t("cluster.stages", { stages: format.count(job.stages) }) : null),
        figure(
          t("ranks"),
          job.recorded < job.size ? t("ranks.recorded", { count: job.recorded, size: job.size }) : format.count(job.size),
          job.missing.length
            ? t("cluster.missing", { ranks: job.missing.slice(0, 20).join(", ") + (job.size - job.recorded > 20 ? " …" : "") })
            : null,
        ),
        found.communication_rate === null
          ? null
          : figure(t("cluster.rate"), format.share(found.communication_rate), t("cluster.rate.what")),
        found.between_stages_rate === null || job.stages < 2
          ? null
          : figure(t("cluster.between"), format.share(found.between_stages_rate)),
        job.stages < 2
          ? null
          : Object.entries(found.within_stage_rates).map(([stage, rate]) =>
              figure(t("cluster.within", { stage }), format.share(rate)),
            ),
      ),
      job.missing.length
        ? h("p", { class: "note" }, t("communication.not_known", { count: job.recorded, size: job.size }))
        : null,
      found.rows.length ? [bar(context, found), rows(context, found)] : nothing(t("cluster.no_step"), t("cluster.no_step.why")),
    ],
    { wide: true, note: named("value", `mode.${job.mode || "unknown"}.what`) },
  );
}

const nameOfPart = (part: string): string => named("column", `cluster.${part}`, named("column", part));

function bar(context: Context, found: ClusterSteps): HTMLElement {
  const used = found.stacked.filter((part) => found.rows.some((row) => row[part] !== null));
  return chart(
    {
      label: t("cluster.parts"),
      height: 260,
      onPick: ({ dataIndex }) => {
        const one = found.rows[dataIndex];
        if (one && one.trace !== null)
          location.hash = context.to("steps", { rank: one.trace, step: numberOf(context.params, "step") });
      },
      option: (colours) => ({
        grid: { left: 70, right: 12, top: 30, bottom: 24 },
        legend: { top: 0 },
        xAxis: nameAxis(
          colours,
          found.rows.map((row) => t("rank.n", { number: row.rank })),
        ),
        yAxis: valueAxis(colours, format.time),
        tooltip: tipOfTimes("shadow"),
        series: used.map((part, place) => ({
          type: "bar",
          stack: "all",
          name: nameOfPart(part),
          color: colours.series[place],
          barMaxWidth: 48,
          data: found.rows.map((row) => Number(row[part] ?? 0)),
        })),
      }),
    },
    context.signal,
  );
}

function rows(context: Context, found: ClusterSteps): Child {
  const { params } = context;
  const offset = numberOf(params, "offset") ?? 0;
  const columns: SortedColumn<RankParts>[] = [
    { name: "rank", title: t("rank"), cell: (row) => t("rank.n", { number: row.rank }) },
    ...(found.job.stages > 1 ? [{ name: "stage", title: t("stage"), cell: (row: RankParts): Child => String(row.stage) }] : []),
    ...found.parts.map((part): SortedColumn<RankParts> => ({
      name: part,
      title: nameOfPart(part),
      numeric: true,
      cell: (row) => format.value(row[part], "ns"),
    })),
    {
      name: "",
      title: t("steps"),
      numeric: true,
      cell: (row) =>
        row.stored ? h("span", { title: t("cluster.stored") }, `${format.count(row.steps)} *`) : format.count(row.steps),
    },
    {
      name: "",
      title: "",
      cell: (row) =>
        row.trace === null
          ? null
          : h("a", { href: context.to("steps", { rank: row.trace, step: numberOf(params, "step") }) }, t("details")),
    },
  ];
  return [
    sortedTable(
      t("cluster.parts"),
      columns,
      found.rows,
      { by: params["sort"] ?? "rank", descending: params["descending"] === "1" },
      (by, descending) => context.visit({ sort: by, descending: descending ? 1 : null, offset: null }),
    ),
    found.rows.some((row) => row.stored) ? h("p", { class: "note" }, `* ${t("cluster.stored")}`) : null,
    pager(offset, found.rows.length, found.matching, PAGE, (to) => context.visit({ offset: to || null })),
  ];
}
