/** The ranks of a large job in groups of one's choice: a table of one page of them, the slowest first, and their parts as bars. */

import type { SideBySide } from "../../api/types";
import { numberOf } from "../../browser/route";
import { PARTS } from "../../browser/theme";
import { chart, nameAxis, tipOfTimes, valueAxis } from "../../charts/chart";
import { pager, sortedTable, type SortedColumn } from "../../ui/cluster_controls";
import { h, replace, type Child } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { card, choice, nothing } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";
import {
  type Grouping,
  type RankGroup,
  fewRanks,
  findRows,
  groupRows,
  groupings,
  largestRow,
  meanOfRows,
  tellingFigure,
} from "../../ui/rank_places";

const PAGE = 20;
/** figures that have a column each, where they are known */
const COLUMNS = [
  "step_time_ns",
  "own_ns",
  "computing_ns",
  "exposed_communication_ns",
  "exposed_copy_ns",
  "idle_ns",
  "data_wait_ns",
] as const;
const DEVICE = ["computing", "exposed_communication", "exposed_copy", "idle"] as const;
const HOST = ["data_wait", "forward", "backward", "optimizer", "device_wait", "between", "python"] as const;

interface Shown extends RankGroup {
  means: Readonly<Record<string, number | null>>;
  slowest: number | null;
}

/** By what the address groups the ranks: by stage where there are stages, else by host, else not at all. */
export function groupingOf(context: Context, found: SideBySide): Grouping {
  const known = groupings(found);
  return (
    known.find((one) => one === context.params["by"])
    ?? (known.includes("stage") ? "stage" : known.includes("host") ? "host" : "rank")
  );
}

/** What ranks are grouped by, as a user reads it. */
const groupingName = (by: Grouping): string =>
  ({ rank: t("ranks.by.rank"), stage: t("ranks.by.stage"), group: t("ranks.by.group"), host: t("ranks.by.host") })[by];

/** What a figure of ranks is called. */
export const figureName = (name: string): string =>
  name === "own_ns"
    ? t("ranks.own")
    : (PARTS as readonly string[]).includes(name.replace(/_ns$/, ""))
      ? named("part", name.replace(/_ns$/, ""))
      : named("column", name);

/** The card. `onGrouped` is told by what the ranks are grouped from now on. */
export function groupsCard(context: Context, found: SideBySide, onGrouped: (by: Grouping) => void): Child {
  if (found.rank.length < 2) return null;
  const place = h("div");
  const telling = tellingFigure(found);
  const note = (changes: Readonly<Record<string, string | number | null>>): void => {
    context.note({ goffset: null, ...changes });
    show();
  };
  const show = (): void => {
    const by = groupingOf(context, found);
    const sort = context.params["gsort"] ?? telling;
    const descending = context.params["gup"] !== "1";
    const rows = findRows(found, context.params["find"] ?? "");
    const groups = sorted(found, describe(found, groupRows(found, by, rows), telling), sort, descending);
    const offset = Math.min(numberOf(context.params, "goffset") ?? 0, Math.max(groups.length - 1, 0));
    const page = groups.slice(offset, offset + PAGE);
    replace(
      place,
      h(
        "p",
        { class: "note", role: "status" },
        t("ranks.grouped", {
          ranks: format.count(rows.length),
          of: format.count(found.rank.length),
          count: format.count(groups.length),
        }),
      ),
      page.length
        ? [
            sortedTable(
              t("ranks.groups"),
              columns(context, found, by, telling, note),
              page,
              { by: sort, descending },
              (name, down) => note({ gsort: name, gup: down ? null : 1 }),
            ),
            pager(offset, page.length, groups.length, PAGE, (to) => note({ goffset: to || null })),
            bars(context, found, by, page),
          ]
        : nothing(t("search.nothing")),
    );
  };
  const search = h("input", {
    type: "search",
    class: "rank-find",
    placeholder: t("ranks.find"),
    "aria-label": t("ranks.find"),
    autocomplete: "off",
    value: context.params["find"] ?? "",
    oninput: () => note({ find: search.value.trim() || null }),
  });
  const by = choice(
    t("ranks.by"),
    groupings(found).map((one): [string, string] => [one, groupingName(one)]),
    groupingOf(context, found),
    (value) => {
      note({ by: value });
      onGrouped(groupingOf(context, found));
    },
  );
  show();
  return card(t("ranks.groups"), [h("div", { class: "controls" }, by, search), place], {
    wide: true,
    note: t("ranks.groups.what"),
  });
}

function describe(found: SideBySide, groups: readonly RankGroup[], telling: string): Shown[] {
  return groups.map((one) => ({
    ...one,
    means: Object.fromEntries(Object.entries(found.figures).map(([name, values]) => [name, meanOfRows(values, one.rows)])),
    slowest: largestRow(found.figures[telling] ?? [], one.rows),
  }));
}

