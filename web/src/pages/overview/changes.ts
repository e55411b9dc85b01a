/** What to change: the first findings of the advice, with what each saves. */

import type { Finding, Overview } from "../../api/types";
import { type Child, h, replace } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { prose } from "../../ui/prose";
import { medianWord } from "../../ui/step_means";
import { card, findingLevel, firstOnes, savingText, togetherWords } from "../../ui/ui";
import * as format from "../../words/format";
import { inLanguage, t } from "../../words/i18n";

const MOST = 3;

/** The card; where the advice was not there in time, it comes later. */
export function adviceCard(context: Context, found: Overview): HTMLElement {
  const place = h("div", null, listed(context, found, found.advice));
  if (!found.judged)
    context.pending.push(
      context.api
        .get("advice")
        .then((all) =>
          replace(place, listed(context, { ...found, ...all, findings: all.findings.length, judged: true }, all.findings)),
        )
        .catch(() => undefined),
    );
  return card(t("overview.change"), place, { more: context.to("advice") });
}

/** Of what savings are shares, and what the findings save together. */
function note(found: Overview, findings: readonly Finding[]): Child {
  const { step_ns } = found;
  if (step_ns === null || !(found.together || findings.some((one) => one.saving))) return null;
  const of = t("overview.change.what", { time: format.time(step_ns), median: medianWord(found.figures) });
  return h("p", { class: "note" }, [of, togetherWords({ ...found, step_ns })].join(" ").trim());
}

function listed(context: Context, found: Overview, findings: readonly Finding[]): Child {
  if (!findings.length)
    return h(
      "p",
      { class: "note" },
      t(!found.judged ? "advice.later" : found.step_ns === null ? "advice.none.steps" : "advice.none"),
    );
  const count = Math.max(found.findings, findings.length);
  return [
    note(found, findings),
    h(
      "ol",
      { class: "changes" },
      findings.slice(0, MOST).map((one, place) => change(context, one, findings, place + 1)),
    ),
    count > MOST
      ? h("p", null, h("a", { href: context.to("advice") }, t("overview.change.all", { count: format.count(count) })))
      : null,
  ];
}

function change(context: Context, finding: Finding, all: readonly Finding[], number: number): HTMLElement {
  const link = (one: Finding): HTMLElement =>
    h("a", { href: context.to("advice", { finding: one.id }) }, prose(inLanguage(one.texts)?.title ?? one.id));
  const text = inLanguage(finding.texts);
  const { saving } = finding;
  return h(
    "li",
    { class: `change level-${finding.level}` },
    h(
      "p",
      { class: "change-head" },
      h("b", null, `${number}.`),
      findingLevel(finding),
      h("span", { class: "note" }, t("advice.confidence", { share: `${Math.round(100 * finding.confidence)} %` })),
      saving ? h("b", { class: "change-saving" }, prose(savingText(finding))) : null,
    ),
    link(finding),
    firstOnes(finding, all, link),
    text?.remedy ? h("p", { class: "note" }, prose(text.remedy)) : null,
  );
}
