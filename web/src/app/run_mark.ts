/** Marks in the frame of every page that say of a run how many findings or faults it has, once the server knows. */

import { RunApi } from "../api/client";
import { formatRoute } from "../browser/route";
import { h } from "../ui/dom";
import * as format from "../words/format";
import { t } from "../words/i18n";

const LATER_MS = 400;

/** A mark, of one run at a time; it stays while pages change, and is hidden where there is nothing to count. */
export class RunMark {
  private shown = "";
  private asking = new AbortController();

  /** `count` asks the server, `fill` says in the element what it answered. */
  constructor(
    readonly element: HTMLElement,
    private readonly count: (api: RunApi) => Promise<number>,
    private readonly fill: (element: HTMLElement, count: number, run: number) => void,
  ) {
    element.hidden = true;
  }

  /** Take the mark of another run away; `key` changes when the data may be other data. */
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
      const count = await this.count(new RunApi(run, signal));
      if (signal.aborted) return;
      this.element.hidden = count === 0;
      this.fill(this.element, count, run);
    } catch {
      // the page that the mark is about says why there is no answer
      if (!signal.aborted) this.shown = "";
    }
  }
}

/** How many findings the advice has, beside its link in the menu. */
export const adviceCount = (): RunMark =>
  new RunMark(
    h("span", { class: "badge count" }),
    async (api) => {
      await pageIsThere(api.signal);
      return (await api.get("advice", { trace: null })).findings.length;
    },
    (element, count) => {
      element.textContent = format.count(count);
      element.title = t("advice.count", { count: format.count(count) });
    },
  );

/** That the recording is damaged, and what is shown may be wrong; it leads to what is wrong. */
export const damageMark = (): RunMark =>
  new RunMark(
    h("a", { class: "badge badge-error" }),
    async (api) => (await api.get("health")).filter((one) => one.severity === "error").length,
    (element, count, run) => {
      element.textContent = t("doubt");
      element.title = t("doubt.what", { count: format.count(count) });
      element.setAttribute("href", formatRoute(run, "health"));
    },
  );

/** Wait for the first page: working out advice would take processors from what the user waits for. */
async function pageIsThere(signal: AbortSignal): Promise<void> {
  const pause = (): Promise<void> => new Promise((next) => setTimeout(next, LATER_MS));
  while (document.body.dataset["ready"] === undefined && !signal.aborted) await pause();
  await pause();
  signal.throwIfAborted();
}
