/** What to change: every finding with its proof, its cure and what it would save. */

import type { Advice as Found, Evidence, Finding } from "../../api/types";
import { numberOf } from "../../browser/route";
import { h, type Child } from "../../ui/dom";
import { conclusion } from "../../ui/health_words";
import type { Context, Page } from "../../ui/page";
import { prose } from "../../ui/prose";
import {
  card,
  findingLevel,
  firstOnes,
  nothing,
  rankChoice,
  saidByEnds,
  savingText,
  smallTable,
  togetherWords,
} from "../../ui/ui";
import * as format from "../../words/format";
import { inLanguage, t } from "../../words/i18n";

const MOST_STEPS = 12;
const MOST_PLACES = 20;
const RANKS = /^(ranks?) (\d[\d, .-]*)$/;

export const advice: Page = {
  id: "advice",
  title: "page.advice",
  async show(context) {
    const [ranks, found] = await Promise.all([
      context.api.get("ranks"),
      context.api.get("advice", { trace: numberOf(context.params, "rank") }),
    ]);
    const wanted = context.params["finding"];
    const list = found.findings.map((one) =>
      findingCard(context, one, found.findings, found.findings.length === 1 || one.id === wanted),
    );
    const target = list[found.findings.findIndex((one) => one.id === wanted)];
    if (target) requestAnimationFrame(() => target.scrollIntoView({ block: "start" }));
    return [
      ranks.length > 1 ? h("div", { class: "controls" }, rankChoice(context, ranks, true)) : null,
      found.findings.length
        ? h("p", { class: "note" }, listNote(found))
        : nothing(t(found.step_ns > 0 ? "advice.none" : "advice.none.steps")),
      list,
      found.silenced.length
        ? card(
            t("advice.silenced"),
            smallTable(
              t("advice.silenced"),
              [t("advice.rule"), t("advice.conclusion"), t("advice.reason")],
              found.silenced.map((one) => [
                one.rule,
                conclusion(one.conclusion),
                prose(inLanguage({ en: one.reason, ...one.texts }) ?? one.reason),
              ]),
            ),
            { wide: true, note: t("advice.silenced.why") },
          )
        : null,
    ];
  },
};

/** In which order findings are, what they save together, and what confidence means: once, above all of them. */
function listNote(found: Found): string {
  return [
    t("advice.order", { time: format.time(found.step_ns) }),
    togetherWords(found),
    found.findings.some((one) => one.saving) ? t("advice.confidence.what") : "",
  ].join(" ");
}

function findingCard(context: Context, finding: Finding, all: readonly Finding[], open: boolean): HTMLElement {
  const text = inLanguage(finding.texts);
  const saving = finding.saving;
  return h(
    "details",
    { class: `card finding-card level-${finding.level}`, open: open || finding.level === "high" },
    h(
      "summary",
      null,
      findingLevel(finding),
      h("h2", null, all.length > 1 ? `${all.indexOf(finding) + 1}. ` : "", prose(text?.title ?? finding.id)),
      saving ? h("span", { class: "saving" }, prose(savingText(finding))) : null,
    ),
    text?.cause ? [h("h3", null, t("advice.cause")), paragraphs(text.cause)] : null,
    text?.remedy
      ? [h("h3", null, t("advice.remedy")), firstOnes(finding, all, (one) => titleLink(context, one)), paragraphs(text.remedy)]
      : null,
    text?.patch
      ? h(
          "pre",
          { class: "patch", tabindex: 0 },
          text.patch
            .split("\n")
            .map((line) =>
              h("span", { class: line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : null }, `${line}\n`),
            ),
        )
      : null,
    overlaps(context, finding, all),
    finding.evidence.length
      ? [
          h("h3", null, t("advice.evidence")),
          h(
            "ul",
            { class: "evidence" },
            finding.evidence.map((one) => evidenceLine(context, one, all)),
            rangeLine(finding),
          ),
        ]
      : null,
    h(
      "p",
      { class: "note" },
      saving && !finding.at_stake ? "" : `${t(saving ? "advice.at_stake" : "advice.no_saving")} · `,
      `${t("advice.confidence", { share: `${Math.round(100 * finding.confidence)} %` })} · `,
      h("a", { href: context.to("advice", { finding: finding.id }) }, t("link")),
    ),
  );
}

/** The findings that see the same time, each with what is left of this one after it where that can be told. */
function overlaps(context: Context, finding: Finding, all: readonly Finding[]): Child {
  const overlapping = all.filter((one) => finding.overlaps.includes(one.id));
  const left = (one: Finding): number | undefined => finding.after_ns[one.id];
  const others = overlapping.filter((one) => left(one) === undefined);
  return [
    overlapping
      .filter((one) => left(one) !== undefined)
      .map((one) => {
        const both = { left: format.estimate(left(one)!), both: format.estimate(left(one)! + (one.saving?.likely_ns ?? 0)) };
        return h("p", { class: "note" }, `${t("advice.overlaps")} `, titleLink(context, one), t("advice.after", both));
      }),
    others.length
      ? h(
          "p",
          { class: "note" },
          `${t("advice.overlaps")}: `,
          others.map((one, place) => [place ? ", " : "", titleLink(context, one)]),
          `. ${t("advice.overlaps.what")}`,
        )
      : null,
  ];
}

