/** A table of the server: any number of rows, of which only the visible ones are fetched and drawn. */

import { address } from "../api/client";
import type { TablePage } from "../api/types";
import { copy } from "../browser/clipboard";
import { report } from "../report/embedded";
import { h, replace, type Child } from "../ui/dom";
import { fileLink } from "../ui/file_link";
import { problemLine } from "../ui/notices";
import type { Context } from "../ui/page";
import { keptNote } from "../ui/report_note";
import * as format from "../words/format";
import { named, t } from "../words/i18n";
import { columnChoice, neededWidths, offered, pinned, resizable, sharedRoom, wide, type Placed } from "./table_columns";
import { filterBar } from "./table_filter";
import { bodyRow, headRow, rowDialog, tsv } from "./table_row";
import { PAGE, TableSource } from "./table_source";
import { type TableOptions, type TableState, readState, writeState } from "./table_state";

const MOST_COPIED = 1000;
const ROW_PX = 30;
/** rows drawn above and below what is visible */
const BESIDE = 8;
/** no browser makes a higher element; what lies below is reached with a filter or the other sort order */
const MOST_PX = 15_000_000;

/** The element of a table; it asks for its first rows at once. */
export function table(context: Context, options: TableOptions): HTMLElement {
  return new Grid(context, options).element;
}

class Grid {
  readonly element: HTMLElement;
  private readonly id: string;
  private state: TableState;
  private readonly source: TableSource;
  private marked = -1;
  private needed: Readonly<Record<string, number>> = {};
  private printing = false;
  private readonly printed = h("p", { class: "note", hidden: true });
  private readonly bar: HTMLElement;
  private readonly foot = h("p", { class: "table-foot", role: "status" });
  private readonly scroller: HTMLElement;
  private readonly grid = h("table", { class: "grid-table" });

  constructor(
    private readonly context: Context,
    private readonly options: TableOptions,
  ) {
    this.id = options.id ?? options.name;
    this.state = readState(context.params, this.id, options.sort ?? []);
    this.source = new TableSource(
      context,
      options,
      () => this.state,
      (found, first) => this.taken(found, first),
      (why) => replace(this.foot, why),
    );
    this.bar = h("div", { class: "table-bar" });
    this.scroller = h(
      "div",
      {
        class: "table-scroll",
        tabindex: 0,
        role: "group",
        "aria-label": named("table", options.name),
        style: { "max-height": `${options.height ?? 480}px` },
      },
      this.grid,
    );
    resizable(
      this.grid,
      () => this.visible(),
      (widths) => this.look({ widths: widths ? { ...this.state.widths, ...widths } : {} }),
    );
    this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    this.scroller.addEventListener("keydown", (event) => this.onKey(event));
    const sizes = new ResizeObserver(() => this.draw());
    sizes.observe(this.scroller);
    context.signal.addEventListener("abort", () => sizes.disconnect());
    for (const [event, printing] of [
      ["beforeprint", true],
      ["afterprint", false],
    ] as const) {
      addEventListener(event, () => this.print(printing), { signal: context.signal });
    }
    this.element = h("div", { class: "table" }, this.bar, this.scroller, this.foot, this.printed);
    void this.source.load(0, true);
  }

  /** Start over with other conditions or another order. */
  private change(state: Partial<TableState>): void {
    this.state = { ...this.state, ...state };
    this.context.note(writeState(this.id, this.state));
    this.scroller.scrollTop = 0;
    this.source.restart();
  }

  /** Show the same rows in another way. */
  private look(state: Partial<TableState>): void {
    this.state = { ...this.state, ...state };
    this.context.note(writeState(this.id, this.state));
    this.drawBar();
    this.draw();
  }

  private taken(found: TablePage, first: boolean): void {
    if (first) {
      this.needed = neededWidths(found.columns, found.rows);
      this.drawBar();
      const card = this.element.closest<HTMLElement>(".card");
      if (this.options.optional && card && found.total === 0) card.hidden = true;
    }
    const shown = format.count(found.matching);
    replace(
      this.foot,
      found.matching === found.total
        ? t("table.rows", { count: shown })
        : t("table.matching", { count: shown, total: format.count(found.total) }),
      keptNote(found),
    );
    this.draw();
  }

  /** The columns to show, with their places in a row. */
  private visible(): Placed[] {
    const { all, usual } = this.offered();
    const names = this.state.columns ?? (this.state.all ? null : [...usual]);
    const shown = names ? all.filter(([column]) => names.includes(column.name)) : all;
    // an address may name none of them
    return shown.length ? shown : all.filter(([column]) => usual.has(column.name));
  }

  private offered(): ReturnType<typeof offered> {
    return offered(this.source, this.options.columns, this.options.without ?? [], this.context.run.traces);
  }

