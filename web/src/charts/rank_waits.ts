/** Which rank the others wait for, with the proof of it, and how long each waits. */

import type { Communication } from "../api/types";
import { isMany } from "../ui/rank_places";
import { h, type Child } from "../ui/dom";
import type { Context } from "../ui/page";
import * as format from "../words/format";
import { named, t } from "../words/i18n";
import { chart, nameAxis, tipOfTimes, valueAxis } from "./chart";

/** of very many ranks so many that wait the longest are shown, and as many that wait the shortest */
const ENDS = 12;

/** The rank that holds up the others; nothing where none stands out. */
export function slowRank(context: Context, found: Communication): Child {
  const one = found.slow_rank;
  if (!one) return null;
  return h(
    "div",
    { class: "callout" },
    h("strong", null, t("communication.slow", { rank: one.rank })),
    " ",
    t("communication.slow.why", { time: format.time(one.hold_up_ns), steps: one.steps.length, of: one.of_steps }),
    " ",
    h("a", { href: context.to("tables", { table: "arrivals" }) }, t("communication.proof")),
    " · ",
    h("a", { href: context.to("marey", { step: one.steps[0] ?? null }) }, t("page.marey")),
    " · ",
    h("a", { href: context.to("advice") }, t("page.advice")),
  );
}

/** Waiting and transfer of every rank. */
export function waitsChart(context: Context, found: Communication): HTMLElement {
  const parts = [
    ["wait_ns", named("column", "wait_ns")],
    ["transfer_ns", named("column", "transfer_ns")],
    ...(found.waits.some((row) => Number(row["unexplained_ns"]) > 0)
      ? [["unexplained_ns", named("column", "unexplained_ns")] as const]
      : []),
  ] as const;
  const waiting = (row: Communication["waits"][number]): number => Number(row["wait_ns"]);
  // of very many ranks those that wait the longest and the shortest: whom the others wait for waits least
  const sorted = [...found.waits].sort((one, other) => waiting(other) - waiting(one));
  const rows = isMany(found.waits) ? [...sorted.slice(0, ENDS), ...sorted.slice(-ENDS)] : found.waits;
  const shown = chart(
    {
      label: t("communication.waits"),
      height: 240,
      option: (colours) => ({
        grid: { left: 70, right: 12, top: 30, bottom: 24 },
        legend: { top: 0, textStyle: { color: colours.text } },
        xAxis: nameAxis(
          colours,
          rows.map((row) => t("rank.n", { number: String(row["rank"]) })),
        ),
        yAxis: valueAxis(colours, format.time),
        tooltip: tipOfTimes("shadow"),
        series: parts.map(([column, name], place) => ({
          type: "bar",
          stack: "all",
          name,
          barMaxWidth: 48,
          color: colours.series[place],
          data: rows.map((row) => Number(row[column])),
        })),
      }),
    },
    context.signal,
  );
  if (rows.length === found.waits.length) return shown;
  const half = sorted[Math.floor(sorted.length / 2)]!;
  const values = { count: ENDS, of: format.count(found.waits.length), median: format.time(waiting(half)) };
  return h("div", null, h("p", { class: "note" }, t("communication.waits.ends", values)), shown);
}
