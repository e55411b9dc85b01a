/** What became of the step, in a sentence: the one that the terminal prints, with how sure it is. */

import type { ComparedSide, Comparison, StepChange } from "../../api/types";
import { formatRoute } from "../../browser/route";
import { type Child, h } from "../../ui/dom";
import { figure, figures } from "../../ui/ui";
import * as format from "../../words/format";
import { inLanguage, t } from "../../words/i18n";

/** A percentage without its sign, with one digit behind the point, as the terminal has it. */
const sizeText = (ratio: number): string => `${(Math.abs(ratio) * 100).toFixed(1)} %`;

/** The same with a sign. */
export const percentText = (ratio: number): string => `${ratio < 0 ? "-" : "+"}${sizeText(ratio)}`;

/** What a change of the step means. */
export function verdictWords(found: Pick<Comparison, "before" | "after" | "step">): string {
  const { before, after, step } = found;
  if (!step) return t("compare.verdict.few", { before: format.count(before.steps), after: format.count(after.steps) });
  const values = {
    change: percentText(step.ratio),
    size: sizeText(step.ratio),
    low: percentText(step.low),
    high: percentText(step.high),
    least: format.share(step.least_change),
  };
  switch (step.verdict) {
    case "slower":
      return t("compare.verdict.slower", values);
    case "faster":
      return t("compare.verdict.faster", values);
    case "alike":
      return t("compare.verdict.alike", values);
    default:
      return `${t("compare.verdict.unsure", values)} ${neededWords(step)}`;
  }
}

/** How many recordings would tell. */
function neededWords(step: StepChange): string {
  if (step.runs_needed === null) return t("compare.verdict.never");
  return t("compare.verdict.needed", { change: sizeText(step.least_change), count: format.count(step.runs_needed) });
}

/** How many steps a side is of, and on what it ran. */
export function sideWords(side: ComparedSide): string {
  if (!side.steps) return t("compare.side.steps.none");
  return [
    ...(side.recordings > 1
      ? [
          t("compare.side.recordings", { count: format.count(side.recordings) }),
          t("compare.side.count", { count: format.count(side.steps) }),
        ]
      : [t("compare.side.steps", { count: format.count(side.steps) })]),
    side.ranks > 1 ? t("compare.side.ranks", { count: format.count(side.ranks) }) : "",
    side.devices.join(", "),
  ]
    .filter(Boolean)
    .join(" · ");
}

/** The sentence, the figures it rests on, and what makes it doubtful. */
export function verdictOf(found: Comparison): Child {
  const steps = (side: ComparedSide): string => formatRoute(side.run, "steps");
  // of how much a side is shall be read to its end
  const words = (side: ComparedSide): Child => h("span", { class: "wrapped-text" }, sideWords(side));
  const memory = [found.before.peak_bytes, found.after.peak_bytes];
  return [
    h("p", { class: "verdict" }, verdictWords(found)),
    figures(
      figure(t("compare.before"), format.value(found.before.step_ns, "ns"), words(found.before), steps(found.before)),
      figure(t("compare.after"), format.value(found.after.step_ns, "ns"), words(found.after), steps(found.after)),
      memory.every((bytes) => bytes === null)
        ? null
        : figure(t("memory.peak"), memory.map((bytes) => format.value(bytes, "bytes")).join(" → ")),
    ),
    doubtsOf(found),
  ];
}

function doubtsOf(found: Comparison): Child {
  if (!found.doubts.length) return null;
  return h(
    "div",
    { class: "callout", role: "note" },
    h("p", null, h("strong", null, t("compare.doubts"))),
    h(
      "ul",
      null,
      found.doubts.map((texts) => h("li", { class: "sentence" }, inLanguage(texts) ?? "")),
    ),
  );
}
