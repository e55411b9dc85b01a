/** Heat maps: one square per rank, coloured by a figure as a share of what it could be at most. */

import type { Heat, HeatRank, SideBySide } from "../../api/types";
import { groupName } from "./group_table";
import { placeText } from "../../ui/rank_picker";
import { groupRows } from "../../ui/rank_places";
import { rankStrip } from "./rank_strip";
import { layOut, rangeOf } from "./strip_layout";
import { tint } from "../../ui/cluster_controls";
import { h, replace, type Child } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { card, choice } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

const GRANULARITIES = ["0.1", "0.05", "0.02"] as const;

/** The class of colour of a share: its lower edge. A share of 1 belongs to the uppermost class. */
export function heatClass(share: number, granularity: number): number {
  const classes = Math.round(1 / granularity);
  return Math.min(Math.floor(share * classes + 1e-9), classes - 1) / classes;
}

/** A card with a heat map for one of the metrics; nothing where no metric is known. */
export function heatMaps(context: Context, found: readonly Heat[]): Child {
  const first = found[0];
  if (!first) return null;
  const place = h("div");
  const show = (): void => {
    const one = found.find((other) => other.metric === context.params["heat"]) ?? first;
    const granularity = GRANULARITIES.find((each) => each === context.params["granularity"]) ?? GRANULARITIES[0];
    replace(
      place,
      controls(one.metric, granularity),
      h(
        "p",
        { class: "note" },
        named("value", `heat.${one.metric}.what`),
        " ",
        t("heat.of", { of: named("value", `heat.of.${one.of}`, one.of) }),
      ),
      squares(context, one, Number(granularity)),
      scale(Number(granularity)),
    );
  };
  const controls = (metric: string, granularity: string): HTMLElement =>
    h(
      "div",
      { class: "controls" },
      choice(
        t("heat.metric"),
        found.map((one): [string, string] => [one.metric, named("value", `heat.${one.metric}`, one.metric)]),
        metric,
        (value) => {
          context.note({ heat: value });
          show();
        },
      ),
      choice(
        t("heat.granularity"),
        GRANULARITIES.map((one): [string, string] => [one, one]),
        granularity,
        (value) => {
          context.note({ granularity: value });
          show();
        },
      ),
    );
  show();
  return card(t("heat"), place, { wide: true });
}

/** The same of very many ranks: a strip with a column for each in place of squares. */
export function heatStrips(context: Context, all: SideBySide, found: readonly Heat[]): Child {
  if (!found.length) return null;
  const rows = all.rank.map((_, row) => row);
  const layout = layOut(
    all.stages > 1
      ? groupRows(all, "stage", rows).map((one) => ({ name: groupName(all, "stage", one), rows: one.rows }))
      : [{ name: "", rows }],
  );
  const row_of = new Map(all.rank.map((rank, row) => [rank, row]));
  return card(
    t("heat"),
    found.map((one) => {
      const values: (number | null)[] = rows.map(() => null);
      for (const rank of one.ranks) {
        const row = row_of.get(rank.rank);
        if (row !== undefined) values[row] = rank.value;
      }
      const name = named("value", `heat.${one.metric}`, one.metric);
      const [least, most] = rangeOf(values);
      return [
        h("h3", null, name),
        rankStrip(
          {
            label: name,
            layout,
            values: [values],
            rowNames: [""],
            range: [least, most],
            say: (cell) => `${placeText(all, cell.rank)}: ${format.value(values[cell.rank] ?? null, one.unit)}`,
            onPick: (cell) => (location.hash = context.to(pageOf(one.metric), { rank: all.trace[cell.rank]! })),
            marks: [],
          },
          context.signal,
        ),
        h(
          "p",
          { class: "note" },
          named("value", `heat.${one.metric}.what`),
          " ",
          t("ranks.map.range", { least: format.value(least, one.unit), most: format.value(most, one.unit) }),
        ),
      ];
    }),
    { wide: true },
  );
}

function squares(context: Context, found: Heat, granularity: number): HTMLElement {
  const stages = [...new Set(found.ranks.map((one) => one.stage))];
  return h(
    "div",
    { class: "heat" },
    stages.map((stage) =>
      h(
        "section",
        null,
        stages.length > 1 ? h("h3", null, t("stage.n", { number: stage })) : null,
        h(
          "ul",
          { class: "heat-ranks" },
          found.ranks.filter((one) => one.stage === stage).map((one) => h("li", null, square(context, found, one, granularity))),
        ),
      ),
    ),
  );
}

function square(context: Context, found: Heat, one: HeatRank, granularity: number): HTMLElement {
  const said = format.value(one.value, found.unit);
  const share = one.share === null ? format.NOTHING : format.share(one.share);
  return h(
    "a",
    {
      href: context.to(pageOf(found.metric), { rank: one.trace }),
      title: `${t("rank.n", { number: one.rank })}: ${said} (${share})`,
    },
    h("span", {
      class: "heat-square",
      "data-class": one.share === null ? "" : heatClass(one.share, granularity),
      style: { background: one.share === null ? "transparent" : tint(heatClass(one.share, granularity) + granularity) },
    }),
    h("span", null, t("rank.n", { number: one.rank })),
    h("span", { class: "note" }, `${said} · ${share}`),
  );
}

/** The page of a rank that shows the figure. */
function pageOf(metric: string): string {
  if (metric === "memory_peak") return "memory";
  return metric.startsWith("flops") ? "operators" : "steps";
}

function scale(granularity: number): HTMLElement {
  const classes = Math.round(1 / granularity);
  return h(
    "p",
    { class: "heat-scale note" },
    "0 % ",
    Array.from({ length: classes }, (_, place) => h("span", { style: { background: tint((place + 1) / classes) } })),
    " 100 %",
  );
}
