/** Rows of a table: the head, one of the body, how wide their cells are, one with everything about it, and several as text. */

import type { Column, Order } from "../api/types";
import { h } from "../ui/dom";
import * as format from "../words/format";
import { named, t } from "../words/i18n";
import { detail } from "./details";

export const isNumber = (column: Column): boolean => column.type === "integer" || column.type === "number";

/** columns whose values are a few words of steplens; the rest of them are names out of the recording */
const WORDED: ReadonlySet<string> = new Set(["kind", "part", "bound"]);

/** A word of steplens in a table or a track, in the page's language; what is none stays as it is. */
export const cellWord = (word: string): string => named("value", `cell.${word.replaceAll(" ", "_")}`, word);

/** A value of a column; allocators number the CPU, which has no number among the devices, -1. */
export const cellText = (cell: unknown, column: Column): string =>
  column.name === "device" && cell === -1
    ? "CPU"
    : column.name === "cause" && typeof cell === "string"
      ? named("value", `idle.${cell.replaceAll(" ", "_")}`, cell)
      : WORDED.has(column.name) && typeof cell === "string"
        ? cellWord(cell)
        : column.name === "differs" && typeof cell === "string"
          ? // the part in which a rank differs is told by the name of its column
            named("column", cell, cell)
          : format.value(cell, column.unit);

/** Width of a column, rem: what does not fit is cut off, and whole in the details of a row. No word of the heading is cut. */
export function widthOf(column: Column): number {
  const words = named("column", column.name).split(/[\s\u3000-\u9fff-]+/);
  return Math.max(usual(column), Math.max(...words.map((one) => one.length)) * 0.63 + 1.3);
}

function usual(column: Column): number {
  if (column.unit === "moment") return 8.4;
  if (column.unit) return column.unit === "ns" || column.unit === "percent" || column.unit === "ratio" ? 6.1 : 7.2;
  if (isNumber(column)) return 5.2;
  return /^name$|stack|shapes|message|path|record/.test(column.name) ? 20 : column.type === "boolean" ? 6 : 9;
}

/** The heads of some columns with their places in a row; a click sorts by one, another one the other way round. */
export function headRow(
  columns: readonly [Column, number][],
  order: Order | undefined,
  width: (column: Column) => number,
  onSort: (order: Order) => void,
): HTMLElement {
  const head = ([column]: [Column, number]): HTMLElement => {
    const sorted = order?.column === column.name ? (order.descending ? "descending" : "ascending") : "none";
    const words = named("column", column.name);
    const next = { column: column.name, descending: sorted === "none" ? isNumber(column) : sorted === "ascending" };
    return h(
      "th",
      {
        scope: "col",
        "aria-sort": sorted,
        class: isNumber(column) ? "number" : "text",
        title: words,
        style: { width: `${width(column)}rem` },
      },
      h(
        "button",
        { type: "button", "data-control": `sort ${column.name}`, onclick: () => onSort(next) },
        words,
        h("span", { "aria-hidden": "true" }, { none: "", ascending: " ▲", descending: " ▼" }[sorted]),
      ),
      h("span", { class: "edge", "aria-hidden": "true", title: t("table.width") }),
    );
  };
  return h("thead", null, h("tr", { "aria-rowindex": 1 }, columns.map(head)));
}

/** What a row of the body needs besides its cells. */
export interface RowLook {
  marked: boolean;
  /** what the cell of a column leads to */
  link: (column: string) => string | null;
  /** what a text of a column is called */
  labels: Readonly<Record<string, (text: string) => string>>;
  /** a click shows everything about it */
  open: () => void;
}

/** A row of the body; an ellipsis in every cell until its values are there. */
export function bodyRow(
  place: number,
  columns: readonly [Column, number][],
  row: readonly unknown[] | undefined,
  look: RowLook,
): HTMLElement {
  const cell = ([column, at]: [Column, number]): HTMLElement => {
    const text = row ? cellText(row[at], column) : "…";
    const href = look.link(column.name);
    const shown = format.shorten(row ? (look.labels[column.name]?.(text) ?? text) : text, 400);
    return h(
      "td",
      { class: isNumber(column) ? "number" : "text", title: format.shorten(text, 2000) },
      href ? h("a", { href, "data-control": `${place} ${column.name}` }, shown) : shown,
    );
  };
  const open = (event: MouseEvent): void => {
    if (row && !(event.target as Element).closest("a") && !getSelection()?.toString()) look.open();
  };
  return h("tr", { "aria-rowindex": place + 2, class: look.marked ? "marked" : null, onclick: open }, columns.map(cell));
}

/** Show everything about one row until the signal is given: whole names, call stacks, exact figures. */
export function rowDialog(columns: readonly Column[], row: readonly unknown[], signal: AbortSignal): void {
  const dialog: HTMLDialogElement = h(
    "dialog",
    { class: "row", "aria-label": t("table.row"), onclose: () => dialog.remove() },
    h("header", null, h("h2", null, t("table.row")), h("button", { type: "button", onclick: () => dialog.close() }, t("close"))),
    h(
      "dl",
      { class: "pairs" },
      columns.map((column, at) => [
        h("dt", null, named("column", column.name)),
        h("dd", null, detail(row[at]) ?? exact(row[at], column)),
      ]),
    ),
  );
  document.body.append(dialog);
  signal.addEventListener("abort", () => dialog.remove());
  dialog.showModal();
}

function exact(cell: unknown, column: Column): string {
  const said = cellText(cell, column);
  return typeof cell === "number" && column.unit && column.unit !== "percent"
    ? `${said} (${cell} ${column.unit === "moment" ? "ns" : column.unit})`
    : said;
}

/** Rows as lines with tabs between the cells, names of columns first; figures as they are, in the units of the names. */
export function tsv(columns: readonly Column[], rows: readonly (readonly unknown[])[]): string {
  const plain = (cell: unknown): string => (cell === null || cell === undefined ? "" : String(cell).replace(/[\t\r\n]+/g, " "));
  return [columns.map((one) => one.name), ...rows].map((row) => row.map(plain).join("\t")).join("\n");
}
