/** What is doubtful about the data, and what not to trust because of it. */

import type { HealthFinding } from "../../api/types";
import { report } from "../../report/embedded";
import { type Child, h, replace } from "../../ui/dom";
import { effectOf, findingWords, messageOf } from "../../ui/health_words";
import { missingCard } from "../../ui/not_recorded";
import { type Context, type Page, reopen } from "../../ui/page";
import { card, level, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { t } from "../../words/i18n";

/** worst first; of the same severity ranks that are not there, then what touches a figure */
const ORDER: readonly string[] = ["error", "warning", "info"];
/** checks that say of a recording that other ranks took part in the job */
const OF_SEVERAL_RANKS: readonly string[] = ["missing_ranks", "duplicated_ranks", "rank_unknown", "different_steps"];

export const health: Page = {
  id: "health",
  title: "page.health",
  async show(context) {
    const [found, ranks] = await Promise.all([context.api.get("health"), context.api.get("ranks")]);
    const several = new Set(ranks.map((one) => one.rank)).size > 1 || found.some((one) => OF_SEVERAL_RANKS.includes(one.check));
    const missing = missingCard(
      context.run,
      ranks.map((one) => one.recorder),
      several,
    );
    if (!found.length) return [h("p", null, t("health.good")), missing];
    return [newer(context), findingsCard(found), missing];
  },
};

function findingsCard(found: readonly HealthFinding[]): HTMLElement {
  const serious = found.some((one) => one.severity !== "info");
  const title = t(serious ? "health.findings" : "health.notes");
  const groups = alike(found).sort(([one], [other]) => weight(one!) - weight(other!));
  // of one trace its path would say the same in every row
  const places = new Set(found.map((one) => one.source)).size > 1;
  return card(
    title,
    smallTable(
      title,
      [t("health.severity"), t("health.message"), t("health.effect"), ...(places ? [t("path")] : [])],
      groups.map((group): Child[] => [
        level(group[0]!.severity),
        said(group),
        effectOf(group[0]!),
        ...(places ? [group.map((one) => h("code", { class: "path-name", title: one.source }, nameOf(one.source)))] : []),
      ]),
    ),
    { wide: true, note: t(serious ? "health.what" : "health.notes.what") },
  );
}

const weight = (one: HealthFinding): number =>
  ORDER.indexOf(one.severity) * 3 + (OF_SEVERAL_RANKS.includes(one.check) ? 0 : one.unsafe.length ? 1 : 2);

/** Findings of several traces that are one, together; the one with the most events first. */
export function alike(found: readonly HealthFinding[]): HealthFinding[][] {
  const groups = new Map<number, HealthFinding[]>();
  for (const one of found) groups.set(one.group, [...(groups.get(one.group) ?? []), one]);
  return [...groups.values()].map((group) => [...group].sort((one, other) => other.count - one.count));
}

/** What a finding says of each of its traces, once where it says the same of several. */
function said(group: readonly HealthFinding[]): Child[] {
  const [first, ...others] = group.filter(
    (one, place) => group.findIndex((same) => messageOf(same) === messageOf(one)) === place,
  );
  return [
    findingWords(first!, counted(first!)),
    ...others.map((one) => h("span", { class: "sentence" }, messageOf(one), counted(one))),
  ];
}

/** How often a finding occurs, where its sentence does not say it. */
function counted(one: HealthFinding): Child {
  return one.count > 1 && !one.message.includes(String(one.count))
    ? h("span", { class: "count-of" }, `${format.count(one.count)} ×`)
    : null;
}

const nameOf = (path: string): string => format.shorten(path.split("/").at(-1) ?? path, 60);

/** Data that lacks something may have been read while it was still being written or copied: say so where there is more now. */
function newer(context: Context): Child {
  const place = h("div", { role: "status" });
  if (report()) return null;
  context.api
    .get("live")
    .then((found) => {
      const again = h("button", { type: "button", onclick: () => void reopen(context) }, t("live.again"));
      if (found.changed)
        replace(place, h("p", { class: "callout" }, t("live.changed", { files: format.count(found.files) }), " ", again));
    })
    .catch(() => undefined);
  return place;
}
