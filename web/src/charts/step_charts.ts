/** Charts of the steps: what each consists of, curves over them, and how their lengths spread. */

import type { Spread, Step } from "../api/types";
import type { PARTS } from "../browser/theme";
import type { Context } from "../ui/page";
import { DEVICE_PARTS, HOST_PARTS, partOf } from "../ui/ui";
import * as format from "../words/format";
import { named, t } from "../words/i18n";
import { chart, nameAxis, tip, valueAxis } from "./chart";

type Part = (typeof PARTS)[number];
interface Hovered {
  dataIndex: number;
  seriesName: string;
  color: string;
  value: number;
}

const label = (step: Step): string => (step.step === null ? "–" : String(step.step));
/** On the host; of results without its times, as the source has it. */
const length = (step: Step): string => format.value(step.duration_ns ?? step["step_time_ns"], "ns");
const part = (step: Step, name: string): number => partOf(step, name) ?? 0;

/** The phases on the host, or the parts on the device where nothing is known of the host. */
function mainParts(steps: readonly Step[]): readonly Part[] {
  return steps.some((step) => HOST_PARTS.some((name) => part(step, name) > 0)) ? HOST_PARTS : DEVICE_PARTS;
}

/** Stacked bars of the phases of every step; a click shows the step. */
export function stepBars(context: Context, steps: readonly Step[], height: number): HTMLElement {
  const names = mainParts(steps);
  const used = names.filter((name) => steps.some((step) => part(step, name) > 0));
  return chart(
    {
      label: t("steps.chart"),
      height,
      onPick: ({ dataIndex }) => {
        const step = steps[dataIndex];
        const here = context.page === "steps" ? context.params : {};
        if (step)
          location.hash = context.to("steps", {
            ...here,
            rank: step.trace ?? context.params["rank"],
            step: step.step ?? undefined,
          });
      },
      option: (colours) => ({
        grid: { left: 64, right: 12, top: 30, bottom: steps.length > 60 ? 50 : 24 },
        legend: { type: "scroll", top: 0, textStyle: { color: colours.text } },
        dataZoom: steps.length > 60 ? [{ type: "inside" }, { type: "slider", height: 16, bottom: 4 }] : [],
        xAxis: nameAxis(colours, steps.map(label)),
        yAxis: valueAxis(colours, format.time),
        tooltip: {
          trigger: "axis",
          axisPointer: { type: "shadow" },
          formatter: (hovered: Hovered[]) => {
            const step = steps[hovered[0]?.dataIndex ?? 0];
            if (!step) return "";
            const lines = used.map((name) => ({
              colour: colours.parts[name],
              name: named("part", name),
              value: format.time(part(step, name)),
            }));
            return tip(`${t("step")} ${label(step)}: ${length(step)}${step.complete ? "" : ` (${t("step.incomplete")})`}`, lines);
          },
        },
        series: used.map((name) => ({
          type: "bar",
          stack: "step",
          name: named("part", name),
          color: colours.parts[name],
          barMaxWidth: 40,
          cursor: "pointer",
          data: steps.map((step) => ({ value: part(step, name), itemStyle: { opacity: step.complete ? 1 : 0.45 } })),
        })),
      }),
    },
    context.signal,
  );
}

/** Curves of parts over the steps. */
export function stepCurves(
  context: Context,
  steps: readonly Step[],
  names: readonly string[],
  height: number,
  title: string,
): HTMLElement {
  const used = names.filter((name) => steps.some((step) => part(step, name) > 0));
  return chart(
    {
      label: title,
      height,
      // anywhere above a step: a line without symbols has no points to click
      onPlace: (at) => {
        const step = steps[Math.round(at)];
        if (step) location.hash = context.to("steps", { ...context.params, step: step.step ?? undefined });
      },
      option: (colours) => ({
        grid: { left: 64, right: 12, top: 30, bottom: 24 },
        dataZoom: [{ type: "inside" }],
        legend: { type: "scroll", top: 0, textStyle: { color: colours.text } },
        xAxis: nameAxis(colours, steps.map(label), { boundaryGap: false }),
        yAxis: valueAxis(colours, format.time),
        tooltip: {
          trigger: "axis",
          formatter: (hovered: Hovered[]) =>
            tip(
              `${t("step")} ${label(steps[hovered[0]?.dataIndex ?? 0]!)}`,
              hovered.map((one) => ({ colour: one.color, name: one.seriesName, value: format.value(one.value, "ns") })),
            ),
        },
        series: used.map((name, place) => ({
          type: "line",
          name: named("part", name),
          color: colours.parts[name] ?? colours.series[place],
          showSymbol: steps.length < 80,
          symbolSize: 6,
          // a gap where it is not known, which is not 0
          data: steps.map((step) => partOf(step, name)),
        })),
      }),
    },
    context.signal,
  );
}

/** How many steps are how long, with the median, the 90th percentile and the mean marked. */
export function histogram(context: Context, spread: Spread, height: number): HTMLElement {
  const bars = spread.counts.map((count, place) => [spread.edges_ns[place]!, spread.edges_ns[place + 1]!, count] as const);
  return chart(
    {
      label: t("steps.distribution"),
      height,
      onPick: ({ dataIndex }) => {
        const [low, high] = bars[dataIndex] ?? [];
        if (low !== undefined && high !== undefined)
          context.visit({
            "steps.where": JSON.stringify([{ column: "step_time_ns", at_least: Math.floor(low), at_most: Math.ceil(high) }]),
          });
      },
      option: (colours) => ({
        grid: { left: 48, right: 70, top: 30, bottom: 24 },
        xAxis: valueAxis(colours, format.time, {
          min: spread.edges_ns[0],
          max: spread.edges_ns.at(-1),
          splitNumber: 5,
          splitLine: { show: false },
          axisLabel: {
            color: colours.faint,
            formatter: format.time,
            hideOverlap: true,
            showMinLabel: false,
            showMaxLabel: false,
          },
        }),
        yAxis: valueAxis(colours, format.count, {
          minInterval: 1,
          name: t("steps"),
          nameTextStyle: { color: colours.faint, align: "right" },
          nameGap: 12,
        }),
        tooltip: {
          trigger: "item",
          formatter: (one: { dataIndex: number }) => {
            const [low, high, count] = bars[one.dataIndex] ?? [0, 0, 0];
            return tip(`${format.time(low)} – ${format.time(high)}`, [{ name: t("steps"), value: format.count(count) }]);
          },
        },
        series: [
          {
            type: "bar",
            cursor: "pointer",
            data: bars.map(([low, high, count]) => [(low + high) / 2, count]),
            barWidth: "94%",
            color: colours.accent,
            markLine: {
              symbol: "none",
              silent: true,
              lineStyle: { color: colours.text, type: "dashed" },
              data: (
                [
                  ["steps.median", spread.median_ns],
                  ["steps.p90", spread.p90_ns],
                ] as const
              )
                .filter(([, at]) => at !== null)
                .map(([name, at], place) => ({
                  xAxis: at!,
                  label: { formatter: t(name), color: colours.text, position: "end", align: place ? "left" : "right" },
                })),
            },
          },
        ],
      }),
    },
    context.signal,
  );
}
