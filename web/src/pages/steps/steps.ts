/** The steps: one or the mean of the usual ones, curves over all, how they spread, and which stand out. */

import type { Rank, Spread, Steps } from "../../api/types";
import { numberOf } from "../../browser/route";
import { idleChart } from "../../charts/idle_chart";
import { histogram, stepBars, stepCurves } from "../../charts/step_charts";
import { stepTraceCards } from "../../charts/step_trace_card";
import { table } from "../../tables/table";
import { h, type Child } from "../../ui/dom";
import type { Context, Page } from "../../ui/page";
import { meanAndMedian, titleOfMean, whichParts } from "../../ui/step_means";
import {
  DEVICE_PARTS,
  HOST_PARTS,
  card,
  choice,
  figure,
  figures,
  grid,
  nothing,
  rankChoice,
  smallTable,
  stepPartsBars,
} from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";
import { meanStepTime, summaryTable } from "./summary";

const COLUMNS = [
  "step",
  "step_time_ns",
  ...HOST_PARTS.filter((name) => name !== "host_rest").map((name) => `${name}_ns`),
  ...DEVICE_PARTS.map((name) => `${name}_ns`),
  "complete",
];
/** with fewer steps curves over them say nothing that their bars do not */
const LEAST_OF_CURVES = 6;

export const steps: Page = {
  id: "steps",
  title: "page.steps",
  async show(context) {
    const ranks = await context.api.get("ranks");
    const trace = numberOf(context.params, "rank") ?? 0;
    const [found, phases, idle] = await Promise.all([
      context.api.get("steps", { trace }),
      context.api.rows("step_trace", { trace }),
      context.api.rows("idle", { trace }),
    ]);
    const rank = ranks.find((one) => one.trace === trace);
    // idle time is a part as the others are, of the same steps
    const counted = new Set(rank?.figures.usual_on_device);
    // how so few lengths spread and change is what their bars say
    const few = found.steps.length < LEAST_OF_CURVES;
    const chooser = h(
      "div",
      { class: "controls" },
      rankChoice(context, ranks, false),
      found.steps.length ? stepChoice(context, found, rank) : null,
    );
    if (!found.steps.length) return [chooser, nothing(t("steps.none"), t("steps.none.why"))];
    return [
      chooser,
      spreadFigures(found.spread),
      grid(chosenCard(context, found, trace, rank), card(t("steps.chart"), stepBars(context, found.steps, 230))),
      await stepTraceCards(context, trace, numberOf(context.params, "step"), phases, few),
      grid(
        idle.length
          ? card(named("table", "idle"), idleChart(context, idle, counted, 240, rank?.parts["idle_ns"] ?? null), { wide: true })
          : null,
        few || !found.spread.counts.length ? null : card(t("steps.distribution"), histogram(context, found.spread, 220)),
        outliersCard(context, found.spread),
        few
          ? null
          : card(t("steps.curves"), stepCurves(context, found.steps, [...HOST_PARTS, ...DEVICE_PARTS], 280, t("steps.curves")), {
              wide: true,
            }),
        card(
          t("steps.table"),
          [
            summaryTable(found.steps, rank),
            table(context, {
              name: "steps",
              trace,
              columns: COLUMNS,
              links: { step: (row) => context.to("steps", { ...context.params, step: row["step"] as number }) },
            }),
          ],
          { wide: true },
        ),
        card(
          named("table", "step_collectives"),
          table(context, { name: "step_collectives", trace, height: 300, optional: true }),
        ),
      ),
    ];
  },
};

const meanTitle = (rank: Rank | undefined): string => (rank ? titleOfMean(rank.figures) : t("steps.average"));

function stepChoice(context: Context, found: Steps, rank: Rank | undefined): HTMLElement {
  const items: [string, string][] = [["", meanTitle(rank)]];
  for (const one of found.steps)
    if (one.step !== null)
      items.push([String(one.step), `${t("step")} ${one.step}${one.complete ? "" : ` (${t("step.incomplete")})`}`]);
  return choice(t("step"), items, context.params["step"] ?? "", (value) => context.visit({ step: value || null }));
}

function spreadFigures(spread: Spread): Child {
  return figures(
    figure(t("steps"), format.count(spread.count)),
    figure(
      t("steps.mean"),
      format.value(spread.mean_ns, "ns"),
      spread.std_ns === null ? null : `± ${format.time(spread.std_ns)}`,
    ),
    figure(t("steps.median"), format.value(spread.median_ns, "ns")),
    figure(t("steps.p90"), format.value(spread.p90_ns, "ns")),
    figure(t("steps.min"), format.value(spread.min_ns, "ns")),
    figure(t("steps.max"), format.value(spread.max_ns, "ns")),
  );
}

/** The wanted step, or the mean of the usual steps of the rank as the server has it on all pages. */
function chosenCard(context: Context, found: Steps, trace: number, rank: Rank | undefined): Child {
  const wanted = numberOf(context.params, "step");
  if (wanted === null)
    return card(`${meanTitle(rank)}: ${format.value(meanStepTime(found.steps, rank), "ns")}`, [
      ...stepPartsBars(rank?.parts ?? {}),
      rank
        ? h(
            "p",
            { class: "note sentence" },
            whichParts(rank.figures),
            meanAndMedian(meanStepTime(found.steps, rank), rank.figures.step_time_ns),
          )
        : null,
    ]);
  const one = found.steps.find((step) => step.step === wanted);
  if (!one) return card(`${t("step")} ${wanted}`, nothing(t("steps.no_such", { step: wanted })));
  return card(`${t("step")} ${one.step}: ${format.value(one["step_time_ns"] ?? one.duration_ns, "ns")}`, [
    ...stepPartsBars(one),
    h("p", null, h("a", { href: context.to("timeline", { rank: trace, step: one.step }) }, t("timeline.show"))),
  ]);
}

function outliersCard(context: Context, spread: Spread): Child {
  if (!spread.outliers.length) return null;
  return card(
    t("steps.outliers"),
    smallTable(
      t("steps.outliers"),
      [t("step"), t("step.time"), t("steps.longer")],
      spread.outliers
        .slice(0, 20)
        .map((row) => [
          h(
            "a",
            { href: context.to("steps", { ...context.params, step: row["step"] as number }) },
            `${t("step")} ${String(row["step"])}`,
          ),
          format.value(row["step_time_ns"], "ns"),
          spread.median_ns ? format.signedShare(Number(row["step_time_ns"]) / spread.median_ns - 1) : format.NOTHING,
        ]),
      [1, 2],
    ),
  );
}
