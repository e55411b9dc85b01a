/** The steps: one or the average, curves over all, how they spread, and which stand out. */

import { h, type Child } from "../dom";
import * as format from "../format";
import { named, t } from "../i18n";
import type { Context, Page } from "../page";
import { numberOf } from "../route";
import { histogram, stepBars, stepCurves } from "../step_charts";
import { stepTraceCards } from "../step_trace_card";
import { table } from "../table";
import type { Row, Spread, Step, Steps } from "../types";
import { DEVICE_PARTS, HOST_PARTS, card, choice, deviceNote, figure, figures, grid, nothing, partsBar, rankChoice, smallTable } from "../ui";

export const steps: Page = {
  id: "steps",
  title: "page.steps",
  async show(context) {
    const ranks = await context.api.ranks();
    const trace = numberOf(context.params, "rank") ?? 0;
    const [found, phases] = await Promise.all([context.api.steps(trace), context.api.rows("step_trace", { trace })]);
    const chooser = h("div", { class: "controls" }, rankChoice(context, ranks, false), found.steps.length ? stepChoice(context, found) : null);
    if (!found.steps.length) return [chooser, nothing(t("steps.none"), t("steps.none.why"))];
    return [
      chooser,
      spreadFigures(found.spread),
      await stepTraceCards(context, trace, numberOf(context.params, "step"), phases),
      grid(
        chosenCard(context, found, trace),
        card(t("steps.distribution"), found.spread.counts.length ? histogram(context, found.spread, 220) : nothing(t("steps.few"))),
        card(t("steps.chart"), stepBars(context, found.steps, 260), { wide: true }),
        card(t("steps.curves"), stepCurves(context, found.steps, [...HOST_PARTS, "computing", "communication_not_overlapped", "free"], 280, t("steps.curves")), { wide: true }),
        outliersCard(context, found.spread),
        card(t("steps.table"), table(context, { name: "steps", trace, links: { step: (row) => context.to("steps", { ...context.params, step: row["step"] as number }) } }), { wide: true }),
        card(named("table", "idle_causes"), table(context, { name: "idle_causes", trace, height: 300, optional: true })),
        card(named("table", "step_collectives"), table(context, { name: "step_collectives", trace, height: 300, optional: true })),
      ),
    ];
  },
};

function stepChoice(context: Context, found: Steps): HTMLElement {
  const items: [string, string][] = [["", t("steps.average")]];
  for (const one of found.steps) if (one.step !== null) items.push([String(one.step), `${t("step")} ${one.step}${one.complete ? "" : ` (${t("step.incomplete")})`}`]);
  return choice(t("step"), items, context.params["step"] ?? "", (value) => context.visit({ step: value || null }));
}

function spreadFigures(spread: Spread): Child {
  return figures(
    figure(t("steps"), format.count(spread.count)),
    figure(t("steps.mean"), format.value(spread.mean_ns, "ns"), spread.std_ns === null ? null : `± ${format.time(spread.std_ns)}`),
    figure(t("steps.median"), format.value(spread.median_ns, "ns")),
    figure(t("steps.p90"), format.value(spread.p90_ns, "ns")),
    figure(t("steps.min"), format.value(spread.min_ns, "ns")),
    figure(t("steps.max"), format.value(spread.max_ns, "ns")),
  );
}

function chosenCard(context: Context, found: Steps, trace: number): Child {
  const wanted = numberOf(context.params, "step");
  const one = wanted === null ? undefined : found.steps.find((step) => step.step === wanted);
  if (wanted !== null && !one) return card(`${t("step")} ${wanted}`, nothing(t("steps.no_such", { step: wanted })));
  const parts: Row = one ?? average(found.steps);
  const length = Number(parts["duration_ns"] ?? 0);
  return card(one ? `${t("step")} ${one.step}: ${format.time(length)}` : `${t("steps.average")}: ${format.time(length)}`, [
    partsBar(t("parts.host"), HOST_PARTS, parts, length),
    partsBar(t("parts.device"), DEVICE_PARTS, parts, length),
    deviceNote(parts, length),
    one ? h("p", null, h("a", { href: context.to("timeline", { rank: trace, step: one.step }) }, t("timeline.show"))) : null,
  ]);
}

/** Means of the complete steps. */
function average(steps: readonly Step[]): Row {
  const whole = steps.filter((one) => one.complete);
  const names = Object.keys(steps[0] ?? {}).filter((name) => name.endsWith("_ns"));
  return Object.fromEntries(names.map((name) => [name, whole.reduce((sum, one) => sum + Number(one[name] ?? 0), 0) / Math.max(whole.length, 1)]));
}

function outliersCard(context: Context, spread: Spread): Child {
  if (!spread.outliers.length) return card(t("steps.outliers"), nothing(t("steps.outliers.none")));
  return card(
    t("steps.outliers"),
    smallTable(
      t("steps.outliers"),
      [t("step"), t("step.time"), t("steps.longer")],
      spread.outliers.slice(0, 20).map((row) => [
        h("a", { href: context.to("steps", { ...context.params, step: row["step"] as number }) }, `${t("step")} ${String(row["step"])}`),
        format.value(row["duration_ns"], "ns"),
        spread.median_ns ? format.share(Number(row["duration_ns"]) / spread.median_ns - 1) : format.NOTHING,
      ]),
      [1, 2],
    ),
  );
}
