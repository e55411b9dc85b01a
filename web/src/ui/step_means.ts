/** What the parts of a step are: means over its usual steps, whose sum is the mean step and not the median one. */

import type { StepFigures } from "../api/types";
import * as format from "../words/format";
import { t } from "../words/i18n";
import { numberRanges } from "./ui";
import { whichSteps } from "./verdict_words";

type Means = Pick<
  StepFigures,
  | "differs"
  | "host_mean_ns"
  | "device_mean_ns"
  | "step_mean_ns"
  | "step_time_ns"
  | "usual"
  | "usual_on_device"
  | "usual_steps"
  | "chosen"
  | "outliers"
  | "steps"
  | "ranks"
>;

/** mean and median that differ by more than this share are both told */
const APART = 0.02;

export const isApart = (mean: number, median: number): boolean => Math.abs(mean - median) > APART * median;

/** What shares of the parts of the host are of: its own length; where host and device differ, the step, as in the verdict. */
export const hostBase = (figures: Means): number =>
  figures.differs ? Math.max(figures.step_mean_ns ?? 0, figures.host_mean_ns ?? 0) : (figures.host_mean_ns ?? 0);

/** The same of the parts of the device; the server says it of all traces. */
export const deviceBase = (figures: Means): number =>
  figures.differs ? Math.max(figures.step_mean_ns ?? 0, figures.device_mean_ns ?? 0) : (figures.device_mean_ns ?? 0);

/** Steps of which no part was recorded have a mean length, too. */
export function stepsOf(figures: Means): number[] {
  if (figures.usual.length) return figures.usual;
  if (figures.usual_on_device.length) return figures.usual_on_device;
  return figures.chosen.filter((step) => !figures.outliers.includes(step));
}

/** Whether the parts are of a single step of a single rank, which is no mean. */
export const isSingle = (figures: Means): boolean => stepsOf(figures).length < 2 && figures.ranks < 2;

/** "mean of steps 3–12"; of a single step its number. */
export function meanOf(figures: Means): string {
  const steps = stepsOf(figures);
  if (isSingle(figures)) return t("mean.of.alone", { steps: numberRanges(steps) });
  // one rank may leave out a step that another one does not
  if (figures.ranks > 1 && figures.usual_steps > 0 && figures.usual_steps < figures.steps)
    return t("mean.of.some", { count: figures.usual_steps, of: figures.steps, ranks: figures.ranks });
  const values = { steps: numberRanges(steps), ranks: figures.ranks };
  if (figures.ranks < 2) return t("mean.of", values);
  return t(steps.length > 1 ? "mean.of.ranks" : "mean.of.step.ranks", values);
}

/** The same of a figure of each rank for itself; empty where no rank has steps. */
export function meanOfEach(ranks: readonly { figures: Means }[]): string {
  const timed = ranks.map((one) => one.figures).filter((figures) => figures.chosen.length > 0);
  const steps = new Set(
    timed.map((figures) => numberRanges(figures.usual_on_device.length ? figures.usual_on_device : stepsOf(figures))),
  );
  const [first] = steps;
  if (first === undefined) return "";
  if (steps.size > 1) return t("mean.of.each");
  return t(/\D/.test(first) ? "mean.of" : "mean.of.alone", { steps: first });
}

/** " (mean)" behind a figure that is one; empty where it is of a single step of a single rank. */
export const meanWord = (figures: Means): string => (isSingle(figures) ? "" : t("mean.word"));

/** The same of a median over steps. */
export const medianWord = (figures: Pick<Means, "steps">): string => (figures.steps > 1 ? t("median.word") : "");

/** The same as a title. */
export function titleOfMean(figures: Means): string {
  return t(isSingle(figures) ? "steps.one" : "steps.mean.of", { steps: numberRanges(stepsOf(figures)) });
}

/** How long a step is on average; where the parts are of some of the usual steps alone, of these. */
export function meanLength(figures: Means): number | null {
  const usual = figures.chosen.filter((step) => !figures.outliers.includes(step));
  const some = figures.ranks < 2 && stepsOf(figures).length < usual.length;
  return some ? (figures.host_mean_ns ?? figures.device_mean_ns) : figures.step_mean_ns;
}

/** "mean of steps 3–12", and of which ones the parts of the device are where these are others. */
function meanOfBoth(figures: Means): string {
  const device = { ...figures, usual: figures.usual_on_device };
  const other = figures.usual.length > 0 && device.usual.length > 0 && numberRanges(figures.usual) !== numberRanges(device.usual);
  return other ? t("mean.of.both", { host: meanOf(figures), device: meanOf({ ...device, ranks: 1 }) }) : meanOf(figures);
}

/** What the parts are, and what the step time is. */
export function whichParts(figures: StepFigures): string {
  const steps = whichSteps(figures);
  if (isSingle(figures)) return `${steps}${t("basis.end")}`;
  const out = figures.outliers.length ? ` ${t("overview.which.outliers", { steps: numberRanges(figures.outliers) })}` : "";
  return `${t("overview.which", { mean: meanOfBoth(figures), steps })}${out}`;
}

/** Both lengths of a step where they differ visibly: nobody shall add up the parts and be surprised. */
export function meanAndMedian(mean: number | null, median: number | null): string {
  if (mean === null || median === null || !isApart(mean, median)) return "";
  return ` ${t("overview.apart", { mean: format.time(mean), median: format.time(median) })}`;
}

/** What a part of the host is of the mean step. Nothing of a single step. */
export function shareOfSteps(figures: Means, part_ns: number): string | null {
  const base = hostBase(figures);
  if (!base || isSingle(figures)) return null;
  return t("parts.share", { mean: meanOf(figures), share: format.share(part_ns / base), step: format.time(base) });
}
