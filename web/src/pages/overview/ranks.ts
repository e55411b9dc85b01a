/** The ranks beside each other: how long their steps are and how much of them they wait. */

import type { Overview } from "../../api/types";
import { isMany } from "../../ui/rank_places";
import { type Child, h } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { meanWord, medianWord } from "../../ui/step_means";
import { DEVICE_PARTS, HOST_PARTS, card, partOf, rankName } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

const MOST = 8;
/** what differs by less is alike */
const ALIKE = 0.02;

type Rank = Overview["ranks"][number];

const waiting = (rank: Rank): number | null => partOf(rank.parts, "exposed_communication") ?? partOf(rank.parts, "gradient_sync");

/** The card of a job; nothing for a single process. */
export function ranksCard(context: Context, found: Overview): Child {
  const timed = found.ranks.filter((one) => one.step_ns !== null);
  if (new Set(found.ranks.map((one) => one.rank).filter((rank) => rank !== null)).size < 2 || !timed.length) return null;
  const names = timed.some((one) => DEVICE_PARTS.some((name) => partOf(one.parts, name) !== null)) ? DEVICE_PARTS : HOST_PARTS;
  // parts are means, which may be longer together than the median step
  const partsOf = (one: Rank): number => names.reduce((sum, name) => sum + (partOf(one.parts, name) ?? 0), 0);
  const widest = Math.max(...timed.map((one) => Math.max(one.step_ns ?? 0, partsOf(one))));
  const longest = [...timed].sort((one, other) => (other.step_ns ?? 0) - (one.step_ns ?? 0));
  // the steps of ranks that wait for each other are equally long: of very many those are named that do the most themselves
  const own = (one: Rank): number => partsOf(one) - (waiting(one) ?? 0);
  const first = isMany(timed) ? [...timed].sort((one, other) => own(other) - own(one)) : longest;
  const held = timed.find((one) => found.verdict.rank !== null && one.rank === found.verdict.rank);
  const shown = [...(held ? [held] : []), ...first.filter((one) => one !== held)].slice(0, MOST);
  if (!isMany(timed)) shown.sort((one, other) => one.trace - other.trace);
  const untold = (one: Rank): boolean => names.every((name) => !partOf(one.parts, name));
  const used = names.filter((name) => shown.some((one) => (partOf(one.parts, name) ?? 0) > 0));
  return card(
    t("overview.ranks"),
    [
      h("p", null, slowest(found, timed, longest)),
      h(
        "ul",
        { class: "rank-bars" },
        shown.map((one) =>
          h(
            "li",
            { class: one === held ? "slow" : null },
            h("a", { href: context.to("steps", { rank: one.trace }) }, rankName(one, found.ranks)),
            h(
              "span",
              { class: "bar", "aria-hidden": "true" },
              untold(one)
                ? h("span", { class: "part-untold", style: { width: `${((one.step_ns ?? 0) / widest) * 100}%` } })
                : null,
              used.map((name) =>
                h("span", {
                  class: `part part-${name.replaceAll("_", "-")}`,
                  style: { width: `${((partOf(one.parts, name) ?? 0) / widest) * 100}%` },
                  title: `${named("part", name)}: ${format.time(partOf(one.parts, name) ?? 0)}`,
                }),
              ),
            ),
            h("span", { class: "share-value" }, format.value(one.step_ns, "ns")),
            h(
              "span",
              { class: "share-note note" },
              waiting(one) === null
                ? ""
                : t("overview.ranks.wait", { time: format.time(waiting(one)!), mean: meanWord(one.figures) }),
            ),
          ),
        ),
      ),
      h(
        "ul",
        { class: "legend" },
        used.map((name) => h("li", null, h("span", { class: `swatch part-${name.replaceAll("_", "-")}` }), named("part", name))),
        shown.some(untold) ? h("li", null, h("span", { class: "swatch part-untold" }), t("parts.not_recorded")) : null,
      ),
      isMany(timed) ? h("p", { class: "note" }, t("overview.ranks.first")) : null,
      timed.length > MOST ? h("p", { class: "note" }, t("rest", { count: format.count(timed.length - MOST) })) : null,
    ],
    { more: context.to("ranks"), note: t("overview.ranks.what") },
  );
}

/** Which rank is slow: the one that others wait for; else whose steps are longest; or that they are alike. */
function slowest(found: Overview, timed: readonly Rank[], longest: readonly Rank[]): string {
  if (found.verdict.rank !== null) return t("overview.ranks.held", { rank: found.verdict.rank });
  // whoever is waited for may be among those that are not here
  if (found.recorded_ranks < found.job_ranks)
    return t("communication.not_known", { count: found.recorded_ranks, size: found.job_ranks });
  const [first, last] = [longest[0]!, longest.at(-1)!];
  const name = rankName(first, found.ranks);
  const long = first.step_ns ?? 0;
  if (long - (last.step_ns ?? 0) > ALIKE * long)
    return t("overview.ranks.longest", {
      name,
      time: format.time(long),
      median: medianWord(first.figures),
      least: format.time(last.step_ns ?? 0),
    });
  const waits = timed.filter((one) => waiting(one) !== null).sort((one, other) => waiting(one)! - waiting(other)!);
  const [least, most] = [waits[0], waits.at(-1)];
  if (least && most && waiting(most)! - waiting(least)! > ALIKE * long)
    return t("overview.ranks.least", {
      name: rankName(least, found.ranks),
      time: format.time(waiting(least)!),
      mean: meanWord(least.figures),
    });
  return t("overview.ranks.alike");
}
