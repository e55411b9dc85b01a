/** The verdict, which steps figures are of, and why host and device differ, in the language of the pages. */

import type { StepFigures, Verdict } from "../api/types";
import * as format from "../words/format";
import { type Key, current, named, t } from "../words/i18n";
import { h, type Child } from "./dom";

const KINDS: Readonly<Record<string, Key>> = {
  compute: "verdict.compute",
  communication: "verdict.communication",
  copy: "verdict.copy",
  input: "verdict.input",
  host: "verdict.host",
  synchronizing: "verdict.synchronizing",
  rank: "verdict.rank",
  nothing: "verdict.nothing",
};
/** host and device are told apart where they differ by more */
const DIFFER = 0.05;

/** The sentence of the server in English; in other languages the same figures in their words. */
export function verdictWords(verdict: Verdict, few: boolean): string {
  if (current() === "en") return verdict.sentence;
  const most =
    verdict.kind === "compute" && verdict.leading
      ? t("verdict.most", {
          share: format.share(verdict.leading_share),
          leading: named("value", verdict.leading, verdict.leading),
        })
      : verdict.kind === "communication" && verdict.leading
        ? t("verdict.collective", { leading: verdict.leading })
        : verdict.kind === "host" && verdict.of_device && verdict.cause
          ? t("verdict.cause", { cause: named("value", `idle.${verdict.cause.replaceAll(" ", "_")}`, verdict.cause) })
          : "";
  const words = t(KINDS[verdict.kind] ?? "verdict.unknown", {
    share: format.share(verdict.share),
    device: verdict.device,
    rank: verdict.rank ?? "",
    leading: verdict.leading,
  });
  const doubt =
    verdict.confidence === "guess"
      ? t("verdict.guess")
      : verdict.confidence === "likely"
        ? t(few ? "verdict.few" : "verdict.close")
        : "";
  return words + most + doubt;
}

/** Which steps figures are of, and which are left out and why. */
export function whichSteps(figures: StepFigures): string {
  if (current() === "en" || !figures.chosen.length) return figures.sentence;
  const left = figures.left_out.map((one) => `${one.step} (${named("value", one.reason)})`);
  return (
    t("median.of", { count: format.count(figures.steps) })
    + (left.length ? t("steps.left_out", { steps: left.join(", ") }) : "")
    + (figures.few ? t("steps.few_left") : "")
  );
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
