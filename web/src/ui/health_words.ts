/** What is doubtful about the data, in words: the check in the page's language, and what it found as it was recorded. */

import type { HealthFinding } from "../api/types";
import { named } from "../words/i18n";
import { type Child, h } from "./dom";

/** A finding: the heading of its check, and below it the sentence with names and figures, which exists in English alone. */
export function findingWords(one: HealthFinding): Child {
  const heading = named("value", `check.${one.check}`, "");
  return [heading ? h("strong", { class: "check" }, heading) : null, h("span", { lang: "en" }, one.message)];
}

/** What not to trust, as the pages call it. */
export const conclusion = (word: string): string => named("value", `unsafe.${word}`, word);
