/** What is doubtful about the data, in words: the check, what it found, and what that touches, in the page's language. */

import type { HealthFinding } from "../api/types";
import { inLanguage, named, t } from "../words/i18n";
import { type Child, h } from "./dom";
import { prose } from "./prose";

/** The sentence of a finding: English is what was recorded, the server has the other languages. */
export const messageOf = (one: HealthFinding): string =>
  (inLanguage({ en: one.message, ...one.texts }) ?? one.message).replace(/(\d) us\b/g, "$1 µs");

/** A finding: the heading of its check, behind it how often it occurs, and below it the sentence with names and figures. */
export function findingWords(one: HealthFinding, often: Child = null): Child {
  const heading = named("value", `check.${one.check}`, "");
  return [
    heading ? h("strong", { class: "check" }, heading, often) : often,
    h("span", { class: "sentence" }, prose(messageOf(one))),
  ];
}

/** What not to trust, as the pages call it. */
export const conclusion = (word: string): string => named("value", `unsafe.${word}`, word);

/** What a finding does to the figures. A note leaves every conclusion as it is; what it touches it touches by little. */
export function effectOf(one: HealthFinding): Child {
  const what = one.unsafe.map(conclusion).join(t("list.comma"));
  if (one.severity !== "info") return what ? [h("strong", null, t("health.unsafe")), " ", what] : t("health.none");
  return named("value", `effect.${one.check}`, what ? t("health.slightly", { what }) : t("health.none"));
}
