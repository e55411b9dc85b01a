/** Communication: how much of it computing hides, who waits for whom, and what each rank, link and operation costs. */

import { numberOf } from "../../browser/route";
import { slowRank, waitsChart } from "../../charts/rank_waits";
import { table } from "../../tables/table";
import { topicTables } from "../../tables/topic_tables";
import { h } from "../../ui/dom";
import type { Page } from "../../ui/page";
import { card, grid, has, nothing, rankChoice, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";
import { linkCards } from "./link_views";

const MORE = [
  "communication_by_rank",
  "communication_by_step",
  "communication",
  "communication_by_group",
  "communication_by_size",
  "waits",
  "hold_ups",
  "arrivals",
  "communication_operations",
  "pairs",
  "links",
  "overlap",
  "communication_times",
  "communication_bandwidth",
  "communication_matrix",
  "step_collectives",
];

export const communication: Page = {
  id: "communication",
  title: "page.communication",
  async show(context) {
    const ranks = await context.api.get("ranks");
    if (!has(ranks, "communication") && !has(ranks, "communication_times"))
      return nothing(t("communication.none"), t("communication.none.why"));
    const [found, listed, links] = await Promise.all([
      context.api.get("communication"),
      context.api.get("tables"),
      linkCards(context),
    ]);
    const trace = numberOf(context.params, "rank");
    const recorded = has(ranks, "communication") ? await context.api.table("recorded_communication", { trace, limit: 1 }) : null;
    return [
      h("div", { class: "controls" }, rankChoice(context, ranks, true)),
      slowRank(context, found),
      found.waits.length
        ? null
        : h(
            "p",
            { class: "note" },
            found.recorded_ranks < found.job_ranks
              ? t("communication.not_known", { count: found.recorded_ranks, size: found.job_ranks })
              : t("communication.one_rank"),
          ),
      grid(
        found.waits.length
          ? card(t("communication.waits"), waitsChart(context, found), { note: t("communication.waits.what") })
          : null,
        card(
          t("communication.overlap"),
          smallTable(
            t("communication.overlap"),
            [t("rank"), t("device"), named("column", "communication_ns"), named("column", "overlapped_ns"), "%"],
            found.overlap.map((row) => [
              format.value(row["rank"], ""),
              format.value(row["device"], ""),
              format.value(row["communication_ns"], "ns"),
              format.value(row["overlapped_ns"], "ns"),
              format.value(row["overlap_percent"], "percent"),
            ]),
            [0, 1, 2, 3, 4],
          ),
          { note: t("communication.overlap.what") },
        ),
        links,
        topicTables(context, t("communication.more"), listed, MORE, trace),
        has(ranks, "communication")
          ? card(
              named("table", "recorded_communication"),
              table(context, {
                name: "recorded_communication",
                trace,
                height: 340,
                optional: true,
                columns: ["name", "kind", "group", "bytes", "dtype", "start_ns", "end_ns", "device", "stream", "step"],
              }),
              { wide: true, note: recorded?.empty.includes("bytes") ? t("communication.no_sizes") : null },
            )
          : null,
      ),
    ];
  },
};
