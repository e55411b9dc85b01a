/** What the late rank does more than the others: its phases, then its operators beside theirs, with the source lines that call them. */

import type { Communication, Rank, RankDifference, RankDifferences } from "../../api/types";
import { type Child, h } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { HOST_PARTS, card, partOf, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

const SHOWN = 8;

/** The answer about the rank that holds the others up; null where none does. */
export async function askForDifferences(context: Context, found: Communication | null): Promise<RankDifferences | null> {
  const rank = found?.slow_rank?.rank;
  return rank === undefined ? null : context.api.get("cluster/differences", { rank, limit: SHOWN });
}

/** A phase of a step of one rank beside the median of the others. */
export interface PhaseDifference {
  name: string;
  ns: number;
  others_ns: number;
}

/** phases that tell who waits, and not why */
const WAITS: readonly string[] = ["gradient_sync", "device_wait"];
/** on a device of its own, its work */
const WORK = ["computing", "exposed_copy"] as const;

/** The phases of which a rank has more than the others, the largest difference first. */
export function phaseDifferences(rank: number, ranks: readonly Rank[]): PhaseDifference[] {
  const timed = ranks.filter((one) => one.rank !== null && one.step_ns !== null);
  const [mine, others] = [timed.filter((one) => one.rank === rank), timed.filter((one) => one.rank !== rank)];
  if (!mine.length || !others.length) return [];
  const names = [...HOST_PARTS, ...(mine.every((one) => one.device_kind === "CPU") ? [] : WORK)];
  const of = (some: readonly Rank[], name: string): number[] => some.flatMap((one) => partOf(one.parts, name) ?? []);
  return names
    .filter((name) => !WAITS.includes(name))
    .flatMap((name) => {
      const [ns, others_ns] = [of(mine, name), of(others, name)];
      return ns.length && others_ns.length ? [{ name, ns: median(ns), others_ns: median(others_ns) }] : [];
    })
    .filter((one) => one.ns > one.others_ns)
    .sort((one, other) => other.ns - other.others_ns - (one.ns - one.others_ns));
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((one, other) => one - other);
  const [low, high] = [sorted[Math.floor((sorted.length - 1) / 2)]!, sorted[Math.ceil((sorted.length - 1) / 2)]!];
  return (low + high) / 2;
}

export function differencesCard(context: Context, found: RankDifferences | null, ranks: readonly Rank[]): Child {
  if (!found) return null;
  const phases = phaseDifferences(found.rank, ranks);
  if (!phases.length && !found.rows.length) return null;
  const title = t("ranks.differences", { rank: found.rank });
  return card(
    title,
    [
      phaseTable(found.rank, phases),
      found.rows.length ? [h("h3", null, t("page.operators")), operatorTable(context, found)] : null,
    ],
    { wide: true, note: t(found.of_stage ? "ranks.differences.stage" : "ranks.differences.what") },
  );
}

function phaseTable(rank: number, phases: readonly PhaseDifference[]): Child {
  if (!phases.length) return null;
  return [
    h("h3", null, t("ranks.phases")),
    smallTable(
      t("ranks.phases"),
      [t("ranks.phase"), t("rank.n", { number: rank }), t("ranks.others"), t("ranks.more_of")],
      phases.map((one) => [
        named("part", one.name),
        format.time(one.ns),
        format.time(one.others_ns),
        h("b", null, format.time(one.ns - one.others_ns)),
      ]),
      [1, 2, 3],
    ),
  ];
}

function operatorTable(context: Context, found: RankDifferences): Child {
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
  return [
    smallTable(
      t("page.operators"),
      columns.map(([head]) => head),
      found.rows.map((row) => columns.map(([, cell]) => cell(row))),
      columns.flatMap(([, , numeric], place) => (numeric ? [place] : [])),
    ),
    found.matching > found.rows.length
      ? h("p", { class: "note" }, t("rest", { count: format.count(found.matching - found.rows.length) }))
      : null,
  ];
}
