/** The tab about the interval between steps: the way of a batch, and its queues and costs from batch to batch. */

import type { BatchCurve, BatchCurves, Pipeline, Rank, Step } from "../../api/types";
import { bucketChart, type Bucketed } from "../../charts/bucket_chart";
import { byItself, flowChart, rangeNote, waitedWords } from "../../charts/pipeline_flow";
import { stepCurves } from "../../charts/step_charts";
import { h, type Child } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { shareOfSteps } from "../../ui/step_means";
import { card, figure, figures, grid, numberRanges } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

const POINTS = 500;
/** which chart tells about which box of the flow */
const CHART_OF: Readonly<Record<string, string>> = {
  processing: "host",
  host: "host",
  transfer: "transfer",
  device: "device",
  get_next: "get_next",
  loop: "get_next",
};

/** Cards of the tab. */
export async function intervalCards(
  context: Context,
  trace: number,
  found: Pipeline,
  steps: readonly Step[],
  rank: Rank | undefined,
): Promise<Child> {
  const every = await Promise.all(
    found.places.map((one) => context.api.get("pipeline/batches", { trace, kind: one.kind, points: POINTS })),
  );
  const waits = steps.some((one) => Number(one["data_wait_ns"] ?? 0) > 0);
  // the figure of the verdict and of the overview
  const wait = rank?.parts["data_wait_ns"] ?? null;
  // a loop that loads its batches itself works, and waits for nobody; a way of one stage needs no picture
  const itself = found.places.length === 1 && found.places.every(byItself);
  const name = t(itself ? "pipeline.loading" : "pipeline.data_wait");
  const title = t(itself ? "pipeline.loadings" : "pipeline.waits");
  const toDevice = found.places.some((one) => one.kind !== "iterate");
  const cards = charts(context, every, rank?.framework ?? "");
  const usual = rank?.figures.usual ?? [];
  const waited = waitedWords(rank?.waiting ?? null);
  const share = wait === null || !rank ? null : shareOfSteps(rank.figures, wait);
  return [
    wait === null ? null : figures(figure(name, format.time(wait), t("per_step"), context.to("steps", { rank: trace }))),
    share ? h("p", { class: "note sentence" }, share) : null,
    itself ? h("p", { class: "note" }, t("pipeline.loading.what")) : rangeNote(found.places, wait ?? 0),
    grid(
      found.places.length && !itself
        ? card(
            t("pipeline.flow"),
            flowChart(found.places, (id) => highlight(cards, CHART_OF[id] ?? id)),
            { wide: true, note: `${t(toDevice ? "pipeline.flow.what" : "pipeline.flow.what.host")} ${t("pipeline.flow.means")}` },
          )
        : null,
      waits
        ? card(
            title,
            [
              stepCurves(context, steps, ["data_wait"], 210, title),
              meanNote(steps, usual),
              waited ? h("p", { class: "note" }, waited) : null,
            ],
            {
              wide: true,
              more: context.to("steps", { rank: trace }),
            },
          )
        : null,
      itself ? null : [...cards.values()],
    ),
  ];
}

/** The mean of the steps of the curve that the figure above is of. */
function meanNote(steps: readonly Step[], usual: readonly number[]): Child {
  const waits = steps.flatMap((one) => (one.step !== null && usual.includes(one.step) ? Number(one["data_wait_ns"] ?? 0) : []));
  if (!waits.length) return null;
  const mean = waits.reduce((sum, one) => sum + one, 0) / waits.length;
  return h("p", { class: "note" }, t("parts.mean", { steps: numberRanges(usual), time: format.time(mean) }));
}

function charts(context: Context, every: readonly BatchCurves[], framework: string): Map<string, HTMLElement> {
  const of = (kind: string, names: readonly string[]): Bucketed[] =>
    (every.find((one) => one.kind === kind)?.curves ?? []).filter((one) => names.includes(one.name)).map((one) => bucketed(one));
  const host = every.some((one) => one.kind === "send") ? "send" : "iterate";
  const pushed = named("value", "batch.push_ns");
  const all = of(host, ["total_ns", "get_ns", "push_ns"]);
  // a loop that hands nothing on, or at no cost, only gets its batch
  const costs = all.some((one) => one.name === pushed && one.max.some((value) => value)) ? all : of(host, ["total_ns"]);
  const received = of("receive", ["wait_ns"]);
  const wanted: [string, string, Bucketed[]][] = [
    ["host", t("pipeline.flow.host_queue"), of(host, ["queue_size"])],
    ["device", t("pipeline.flow.device_queue"), of("receive", ["queue_size"])],
    ["transfer", t(host === "send" ? "pipeline.flow.transfer_cost" : "pipeline.flow.batch_cost"), costs],
    [
      "get_next",
      t(received.length ? "pipeline.flow.get_next_cost" : "pipeline.flow.until_made"),
      received.length ? received : of(host, ["wait_ns"]),
    ],
  ];
  return new Map(
    wanted
      // a loop that loads its batches itself waits for nobody: a curve at 0 ns says nothing
      .filter(([, , curves]) => curves.some((one) => one.unit !== "ns" || one.max.some((value) => value)))
      .map(([id, title, curves]) => {
        const means = curves.map((one) => `${one.name}: ${t("mean")} ${format.value(one.mean, one.unit)}`);
        const kind = id === "device" || (id === "get_next" && received.length) ? "receive" : host;
        // MindSpore's iterator looks at its queue when it has its batch
        if (id === "host" && host === "iterate" && framework.startsWith("MindSpore")) means.push(t("pipeline.queue.after"));
        means.push(t("pipeline.batches.all", { count: format.count(every.find((one) => one.kind === kind)?.batches ?? 0) }));
        const made = card(title, [
          bucketChart(context, title, t("pipeline.batch"), curves),
          h("p", { class: "note" }, means.join(" · ")),
        ]);
        made.dataset["chart"] = id;
        return [id, made];
      }),
  );
}

function bucketed(one: BatchCurve): Bucketed {
  return {
    ...one,
    place: one.batch,
    name: named("value", `batch.${one.name}`, one.name),
    unit: one.name.endsWith("_ns") ? "ns" : "",
  };
}

function highlight(cards: ReadonlyMap<string, HTMLElement>, id: string): void {
  for (const [name, one] of cards) one.classList.toggle("marked", name === id);
  cards.get(id)?.scrollIntoView({ block: "nearest", behavior: "smooth" });
}
