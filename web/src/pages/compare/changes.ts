/** Where the difference of two sides lies: parts that add up to the step, operators, kernels, and device time by call path. */

import type { ComparedName, ComparedPart, ComparedPath, ComparedSide, Comparison } from "../../api/types";
import { formatRoute } from "../../browser/route";
import { type Child, h } from "../../ui/dom";
import { DEVICE_PARTS, HOST_PARTS, type Head, card, headedTable, partsBar } from "../../ui/ui";
import * as format from "../../words/format";
import { inLanguage, named, t } from "../../words/i18n";
import { directionOf, intervalBar, reachOf } from "./interval_bar";
import { percentText } from "./verdict";

const LONGEST_NAME = 80;

/** A time that has a sign, as what is more or less. */
export const signedTime = (ns: number): string => (ns === 0 ? "0" : `${ns > 0 ? "+" : "-"}${format.time(Math.abs(ns))}`);

/** A difference in words: the interval, or why there is none. */
export function intervalWords(value: number, error: number | null): string {
  if (error === null) return t("compare.interval.few");
  return t("compare.interval", { low: signedTime(value - error), high: signedTime(value + error) });
}

interface Changed {
  difference_ns: number;
  error_ns: number | null;
}

/** The interval, and whether chance may explain the difference. */
const intervalCell = ({ difference_ns: value, error_ns: error }: Changed): Child => [
  h("span", { class: "whole-text" }, intervalWords(value, error)),
  error !== null && directionOf(value, error) === "unsure"
    ? [" ", h("span", { class: "note whole-text" }, t("compare.chance"))]
    : null,
];

/** The columns of intervals, as marks on one scale and in words; none where a side has too few steps for any of them. */
function intervalColumns(rows: readonly Changed[]): { heads: Head[]; cells: (row: Changed) => Child[]; note: string | null } {
  if (rows.every((row) => row.error_ns === null)) return { heads: [], cells: () => [], note: t("compare.interval.none") };
  const reach = reachOf(rows);
  return {
    heads: [{ title: "" }, { title: t("compare.interval.head") }],
    cells: (row) => [intervalBar(row.difference_ns, row.error_ns, reach), intervalCell(row)],
    note: null,
  };
}

const relative = (before: number | null, difference: number): string =>
  before ? percentText(difference / before) : format.NOTHING;

/** A share of the change; what rounds to none has no sign. */
const shareText = (share: number): string => format.share(Math.round(share * 1000) / 1000 || 0);

/** The name of a part of a step: a column of `step_times`. */
const partName = (part: string): string => named("part", part.replace(/_ns$/, ""));

/** The parts of a step that add up to it, as bars and as a table; of a device as well where there is one. */
export function partsCard(found: Comparison): Child {
  const families = [found.parts, found.device_parts].filter((parts) => parts.length);
  if (!families.length) return null;
  return card(
    t("compare.parts"),
    families.map((parts) => familyOf(parts)),
    { wide: true, note: t("compare.parts.what") },
  );
}

const isOfHost = (parts: readonly ComparedPart[]): boolean =>
  parts.some((one) => (HOST_PARTS as readonly string[]).includes(one.part.replace(/_ns$/, "")));

/** Whether the step is one of the device, so that its parts add up to it and those of the host do not. */
export const isOfDevice = ({ parts }: Pick<Comparison, "parts">): boolean => parts.length > 0 && !isOfHost(parts);

function familyOf(parts: readonly ComparedPart[]): Child {
  const [title, names] = isOfHost(parts) ? [t("parts.host"), HOST_PARTS] : [t("parts.device"), DEVICE_PARTS];
  const of = (side: "before_ns" | "after_ns"): Record<string, number> =>
    Object.fromEntries(parts.map((one) => [one.part, one[side]]));
  const sum = (side: "before_ns" | "after_ns"): number => parts.reduce((all, one) => all + one[side], 0);
  const widest = Math.max(sum("before_ns"), sum("after_ns"));
  return [
    partsBar(`${title}: ${t("compare.before")}`, names, of("before_ns"), widest),
    partsBar(`${title}: ${t("compare.after")}`, names, of("after_ns"), widest),
    partsTable(title, parts),
  ];
}

function partsTable(title: string, parts: readonly ComparedPart[]): Child {
  const shown = parts.filter((one) => one.before_ns || one.after_ns);
  const [before, after] = [sumOf(shown, "before_ns"), sumOf(shown, "after_ns")];
  const is_shared = shown.some((one) => one.share !== null);
  const interval = intervalColumns(shown);
  const rows: Child[][] = shown.map((one) => [
    partName(one.part),
    format.time(one.before_ns),
    format.time(one.after_ns),
    signedTime(one.difference_ns),
    ...(is_shared ? [one.share === null ? "" : shareText(one.share)] : []),
    ...interval.cells(one),
  ]);
  rows.push(
    [t("compare.sum"), format.time(before), format.time(after), signedTime(after - before)].map((text) => h("b", null, text)),
  );
  return [
    headedTable(
      title,
      [
        { title: t("compare.part") },
        { title: t("compare.before"), numeric: true },
        { title: t("compare.after"), numeric: true },
        { title: t("compare.difference"), numeric: true },
        ...(is_shared ? [{ title: t("compare.share"), numeric: true }] : []),
        ...interval.heads,
      ],
      rows,
    ),
    interval.note ? h("p", { class: "note" }, interval.note) : null,
  ];
}

