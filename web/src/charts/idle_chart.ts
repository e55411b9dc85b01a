/** Why the device was idle: a stacked bar of causes per step, with a legend that says how much each takes and what it means. */

import type { Row } from "../api/types";
import type { Palette } from "../browser/theme";
import { h } from "../ui/dom";
import type { Context } from "../ui/page";
import * as format from "../words/format";
import { named, t } from "../words/i18n";
import { chart, nameAxis, tip, valueAxis } from "./chart";

/** Causes of idle time as `analysis.device.idle` looks for them, and the part of a step whose colour each has on every page. */
export const CAUSES = {
  "garbage collection": "backward",
  data: "data-wait",
  synchronization: "device-wait",
  allocation: "between",
  calls: "forward",
  python: "python",
  "not recorded": "host-rest",
  launch: "optimizer",
  "between kernels": "exposed-copy",
  dependency: "gradient-sync",
  unknown: "idle",
} as const satisfies Readonly<Record<string, string>>;
type Cause = keyof typeof CAUSES;
const EVERY = Object.keys(CAUSES) as Cause[];

export const lookOf = (cause: string): string => CAUSES[cause as Cause] ?? CAUSES.unknown;
export const causeName = (cause: string): string => named("value", `idle.${cause.replaceAll(" ", "_")}`, cause);

interface Hovered {
  dataIndex: number;
}

const colourOf = (cause: Cause, { parts }: Palette): string => parts[CAUSES[cause].replaceAll("-", "_")]!;

/**
 * The chart of all steps and its legend of the `counted` ones, of which `idle_ns` is.
 *
 * @param rows those of the table `idle` of one rank
 * @param idle_ns how long the device is idle in a step, as its bar has it: what the causes add up to; else their mean
 */
export function idleChart(
  context: Context,
  rows: readonly Row[],
  counted: ReadonlySet<number>,
  height: number,
  idle_ns: number | null,
): HTMLElement {
  const steps = [...new Set(rows.map((row) => Number(row["step"])))];
  const lengths = new Map<Cause, Map<number, number>>();
  for (const row of rows) {
    const cause = EVERY.find((one) => one === row["cause"]) ?? "unknown";
    const of = lengths.get(cause) ?? new Map<number, number>();
    of.set(Number(row["step"]), (of.get(Number(row["step"])) ?? 0) + Number(row["idle_ns"]));
    lengths.set(cause, of);
  }
  const used = EVERY.filter((cause) => lengths.has(cause));
  const at = (cause: Cause, step: number): number => lengths.get(cause)?.get(step) ?? 0;
  // figures of a step leave out warm-up and what stands out, here as elsewhere
  const of_figures = counted.size ? [...counted] : steps;
  const sum = (cause: Cause): number => of_figures.reduce((whole, step) => whole + at(cause, step), 0);
  const whole = Math.max(
    used.reduce((all, cause) => all + sum(cause), 0),
    1,
  );
  const of_a_step = idle_ns ?? whole / of_figures.length;
  const long = steps.length > 60;
  const picture = chart(
    {
      label: named("table", "idle"),
      height,
      say: format.time,
      option: (colours) => ({
        grid: { left: 64, right: 12, top: 10, bottom: long ? 50 : 24 },
        dataZoom: long ? [{ type: "inside" }, { type: "slider", height: 16, bottom: 4 }] : [],
        xAxis: nameAxis(colours, steps),
        yAxis: valueAxis(colours, format.time),
        tooltip: {
          trigger: "axis",
          axisPointer: { type: "shadow" },
          formatter: (hovered: Hovered[]) => {
            const step = steps[hovered[0]?.dataIndex ?? 0]!;
            const all = used.reduce((idle, cause) => idle + at(cause, step), 0);
            return tip(
              `${t("step")} ${step}: ${t("idle.idle", { time: format.time(all) })}`,
              used
                .filter((cause) => at(cause, step) > 0)
                .map((cause) => ({
                  colour: colourOf(cause, colours),
                  name: causeName(cause),
                  value: format.time(at(cause, step)),
                })),
            );
          },
        },
        series: used.map((cause) => ({
          type: "bar",
          stack: "idle",
          name: causeName(cause),
          color: colourOf(cause, colours),
          barMaxWidth: 40,
          data: steps.map((step) => at(cause, step)),
        })),
      }),
    },
    context.signal,
  );
  const legend = h(
    "dl",
    { class: "idle-legend" },
    [...used]
      .sort((one, other) => sum(other) - sum(one))
      .map((cause) => [
        h(
          "dt",
          null,
          h("span", { class: `swatch part-${lookOf(cause)}` }),
          causeName(cause),
          // of what only steps that are left out have, a step has nothing
          sum(cause)
            ? [" ", h("b", null, `${format.time((sum(cause) / whole) * of_a_step)} (${format.share(sum(cause) / whole)})`)]
            : null,
        ),
        h("dd", { class: "note" }, named("value", `idle.${cause.replaceAll(" ", "_")}.what`)),
      ]),
  );
  return h(
    "div",
    { class: "two" },
    picture,
    h("div", null, h("p", { class: "note" }, t("idle.legend", { time: format.time(of_a_step) })), legend),
  );
}