/** What the ends of the range of a saving rest on. */
function rangeLine(finding: Finding): Child {
  const { saving } = finding;
  const text = inLanguage(finding.texts);
  if (!saving || !text || finding.at_stake || saving.low_ns === saving.high_ns) return null;
  const [low, , high] = format.range(saving);
  const ends = (
    [
      [low, text.low],
      [high, text.high],
    ] as [string, string][]
  ).filter(([, basis]) => basis);
  // where no saving is likely, or all of it, the line above says both
  if (!ends.length || (saving.likely_ns <= 0 && ends.length === 2) || saidByEnds(finding)) return null;
  return h(
    "li",
    null,
    t("advice.range"),
    h(
      "ul",
      { class: "places" },
      ends.map(([end, basis]) => h("li", null, h("b", null, end), prose(`: ${basis}`))),
    ),
  );
}

const titleLink = (context: Context, finding: Finding): HTMLElement =>
  h("a", { href: context.to("advice", { finding: finding.id }) }, prose(inLanguage(finding.texts)?.title ?? finding.id));

const paragraphs = (text: string): Child => text.split(/\n{2,}/).map((one) => h("p", null, prose(one)));

/** Of which step a figure is: one of median length, or the mean one. */
const perStep = (one: Evidence): string => t(one.of_mean ? "per_step.mean" : "per_step");

/** How long the work at a place takes, and how often a step has it, where that is said. */
function takes(one: Evidence, number: number): Child {
  const [ns, count] = [one.places_ns[number], one.places_count[number]];
  if (ns === undefined) return count === undefined ? null : [": ", h("b", null, format.plain(count)), ` ${perStep(one)}`];
  const whole = one.whole_ns || one.value || 0;
  const often =
    count === undefined ? "" : t("advice.of_place", { share: format.estimatedShare(ns / whole), count: format.plain(count) });
  return [": ", h("b", null, format.time(ns)), ` ${perStep(one)}`, often];
}

/** What those of the places take that are not named, or how often a step has them, where that is said of places. */
function othersTake(one: Evidence): Child {
  const figure = one.places_ns.length
    ? format.time(one.other_places_ns)
    : one.places_count.length
      ? format.plain((one.value ?? 0) - one.places_count.reduce((sum, count) => sum + count, 0))
      : null;
  return figure === null ? null : [": ", h("b", null, figure), ` ${perStep(one)}`];
}

/** Margin around a stretch on the timeline, of its length. */
const AROUND = 0.25;

/** The timeline where a place is: what is named after it, or its longest stretch. */
function timelineLink(context: Context, event: Evidence["events"][number]): Child {
  const { trace: rank, step, place, start_ns: start, end_ns: end } = event;
  if (typeof start !== "number" || typeof end !== "number")
    return h("a", { class: "note", href: context.to("timeline", { rank, step, find: place }) }, t("timeline.find_short"));
  const around = Math.ceil(AROUND * (end - start));
  const where = { rank, step, start: Math.max(start - around, 0), end: end + around };
  return h("a", { class: "note", href: context.to("timeline", where) }, t("advice.longest"));
}

/** A rank, or ranges of ranks, as the pages call them. */
function rankText(place: string): string {
  const [, kind, number] = RANKS.exec(place)!;
  return t(kind === "rank" ? "rank.n" : "rank.several", { number: number!.replaceAll("-", "–") });
}

function evidenceLine(context: Context, one: Evidence, all: readonly Finding[]): HTMLElement {
  const words = inLanguage(one.words) ?? one.what;
  // ranks alone stand in the line
  const ofRanks = one.places.length > 0 && !one.places_ns.length && one.places.every((place) => RANKS.test(place));
  const figure =
    one.unit === "" || one.value === null
      ? null
      : h("b", null, ` ${format.value(one.value, one.unit)}${one.per_step ? ` ${perStep(one)}` : ""}`);
  return h(
    "li",
    null,
    prose(words),
    figure,
    one.steps.length
      ? [
          " · ",
          t("steps"),
          " ",
          one.steps
            .slice(0, MOST_STEPS)
            .map((step, place) => [place ? ", " : "", h("a", { href: context.to("timeline", { step }) }, String(step))]),
          one.steps.length > MOST_STEPS ? ` +${one.steps.length - MOST_STEPS}` : null,
        ]
      : null,
    ofRanks ? ` · ${one.places.map(rankText).join(", ")}` : null,
    one.places.length && !ofRanks
      ? h(
          "ul",
          { class: "places" },
          one.places.slice(0, MOST_PLACES).map((place, number) => {
            const other = all.find((finding) => finding.id === place);
            if (other) return h("li", null, titleLink(context, other));
            if (RANKS.test(place)) return h("li", null, rankText(place), takes(one, number));
            const event = one.events.find((candidate) => candidate.place === place);
            return h(
              "li",
              null,
              h("code", null, format.shorten(place, 300)),
              takes(one, number),
              // what no event is named after, a search would not find
              event ? [" ", timelineLink(context, event)] : null,
            );
          }),
          one.other_places
            ? h(
                "li",
                null,
                t("advice.others", { count: format.count(one.other_places) }),
                othersTake(one),
                one.other_most
                  ? t("advice.others.most", {
                      figure: one.places_ns.length ? format.time(one.other_most) : format.plain(one.other_most),
                    })
                  : null,
              )
            : null,
        )
      : null,
  );
}
