/** The page of the ranks of a large job: groups, a picture of all, and those that stand out; nothing that grows with their number. */

import type { Rank, Stages } from "../../api/types";
import { slowRank, waitsChart } from "../../charts/rank_waits";
import { groupsCard } from "./group_table";
import { mapCard } from "./rank_map";
import { topicTables } from "../../tables/topic_tables";
import { type Child, h, replace } from "../../ui/dom";
import { parts } from "../../ui/later";
import type { Context } from "../../ui/page";
import { meanOfEach } from "../../ui/step_means";
import { card, grid, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";
import { askForDifferences, differencesCard } from "./differences";
import { heatStrips } from "./heat_map";
import { askForParts, rankParts } from "./rank_parts";

const MORE = ["ranks", "rank_clocks", "cluster_steps", "communication_costs", "work", "waits", "hold_ups"];

/** The page. What says most comes first, and needs the smallest answers. */
export async function manyRanks(context: Context): Promise<Child> {
  const { api } = context;
  const beside = api.get("cluster/side-by-side");
  const steps = api.get("cluster/rank-steps");
  const found = api.get("ranks");
  const waits = api.get("communication");
  const [all, first] = await Promise.all([beside, steps]);
  const map = mapCard(context, all, first);
  // the rest stands below what is seen first, which does not wait for it
  const rest = h("div", { class: "grid" });
  const coming = parts(context, [
    [
      t("communication.waits"),
      waits.then(async (one) => {
        const differences = await askForDifferences(context, one);
        const stage = all.stage[all.rank.indexOf(differences?.rank ?? -1)];
        const peers = new Set(all.trace.filter((_, row) => !differences?.of_stage || all.stage[row] === stage));
        return [
          slowRank(context, one),
          differencesCard(
            context,
            differences,
            (await found).filter((rank) => peers.has(rank.trace)),
          ),
        ];
      }),
    ],
    [
      t("communication.waits"),
      Promise.all([waits, found]).then(([one, ranks]) =>
        one.waits.length
          ? card(t("communication.waits"), waitsChart(context, one), {
              note: t("communication.waits.what", { mean: meanOfEach(ranks) }),
              more: context.to("communication"),
            })
          : null,
      ),
    ],
    [t("heat"), api.get("cluster/heat").then((heat) => heatStrips(context, all, heat))],
    [t("cluster.parts"), askForParts(context).then((one) => rankParts(context, one))],
    [
      t("page.strategy"),
      context.run.strategy ? api.get("strategy").then((one) => strategyCard(context, one)) : Promise.resolve(null),
    ],
    [
      t("ranks.more"),
      Promise.all([found, api.get("tables")]).then(([ranks, listed]) => [
        topicTables(context, t("ranks.more"), listed, MORE, null),
        rowsCard(ranks),
      ]),
    ],
  ]);
  context.pending.push(coming.then((cards) => replace(rest, cards)));
  return [grid(groupsCard(context, all, map.group), map.element), rest];
}

export function strategyCard(context: Context, found: Stages): Child {
  if (!found.stages.length) return null;
  return card(
    t("page.strategy"),
    h(
      "p",
      null,
      h("a", { href: context.to("strategy") }, t("strategy.go", { type: found.parallel_type, stages: found.stages.length })),
    ),
  );
}

/** What was recorded, by kind: on how many ranks, and the fewest and most rows of one. */
function rowsCard(found: readonly Rank[]): Child {
  const names = [...new Set(found.flatMap((one) => Object.keys(one.tables)))];
  const rows = names.map((name) => {
    const counts = found.flatMap((one) => one.tables[name] ?? []).sort((one, other) => one - other);
    const [least, half, most] = [counts[0]!, counts[Math.floor(counts.length / 2)]!, counts.at(-1)!];
    return [
      named("table", `recorded_${name}`, name),
      format.count(counts.length),
      format.count(least),
      format.count(half),
      format.count(most),
    ];
  });
  return card(
    t("ranks.tables"),
    smallTable(
      t("ranks.tables"),
      [t("more.choose"), t("ranks"), t("ranks.least"), t("ranks.median"), t("ranks.most")],
      rows,
      [1, 2, 3, 4],
    ),
    { wide: true, note: t("ranks.tables.what") },
  );
}
