/** The longest collectives one by one, those marked that take far longer than their size explains. */

import type { CollectiveShown, Communication } from "../../api/types";
import { type Child, h } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { card, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

/** The card; nothing where no collective of a step was recorded. */
export function collectivesCard(context: Context, found: Communication): Child {
  const rows = found.collectives;
  if (!rows.length) return null;
  const has = (value: (row: CollectiveShown) => unknown): boolean => rows.some((row) => value(row) !== null);
  const columns: [title: string, cell: (row: CollectiveShown) => Child, numeric: boolean][] = [
    [t("costs.operation"), (row) => link(context, row), false],
    [t("rank"), (row) => String(row.rank), true],
  ];
  if (new Set(rows.map((row) => row.step)).size > 1) columns.push([t("step"), (row) => String(row.step), true]);
  if (has((row) => row.bytes)) columns.push([named("column", "bytes"), (row) => format.value(row.bytes, "bytes"), true]);
  columns.push(
    [named("column", "in_step_ns"), (row) => format.value(row.in_step_ns, "ns"), true],
    [named("column", "duration_ns"), (row) => format.time(row.duration_ns), true],
  );
  const isUntold = rows.some((row) => (untold(row) ?? 0) > 0);
  if (has((row) => row.wait_ns)) {
    // these three add up to the duration
    columns.push(
      [named("column", "wait_ns"), (row) => format.value(row.wait_ns, "ns"), true],
      [named("column", "transfer_ns"), (row) => format.value(row.transfer_ns, "ns"), true],
    );
    if (isUntold) columns.push([named("column", "unexplained_ns"), (row) => format.value(untold(row), "ns"), true]);
  }
  if (has((row) => row.behind_ns)) columns.push([t("collectives.behind"), behind, true]);
  if (has((row) => row.expected_ns)) columns.push([named("column", "expected_ns"), expected, true]);
  if (has((row) => row.rate_bytes_per_s))
    columns.push([named("column", "rate_bytes_per_s"), (row) => format.value(row.rate_bytes_per_s, "B/s"), true]);
  if (has((row) => row.bus_bytes_per_s))
    columns.push([named("column", "bus_bytes_per_s"), (row) => format.value(row.bus_bytes_per_s, "B/s"), true]);
  if (has((row) => row.exposed_ns))
    columns.push([named("column", "exposed_ns"), (row) => format.value(row.exposed_ns, "ns"), true]);
  const title = named("table", "collectives");
  return card(
    title,
    [
      longSentence(found),
      smallTable(
        title,
        columns.map(([head]) => head),
        rows.map((row) => columns.map(([, cell]) => cell(row))),
        columns.flatMap(([, , numeric], place) => (numeric ? [place] : [])),
      ),
      found.collectives_of > rows.length
        ? h("p", { class: "note" }, t("collectives.rest", { count: rows.length, of: format.count(found.collectives_of) }))
        : null,
    ],
    {
      wide: true,
      more: context.to("tables", { table: "collectives" }),
      note: [
        ...(isUntold ? [t("costs.unexplained.what")] : []),
        t("collectives.what"),
        ...(new Set(rows.map((row) => row.rank)).size > 1 ? [t("collectives.in_step.what")] : []),
        ...(has((row) => row.behind_ns) ? [t("collectives.behind.what")] : []),
      ].join(" "),
    },
  );
}

/** What is neither known to be waiting nor to be transfer; null where neither is known. */
const untold = (row: CollectiveShown): number | null =>
  row.wait_ns === null ? null : Math.max(row.duration_ns - row.wait_ns - (row.transfer_ns ?? 0), 0);

/** How long after the first recorded rank this one arrives. */
const behind = (row: CollectiveShown): Child =>
  row.behind_ns === null ? format.NOTHING : row.behind_ns === 0 ? t("collectives.first") : `+${format.time(row.behind_ns)}`;

/** What its size explains, and how many times that it takes. */
function expected(row: CollectiveShown): Child {
  if (row.expected_ns === null) return format.NOTHING;
  // a lower bound is not rounded up
  const ratio = row.duration_ns / Math.max(row.expected_ns, 1) + 1e-9;
  const said = `${format.count(ratio < 10 ? Math.floor(ratio * 10) / 10 : Math.floor(ratio))} ×`;
  const time = format.time(row.expected_ns);
  return [time, " ", row.long ? h("span", { class: "badge badge-warning" }, said) : h("span", { class: "note" }, said)];
}

function link(context: Context, row: CollectiveShown): Child {
  const said = row.label === row.name ? row.name : `${row.label} (${format.shorten(row.name, 40)})`;
  if (row.trace === null) return said;
  return h("a", { href: context.to("timeline", { rank: row.trace, step: row.step, find: row.name }), title: row.name }, said);
}

/** How many are long, and why as far as the recording tells. */
function longSentence(found: Communication): Child {
  const { long } = found;
  if (!long) return null;
  const number = (value: number): string => format.count(Math.round(value * 10) / 10);
  const why =
    found.recorded_ranks < found.job_ranks
      ? t("collectives.long.missing", { count: found.recorded_ranks, size: found.job_ranks })
      : found.slow_rank
        ? t("collectives.long.late", { rank: found.slow_rank.rank })
        : "";
  return h(
    "p",
    { class: "sentence" },
    t("collectives.long", {
      count: number(long.calls),
      of: number(long.of_calls),
      time: format.time(long.duration_ns),
      expected: format.time(long.expected_ns),
      mean: long.ranks * long.steps > 1 ? t("mean.word") : "",
    }),
    " ",
    why,
  );
}