const sumOf = (parts: readonly ComparedPart[], side: "before_ns" | "after_ns"): number =>
  parts.reduce((all, one) => all + one[side], 0);

/** How many causes are not shown, as the terminal says it. */
export function othersWords(more: number, certain: number | null): string {
  const count = format.count(more);
  if (certain === null) return t("compare.causes.others", { count });
  if (!certain) return t("compare.causes.others.chance", { count });
  return t("compare.causes.others.beyond", { count, certain: format.count(certain) });
}

/** What explains the change of the step, the largest cause first; with all others they add up to it. */
export function causesCard(found: Comparison): Child {
  const { causes } = found;
  if (!causes?.causes.length) return null;
  const interval = intervalColumns(causes.causes);
  const rows: Child[][] = causes.causes.map((one) => [
    inLanguage(one.texts) ?? "",
    format.time(one.before_ns),
    format.time(one.after_ns),
    signedTime(one.difference_ns),
    one.share === null ? "" : shareText(one.share),
    ...interval.cells(one),
  ]);
  if (causes.more) rows.push([othersWords(causes.more, causes.more_certain), "", "", signedTime(causes.others_ns)]);
  return card(
    t("compare.causes"),
    headedTable(
      t("compare.causes"),
      [
        { title: t("compare.causes.cause") },
        { title: t("compare.before"), numeric: true },
        { title: t("compare.after"), numeric: true },
        { title: t("compare.difference"), numeric: true },
        { title: t("compare.share"), numeric: true },
        ...interval.heads,
      ],
      rows,
    ),
    {
      wide: true,
      note: [
        t(causes.side === "device" ? "compare.causes.device" : "compare.causes.host"),
        " ",
        causes.explained === null ? null : t("compare.causes.explained", { share: shareText(causes.explained) }),
        " ",
        interval.note,
      ],
    },
  );
}

/** The names whose time changed the most, each with its interval; a figure of a side leads to its calls there. */
export function namesCard(
  found: Comparison,
  title: string,
  what: string,
  list: readonly ComparedName[],
  different: number,
): Child {
  if (!list.length) return null;
  const interval = intervalColumns(list);
  const rows = list.map((row) => [
    h("span", { title: row.name }, format.shorten(row.name, LONGEST_NAME)),
    sideTime(found.before, row.name, row.before_ns),
    sideTime(found.after, row.name, row.after_ns),
    signedTime(row.difference_ns),
    relative(row.before_ns, row.difference_ns),
    callsText(row),
    ...interval.cells(row),
  ]);
  const more = different - rows.length;
  return card(
    title,
    [
      headedTable(
        title,
        [
          { title: named("column", "name") },
          { title: t("compare.before"), numeric: true },
          { title: t("compare.after"), numeric: true },
          { title: t("compare.difference"), numeric: true },
          { title: t("compare.change"), numeric: true },
          { title: named("column", "calls"), numeric: true },
          ...interval.heads,
        ],
        rows,
      ),
      more > 0 ? h("p", { class: "note" }, t("rest", { count: format.count(more) })) : null,
    ],
    { wide: true, note: [what, " ", interval.note] },
  );
}

function callsText({ before_calls, after_calls }: ComparedName): string {
  const [before, after] = [before_calls ?? 0, after_calls ?? 0].map((count) => format.value(count, ""));
  return before === after ? before! : `${before} → ${after}`;
}

/** A time of a side, which leads to the calls of that name on its timeline. */
function sideTime(side: ComparedSide, name: string, ns: number | null): Child {
  if (ns === null) return format.NOTHING;
  return h("a", { href: formatRoute(side.run, "timeline", { find: name }) }, format.time(ns));
}

/** Device time by the operator that launched it: kernels of two devices or versions have other names. */
export function pathsCard(found: Comparison): Child {
  const changed = found.device_time.filter((row) => row.difference_ns !== 0);
  if (!changed.length) return null;
  const rows = changed.map((row) => [
    h("span", { title: row.path }, format.shorten(pathName(row, changed), LONGEST_NAME)),
    sideTime(found.before, row.name, row.before_ns),
    sideTime(found.after, row.name, row.after_ns),
    signedTime(row.difference_ns),
    relative(row.before_ns, row.difference_ns),
    launchedBy(row),
  ]);
  return card(
    t("compare.paths"),
    headedTable(
      t("compare.paths"),
      [
        { title: t("compare.paths.operator") },
        { title: t("compare.before"), numeric: true },
        { title: t("compare.after"), numeric: true },
        { title: t("compare.difference"), numeric: true },
        { title: t("compare.change"), numeric: true },
        { title: t("compare.paths.launched") },
      ],
      rows,
    ),
    {
      wide: true,
      note: [
        t("compare.paths.what"),
        found.matched === null ? null : [" ", t("compare.paths.matched", { share: shareText(found.matched) })],
      ],
    },
  );
}

/** The last operator of a path with its module, and with what calls it where several rows would have one name. */
export function pathName(row: ComparedPath, all: readonly ComparedPath[]): string {
  const nameOf = (one: ComparedPath): string => (one.module ? `${one.module}: ${one.name}` : one.name);
  const name = nameOf(row);
  return all.filter((one) => nameOf(one) === name).length > 1 ? row.path.split(" > ").slice(-2).join(" > ") : name;
}

/** What launched the tasks below a path, where that differs. */
function launchedBy({ before_launched_by: before, after_launched_by: after }: ComparedPath): string {
  return before === after ? before : `${before || t("compare.paths.nothing")} → ${after || t("compare.paths.nothing")}`;
}
