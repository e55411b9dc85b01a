/** The first advice beside every page, of all ranks or of one. */

import { RunApi } from "../api/client";
import type { TraceState } from "../api/types";
import { formatRoute } from "../browser/route";
import { kept, keep } from "../browser/storage";
import { h, replace } from "../ui/dom";
import { choice, findingLine, rankName } from "../ui/ui";
import * as format from "../words/format";
import { t } from "../words/i18n";

const MOST = 5;
const KEPT = "steplens.assistant";
const LATER_MS = 400;

/** A panel that stays while pages change; it asks anew for another run, language or opening of the run. */
export class Assistant {
  readonly element = h("details", { class: "assistant", ontoggle: () => keep(KEPT, this.element.open ? "open" : "closed") });
  private shown = "";
  private asking = new AbortController();
  private trace: number | null = null;

  constructor() {
    this.element.open = kept(KEPT) !== "closed";
  }

  /** Show the advice about a run; `key` changes when it has to be asked for again. */
  async show(run: number, key: string): Promise<void> {
    if (this.shown === key) return;
    this.shown = key;
    this.trace = null;
    this.asking.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    const api = new RunApi(run, signal);
    const list = h("div", { "aria-live": "polite" });
    replace(this.element, h("summary", null, t("assistant")), list);
    try {
      await pageIsThere(signal);
      const ranks = await api.get("ranks");
      if (signal.aborted) return;
      if (ranks.length > 1) this.element.insertBefore(this.rankList(ranks, api, run, list), list);
      await this.fill(api, run, list);
    } catch {
      if (!signal.aborted) {
        replace(list, h("p", { class: "note" }, t("assistant.none")));
        this.shown = "";
      }
    }
  }

  private rankList(ranks: readonly TraceState[], api: RunApi, run: number, list: HTMLElement): HTMLElement {
    const items: [string, string][] = [
      ["", t("ranks.all")],
      ...ranks.map((one): [string, string] => [String(one.trace), rankName(one, ranks)]),
    ];
    return choice(t("rank"), items, "", (value) => {
      this.trace = value === "" ? null : Number(value);
      void this.fill(api, run, list).catch(() => replace(list, h("p", { class: "note" }, t("assistant.none"))));
    });
  }

  private async fill(api: RunApi, run: number, list: HTMLElement): Promise<void> {
    const trace = this.trace;
    replace(list, h("p", { class: "note" }, t("assistant.asking")));
    const found = await api.get("advice", { trace });
    if (api.signal.aborted || trace !== this.trace) return;
    const top = found.findings.slice(0, MOST);
    replace(
      list,
      top.length
        ? h(
            "ul",
            null,
            top.map((one) => findingLine(one, formatRoute(run, "advice", { rank: trace, finding: one.id }))),
          )
        : h("p", { class: "note" }, t(found.step_ns > 0 ? "advice.none" : "advice.none.steps")),
      found.findings.length > MOST
        ? h(
            "p",
            null,
            h(
              "a",
              { href: formatRoute(run, "advice", { rank: trace }) },
              t("rest", { count: format.count(found.findings.length - MOST) }),
            ),
          )
        : null,
    );
  }
}

/** Wait for the first page: working out advice would take processors from what the user waits for. */
async function pageIsThere(signal: AbortSignal): Promise<void> {
  const pause = (): Promise<void> => new Promise((next) => setTimeout(next, LATER_MS));
  while (document.body.dataset["ready"] === undefined && !signal.aborted) await pause();
  await pause();
  signal.throwIfAborted();
}
