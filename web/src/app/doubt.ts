/** A mark in the head of every page where the recording is damaged: what is shown then may be wrong. */

import { RunApi } from "../api/client";
import { formatRoute } from "../browser/route";
import { h } from "../ui/dom";
import * as format from "../words/format";
import { t } from "../words/i18n";

/** The mark, of one run at a time; it leads to what is wrong. */
export class Doubt {
  readonly element = h("a", { class: "badge badge-error", hidden: true });
  private shown = "";
  private asking = new AbortController();

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
      const errors = (await new RunApi(run, signal).get("health")).filter((one) => one.severity === "error").length;
      if (signal.aborted) return;
      this.element.hidden = errors === 0;
      this.element.textContent = t("doubt");
      this.element.title = t("doubt.what", { count: format.count(errors) });
      this.element.setAttribute("href", formatRoute(run, "health"));
    } catch {
      // the page about the data says why there is no answer
      if (!signal.aborted) this.shown = "";
    }
  }
}