function sorted(found: SideBySide, groups: Shown[], by: string, descending: boolean): Shown[] {
  const telling = tellingFigure(found);
  const value = (one: Shown): number | string =>
    by === "name"
      ? found.rank[one.rows[0]!]!
      : by === "ranks"
        ? one.rows.length
        : by === "largest"
          ? one.slowest === null
            ? -1
            : (found.figures[telling]?.[one.slowest] ?? -1)
          : (one.means[by] ?? -1);
  const sign = descending ? -1 : 1;
  return [...groups].sort((one, other) => sign * (Number(value(one)) - Number(value(other))));
}

/** What a group is called. */
export function groupName(found: SideBySide, by: Grouping, one: RankGroup): string {
  const first = one.rows[0]!;
  if (by === "stage") return t("stage.n", { number: one.name });
  if (by === "host") return one.name || t("ranks.no_host");
  if (by === "group") return t("ranks.group", { name: one.name });
  const told = t("rank.n", { number: found.rank[first]! });
  return found.rank.filter((rank) => rank === found.rank[first]).length > 1
    ? `${told} (${t("trace.n", { number: found.trace[first]! })})`
    : told;
}

function columns(
  context: Context,
  found: SideBySide,
  by: Grouping,
  telling: string,
  note: (changes: Readonly<Record<string, string | number | null>>) => void,
): SortedColumn<Shown>[] {
  const link = (row: number, text: string): Child => h("a", { href: context.to("steps", { rank: found.trace[row]! }) }, text);
  const figures: readonly string[] = COLUMNS.filter((name) => found.figures[name]);
  const name: SortedColumn<Shown> = {
    name: "name",
    title: groupingName(by),
    cell: (one) => (by === "rank" ? link(one.rows[0]!, groupName(found, by, one)) : groupName(found, by, one)),
  };
  const values = figures.map((figure): SortedColumn<Shown> => ({
    name: figure,
    title: figureName(figure),
    numeric: true,
    cell: (one) => format.value(one.means[figure] ?? null, "ns"),
  }));
  if (by === "rank") {
    const where: SortedColumn<Shown>[] = [];
    if (found.stages > 1)
      where.push({ name: "", title: t("stage"), numeric: true, cell: (one) => String(found.stage[one.rows[0]!] ?? "") });
    if (found.host.some(Boolean)) where.push({ name: "", title: t("host"), cell: (one) => found.host[one.rows[0]!]! });
    const more: SortedColumn<Shown> = {
      name: "",
      title: "",
      cell: (one) => h("a", { href: context.to("timeline", { rank: found.trace[one.rows[0]!]! }) }, t("page.timeline")),
    };
    return [name, ...where, ...values, more];
  }
  const ranks: SortedColumn<Shown> = {
    name: "ranks",
    title: t("ranks"),
    numeric: true,
    cell: (one) =>
      h(
        "button",
        {
          type: "button",
          class: "plain",
          title: fewRanks(one.rows.map((row) => found.rank[row]!)),
          onclick: () => {
            const asked = by === "stage" ? `stage ${one.name}` : by === "host" ? `host ${one.name}` : "";
            if (asked) {
              const box = document.querySelector<HTMLInputElement>(".rank-find");
              if (box) box.value = asked;
              note({ by: "rank", find: asked });
            }
          },
        },
        format.count(one.rows.length),
      ),
  };
  const largest: SortedColumn<Shown> = {
    name: "largest",
    title: t("ranks.largest", { figure: figureName(telling) }),
    numeric: true,
    cell: (one) =>
      one.slowest === null
        ? format.NOTHING
        : [
            format.value(found.figures[telling]?.[one.slowest] ?? null, "ns"),
            " · ",
            link(one.slowest, t("rank.n", { number: found.rank[one.slowest]! })),
          ],
  };
  return [name, ranks, ...values, largest];
}

/** The parts of a step of the groups of one page. */
function bars(context: Context, found: SideBySide, by: Grouping, page: readonly Shown[]): Child {
  const has = (names: readonly string[]): boolean => names.some((name) => found.figures[`${name}_ns`]);
  const names = (has(DEVICE) ? DEVICE : HOST).filter((name) => page.some((one) => (one.means[`${name}_ns`] ?? 0) > 0));
  if (!names.length) return null;
  const titles = page.map((one) => groupName(found, by, one));
  return chart(
    {
      label: t("ranks.parts"),
      height: 240,
      option: (colours) => ({
        grid: { left: 70, right: 12, top: 30, bottom: 24 },
        legend: { type: "scroll", top: 0, textStyle: { color: colours.text } },
        xAxis: nameAxis(colours, titles),
        yAxis: valueAxis(colours, format.time),
        tooltip: tipOfTimes("shadow"),
        series: names.map((name) => ({
          type: "bar",
          stack: "all",
          name: named("part", name),
          color: colours.parts[name],
          barMaxWidth: 48,
          data: page.map((one) => one.means[`${name}_ns`] ?? 0),
        })),
      }),
    },
    context.signal,
  );
}
