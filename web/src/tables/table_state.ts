/** What a table is made with, and its sort order and conditions, as the address keeps them. */

import type { Condition, Order, Row, TableQuery } from "../api/types";

export interface TableState {
  sort: Order[];
  where: Condition[];
  /** whether all columns are shown, as addresses said before single ones could be chosen */
  all: boolean;
  /** names of the columns to show; null for what the table shows by itself */
  columns: string[] | null;
  /** of columns whose width somebody changed, rem */
  widths: Readonly<Record<string, number>>;
}

export interface TableOptions {
  /** of the server */
  name: string;
  /** of this table on the page; its parameters in the address begin with it */
  id?: string;
  trace?: number | null;
  /** shown first, in this order; the others when the user chooses them. All of them by default */
  columns?: readonly string[];
  /** left out unless somebody chooses them */
  without?: readonly string[];
  sort?: TableState["sort"];
  /** conditions that the user does not see */
  where?: TableQuery["where"];
  /** whether its card disappears when it has no rows */
  optional?: boolean;
  /** column -> address of what its cell leads to */
  links?: Readonly<Record<string, (row: Row) => string | null>>;
  /** column -> what a text of it is called in its cell; the whole text stands in the details of the row */
  labels?: Readonly<Record<string, (text: string) => string>>;
  height?: number;
}

/** The state of the table `id`; what an address has wrong counts as not said. */
export function readState(params: Readonly<Record<string, string>>, id: string, sort: readonly Order[]): TableState {
  const order = params[`${id}.sort`];
  return {
    sort: order ? [{ column: order.replace(/^-/, ""), descending: order.startsWith("-") }] : [...sort],
    where: conditions(params[`${id}.where`]),
    all: params[`${id}.all`] === "1",
    columns: params[`${id}.columns`]?.split(",").filter(Boolean) ?? null,
    widths: widths(params[`${id}.widths`]),
  };
}

/** The parameters that keep a state; null for what is as by default. */
export function writeState(id: string, state: TableState): Record<string, string | null> {
  const order = state.sort[0];
  return {
    [`${id}.sort`]: order ? (order.descending ? "-" : "") + order.column : null,
    [`${id}.where`]: state.where.length ? JSON.stringify(state.where) : null,
    [`${id}.all`]: state.all ? "1" : null,
    [`${id}.columns`]: state.columns ? state.columns.join(",") : null,
    [`${id}.widths`]:
      Object.entries(state.widths)
        .map(([name, width]) => `${name}:${width}`)
        .join(",") || null,
  };
}

function widths(text: string | undefined): Record<string, number> {
  const pairs = (text ?? "").split(",").map((one) => one.split(":") as [string, string?]);
  return Object.fromEntries(
    pairs.map(([name, width]) => [name, Number(width)] as const).filter(([name, width]) => name && width > 0 && width < 200),
  );
}

function conditions(text: string | undefined): Condition[] {
  if (!text) return [];
  try {
    const found: unknown = JSON.parse(text);
    return Array.isArray(found) ? found.filter(isCondition) : [];
  } catch {
    return [];
  }
}

function isCondition(one: unknown): one is Condition {
  return typeof one === "object" && one !== null && typeof (one as Condition).column === "string";
}
