/** What a chart shows as a table, for those who do not see it. */

import type { EChartsCoreOption } from "echarts/core";

import { type Child, h } from "../ui/dom";
import * as format from "../words/format";
import { t } from "../words/i18n";

const MOST_ROWS = 100;

type Say = (value: number) => string;
type Point = number | null | readonly number[] | { name?: string; value?: number | readonly number[] | null };
interface Axis {
  type?: string;
  data?: readonly unknown[];
  axisLabel?: { formatter?: unknown };
}
interface Series {
  type?: string;
  name?: string;
  data?: readonly Point[];
}

/**
 * A table that is only read aloud; null where the series are no lists of figures.
 *
 * @param say how a figure reads where no axis says it
 */
export function chartTable(label: string, option: EChartsCoreOption, say: Say): HTMLElement | null {
  const { xAxis, yAxis, series } = option as { xAxis?: Axis | Axis[]; yAxis?: Axis | Axis[]; series?: Series | Series[] };
  const shown = list(series).filter((one) => Array.isArray(one.data));
  const [across, up] = [list(xAxis)[0], list(yAxis)[0]];
  const lists = shown.filter((one) => one.data!.some((point) => figureOf(point) !== null));
  if (!lists.length) return null;
  const names = across?.type === "category" ? across.data : up?.type === "category" ? up.data : undefined;
  const values = across?.type === "category" ? up : across;
  if (names)
    return made(
      label,
      ["", ...lists.map((one) => one.name ?? label)],
      names.map((name, place) => [String(name), ...lists.map((one) => said(figureOf(one.data![place]), values, say))]),
    );
  const rows = lists.flatMap((one) =>
    one.data!.map((point) => {
      const pair = pairOf(point);
      return pair
        ? [one.name ?? "", said(pair[0] ?? null, across, say), said(pair[1] ?? null, up, say)]
        : [nameOf(point) || (one.name ?? ""), said(figureOf(point), undefined, say)];
    }),
  );
  return made(label, [], rows);
}

function made(label: string, heads: readonly string[], rows: readonly (readonly string[])[]): HTMLElement {
  const cells = (row: readonly string[]): Child =>
    row.map((text, place) => (place ? h("td", null, text) : h("th", { scope: "row" }, text || label)));
  return h(
    "div",
    { class: "hidden" },
    h(
      "table",
      null,
      h("caption", null, label),
      heads.length
        ? h(
            "thead",
            null,
            h(
              "tr",
              null,
              heads.map((head, place) => (place ? h("th", { scope: "col" }, head) : h("td"))),
            ),
          )
        : null,
      h(
        "tbody",
        null,
        rows.slice(0, MOST_ROWS).map((row) => h("tr", null, cells(row))),
      ),
    ),
    rows.length > MOST_ROWS ? h("p", null, t("rest", { count: format.count(rows.length - MOST_ROWS) })) : null,
  );
}

const list = <A>(one: A | A[] | undefined): A[] => (one === undefined ? [] : Array.isArray(one) ? one : [one]);

const nameOf = (point: Point): string => (typeof point === "object" && point && "name" in point ? (point.name ?? "") : "");

/** The two or more numbers of a point in a plane. */
function pairOf(point: Point | undefined): readonly number[] | null {
  const value = typeof point === "object" && point && "value" in point ? point.value : point;
  return Array.isArray(value) ? (value as readonly number[]) : null;
}

/** The figure of a point; of a point in a plane the height. */
function figureOf(point: Point | undefined): number | null {
  const pair = pairOf(point);
  const value = pair ? pair[1] : typeof point === "object" && point && "value" in point ? point.value : point;
  return typeof value === "number" ? value : null;
}

function said(value: number | null, axis: Axis | undefined, say: Say): string {
  if (value === null) return format.NOTHING;
  const formatter = axis?.axisLabel?.formatter;
  return typeof formatter === "function" ? String((formatter as Say)(value)) : say(value);
}
