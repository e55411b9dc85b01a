/** How many findings the advice has, beside its link in the menu: what they say stands on the first page and on their own. */

import { RunApi } from "../api/client";
import { h } from "../ui/dom";
import * as format from "../words/format";
import { t } from "../words/i18n";

const LATER_MS = 400;

/** The number, of one run at a time; it stays while pages change. */
export class AdviceCount {
  readonly element = h("span", { class: "badge count", hidden: true });
  private shown = "";
  private asking = new AbortController();

  /** Take the number of another run away; `key` changes when it has to be asked for again. */
  begin(key: string): void {
    if (this.shown !== key) this.element.hidden = true;
  }

  async show(run: number, key: string): Promise<void> {
    if (this.shown === key) return;
    this.shown = key;
    this.asking.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    try {
      await pageIsThere(signal);
      const count = (await new RunApi(run, signal).get("advice", { trace: null })).findings.length;
      if (signal.aborted) return;
      this.element.hidden = count === 0;
      this.element.textContent = format.count(count);
      this.element.title = t("advice.count", { count: format.count(count) });
    } catch {
      // the page of the advice says why there is none
      if (!signal.aborted) this.shown = "";
    }
  }
}

/** Wait for the first page: working out advice would take processors from what the user waits for. */
async function pageIsThere(signal: AbortSignal): Promise<void> {
  const pause = (): Promise<void> => new Promise((next) => setTimeout(next, LATER_MS));
  while (document.body.dataset["ready"] === undefined && !signal.aborted) await pause();
  await pause();
  signal.throwIfAborted();
}
