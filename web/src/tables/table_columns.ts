/** Which columns of a table are shown and how wide, and the list to choose them from. */

import type { Column, TablePage, TraceState } from "../api/types";
import { h, type Child } from "../ui/dom";
import { named, t } from "../words/i18n";
import { widthOf } from "./table_row";
import type { TableState } from "./table_state";

/** A column and its place in a row. */
export type Placed = [Column, number];

/** no narrower can a column be made, rem */
const NARROWEST = 2.5;
const WIDEST = 80;
/** by a key, rem */
const STEP = 1;

/** The columns that a table has, in the order in which they are shown, and what it shows unless somebody chose. */
export function offered(
  found: Pick<TablePage, "columns" | "empty">,
  first: readonly string[] | undefined,
  without: readonly string[],
  ranks: readonly TraceState[],
): { all: Placed[]; usual: ReadonlySet<string> } {
  const placed = found.columns.map((column, place): Placed => [column, place]);
  const names = first && [...(placed.some(([column]) => column.name === "rank") ? ["rank"] : []), ...first];
  const leading = (names ?? []).flatMap((name) => placed.filter(([column]) => column.name === name));
  const all = [...leading, ...placed.filter((one) => !leading.includes(one))];
  const told = new Set(ranks.map((one) => one.rank));
  // where every trace has a rank of its own, their numbers would say the same twice
  const same = !told.has(null) && told.size === ranks.length && placed.some(([column]) => column.name === "rank");
  const left_out = new Set([...found.empty, ...without, ...(same ? ["trace"] : [])]);
  const usual = (names ? leading : all).map(([column]) => column.name).filter((name) => !left_out.has(name));
  return { all, usual: new Set(usual.length ? usual : all.map(([column]) => column.name)) };
}

/** How many columns stay where they are when the others are scrolled sideways: what a row is of. */
export function pinned(columns: readonly Placed[]): number {
  const [first, second] = columns.map(([column]) => column);
  return first && second && /^(rank|trace|step|window)$/.test(first.name) && second.type === "text"
    ? 2
    : Math.min(columns.length, 1);
}

export const wide = (column: Column, state: TableState, needed: Widths = {}): number =>
  state.widths[column.name] ?? Math.max(widthOf(column), needed[column.name] ?? 0);

type Widths = Readonly<Record<string, number>>;
/** a letter of a text in a table, and what stands around it, rem */
const LETTER = 0.58;
const AROUND = 1.6;

/** Columns of long texts that have more to show than fits: how wide they would have to be, rem. */
export function neededWidths(columns: readonly Column[], rows: readonly unknown[][]): Widths {
  const longest = (at: number): number => rows.reduce((most, row) => Math.max(most, String(row[at] ?? "").length), 0);
  return Object.fromEntries(
    columns.flatMap((column, at) =>
      column.type === "text" ? [[column.name, Math.min(longest(at) * LETTER + AROUND, WIDEST)]] : [],
    ),
  );
}

/** Widths of columns that share what room there is among those whose texts need more; `room` is in rem. */
export function sharedRoom(columns: readonly Column[], needed: Widths, state: TableState, room: number): Widths {
  const lacking = columns
    .map((column) => ({ column, lacks: (needed[column.name] ?? 0) - wide(column, state) }))
    .filter((one) => one.lacks > 0 && state.widths[one.column.name] === undefined);
  const sum = lacking.reduce((total, one) => total + one.lacks, 0);
  const share = sum > 0 ? Math.min(Math.max(room, 0) / sum, 1) : 0;
  return Object.fromEntries(lacking.map((one) => [one.column.name, wide(one.column, state) + one.lacks * share]));
}

const bounded = (width: number): number => Math.round(Math.min(Math.max(width, NARROWEST), WIDEST) * 10) / 10;

/**
 * Let the heads of a table be made wider and narrower: their edges with the mouse, the heads themselves with Shift and an arrow.
 *
 * `changed` is told of the widths of all columns as they are from then on: the others keep theirs.
 */
