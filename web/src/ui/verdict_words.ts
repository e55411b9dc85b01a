/** The verdict, which steps figures are of, and why host and device differ, in the language of the pages. */

import type { StepFigures, Verdict } from "../api/types";
import * as format from "../words/format";
import { type Key, current, inLanguage, named, t } from "../words/i18n";
import { h, type Child } from "./dom";

/** host and device are told apart where they differ by more */
const DIFFER = 0.05;

/** The verdict in the language of the pages; the server says it in each. */
export const verdictWords = (verdict: Verdict): string => inLanguage(verdict.sentences) ?? verdict.sentence;

/** Whether a device idles because the host is slow: then what takes the host's time counts, and not what takes the device's. */
export const isHostBound = (verdict: Verdict): boolean =>
  verdict.of_device && (verdict.kind === "host" || verdict.kind === "synchronizing");

/** How many steps figures are of, and on how many ranks; a step of several ranks is one. */
export function stepCount(figures: StepFigures): string {
  const count = format.count(figures.distinct);
  return figures.ranks > 1 ? t("median.of.ranks", { count, ranks: figures.ranks }) : t("median.of", { count });
}

/** Which steps figures are of, and which are left out and why. */
export function whichSteps(figures: StepFigures): string {
  if (current() === "en" || !figures.chosen.length) return figures.sentence.replace(/(\d)-(\d)/g, "$1–$2");
  const left = figures.left_out.map((one) => `${one.step} (${named("value", one.reason)})`);
  return (
    stepCount(figures)
    + (left.length ? t("steps.left_out", { steps: left.join(", ") }) : "")
    + (figures.few ? t("steps.few_left") : "")
  );
}

/** Chosen steps that take much longer than the others. */
export function longSteps(figures: StepFigures): Child {
  if (!figures.long_steps.length) return null;
  const several = new Set(figures.long_steps.map((one) => one.rank)).size > 1;
  const words = figures.long_steps.map((one) =>
    t(several && one.rank !== null ? "steps.long.rank" : "steps.long", {
      step: one.step,
      rank: one.rank ?? "",
      time: format.time(one.step_time_ns),
      factor: one.factor.toFixed(1),
    }),
  );
  return h("p", { class: "note" }, words.join(" "));
}

/** How long the host waits for a place in the queue of the device, and how long it works itself. */
export function queueWaits(figures: StepFigures): Child {
  const wait = Object.values(figures.queue_wait).reduce((sum, ns) => sum + ns, 0);
  const host = figures.host_mean_ns;
  if (!wait || host === null) return null;
  const mean = figures.usual_steps > 1 ? t("mean.word") : "";
  const values = { wait: format.time(wait), host: format.time(host), own: format.time(host - wait), mean };
  return h("p", { class: "note" }, t("overview.queue", values));
}

/** Both medians and the reason, where they differ. */
export function whyDifferent(figures: StepFigures): Child {
  const { host_ns: host, device_ns: device } = figures;
  if (host === null || device === null || Math.abs(host - device) <= DIFFER * Math.max(host, device)) return null;
  const reasons: Readonly<Record<string, Key>> = {
    "run-ahead": "differs.run_ahead",
    "throttled queue": "differs.throttled",
    "cut window": "differs.cut",
  };
  const reason = reasons[figures.differs];
  return h(
    "p",
    { class: "note" },
    t("differs", { host: format.time(host), device: format.time(device) }),
    reason ? t(reason) : "",
  );
}
