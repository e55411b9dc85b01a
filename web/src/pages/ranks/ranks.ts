/** The ranks beside each other: where each comes from, what it holds, and how its steps went. */

import type { Communication, Rank } from "../../api/types";
import type { PARTS } from "../../browser/theme";
import { chart, nameAxis, tipOfTimes, valueAxis } from "../../charts/chart";
import { slowRank, waitsChart } from "../../charts/rank_waits";
import { isMany } from "../../ui/rank_places";
import { topicTables } from "../../tables/topic_tables";
import { type Child, h } from "../../ui/dom";
import { parts } from "../../ui/later";
import type { Context, Page } from "../../ui/page";
import { meanOfEach } from "../../ui/step_means";
import { DEVICE_PARTS, HOST_PARTS, card, grid, has, partOf, rankName, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";
import { askForDifferences, differencesCard } from "./differences";
import { heatMaps } from "./heat_map";
import { manyRanks, strategyCard } from "./many_ranks";
import { askForParts, rankParts } from "./rank_parts";

const MORE = ["ranks", "cluster_steps", "communication_costs", "work", "waits", "hold_ups", "rank_clocks"];

export const ranks: Page = {
  id: "ranks",
  title: "page.ranks",
  async show(context) {
    const { api } = context;
    if (isMany(context.run.traces)) return manyRanks(context);
    const found = api.get("ranks");
    const waits = found.then((all) => (has(all, "communication") ? api.get("communication") : null));
    return grid(
      await parts(context, [
        [
          t("communication.waits"),
          waits.then(async (one) => [
            one ? slowRank(context, one) : null,
            differencesCard(context, await askForDifferences(context, one), await found),
          ]),
        ],
        [t("cluster.parts"), askForParts(context).then((one) => rankParts(context, one))],
        [t("communication.waits"), waits.then(async (one) => (one ? waitsCard(context, one, await found) : null))],
        [
          t("heat"),
          Promise.all([found, api.get("cluster/heat")]).then(([all, heat]) =>
            all.length > 1 || (heat[0]?.ranks.length ?? 0) > 1 ? heatMaps(context, heat) : null,
          ),
        ],
        [
          t("page.strategy"),
          context.run.strategy ? api.get("strategy").then((one) => strategyCard(context, one)) : Promise.resolve(null),
        ],
        [t("ranks"), found.then((all) => rankCards(context, all))],
        [
          t("ranks.more"),
          Promise.all([found, api.get("tables")]).then(([all, listed]) => [
            topicTables(context, t("ranks.more"), listed, MORE, null),
            rowsCard(all),
          ]),
        ],
      ]),
    );
  },
};

function waitsCard(context: Context, found: Communication, all: readonly Rank[]): Child {
  if (!found.waits.length) return null;
  return card(t("communication.waits"), waitsChart(context, found), {
    note: t("communication.waits.what", { mean: meanOfEach(all) }),
    more: context.to("communication"),
  });
}

/** The parts of the steps of every rank, and where each rank comes from. */
function rankCards(context: Context, found: readonly Rank[]): Child {
  return [
    partsCard(context, t("parts.host"), found, HOST_PARTS),
    partsCard(context, t("parts.device"), found, DEVICE_PARTS),
    card(
      t("ranks"),
      smallTable(
        t("ranks"),
        [t("rank"), t("device"), t("steps"), t("ranks.step_time"), t("memory.peak"), t("format"), t("path"), ""],
        found.map((one) => [
          rankName(one, found),
          one.devices.join(", "),
          format.count(one.steps),
          format.value(one.step_ns, "ns"),
          format.value(one.peak_bytes, "bytes"),
          one.format,
          h("code", { title: one.path }, format.shorten(one.path.split("/").slice(-2).join("/"), 80)),
          h(
            "span",
            null,
            h("a", { href: context.to("steps", { rank: one.trace }) }, t("page.steps")),
            " · ",
            h("a", { href: context.to("timeline", { rank: one.trace }) }, t("page.timeline")),
          ),
        ]),
        [2, 3, 4],
      ),
      { wide: true },
    ),
  ];
}

function rowsCard(found: readonly Rank[]): Child {
  const heads = [t("more.choose"), ...found.map((one) => rankName(one, found))];
  return card(
    t("ranks.tables"),
    smallTable(
      t("ranks.tables"),
      heads,
      tableRows(found),
      found.map((_, place) => place + 1),
    ),
    { wide: true, note: t("ranks.tables.what") },
  );
}

function tableRows(found: readonly Rank[]): string[][] {
  const names = [...new Set(found.flatMap((one) => Object.keys(one.tables)))];
  return names.map((name) => [
    named("table", `recorded_${name}`, name),
    ...found.map((one) => (one.tables[name] === undefined ? format.NOTHING : format.count(one.tables[name]))),
  ]);
}

/** Some parts of the steps of several ranks; nothing where no rank recorded any of them. */
function partsCard(context: Context, title: string, found: readonly Rank[], names: readonly (typeof PARTS)[number][]): Child {
  const used = names.filter((name) => found.some((one) => (partOf(one.parts, name) ?? 0) > 0));
  return found.length > 1 && used.length
    ? card(title, partsChart(context, found, used), { wide: true, note: t("ranks.parts.what") })
    : null;
}

function partsChart(context: Context, found: readonly Rank[], used: readonly (typeof PARTS)[number][]): HTMLElement {
  return chart(
    {
      label: t("ranks.parts"),
      height: 260,
      onPick: ({ dataIndex }) => {
        const one = found[dataIndex];
        if (one) location.hash = context.to("steps", { rank: one.trace });
      },
      option: (colours) => ({
        grid: { left: 70, right: 12, top: 30, bottom: 24 },
        legend: { type: "scroll", top: 0, textStyle: { color: colours.text } },
        xAxis: nameAxis(
          colours,
          found.map((one) => rankName(one, found)),
        ),
        yAxis: valueAxis(colours, format.time),
        tooltip: tipOfTimes("shadow"),
        series: used.map((name) => ({
          type: "bar",
          stack: "all",
          name: named("part", name),
          color: colours.parts[name],
          barMaxWidth: 48,
          data: found.map((one) => partOf(one.parts, name) ?? 0),
        })),
      }),
    },
    context.signal,
  );
}
