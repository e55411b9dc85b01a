/** How a run went: how long each step took, why the device idled in it, and its memory. */

import type { Overview, Trends } from "../../api/types";
import { CAUSES, causeName, lookOf } from "../../charts/idle_chart";
import { sparkline, trendBars } from "../../charts/trend";
import { type Child, h } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { meanWord } from "../../ui/step_means";
import { card, deviceOf, rankName } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

/** a single step has no trend */
const LEAST_STEPS = 2;
/** idle time below this share of a step needs no explanation */
const LEAST_IDLE = 0.01;

/** The trace that the figures point at: that of the rank which the others wait for, or the first one. */
export const pointedAt = (found: Overview): Overview["ranks"][number] | undefined =>
  found.ranks.find((one) => found.verdict.rank !== null && one.rank === found.verdict.rank) ?? found.ranks[0];

/** The length of every step, and memory. */
export async function trendCards(context: Context, found: Overview, asked: Promise<Trends>): Promise<Child> {
  const rank = pointedAt(found);
  if (!rank) return null;
  const trends = await asked;
  const which = found.ranks.length > 1 ? rankName(rank, found.ranks) : null;
  return [stepsCard(context, found, trends, which, rank.trace), memoryCard(context, trends, which, rank.trace)];
}

function stepsCard(context: Context, found: Overview, trends: Trends, which: string | null, trace: number): Child {
  if (trends.steps.length < LEAST_STEPS) return null;
  const median = found.ranks[trace]?.step_ns ?? null;
  const bars = trends.steps.map((step) => ({
    label: String(step.step),
    title: `${t("step")} ${step.step}: ${format.time(step.step_time_ns)}${step.counted ? "" : ` (${t("overview.step.out")})`}`,
    parts: [{ look: "accent", value: step.step_time_ns }],
    faded: !step.counted,
    href: context.to("steps", { rank: found.ranks.length > 1 ? trace : null, step: step.step }),
  }));
  const out = trends.steps.some((step) => !step.counted);
  const line = median === null ? null : { value: median, name: t("overview.median", { time: format.time(median) }) };
  return card(t("overview.steps"), trendBars(t("overview.steps"), bars, line, format.time, context.signal), {
    narrow: true,
    more: context.to("steps"),
    note: [
      which === null ? null : t("overview.steps.rank", { rank: which }),
      which && out ? " · " : null,
      out ? t("overview.steps.out") : null,
    ],
  });
}

function memoryCard(context: Context, trends: Trends, which: string | null, trace: number): Child {
  const { memory } = trends;
  if (!memory) return null;
  const name = t("overview.memory.peak", { size: format.bytes(memory.peak_bytes) });
  const peak = { at: memory.peak_ns, value: memory.peak_bytes, name };
  const { owner } = memory;
  return card(
    t("page.memory"),
    [
      sparkline(t("page.memory"), memory.time_ns, memory.bytes, peak, context.signal),
      h(
        "p",
        { class: "note" },
        memory.peak_step === null ? null : t("overview.memory.step", { step: memory.peak_step }),
        owner?.name
          ? [
              " ",
              t("overview.memory.owner", {
                name: owner.name,
                size: format.bytes(owner.bytes),
                share: owner.percent === null ? format.NOTHING : format.percent(owner.percent),
              }),
            ]
          : null,
      ),
    ],
    {
      narrow: true,
      more: context.to("memory", { rank: which === null ? null : trace }),
      note: [which, which ? " · " : null, deviceOf(memory)],
    },
  );
}

/** Idle time of the device by cause, of a step and of each; of a CPU the phases of the host say it already. */
export async function idleCard(context: Context, found: Overview, asked: Promise<Trends>): Promise<Child> {
  const rank = pointedAt(found);
  const idle = Object.entries(found.idle);
  const sum = idle.reduce((all, [, ns]) => all + ns, 0);
  if (!rank || !found.verdict.of_device || sum < LEAST_IDLE * found.base_ns) return null;
  const trends = await asked;
  const which = found.ranks.length > 1 ? rankName(rank, found.ranks) : null;
  const rows = [...idle].sort((one, other) => other[1] - one[1]);
  const of = (step: number): { look: string; value: number }[] =>
    Object.keys(CAUSES).flatMap((cause) =>
      trends.idle
        .filter((one) => one.step === step && one.cause === cause)
        .map((one) => ({ look: lookOf(cause), value: one.idle_ns })),
    );
  const steps = trends.steps.filter((step) => trends.idle.some((one) => one.step === step.step));
  const bars = steps.map((step) => {
    const parts = of(step.step);
    const whole = parts.reduce((all, one) => all + one.value, 0);
    return { label: String(step.step), title: `${t("step")} ${step.step}: ${format.time(whole)}`, parts, faded: !step.counted };
  });
  return card(
    t("overview.idle"),
    [
      h(
        "div",
        { class: "bar idle-bar", "aria-hidden": "true" },
        rows.map(([cause, ns]) =>
          h("span", {
            class: `part part-${lookOf(cause)}`,
            style: { width: `${(ns / sum) * 100}%` },
            title: `${causeName(cause)}: ${format.time(ns)}`,
          }),
        ),
      ),
      h(
        "dl",
        { class: "causes" },
        rows.map(([cause, ns]) =>
          h(
            "div",
            { class: "cause" },
            h("dt", null, h("span", { class: `swatch part-${lookOf(cause)}` }), " ", causeName(cause)),
            h(
              "dd",
              { class: "cause-time" },
              format.time(ns),
              " ",
              h("span", { class: "note" }, format.share(ns / found.base_ns)),
            ),
            h("dd", { class: "note cause-why" }, named("value", `idle.${cause.replaceAll(" ", "_")}.why`, "")),
          ),
        ),
      ),
      bars.length < LEAST_STEPS
        ? null
        : [
            h("p", { class: "note" }, t("overview.idle.steps"), which ? ` (${which})` : ""),
            trendBars(t("overview.idle"), bars, null, format.time, context.signal),
          ],
    ],
    {
      more: context.to("steps"),
      note: t("overview.idle.what", {
        time: format.time(sum),
        mean: meanWord(found.figures),
        share: format.share(sum / found.base_ns),
      }),
    },
  );
}