  private drawBar(): void {
    const { trace: _trace, ...rest } = this.source.query(0);
    const query = JSON.stringify({ ...rest, ...(this.options.trace == null ? {} : { trace: this.options.trace }) });
    const held = this.bar.contains(document.activeElement)
      ? (document.activeElement?.getAttribute("data-control") ?? "value")
      : null;
    replace(
      this.bar,
      filterBar(named("table", this.options.name), this.source.columns, this.state.where, (where) => this.change({ where })),
      h(
        "span",
        { class: "table-tools" },
        columnChoice(
          named("table", this.options.name),
          { ...this.offered(), empty: this.source.empty },
          this.visible(),
          this.bar.querySelector<HTMLDetailsElement>("details.columns")?.open ?? false,
          (columns) => this.look({ columns, all: false, widths: columns ? this.state.widths : {} }),
        ),
        h(
          "button",
          { type: "button", "data-control": "copy", title: t("table.copy.why"), onclick: () => void this.copyRows() },
          t("table.copy"),
        ),
        report() ? null : fileLink("CSV", address(`runs/${this.context.run.run}/tables/${this.options.name}/csv`, { query })),
      ),
    );
    if (held) this.bar.querySelector<HTMLElement>(`[data-control="${held}"]`)?.focus({ preventScroll: true });
  }

  /** Copy the first rows as text with tabs, for a spreadsheet; the file has all of them. */
  private async copyRows(): Promise<void> {
    try {
      const found = await this.source.first(MOST_COPIED);
      await copy(tsv(found.columns, found.rows));
      replace(this.foot, t("table.copied", { count: format.count(found.rows.length), all: format.count(found.matching) }));
    } catch (error) {
      if (!this.context.signal.aborted) replace(this.foot, problemLine(error));
    }
  }

  private draw(): void {
    if (!this.source.columns.length) return;
    const shown = Math.min(this.source.matching, Math.floor(MOST_PX / ROW_PX));
    const { scrollTop, clientHeight } = this.scroller;
    // on paper nothing scrolls
    const first = this.printing ? 0 : Math.max(Math.floor(scrollTop / ROW_PX) - BESIDE, 0);
    const last = Math.min(this.printing ? PAGE : Math.ceil((scrollTop + clientHeight) / ROW_PX) + BESIDE, shown);
    for (let page = Math.floor(first / PAGE); page * PAGE < last; page++) void this.source.load(page);
    const columns = this.visible();
    const least = columns.reduce((sum, [column]) => sum + wide(column, this.state), 0);
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const widths = sharedRoom(
      columns.map(([column]) => column),
      this.needed,
      this.state,
      this.scroller.clientWidth / rem - least,
    );
    const whole = columns.reduce((sum, [column]) => sum + wide(column, this.state, widths), 0);
    // texts get the room that they need; figures stay beside them, however much is left
    this.grid.style.width = `${whole}rem`;
    this.grid.dataset["pinned"] = String(pinned(columns));
    const spacer = (rows: number): Child =>
      rows > 0 ? h("tr", { "aria-hidden": "true", class: "spacer", style: { height: `${rows * ROW_PX}px` } }) : null;
    const rows: Child[] = [];
    for (let place = first; place < last; place++) rows.push(this.drawRow(place, columns));
    this.grid.setAttribute("aria-rowcount", String(this.source.matching + 1));
    const focused = this.grid.contains(document.activeElement) ? document.activeElement?.getAttribute("data-control") : null;
    replace(
      this.grid,
      headRow(
        columns,
        this.state.sort[0],
        (column) => wide(column, this.state, widths),
        (sort) => this.change({ sort: [sort] }),
      ),
      h("tbody", null, spacer(first), rows, spacer(shown - last)),
    );
    const first_width = this.grid.querySelector("th")?.getBoundingClientRect().width ?? 0;
    this.grid.style.setProperty("--pinned", `${first_width}px`);
    if (focused) this.grid.querySelector<HTMLElement>(`[data-control="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  /** Draw what fits on paper, and say how much that is. */
  private print(printing: boolean): void {
    this.printing = printing;
    this.draw();
    this.printed.hidden = !printing || this.source.matching <= PAGE;
    replace(this.printed, t("table.printed", { count: format.count(PAGE), all: format.count(this.source.matching) }));
  }

  private drawRow(place: number, columns: readonly Placed[]): HTMLElement {
    const row = this.source.row(place);
    const object = row ? Object.fromEntries(this.source.columns.map((column, at) => [column.name, row[at]])) : {};
    const link = (column: string): string | null => (row ? (this.options.links?.[column]?.(object) ?? null) : null);
    return bodyRow(place, columns, row, {
      marked: place === this.marked,
      link,
      labels: this.options.labels ?? {},
      open: () => this.open(place),
    });
  }

  private onKey(event: KeyboardEvent): void {
    if (event.target !== this.scroller) return;
    const move = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (move !== undefined) {
      event.preventDefault();
      this.marked = Math.min(Math.max(this.marked + move, 0), this.source.matching - 1);
      const top = this.marked * ROW_PX;
      if (top < this.scroller.scrollTop || top + 3 * ROW_PX > this.scroller.scrollTop + this.scroller.clientHeight)
        this.scroller.scrollTop = top - 2 * ROW_PX;
      this.draw();
    } else if (event.key === "Enter" && this.marked >= 0) this.open(this.marked);
  }

  /** Everything about one row. */
  private open(place: number): void {
    const row = this.source.row(place);
    if (!row) return;
    this.marked = place;
    this.draw();
    rowDialog(this.source.columns, row, this.context.signal);
  }
}