export function resizable(
  grid: HTMLTableElement,
  columns: () => readonly Placed[],
  changed: (widths: Record<string, number> | null) => void,
): void {
  const heads = (): HTMLElement[] => [...grid.querySelectorAll<HTMLElement>("thead th")];
  const rem = (): number => parseFloat(getComputedStyle(document.documentElement).fontSize);
  const measured = (): number[] => heads().map((one) => one.getBoundingClientRect().width / rem());
  const widthsOf = (widths: readonly number[]): Record<string, number> =>
    Object.fromEntries(columns().map(([column], place) => [column.name, bounded(widths[place] ?? widthOf(column))]));
  const placeOf = (target: EventTarget | null): number => {
    const head = (target as Element).closest<HTMLElement>("th");
    return head ? heads().indexOf(head) : -1;
  };
  grid.addEventListener("pointerdown", (event) => {
    if (!(event.target as Element).classList.contains("edge") || event.button !== 0) return;
    event.preventDefault();
    const place = placeOf(event.target);
    const before = measured();
    const all = heads();
    const move = (now: PointerEvent): void => {
      const widths = before.map((width, at) => (at === place ? bounded(width + (now.clientX - event.clientX) / rem()) : width));
      all.forEach((one, at) => (one.style.width = `${widths[at]}rem`));
      grid.style.width = `${widths.reduce((sum, width) => sum + width, 0)}rem`;
    };
    const end = (last: PointerEvent): void => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", end);
      removeEventListener("pointercancel", end);
      const by = (last.clientX - event.clientX) / rem();
      if (by !== 0) changed(widthsOf(before.map((width, at) => (at === place ? width + by : width))));
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
    addEventListener("pointercancel", end);
  });
  grid.addEventListener("dblclick", (event) => {
    if ((event.target as Element).classList.contains("edge")) changed(null);
  });
  grid.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
    const place = placeOf(event.target);
    if (by === undefined || !event.shiftKey || place < 0) return;
    event.preventDefault();
    changed(widthsOf(measured().map((width, at) => (at === place ? width + by : width))));
  });
}

/** The list to choose columns from; `choose` is told their names, or null for what is shown unless somebody chose. */
export function columnChoice(
  table: string,
  from: { all: readonly Placed[]; usual: ReadonlySet<string>; empty: readonly string[] },
  shown: readonly Placed[],
  open: boolean,
  choose: (names: string[] | null) => void,
): HTMLElement {
  const ticked = new Set(shown.map(([column]) => column.name));
  const line = ([column]: Placed): HTMLElement =>
    h(
      "label",
      null,
      h("input", {
        type: "checkbox",
        "data-control": `column ${column.name}`,
        checked: ticked.has(column.name),
        onchange: (event: Event) => {
          if ((event.target as HTMLInputElement).checked) ticked.add(column.name);
          else ticked.delete(column.name);
          const names = from.all.map(([other]) => other.name).filter((name) => ticked.has(name));
          const usual = names.length === from.usual.size && names.every((name) => from.usual.has(name));
          choose(usual || !names.length ? null : names);
        },
      }),
      named("column", column.name),
    );
  const without = from.all.filter(([column]) => from.empty.includes(column.name));
  const some = (title: string, list: readonly Placed[]): Child =>
    list.length ? h("fieldset", null, h("legend", null, title), list.map(line)) : null;
  const reset = h(
    "button",
    {
      type: "button",
      "data-control": "columns as usual",
      "aria-label": `${t("table.columns.usual")}: ${t("table.columns")}, ${table}`,
      onclick: () => choose(null),
    },
    t("table.columns.usual"),
  );
  return h(
    "details",
    { class: "drop columns", open },
    h("summary", { "data-control": "columns" }, `${t("table.columns")} ${ticked.size}/${from.all.length}`),
    h(
      "div",
      { class: "drop-list" },
      reset,
      some(
        `${t("table.columns")}: ${table}`,
        from.all.filter((one) => !without.includes(one)),
      ),
      some(t("table.columns.empty"), without),
    ),
  );
}
