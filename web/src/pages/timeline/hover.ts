/** What is said of the event under the pointer once it rests there: asked for once, and kept while the page is shown. */

import type { EventShown } from "../../api/types";
import type { Hit } from "../../timeline/picture";
import { type Child, h } from "../../ui/dom";
import type { Context } from "../../ui/page";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

const REST_MS = 150;
const MOST_KEPT = 300;
const MOST_CALLERS = 5;
const MOST_TASKS = 3;

export class Hover {
  private readonly known = new Map<string, EventShown>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private asking = new AbortController();

  constructor(private readonly context: Context) {}

  /** The pointer is on an event, whose name and length stand in the tip already; or on none. */
  over(hit: Hit | null, tip: HTMLElement): void {
    clearTimeout(this.timer);
    this.asking.abort();
    if (!hit) return;
    const key = `${hit.trace}.${hit.event}`;
    const found = this.known.get(key);
    if (found) return tip.append(more(found));
    const of = tip.dataset["of"];
    this.timer = setTimeout(() => {
      this.asking = new AbortController();
      const signal = AbortSignal.any([this.asking.signal, this.context.signal]);
      void this.context.api
        .get("timeline/events/{event}", { trace: hit.trace, event: hit.event }, signal)
        .then((shown) => {
          if (this.known.size >= MOST_KEPT) this.known.clear();
          this.known.set(key, shown);
          if (!tip.hidden && tip.dataset["of"] === of && !signal.aborted) tip.append(more(shown));
        })
        .catch(() => undefined);
    }, REST_MS);
  }
}

function more(shown: EventShown): HTMLElement {
  const { columns } = shown;
  const lines: [string, Child][] = [];
  const add = (name: string, value: Child): void => {
    if (value !== null && value !== undefined && value !== "") lines.push([name, value]);
  };
  const self = columns["self_ns"];
  if (typeof self === "number" && self !== shown.end_ns - shown.start_ns) add(named("column", "self_ns"), format.time(self));
  const { callers } = shown;
  if (callers.length) {
    const names = callers.slice(-MOST_CALLERS).map((one) => format.shorten(one.name, 60));
    add(t("timeline.inside"), (callers.length > MOST_CALLERS ? "… › " : "") + names.join(" › "));
  }
  for (const name of ["input_shapes", "output_shapes", "module", "bytes", "group"] as const) {
    const value = columns[name];
    if (value === null || value === undefined || value === "") continue;
    add(named("column", name), name === "bytes" && typeof value === "number" ? format.bytes(value) : text(value));
  }
  for (const link of shown.links) {
    if (!["task", "operator", "runtime"].includes(link.kind)) continue;
    const names = link.events
      .slice(0, MOST_TASKS)
      .map((one) => `${format.shorten(one.name, 70)} (${format.time(one.end_ns - one.start_ns)})`);
    const rest = link.count > MOST_TASKS ? ` … (${format.count(link.count)})` : "";
    add(named("value", `link.${link.kind}`, link.kind), names.join(", ") + rest);
  }
  const waited = launched(columns);
  if (waited !== null) add(t("timeline.launched"), format.time(waited));
  return h(
    "dl",
    { class: "tip-more" },
    lines.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
  );
}

/** How long a task began after it was launched, ns. Unix times in ns are larger than what a number holds exactly. */
function launched(columns: EventShown["columns"]): number | null {
  const [launch, start] = [columns["launch_ns"], columns["start_ns"]];
  if (launch === null || launch === undefined || start === null || start === undefined) return null;
  return Number(BigInt(String(start)) - BigInt(String(launch)));
}

const text = (value: unknown): string => format.shorten(format.value(value, ""), 200);
