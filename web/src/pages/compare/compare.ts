/** Two runs beside each other: the length of a step, where the difference lies, and what became of the advice. */

import { compare as ask } from "../../api/client";
import type { Comparison, Finding, Row, Side } from "../../api/types";
import { formatRoute, numberOf } from "../../browser/route";
import { h, type Child } from "../../ui/dom";
import type { Page } from "../../ui/page";
import { meanLength, meanOf } from "../../ui/step_means";
import {
  DEVICE_PARTS,
  HOST_PARTS,
  card,
  choice,
  figure,
  figures,
  findingLine,
  grid,
  nothing,
  partOf,
  partsBar,
  smallTable,
} from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

const MOST_NAMES = 25;

export const compare: Page = {
  id: "compare",
  title: "page.compare",
  listed: (session) => session.runs.length > 1,
  async show(context) {
    const { runs } = context.session;
    if (runs.length < 2) return nothing(t("compare.one"), t("compare.one.why"));
    const before = numberOf(context.params, "before") ?? 0;
    const after = numberOf(context.params, "after") ?? 1;
    const items = runs.map((one): [string, string] => [String(one.run), one.name]);
    const chooser = h(
      "div",
      { class: "controls" },
      choice(t("compare.before"), items, String(before), (value) => context.visit({ before: value })),
      choice(t("compare.after"), items, String(after), (value) => context.visit({ after: value })),
      h("button", { type: "button", onclick: () => context.visit({ before: after, after: before }) }, t("compare.swap")),
    );
    const found = await ask(before, after, context.signal);
    return [
      chooser,
      found.unlike
        ? h(
            "p",
            { class: "callout", role: "note" },
            t("compare.unlike", {
              common: format.share(found.common_share ?? 0),
              before: ranAs(found.before),
              after: ranAs(found.after),
            }),
          )
        : ranAs(found.before) === ranAs(found.after)
          ? null
          : h("p", { class: "note" }, t("compare.other.devices", { before: ranAs(found.before), after: ranAs(found.after) })),
      change(found),
      grid(
        sides(found),
        parts(found),
        names(found, t("compare.operators"), found.operators, "self_ns", found.different),
        // on the CPU the tasks are the operators again
        [found.before, found.after].every((side) => side.devices.every((device) => device === "CPU"))
          ? null
          : names(found, t("compare.tasks"), found.tasks, "total_ns", found.different_tasks),
        findings(t("compare.cured"), found.cured, before),
        findings(t("compare.new"), found.new, after),
        findings(t("compare.remaining"), found.remaining, after),
      ),
    ];
  },
};

/** What a run ran on. */
const ranAs = (side: Side): string => t("compare.run", { count: side.ranks, device: side.devices.join(", ") });

function change(found: Comparison): Child {
  const [first, second] = [found.before.step_ns, found.after.step_ns];
  const steps = (side: Side): string => formatRoute(side.run, "steps");
  const of = (side: Side): Child => {
    const { p25_ns: low, p75_ns: high } = side;
    const counted = t("median.of", { count: format.count(side.steps) });
    return low === null || high === null
      ? counted
      : [counted, "; ", t("compare.spread", { low: format.time(low), high: format.time(high) })];
  };
  return figures(
    figure(t("compare.before"), format.value(first, "ns"), of(found.before), steps(found.before)),
    figure(t("compare.after"), format.value(second, "ns"), of(found.after), steps(found.after)),
    changed(found, first, second),
    found.promised_ns > 0 ? figure(t("compare.promised"), format.time(found.promised_ns), t("per_step")) : null,
    found.before.peak_bytes === null && found.after.peak_bytes === null
      ? null
      : figure(
          t("memory.peak"),
          `${format.value(found.before.peak_bytes, "bytes")} → ${format.value(found.after.peak_bytes, "bytes")}`,
        ),
  );
}

/** The change of the step, never without what it is worth: steps of one run differ too. */
function changed(found: Comparison, first: number | null, second: number | null): HTMLElement {
  if (first === null || second === null) return figure(t("compare.change"), format.NOTHING);
  const difference = second - first;
  if (difference !== 0 && found.within_spread && !found.unlike)
    return figure(t("compare.change"), t("compare.within"), `${signed(difference)} (${relative(first, second)})`);
  const trust = t(found.within_spread === null ? "compare.few" : "compare.beyond");
  if (found.unlike) return figure(t("compare.change"), signed(difference));
  return difference === 0
    ? figure(t("compare.change"), relative(first, second))
    : figure(t("compare.change"), relative(first, second), [signed(difference), ", ", trust]);
}

