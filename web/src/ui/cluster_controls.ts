/** Controls that the pages of several ranks share: the step, the stage, sorting by a column, pages of rows, and a dialog. */

import * as format from "../words/format";
import { t } from "../words/i18n";
import { h, type Child } from "./dom";
import type { Context } from "./page";
import { choice, type Head, headedTable } from "./ui";

/** One of the steps, or their mean. */
export function clusterStep(context: Context, steps: readonly number[]): HTMLElement | null {
  if (!steps.length) return null;
  const items: [string, string][] = [
    ["", t("steps.average")],
    ...steps.map((one): [string, string] => [String(one), `${t("step")} ${one}`]),
  ];
  return choice(t("step"), items, context.params["step"] ?? "", (value) => context.visit({ step: value || null, offset: null }));
}

/** One of the pipeline stages, or all; nothing where there is one. */
export function clusterStage(context: Context, stages: number): HTMLElement | null {
  if (stages < 2) return null;
  const items: [string, string][] = [["", t("stages.all")]];
  for (let stage = 1; stage <= stages; stage++) items.push([String(stage), t("stage.n", { number: stage })]);
  return choice(t("stage"), items, context.params["stage"] ?? "", (value) =>
    context.visit({ stage: value || null, offset: null }),
  );
}

export interface SortedColumn<R> {
  /** of the server; "" cannot be sorted by */
  name: string;
  title: string;
  cell: (row: R) => Child;
  numeric?: boolean;
}

/** A table of one page of rows that the server sorts; a click on a heading sorts by it, another one the other way round. */
export function sortedTable<R>(
  caption: string,
  columns: readonly SortedColumn<R>[],
  rows: readonly R[],
  sorted: { by: string; descending: boolean },
  onSort: (by: string, descending: boolean) => void,
): HTMLElement {
  const heading = (one: SortedColumn<R>): Child => {
    if (!one.name) return one.title;
    const current = sorted.by === one.name;
    const mark = current ? (sorted.descending ? " ▼" : " ▲") : "";
    return h(
      "button",
      {
        type: "button",
        class: "plain",
        "data-sort": one.name,
        onclick: () => onSort(one.name, current ? !sorted.descending : one.numeric === true),
      },
      one.title + mark,
    );
  };
  const heads = columns.map((one): Head => ({
    title: one.title ? heading(one) : null,
    numeric: one.numeric === true,
    order: one.name && sorted.by === one.name ? (sorted.descending ? "descending" : "ascending") : null,
  }));
  return headedTable(
    caption,
    heads,
    rows.map((row) => columns.map((one) => one.cell(row))),
  );
}

/** Buttons for the page before and after; nothing where one page has everything. */
export function pager(
  offset: number,
  shown: number,
  matching: number,
  size: number,
  onMove: (offset: number) => void,
): HTMLElement | null {
  if (matching <= size && offset === 0) return null;
  return h(
    "div",
    { class: "controls pager" },
    h("button", { type: "button", disabled: offset === 0, onclick: () => onMove(Math.max(offset - size, 0)) }, t("pager.before")),
    h(
      "span",
      { class: "note" },
      t("pager.of", {
        from: format.count(Math.min(offset + 1, matching)),
        to: format.count(offset + shown),
        count: format.count(matching),
      }),
    ),
    h("button", { type: "button", disabled: offset + shown >= matching, onclick: () => onMove(offset + size) }, t("pager.after")),
  );
}

/** A dialog over the page; it is gone when it is closed or the page is left. */
export function openDialog(context: Context, title: string, content: Child): void {
  const dialog: HTMLDialogElement = h(
    "dialog",
    { "aria-label": title, onclose: () => dialog.remove() },
    h("header", null, h("h2", null, title), h("button", { type: "button", onclick: () => dialog.close() }, t("close"))),
    content,
  );
  document.body.append(dialog);
  context.signal.addEventListener("abort", () => dialog.remove());
  dialog.showModal();
}

/** A mix of the accent with the ground: from 0, the ground, to 1. */
export const tint = (share: number): string =>
  `color-mix(in srgb, var(--accent) ${Math.round(Math.min(Math.max(share, 0), 1) * 100)}%, var(--page))`;
