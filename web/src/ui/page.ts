/** What a page is, and what it is given. */

import type { RunApi } from "../api/client";
import type { Draft, RunState, Session } from "../api/types";
import { formatRoute } from "../browser/route";
import type { Key } from "../words/i18n";
import type { Child } from "./dom";

export interface Page {
  /** its name in addresses */
  id: string;
  title: Key;
  /** makes the page; what it throws is shown in its place */
  show: (context: Context) => Promise<Child> | Child;
  /** whether the menu of a run has it; always, by default */
  listed?: (session: Session, run: number) => boolean;
  /** whether it is of no use without a server: a report does not have it */
  live?: boolean;
  /** whether it is shown for a run that is not open */
  unopened?: boolean;
  /** what can be shown of some events of a run while all of them are read; `painted` is called once it is on the screen */
  draft?: (context: Context, draft: Draft, painted: () => void) => Promise<Child>;
}

/** the page of many versions of a program */
export const HISTORY = "history";

/** Whether a run is a folder of saved baselines: there are figures of versions and no recording. */
export const isHistoryAlone = (run: RunState | undefined): boolean =>
  run !== undefined && run.generation === 0 && run.progress.state === "ready" && run.versions > 0;

/** The place of a page: its run, its address, and how long it is shown. */
export class Context {
  /** what still comes after the page was shown; see `later.ts` */
  readonly pending: Promise<unknown>[] = [];

  constructor(
    readonly page: string,
    readonly run: RunState,
    readonly session: Session,
    public params: Readonly<Record<string, string>>,
    readonly api: RunApi,
    /** given when the user leaves the page */
    readonly signal: AbortSignal,
    private readonly navigate: (hash: string, kind: "visit" | "note") => void,
  ) {}

  /** The address of a page of this run. */
  to(page: string, params: Readonly<Record<string, string | number | null | undefined>> = {}): string {
    return formatRoute(this.run.run, page, params);
  }

  /** Show a page again with other parameters; null takes one away. */
  visit(changes: Readonly<Record<string, string | number | null>>): void {
    this.navigate(this.to(this.page, { ...this.params, ...changes }), "visit");
  }

  /** Remember parameters in the address without showing the page again. */
  note(changes: Readonly<Record<string, string | number | null>>): void {
    const merged = { ...this.params, ...changes };
    this.params = Object.fromEntries(
      Object.entries(merged)
        .filter(([, value]) => value !== null)
        .map(([key, value]) => [key, String(value)]),
    );
    this.navigate(this.to(this.page, merged), "note");
  }
}

/** Read the run again; the pages show what was read before until then. */
export async function reopen(context: Context): Promise<void> {
  await context.api.reopen();
  document.dispatchEvent(new Event("steplens-reopen"));
}
