/** Pages of a table that is in the report: the conditions and orders of the server, over the rows that are there. */

import { Refused } from "../api/refused";
import type { Column, Condition, Order, TablePage, TableQuery } from "../api/types";

/** A table of a report; `total` counts all of its rows, of which the report may have only some. */
export interface Table extends TablePage {
  /** all rows, those of the window, or the first ones */
  kept: "all" | "window" | "first";
  status?: number;
  problem?: { problem: string; where: string; remedy: string };
}

/** One page; with `trace` of the rows of this trace only. */
export function pageOf(table: Table, query: TableQuery, trace: number | null): TablePage {
  if (table.problem) throw new Refused(table.status ?? 500, table.problem);
  const whole = trace === null ? table : ofTrace(table, trace);
  let rows = whole.rows;
  for (const one of query.where ?? []) {
    const at = placeOf(whole.columns, one.column);
    rows = rows.filter((row) => satisfies(row[at], whole.columns[at]!, one));
  }
  const offset = query.offset ?? 0;
  const page = sorted(rows, whole.columns, query.sort ?? []).slice(offset, offset + (query.limit ?? 100));
  return {
    name: table.name,
    title: table.title,
    columns: whole.columns,
    rows: page,
    matching: rows.length,
    total: whole.total,
    empty: offset ? [] : whole.empty,
    kept: table.kept,
    embedded: whole.rows.length,
  };
}

/** The rows of one trace, without the columns that tell which it is; tables of the whole run have none. */
function ofTrace(table: Table, trace: number): Pick<Table, "columns" | "rows" | "total" | "empty"> {
  if (table.columns[0]?.name !== "trace" || table.columns[1]?.name !== "rank") return table;
  const rows = table.rows.filter((row) => row[0] === trace).map((row) => row.slice(2));
  const columns = table.columns.slice(2);
  // of some rows of a table nobody knows what the others hold
  const empty =
    table.kept === "all" && rows.length
      ? columns.filter((one, at) => rows.every((row) => saysNothing(row[at], one))).map((one) => one.name)
      : table.empty;
  return { columns, rows, total: rows.length, empty };
}

/** As the server tells it: no value, or an amount of 0. */
const saysNothing = (value: unknown, column: Column): boolean =>
  value === null || (value === 0 && column.unit !== null && column.unit !== "moment");

function placeOf(columns: readonly Column[], name: string): number {
  const at = columns.findIndex((one) => one.name === name);
  if (at < 0)
    throw new Refused(422, {
      problem: "the table has no such column",
      where: name,
      remedy: `Its columns are ${columns.map((one) => one.name).join(", ")}`,
    });
  return at;
}

function satisfies(value: unknown, column: Column, one: Condition): boolean {
  const none = value === null || value === undefined;
  if (one.missing != null && one.missing !== none) return false;
  if (one.contains != null && (none || !textOf(value).toLowerCase().includes(one.contains.toLowerCase()))) return false;
  if (
    one.one_of != null
    && (none || !one.one_of.some((wanted) => (column.type === "text" ? String(wanted) === value : wanted === value)))
  )
    return false;
  if (one.at_least != null && (none || compared(value, column.type === "integer" ? Math.ceil(one.at_least) : one.at_least) < 0))
    return false;
  if (one.at_most != null && (none || compared(value, column.type === "integer" ? Math.floor(one.at_most) : one.at_most) > 0))
    return false;
  return true;
}

const textOf = (value: unknown): string => (Array.isArray(value) ? value.join(",") : String(value));

/** Numbers in order; integers that a double does not hold are texts of digits. */
function compared(one: unknown, other: unknown): number {
  if (typeof one === "number" && typeof other === "number") return one - other;
  const [left, right] = [BigInt(one as string | number), BigInt(other as string | number)];
  return left < right ? -1 : left > right ? 1 : 0;
}

function sorted(rows: readonly unknown[][], columns: readonly Column[], orders: readonly Order[]): unknown[][] {
  const keys = orders.map((one) => ({ at: placeOf(columns, one.column), down: one.descending ? -1 : 1 }));
  const result = [...rows];
  if (keys.length)
    result.sort((one, other) =>
      keys.reduce((found, { at, down }) => found || inOrder(one[at], other[at], columns[at]!, down), 0),
    );
  return result;
}

/** What has no value comes last, whatever the direction. */
function inOrder(one: unknown, other: unknown, column: Column, down: number): number {
  const [no, nor] = [one === null || one === undefined, other === null || other === undefined];
  if (no || nor) return Number(no) - Number(nor);
  if (column.type === "list") return ((one as unknown[]).length - (other as unknown[]).length) * down;
  if (column.type === "boolean") return (Number(one) - Number(other)) * down;
  return (column.type === "text" ? byCharacter(String(one), String(other)) : compared(one, other)) * down;
}

/** In order of code points, as the server sorts; the units of a string are not in this order beyond U+FFFF. */
function byCharacter(one: string, other: string): number {
  if (one === other) return 0;
  const length = Math.min(one.length, other.length);
  let at = 0;
  while (at < length && one[at] === other[at]) at++;
  const [left, right] = [one.charCodeAt(at), other.charCodeAt(at)];
  if (Number.isNaN(left) || Number.isNaN(right)) return one.length - other.length;
  const high = (unit: number): boolean => unit >= 0xd800 && unit < 0xe000;
  return high(left) === high(right) ? left - right : high(left) ? 1 : -1;
}