function sides(found: Comparison): Child {
  const both = [found.before.figures, found.after.figures];
  const whole = Math.max(...both.flatMap((one) => [one.host_mean_ns ?? 0, one.device_mean_ns ?? 0, one.step_mean_ns ?? 0]));
  const mean = (side: Side): string => `${meanOf(side.figures)} (${format.value(meanLength(side.figures), "ns")})`;
  const bars = (
    [
      [t("parts.host"), HOST_PARTS],
      [t("parts.device"), DEVICE_PARTS],
    ] as const
  ).map(([title, names]) => [
    partsBar(`${title}: ${t("compare.before")}`, names, found.before.parts, whole),
    partsBar(`${title}: ${t("compare.after")}`, names, found.after.parts, whole),
  ]);
  const timed = both.every((one) => one.step_mean_ns !== null);
  const what = timed ? t("compare.parts.what", { before: mean(found.before), after: mean(found.after) }) : null;
  return card(t("overview.step"), bars, { wide: true, note: what });
}

const relative = (before: unknown, after: unknown): string =>
  Number(before) > 0 && after !== null ? signedShare(Number(after) / Number(before) - 1) : format.NOTHING;
const signedShare = (change: number): string => `${change > 0 ? "+" : ""}${format.share(change)}`;
const signed = (value: unknown): string => `${Number(value) > 0 ? "+" : ""}${format.value(value, "ns")}`;

/** The parts of the bars, so that backward does not count gradient synchronisation again; beside them overlapped communication. */
function parts(found: Comparison): Child {
  const rows = [...HOST_PARTS, ...DEVICE_PARTS, "overlapped_communication"]
    .map((name) => [name, partOf(found.before.parts, name), partOf(found.after.parts, name)] as const)
    .filter(([, before, after]) => before || after)
    .map(([name, before, after]) => [
      named("part", name),
      format.value(before, "ns"),
      format.value(after, "ns"),
      signed((after ?? 0) - (before ?? 0)),
      ...(found.unlike ? [] : [relative(before, after)]),
    ]);
  return card(
    t("compare.parts"),
    smallTable(
      t("compare.parts"),
      [
        t("compare.part"),
        t("compare.before"),
        t("compare.after"),
        t("compare.difference"),
        ...(found.unlike ? [] : [t("compare.change")]),
      ],
      rows,
      [1, 2, 3, 4],
    ),
    { wide: true },
  );
}

/** The names whose time changed the most; the figure of a run leads to its calls there. */
function names(found: Comparison, title: string, list: readonly Row[], time: "self_ns" | "total_ns", different: number): Child {
  if (!list.length) return null;
  const calls = named("column", "calls");
  const at = (side: Side, row: Row, column: string): Child => {
    const value = row[column];
    return value === null || value === undefined
      ? format.NOTHING
      : h("a", { href: formatRoute(side.run, "timeline", { find: String(row["name"]) }) }, format.value(value, "ns"));
  };
  const rows = list
    .slice(0, MOST_NAMES)
    .map((row) => [
      h("span", { title: String(row["name"]) }, format.shorten(String(row["name"]), 120)),
      at(found.before, row, `before_${time}`),
      at(found.after, row, `after_${time}`),
      signed(row["difference_ns"]),
      format.value(row["before_calls"], ""),
      format.value(row["after_calls"], ""),
    ]);
  const heads = [
    named("column", "name"),
    t("compare.before"),
    t("compare.after"),
    t("compare.difference"),
    `${calls} (${t("compare.before")})`,
    `${calls} (${t("compare.after")})`,
  ];
  const more = different - rows.length;
  const all: Child = [
    smallTable(title, heads, rows, [1, 2, 3, 4, 5]),
    more > 0 ? h("p", { class: "note" }, t("rest", { count: format.count(more) })) : null,
  ];
  // a hundred rows below a step that did not change, or of two programs, are looked at by who wants to
  const folded = found.unlike || found.within_spread;
  return card(
    title,
    folded
      ? h(
          "details",
          null,
          h("summary", null, t("compare.names", { count: format.count(different) })),
          found.unlike ? null : h("p", { class: "note" }, t("compare.names.within")),
          all,
        )
      : all,
    { wide: true, note: time === "self_ns" ? t("compare.operators.what") : t("compare.tasks.what") },
  );
}

function findings(title: string, list: readonly Finding[], run: number): Child {
  if (!list.length) return null;
  return card(
    title,
    h(
      "ul",
      { class: "findings" },
      list.map((one) => findingLine(one, formatRoute(run, "advice", { finding: one.id }))),
    ),
  );
}
