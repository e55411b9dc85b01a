/** The rows of a table of the server, fetched in pages as they are needed. */

import type { Column, TablePage, TableQuery } from "../api/types";
import type { Child } from "../ui/dom";
import { problemLine } from "../ui/notices";
import type { Context } from "../ui/page";
import type { TableOptions, TableState } from "./table_state";

/** rows that are fetched at once */
export const PAGE = 200;

export class TableSource {
  columns: Column[] = [];
  /** names of columns that have no value in any row of the table */
  empty: string[] = [];
  /** how many rows satisfy the conditions */
  matching = 0;
  private pages = new Map<number, unknown[][]>();
  private asked = new Map<number, AbortController>();

  /** `taken` is told of every page that came, `failed` why one did not. */
  constructor(
    private readonly context: Context,
    private readonly options: TableOptions,
    private readonly state: () => TableState,
    private readonly taken: (found: TablePage, first: boolean) => void,
    private readonly failed: (why: Child) => void,
  ) {}

  /** What is asked for from a row on. */
  query(offset: number): TableQuery {
    const { sort, where } = this.state();
    return { trace: this.options.trace ?? null, where: [...(this.options.where ?? []), ...where], sort, offset, limit: PAGE };
  }

  /** Forget all rows: the conditions or the order are others now. */
  restart(): void {
    for (const one of this.asked.values()) one.abort();
    this.asked.clear();
    this.pages.clear();
    void this.load(0, true);
  }

  async load(page: number, first = false): Promise<void> {
    if (this.asked.has(page) || this.pages.has(page)) return;
    const controller = new AbortController();
    this.asked.set(page, controller);
    try {
      const found = await this.context.api.table(
        this.options.name,
        this.query(page * PAGE),
        AbortSignal.any([controller.signal, this.context.signal]),
      );
      this.pages.set(page, found.rows);
      this.matching = found.matching;
      if (first) [this.columns, this.empty] = [found.columns, found.empty];
      this.taken(found, first);
    } catch (error) {
      if (!controller.signal.aborted && !this.context.signal.aborted) this.failed(problemLine(error));
    } finally {
      if (this.asked.get(page) === controller) this.asked.delete(page);
    }
  }

  /** The first rows, however many are shown. */
  first(limit: number): Promise<TablePage> {
    return this.context.api.table(this.options.name, { ...this.query(0), limit });
  }

  /** A row by its place; undefined until its page is there. */
  row(place: number): unknown[] | undefined {
    return this.pages.get(Math.floor(place / PAGE))?.[place % PAGE];
  }
}
