/** Every step of every rank in one picture, and how the ranks spread in each step. */

import type { SideBySide, StepsOfRanks } from "../../api/types";
import { chart, nameAxis, tipOfTimes, valueAxis } from "../../charts/chart";
import { h, replace, type Child } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { card, choice } from "../../ui/ui";
import * as format from "../../words/format";
import { t } from "../../words/i18n";
import { figureName, groupName, groupingOf } from "./group_table";
import { placeText } from "../../ui/rank_picker";
import { type Grouping, groupRows } from "../../ui/rank_places";
import { rankStrip } from "./rank_strip";
import { columnOf, layOut, rangeOf } from "./strip_layout";

/** ranks that are pointed at and named: those that are farthest above the others */
const NAMED = 6;

/** The map as a card, and what groups its columns anew. */
export function mapCard(
  context: Context,
  found: SideBySide,
  first: StepsOfRanks,
): { element: Child; group: (by: Grouping) => void } {
  let shown = first;
  let by = groupingOf(context, found);
  const place = h("div");
  const show = (): void => replace(place, picture(context, found, shown, by), spread(context, shown));
  const metric = choice(
    t("heat.metric"),
    first.metrics.map((one): [string, string] => [one, figureName(one)]),
    first.metric,
    (value) => {
      context.note({ metric: value });
      void context.api.get("cluster/rank-steps", { metric: value }).then((next) => {
        shown = next;
        show();
      });
    },
  );
  show();
  return {
    element: first.steps.length
      ? card(t("ranks.map"), [h("div", { class: "controls" }, metric), place], { wide: true, note: t("ranks.map.what") })
      : null,
    group: (next) => {
      by = next;
      show();
    },
  };
}

/** The ranks whose value is farthest above the median of its step, mean over the steps; the farthest first. */
export function farthest(shown: StepsOfRanks, most: number): { place: number; above: number }[] {
  const half = shown.quantiles.indexOf(0.5);
  const median = shown.spread[half] ?? [];
  const above = shown.values.map((row, place) => {
    const known = row.flatMap((value, column) => (value === null || median[column] == null ? [] : [value - median[column]]));
    return { place, above: known.length ? known.reduce((sum, one) => sum + one, 0) / known.length : -Infinity };
  });
  return above
    .filter((one) => one.above > 0)
    .sort((one, other) => other.above - one.above)
    .slice(0, most);
}

function picture(context: Context, found: SideBySide, shown: StepsOfRanks, by: Grouping): Child {
  // both answers name the trace of each rank
  const row_of = new Map(found.trace.map((trace, row) => [trace, row]));
  const place_of = new Map(shown.trace.map((trace, place) => [row_of.get(trace) ?? -1, place]));
  // a rank stands once: in process groups it is in several
  const grouped =
    by === "rank" || by === "group"
      ? [{ name: "", rows: found.rank.map((_, row) => row) }]
      : groupRows(
          found,
          by,
          found.rank.map((_, row) => row),
        );
  const layout = layOut(
    grouped.map((one) => ({
      name: by === "rank" || by === "group" ? "" : groupName(found, by, one),
      rows: one.rows.flatMap((row) => place_of.get(row) ?? []),
    })),
  );
  const values = shown.steps.map((_, column) => shown.values.map((row) => row[column] ?? null));
  const name = (column: number): string =>
    shown.steps[column] === shown.last_steps[column]
      ? `${t("step")} ${shown.steps[column]}`
      : `${t("steps")} ${shown.steps[column]}–${shown.last_steps[column]}`;
  const range = rangeOf(values.flat());
  const far = farthest(shown, NAMED);
  const rowAt = (place: number): number => row_of.get(shown.trace[place]!) ?? 0;
  return [
    rankStrip(
      {
        label: `${t("ranks.map")}: ${figureName(shown.metric)}`,
        layout,
        values,
        rowNames: shown.steps.map((_, column) => name(column)),
        range,
        say: (cell) =>
          `${placeText(found, rowAt(cell.rank))}, ${name(cell.row)}: ${format.value(values[cell.row]?.[cell.rank] ?? null, "ns")}`,
        onPick: (cell) => (location.hash = context.to("steps", { rank: shown.trace[cell.rank]! })),
        marks: far.map((one) => [columnOf(layout, one.place), String(shown.rank[one.place])] as const),
      },
      context.signal,
    ),
    h("p", { class: "note" }, t("ranks.map.range", { least: format.time(range[0]), most: format.time(range[1]) })),
    far.length
      ? h(
          "p",
          { class: "rank-far" },
          t("ranks.far", { figure: figureName(shown.metric) }),
          " ",
          far.map((one, place) => [
            place ? ", " : "",
            h(
              "a",
              { href: context.to("steps", { rank: shown.trace[one.place]! }) },
              t("rank.n", { number: shown.rank[one.place]! }),
            ),
            ` (+${format.time(one.above)})`,
          ]),
        )
      : null,
  ];
}

/** Quantiles over the ranks in every step, as lines: their number does not grow with that of the ranks. */
function spread(context: Context, shown: StepsOfRanks): Child {
  if (shown.steps.length < 2) return null;
  const names = shown.quantiles.map((one) =>
    one === 0
      ? t("ranks.least")
      : one === 1
        ? t("ranks.most")
        : one === 0.5
          ? t("ranks.median")
          : t("ranks.quantile", { percent: Math.round(one * 100) }),
  );
  return [
    h("h3", null, t("ranks.spread")),
    chart(
      {
        label: t("ranks.spread"),
        height: 220,
        option: (colours) => ({
          grid: { left: 70, right: 12, top: 30, bottom: 24 },
          legend: { top: 0 },
          xAxis: nameAxis(colours, shown.steps),
          yAxis: valueAxis(colours, format.time, { scale: true }),
          tooltip: tipOfTimes("line", (name) => `${t("step")} ${name}`),
          series: shown.spread.map((values, place) => ({
            type: "line",
            name: names[place],
            data: values,
            symbolSize: 4,
            color: colours.series[place],
            lineStyle: { width: shown.quantiles[place] === 0.5 ? 3 : 1.5 },
          })),
        }),
      },
      context.signal,
    ),
  ];
}
