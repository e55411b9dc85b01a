/** What the late rank does more than the others: its operators beside theirs, with the source lines that call them. */

import type { Communication, RankDifference, RankDifferences } from "../../api/types";
import { type Child, h } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { card, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

const SHOWN = 8;

/** The answer about the rank that holds the others up; null where none does. */
export async function askForDifferences(context: Context, found: Communication | null): Promise<RankDifferences | null> {
  const rank = found?.slow_rank?.rank;
  return rank === undefined ? null : context.api.get("cluster/differences", { rank, limit: SHOWN });
}

export function differencesCard(context: Context, found: RankDifferences | null): Child {
  if (!found?.rows.length) return null;
  const rank = t("rank.n", { number: found.rank });
  const others = t("ranks.others");
  // of a CPU its operators are the device's work
  const device = found.rows.some((row) => row.more_device_ns > 0 && row.device_self_ns !== row.self_ns);
  const lines = found.rows.some((row) => row.line !== null);
  const columns: [title: string, cell: (row: RankDifference) => Child, numeric: boolean][] = [
    [t("costs.operation"), (row) => h("a", { href: context.to("operators", { of: row.name }) }, row.name), false],
  ];
  if (lines) columns.push([named("column", "line"), (row) => row.line ?? format.NOTHING, false]);
  columns.push(
    [`${named("column", "self_ns")}: ${rank}`, (row) => format.time(row.self_ns), true],
    [others, (row) => format.time(row.other_self_ns), true],
    [t("ranks.more_of"), (row) => h("b", null, format.time(Math.max(row.more_ns, 0))), true],
  );
  if (device)
    columns.push(
      [`${named("column", "device_self_ns")}: ${rank}`, (row) => format.time(row.device_self_ns), true],
      [others, (row) => format.time(row.other_device_self_ns), true],
    );
  columns.push(
    [`${named("column", "calls")}: ${rank}`, (row) => format.value(row.calls, "count"), true],
    [others, (row) => format.value(row.other_calls, "count"), true],
  );
  const title = t("ranks.differences", { rank: found.rank });
  return card(
    title,
    [
      smallTable(
        title,
        columns.map(([head]) => head),
        found.rows.map((row) => columns.map(([, cell]) => cell(row))),
        columns.flatMap(([, , numeric], place) => (numeric ? [place] : [])),
      ),
      found.matching > found.rows.length
        ? h("p", { class: "note" }, t("rest", { count: format.count(found.matching - found.rows.length) }))
        : null,
    ],
    { wide: true, note: t("ranks.differences.what") },
  );
}
