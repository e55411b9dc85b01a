/** The way of a batch: data processing, the host's queue, the transfer, the device's queue, get_next. */

import type { Place, Rank } from "../api/types";
import { h, type Child } from "../ui/dom";
import * as format from "../words/format";
import { t } from "../words/i18n";

interface Box {
  id: string;
  title: string;
  lines: string[];
  /** "end": where batches come from or go to, of which nothing was recorded */
  kind: "work" | "queue" | "end";
  state?: "empty" | "good";
}

/** Share of the batches from which on an empty queue is said to hold up the training. */
const MOST_EMPTY = 0.3;

/** a step waits for its batch from this share of its time on; else the batch was ready */
const WAITS = 0.05;

/** from which on the range of a step counts as longer than the wait for its batch */
const MORE = 1.1;

/** The boxes of a flow, as far as its places were recorded. */
export function boxes(places: readonly Place[]): Box[] {
  const of = (kind: Place["kind"]): Place | undefined => places.find((one) => one.kind === kind);
  const [iterated, sent, received] = [of("iterate"), of("send"), of("receive")];
  const host = sent ?? iterated;
  const cost = (
    place: Place | undefined,
    name: string,
    key: "pipeline.flow.get" | "pipeline.flow.push" | "pipeline.flow.wait",
  ): string[] => {
    const mean = place?.costs[name];
    return mean === undefined ? [] : [t(key, { time: format.time(mean) })];
  };
  const found: Box[] = [{ id: "processing", title: t("pipeline.flow.processing"), kind: "end", lines: [] }];
  if (host)
    found.push(
      byItself(host)
        ? { id: "host", title: t("pipeline.flow.host_queue"), lines: [t("pipeline.no_queue")], kind: "queue" }
        : queue("host", t("pipeline.flow.host_queue"), host),
    );
  if (sent || received)
    found.push({
      id: "transfer",
      title: t("pipeline.flow.transfer"),
      kind: "work",
      lines: [...cost(sent, "get_ns", "pipeline.flow.get"), ...cost(sent, "push_ns", "pipeline.flow.push")],
    });
  if (received) found.push(queue("device", t("pipeline.flow.device_queue"), received));
  found.push(
    received
      ? {
          id: "get_next",
          title: t("pipeline.flow.get_next"),
          kind: "work",
          lines: cost(received, "wait_ns", "pipeline.flow.wait"),
        }
      : { id: "loop", title: t("pipeline.flow.loop"), kind: "work", lines: iterated ? loopLines(iterated) : [] },
  );
  // a box that holds nothing is no box
  return found.map((one): Box => (one.lines.length ? one : { ...one, kind: "end" }));
}

/** What a batch costs the loop from asking for it until having it, as a step's wait for data counts it, and what that consists of. */
function loopLines(place: Place): string[] {
  const [total, wait] = [place.costs["total_ns"], place.costs["wait_ns"]];
  if (total === undefined) return wait === undefined ? [] : [t("pipeline.flow.wait", { time: format.time(wait) })];
  const whole = t("pipeline.flow.whole", { time: format.time(total) });
  if (wait === undefined) return [whole];
  if (byItself(place)) return [whole, t("pipeline.flow.itself")];
  return [
    whole,
    t("pipeline.flow.until_made.of", { time: format.time(wait) }),
    t("pipeline.flow.receive", { time: format.time(Math.max(total - wait, 0)) }),
  ];
}

/** Why a step waits longer than until its batch is there: PyTorch's range lasts until next() returns. Nothing where both agree. */
export function rangeNote(places: readonly Place[], wait_ns: number): Child {
  const costs = places.find((one) => one.kind === "iterate")?.costs ?? {};
  const [total, queue] = [costs["total_ns"], costs["wait_ns"]];
  if (total === undefined || queue === undefined || wait_ns <= total * MORE) return null;
  return h("p", { class: "note" }, t("pipeline.range", { time: format.time(total), rest: format.time(wait_ns - total) }));
}

/** Which steps waited, and for how long on average: with those whose batch was ready a mean is of neither. */
export function waitedWords(waiting: Rank["waiting"]): string {
  if (!waiting) return "";
  const [time, rest] = [format.time(waiting.wait_ns), format.time(waiting.ready_ns)];
  return waiting.since === null
    ? t("pipeline.waited", { count: waiting.steps.length, of: waiting.of, share: format.share(WAITS), time, rest })
    : t("pipeline.waited.since", { step: String(waiting.since), time, rest });
}

/** That an operation holds up the pipeline, and how full its queue is. */
export const bottleneckWords = (name: string, usage: number | null): string =>
  usage === null ? t("pipeline.bottleneck.plain", { name }) : t("pipeline.bottleneck", { name, usage: format.share(usage) });

/** Whether the loop loads its batches itself: a DataLoader without workers has no queue, and so never waits for one. */
export function byItself(place: Place): boolean {
  return place.kind === "iterate" && place.capacity === null && !place.batches && place.costs["wait_ns"] === 0;
}

function queue(id: string, title: string, place: Place): Box {
  const mean =
    place.mean_size === null
      ? null
      : place.capacity === null
        ? t("pipeline.flow.mean", { mean: format.plain(place.mean_size) })
        : t("pipeline.flow.mean_of", { mean: format.plain(place.mean_size), capacity: format.count(place.capacity) });
  const batches = format.count(place.batches);
  const held = !place.batches
    ? t("pipeline.flow.no_sizes")
    : place.full && !place.empty
      ? t("pipeline.flow.full", { full: format.count(place.full), batches })
      : t("pipeline.flow.empty", { empty: format.count(place.empty), batches });
  return {
    id,
    title,
    lines: [[held, mean].filter(Boolean).join(t("pipeline.flow.and"))],
    kind: "queue",
    state: place.batches && place.empty > MOST_EMPTY * place.batches ? "empty" : "good",
  };
}

/** The boxes from left to right; `onPick` is told which of them is clicked. */
export function flowChart(places: readonly Place[], onPick?: (id: string) => void): Child {
  return h(
    "ol",
    { class: "flow" },
    boxes(places).map((one) => {
      const content: Child = [h("strong", null, one.title), one.lines.map((line) => h("span", null, line))];
      const kind = `flow-box flow-${one.kind}${one.state ? ` flow-${one.state}` : ""}`;
      return h(
        "li",
        null,
        onPick && one.kind !== "end"
          ? h("button", { type: "button", class: kind, "data-box": one.id, onclick: () => onPick(one.id) }, content)
          : h("div", { class: kind, "data-box": one.id }, content),
      );
    }),
  );
}
