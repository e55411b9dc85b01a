/** Communication: how much of it computing hides, who waits for whom, and what each rank, link and operation costs. */

import type { Communication, Rank } from "../../api/types";
import { numberOf } from "../../browser/route";
import { slowRank, waitsChart } from "../../charts/rank_waits";
import { isMany } from "../../ui/rank_places";
import { table } from "../../tables/table";
import { topicTables } from "../../tables/topic_tables";
import { type Child, h } from "../../ui/dom";
import type { Page } from "../../ui/page";
import { meanOfEach } from "../../ui/step_means";
import { card, grid, has, nothing, numberRanges, rankChoice } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";
import { collectivesCard } from "./collectives";
import { linkCards } from "./link_views";

const MORE = [
  "communication",
  "communication_by_rank",
  "communication_by_step",
  "communication_by_group",
  "communication_by_size",
  "waits",
  "hold_ups",
  "arrivals",
  "collectives",
  "communication_operations",
  "pairs",
  "links",
  "overlap",
  "communication_times",
  "communication_bandwidth",
  "communication_matrix",
  "step_collectives",
];

/** Whether a table has rows: what the library measures, what arrival tells, and messages are not in every recording. */
function isThere(name: string, found: Communication, ranks: readonly Rank[]): boolean {
  const measured: Readonly<Record<string, string>> = {
    links: "communication_matrix",
    communication_matrix: "communication_matrix",
    communication_bandwidth: "communication_bandwidth",
    communication_times: "communication_times",
  };
  if (name in measured) return has(ranks, measured[name]!);
  if (["waits", "hold_ups", "arrivals"].includes(name)) return found.waits.length > 0;
  return name !== "pairs" || found.messages > 0;
}

/** Who of the recorded ranks comes last where others are missing. */
function recordedOrder({ recorded_order: order }: Communication): Child {
  if (!order) return null;
  const values = {
    ranks: order.ranks.length > 8 ? numberRanges(order.ranks) : order.ranks.join(", "),
    rank: order.rank,
    time: format.time(order.hold_up_ns),
    steps: order.steps,
    count: order.of_steps,
  };
  return ` ${t(order.late ? "communication.order" : "communication.order.together", values)}`;
}

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
      linkCards(context, ranks),
    ]);
    const trace = numberOf(context.params, "rank");
    // a table of every operation of very many ranks is of no use, and would have to be read from each
    const isShown = has(ranks, "communication") && (trace !== null || !isMany(ranks));
    const recorded = isShown ? await context.api.table("recorded_communication", { trace, limit: 1 }) : null;
    return [
      h("div", { class: "controls" }, rankChoice(context, ranks, true)),
      slowRank(context, found),
      found.waits.length
        ? null
        : h(
            "p",
            { class: found.recorded_ranks < found.job_ranks ? "callout" : "note" },
            found.recorded_ranks < found.job_ranks
              ? t("communication.not_known", { count: found.recorded_ranks, size: found.job_ranks })
              : t("communication.one_rank"),
            recordedOrder(found),
          ),
      grid(
        collectivesCard(context, found),
        found.waits.length
          ? card(t("communication.waits"), waitsChart(context, found), {
              note: t("communication.waits.what", { mean: meanOfEach(ranks) }),
            })
          : null,
        links,
        topicTables(
          context,
          t("communication.more"),
          listed,
          MORE.filter((name) => isThere(name, found, ranks)),
          trace,
          [],
          () => t("communication.more.what"),
        ),
        has(ranks, "communication") && !isShown
          ? card(named("table", "recorded_communication"), h("p", { class: "note" }, t("ranks.choose")), { wide: true })
          : null,
        isShown
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
