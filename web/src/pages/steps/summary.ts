/** The parts of the step above as rows: their means, which are those of the bar, and how they spread over the selected steps. */

import type { Rank, Step } from "../../api/types";
import { type Child, h } from "../../ui/dom";
import { stepsOf, titleOfMean } from "../../ui/step_means";
import { DEVICE_PARTS, HOST_PARTS, partOf, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

/** Value below which a share of the sorted values lies, between two of them as the server has it. */
export function quantile(sorted: readonly number[], share: number): number | null {
  if (!sorted.length) return null;
  const place = share * (sorted.length - 1);
  const [low, high] = [sorted[Math.floor(place)]!, sorted[Math.ceil(place)]!];
  return low + (high - low) * (place - Math.floor(place));
}

/** Mean step time of the steps that the parts are of: of a few where the device was recorded in few. */
export function meanStepTime(steps: readonly Step[], rank: Rank | undefined): number | null {
  const numbers = new Set(rank ? stepsOf(rank.figures) : []);
  const times = steps.flatMap((one) => (one.step !== null && numbers.has(one.step) ? (one["step_time_ns"] as number) : []));
  return times.length ? times.reduce((sum, one) => sum + one, 0) / times.length : null;
}

/** The table; nothing of a single step, which is a row of the table of all. */
export function summaryTable(steps: readonly Step[], rank: Rank | undefined): Child {
  const chosen = steps.filter((one) => one["chosen"]);
  if (!rank || chosen.length < 2) return null;
  const used = [...HOST_PARTS, ...DEVICE_PARTS].filter((name) => (partOf(rank.parts, name) ?? 0) > 0);
  const columns: [title: string, mean: number | null, values: number[]][] = [
    [t("step.time"), meanStepTime(steps, rank), chosen.flatMap((one) => (one["step_time_ns"] as number | null) ?? [])],
    ...used.map((name): [string, number | null, number[]] => [
      named("part", name),
      partOf(rank.parts, name),
      chosen.flatMap((one) => partOf(one, name) ?? []),
    ]),
  ];
  for (const [, , values] of columns) values.sort((one, other) => one - other);
  const row = (name: string, of: (mean: number | null, values: readonly number[]) => number | null): Child[] => [
    name,
    ...columns.map(([, mean, values]) => format.value(of(mean, values), "ns")),
  ];
  const at =
    (share: number) =>
    (_: number | null, values: readonly number[]): number | null =>
      quantile(values, share);
  return [
    smallTable(
      t("steps.summary"),
      ["", ...columns.map(([title]) => title)],
      [
        row(titleOfMean(rank.figures), (mean) => mean),
        row(t("steps.median"), at(0.5)),
        row(t("steps.p90"), at(0.9)),
        row(t("steps.min"), at(0)),
        row(t("steps.max"), at(1)),
      ],
      columns.map((_, place) => place + 1),
    ),
    h("p", { class: "note" }, t("steps.summary.what"), used.includes("gradient_sync") ? ` ${t("steps.summary.backward")}` : ""),
  ];
}
