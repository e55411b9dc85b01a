/** Parts that several pages are made of. */

import type { Advice, Finding, Rank, TraceState } from "../api/types";
import { numberOf } from "../browser/route";
import { PARTS } from "../browser/theme";
import { rankPicker } from "./rank_picker";
import { isMany } from "./rank_places";
import * as format from "../words/format";
import { type Key, named, t } from "../words/i18n";
import { inLanguage } from "../words/i18n";
import { type Child, h } from "./dom";
import type { Context } from "./page";
import { prose } from "./prose";

let numbered = 0;
/** An id that no other element has. */
export const newId = (stem: string): string => `${stem}-${++numbered}`;

/** A titled part of a page; `more` is the address of its details; three `narrow` ones stand beside each other. */
export function card(
  title: string,
  content: Child,
  options: { more?: string; wide?: boolean; narrow?: boolean; note?: Child } = {},
): HTMLElement {
  const id = newId("card");
  return h(
    "section",
    { class: `card${options.wide ? " wide" : options.narrow ? " narrow" : ""}`, "aria-labelledby": id },
    h(
      "header",
      null,
      h("h2", { id }, title),
      options.more
        ? h("a", { class: "more", href: options.more, "aria-label": `${t("details")}: ${title}` }, t("details"), " →")
        : null,
    ),
    options.note ? h("p", { class: "note" }, options.note) : null,
    content,
  );
}

export const grid = (...children: Child[]): HTMLElement => h("div", { class: "grid" }, ...children);

/** What is said where there is nothing to show, and why. */
export function nothing(what: string, why?: string): HTMLElement {
  return h("div", { class: "nothing" }, h("p", null, what), why ? h("p", { class: "note" }, why) : null);
}

/** One figure with its name. */
export function figure(name: string, value: Child, note?: Child, href?: string): HTMLElement {
  const shown = href ? h("a", { href }, value) : value;
  return h("div", { class: "figure" }, h("dt", null, name), h("dd", null, shown), note ? h("dd", { class: "note" }, note) : null);
}

export const figures = (...children: Child[]): HTMLElement => h("dl", { class: "figures" }, ...children);

/** Links of which one is where the user is; a function gives the address as it is when the link is used. */
export function tabs(
  label: string,
  items: readonly { id: string; title: string; href: string | (() => string) }[],
  current: string,
): HTMLElement {
  return h(
    "nav",
    { class: "tabs", "aria-label": label },
    items.map((one) => {
      const { href } = one;
      const link = h(
        "a",
        { href: typeof href === "string" ? href : href(), "aria-current": one.id === current ? "page" : null },
        one.title,
      );
      if (typeof href !== "string") aimed(link, href);
      return link;
    }),
  );
}

/** Give a link its address anew whenever it is about to be used: filters and windows change while a page is shown. */
export function aimed(link: HTMLAnchorElement, href: () => string): HTMLAnchorElement {
  for (const event of ["pointerdown", "focus", "click"]) link.addEventListener(event, () => link.setAttribute("href", href()));
  return link;
}

/** A list to choose one from. */
export function choice(
  label: string,
  items: readonly (readonly [value: string, text: string])[],
  current: string,
  onPick: (value: string) => void,
): HTMLElement {
  const list = h(
    "select",
    { onchange: () => onPick(list.value) },
    items.map(([value, text]) => h("option", { value, selected: value === current }, text)),
  );
  return h("label", { class: "choice" }, h("span", null, label), list);
}

/** What a rank is called. */
export function rankName(rank: TraceState, ranks: readonly TraceState[]): string {
  const told = rank.rank === null ? t("trace.n", { number: rank.trace }) : t("rank.n", { number: rank.rank });
  return rank.rank !== null && tracesOf(ranks, rank.rank) > 1 ? `${told} (${t("trace.n", { number: rank.trace })})` : told;
}

/** how many traces each rank of a list has: asked of every one of them */
const counted = new WeakMap<readonly TraceState[], Map<number | null, number>>();

function tracesOf(ranks: readonly TraceState[], rank: number): number {
  let counts = counted.get(ranks);
  if (!counts) {
    counts = new Map();
    for (const one of ranks) counts.set(one.rank, (counts.get(one.rank) ?? 0) + 1);
    counted.set(ranks, counts);
  }
  return counts.get(rank) ?? 0;
}

/** A list of the ranks; nothing for a run with one. */
export function rankChoice(context: Context, ranks: readonly TraceState[], everyone: boolean): HTMLElement | null {
  if (ranks.length < 2) return null;
  if (isMany(ranks)) return manyRanksChoice(context, ranks, everyone);
  const items: [string, string][] = ranks.map((one) => [String(one.trace), rankName(one, ranks)]);
  if (everyone) items.unshift(["", t("ranks.all")]);
  const chosen = numberOf(context.params, "rank");
  return choice(t("rank"), items, chosen === null ? (everyone ? "" : "0") : String(chosen), (value) =>
    context.visit({ rank: value === "" ? null : value, step: null }),
  );
}

/** The same of so many ranks that a list of them would be of no use. */
function manyRanksChoice(context: Context, ranks: readonly TraceState[], everyone: boolean): HTMLElement {
  const chosen = numberOf(context.params, "rank");
  const shown = ranks.find((one) => one.trace === (chosen ?? (everyone ? null : 0)));
  return rankPicker(context, ranks, shown ? rankName(shown, ranks) : t("ranks.all"), everyone, (trace) =>
    context.visit({ rank: trace, step: null }),
  );
}

/** The phases of the host, which add up to its duration; the last is what nothing was recorded of, and no column of its own. */
export const HOST_PARTS = [
  "data_wait",
  "forward",
  "backward",
  "gradient_sync",
  "optimizer",
  "device_wait",
  "between",
  "python",
  "host_rest",
] as const;

/** The parts of the device period, which add up to it. */
export const DEVICE_PARTS = ["computing", "exposed_communication", "exposed_copy", "idle"] as const;

/** How long a part is; the synchronisation of gradients stands beside the rest of backward. Null where it was not recorded. */
export function partOf(parts: Readonly<Record<string, unknown>>, name: string): number | null {
  if (name === "host_rest") return restOf(parts);
  const value = parts[`${name}_ns`];
  if (typeof value !== "number") return null;
  return name === "backward" ? value - Number(parts["gradient_sync_ns"] ?? 0) : value;
}

/** What of a step nobody can tell apart: some phases are known and not whether Python ran. */
function restOf(parts: Readonly<Record<string, unknown>>): number | null {
  const phases = HOST_PARTS.filter((name) => name !== "host_rest").map((name) => partOf(parts, name));
  const whole = parts["duration_ns"] ?? parts["host_mean_ns"];
  if (typeof whole !== "number" || phases.at(-1) !== null || phases.every((ns) => ns === null)) return null;
  return whole - phases.reduce<number>((sum, ns) => sum + (ns ?? 0), 0);
}

const sumOf = (parts: Readonly<Record<string, unknown>>, names: readonly string[]): number =>
  names.reduce((sum, name) => sum + (partOf(parts, name) ?? 0), 0);

/** The bars of the host and of the device on one scale. */
export function stepPartsBars(parts: Readonly<Record<string, unknown>>): HTMLElement[] {
  const scale = Math.max(sumOf(parts, HOST_PARTS), sumOf(parts, DEVICE_PARTS));
  return [partsBar(t("parts.host"), HOST_PARTS, parts, scale), partsBar(t("parts.device"), DEVICE_PARTS, parts, scale)];
}

/** A bar of the parts of a step, with a legend that says their lengths; a step of the length `widest` fills it. Shares are of the sum of the parts. */
export function partsBar(
  title: string,
  names: readonly (typeof PARTS)[number][],
  parts: Readonly<Record<string, unknown>>,
  widest: number,
): HTMLElement {
  if (names.every((name) => partOf(parts, name) === null))
    return h("figure", { class: "parts" }, h("figcaption", null, title), h("p", { class: "note" }, t("parts.not_recorded")));
  const shown = names.map((name) => ({ name, ns: partOf(parts, name) ?? 0 })).filter((one) => one.ns > 0);
  const whole = Math.max(sumOf(parts, names), 1);
  const scale = Math.max(widest, whole);
  const said = (ns: number): string => `${format.time(ns)} (${format.share(ns / whole)})`;
  return h(
    "figure",
    { class: "parts" },
    h("figcaption", null, title),
    h(
      "div",
      { class: "bar", "aria-hidden": "true" },
      shown.map((one) =>
        h("span", {
          class: `part part-${one.name.replaceAll("_", "-")}`,
          style: { width: `${(one.ns / scale) * 100}%` },
          title: `${named("part", one.name)}: ${said(one.ns)}`,
        }),
      ),
    ),
    h(
      "ul",
      { class: "legend" },
      shown.map((one) =>
        h(
          "li",
          null,
          h("span", { class: `swatch part-${one.name.replaceAll("_", "-")}` }),
          named("part", one.name),
          " ",
          h("b", null, said(one.ns)),
        ),
      ),
    ),
    shown.some((one) => one.name === "host_rest") ? h("p", { class: "note" }, t("parts.host_rest.why")) : null,
  );
}

/** A finding of the advice in short. */
export function findingLine(finding: Finding, href: string): HTMLElement {
  const text = inLanguage(finding.texts);
  return h(
    "li",
    { class: `finding level-${finding.level}` },
    findingLevel(finding),
    h("a", { href }, prose(text?.title ?? finding.id)),
    finding.saving ? h("span", { class: "note" }, prose(savingText(finding))) : null,
  );
}

/** How much a finding matters, by what it saves; nothing where no saving is estimated, or likely, since nothing tells then. */
export const findingLevel = (finding: Finding): HTMLElement | null =>
  !finding.saving || (finding.saving.likely_ns === 0 && !finding.at_stake) ? null : level(finding.level);

const MOST_RANKS = 8;

/** What comes before a finding, by name. */
export function firstOnes(finding: Finding, all: readonly Finding[], link: (one: Finding) => HTMLElement): Child {
  const first = all.filter((one) => finding.first.includes(one.id));
  return first.length
    ? h(
        "p",
        null,
        t("advice.first"),
        " ",
        first.map((one, place) => [place ? ", " : "", `${all.indexOf(one) + 1}. `, link(one)]),
        t("advice.stop"),
      )
    : null;
}

const inMicroseconds = (text: string): string => text.replace(/(\d) us\b/g, "$1 µs");

/** Whether the likely saving is the most there can be: then what each end rests on says more than a range. */
export function saidByEnds({ saving, at_stake, texts }: Finding): boolean {
  if (!saving || at_stake || saving.likely_ns <= 0) return false;
  const [low, likely, high] = format.range(saving);
  const text = inLanguage(texts);
  return low !== high && likely === high && Boolean(text?.low && text.high);
}

/** What a finding saves: its range, with what is likely, which level and order follow from, and on what that rests. */
export function savingText(finding: Finding): string {
  const { saving, ranks } = finding;
  if (!saving) return "";
  const [low, time, high] = format.range(saving);
  const mostShare = finding.step_ns > 0 ? saving.high_ns / finding.step_ns : 0;
  const share = format.estimatedShare(finding.share, mostShare);
  const most = format.mostShare(mostShare);
  const text = inLanguage(finding.texts);
  const basis = text?.likely;
  const saves = finding.at_stake
    ? t("saves.at_stake", { high, share: most })
    : saving.likely_ns <= 0
      ? text?.low && text.high
        ? t("saves.nothing", { low_basis: text.low, high, share: most, high_basis: text.high })
        : t("saves.up_to", { low: "0", high, share: most })
      : low === high
        ? t("saves", { time, share })
        : saidByEnds(finding)
          ? inMicroseconds(
              t("saves.ends", {
                low,
                low_basis: text!.low,
                high,
                share,
                high_basis: (saving.likely_ns < saving.high_ns && text!.likely) || text!.high,
              }),
            )
          : t("saves.likely", { low, high, time, share }) + (basis ? t("saves.basis", { basis: inMicroseconds(basis) }) : "");
  if (!ranks.length) return saves;
  const names = ranks.slice(0, MOST_RANKS).map((one) => `${t("rank")} ${one}`);
  return t("saves.on", { saves, ranks: names.join(", ") + (ranks.length > MOST_RANKS ? " …" : "") });
}

/** What all findings save together, of which a page may show some; empty where the sum of what each saves says it. */
export function togetherWords(
  found: Pick<Advice, "step_ns" | "together_ns" | "likely_together_ns" | "together" | "at_stake">,
): string {
  if (!found.together) return "";
  // where the bound is no more than their sum, it says nothing, but for what overlaps
  if (found.together === "overlap") return t("advice.overlap");
  const shareOf = (ns: number): number => (found.step_ns > 0 ? ns / found.step_ns : 0);
  const likely = format.estimate(found.likely_together_ns, found.together_ns);
  const time = format.mostOf(found.together_ns);
  // two figures that differ in their last digit alone would be one to a reader
  const isOne = likely === time || found.likely_together_ns >= 0.98 * found.together_ns;
  return t(isOne ? "advice.together.at_most" : "advice.together", {
    likely,
    likely_share: format.estimatedShare(shareOf(found.likely_together_ns), shareOf(found.together_ns)),
    time,
    share: format.mostShare(shareOf(found.together_ns)),
    stake: found.at_stake ? t("advice.together.stake") : "",
  });
}

export function level(name: string): HTMLElement {
  const key = `level.${name}`;
  const known: readonly string[] = ["level.high", "level.medium", "level.low", "level.error", "level.warning", "level.info"];
  return h("span", { class: `badge badge-${name}` }, known.includes(key) ? t(key as Key) : name);
}

/** What a column of a small table is called, whether it holds figures, and the order of the rows by it. */
export interface Head {
  /** nothing heads a column of buttons or links */
  title: Child;
  numeric?: boolean;
  order?: "ascending" | "descending" | null;
}

/** A small table of what is already here; for long ones see `table.ts`. */
export function smallTable(
  caption: string,
  heads: readonly string[],
  rows: readonly (readonly Child[])[],
  numeric: readonly number[] = [],
): HTMLElement {
  return headedTable(
    caption,
    heads.map((title, place) => ({ title, numeric: numeric.includes(place) })),
    rows,
  );
}

/** The same with more to say about its columns. */
export function headedTable(caption: string, heads: readonly Head[], rows: readonly (readonly Child[])[]): HTMLElement {
  const look = (head: Head | undefined): string | null => (head?.numeric ? "number" : null);
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "small" },
      h("caption", { class: "hidden" }, caption),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          heads.map((head) =>
            head.title ? h("th", { scope: "col", class: look(head), "aria-sort": head.order ?? null }, head.title) : h("td"),
          ),
        ),
      ),
      h(
        "tbody",
        null,
        rows.map((row) =>
          h(
            "tr",
            null,
            row.map((cell, place) => h("td", { class: look(heads[place]) }, cell)),
          ),
        ),
      ),
    ),
  );
}

/** The device of a row; the one of the CPU has no number. */
export function deviceOf(row: Readonly<Record<string, unknown>>): string {
  const [kind, number] = [row["device_type"], row["device"]];
  return typeof number === "number" && number >= 0 ? `${String(kind ?? "")} ${number}`.trim() : String(kind ?? "");
}

/** Numbers as ranges: "1, 3–5". */
export function numberRanges(numbers: readonly number[]): string {
  const ranges: [number, number][] = [];
  for (const one of [...new Set(numbers)].sort((a, b) => a - b)) {
    const last = ranges.at(-1);
    if (last && last[1] + 1 === one) last[1] = one;
    else ranges.push([one, one]);
  }
  return ranges.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
}

/** What tables per step are of: a mean of which steps, of `together` ranks; sums where there are no steps, or somebody wants them. */
export function basisNote(ranks: readonly Rank[], trace: number | null, whole: boolean, together: boolean): string {
  const timed = ranks.filter((one) => (trace === null || one.trace === trace) && one.figures.chosen.length > 0);
  if (!timed.length) return t("basis.none");
  if (whole) return t(trace === null && ranks.length > 1 && together ? "basis.sums.ranks" : "basis.sums");
  const same = new Set(timed.map((one) => numberRanges(one.figures.chosen)));
  const alone = timed.every((one) => one.figures.chosen.length === 1);
  const steps = same.size === 1 ? t(alone ? "basis.alone" : "basis.steps", { steps: [...same][0]! }) : t("basis.each");
  const left = numberRanges(timed[0]!.figures.left_out.map((one) => one.step));
  const count = timed.length;
  const mean = together && count > 1 ? t("basis.ranks", { steps, count: format.count(count) }) : t("basis.step", { steps });
  return mean + (left && same.size === 1 ? t("basis.left_out", { steps: left }) : "") + t("basis.end");
}

/** A choice between figures of a step and sums over the whole recording, kept in the address; nothing where there are no steps. */
export function basisChoice(context: Context, ranks: readonly Rank[]): Child {
  if (ranks.every((one) => !one.figures.chosen.length)) return null;
  return choice(
    t("basis"),
    [
      ["", t("basis.per_step")],
      ["recording", t("basis.recording")],
    ],
    context.params["basis"] ?? "",
    (value) => context.visit({ basis: value || null }),
  );
}

/** Whether somebody wants sums over the whole recording. */
export const ofRecording = (context: Context): boolean => context.params["basis"] === "recording";

/** Said of a page whose rows all lie outside of the selected steps, with the way to them; nothing where that is not so. */
export function outsideSteps(context: Context, ranks: readonly Rank[], rows: number): HTMLElement | null {
  const timed = ranks.some((one) => one.figures.chosen.length > 0);
  if (rows || !timed || ofRecording(context)) return null;
  const href = context.to(context.page, { ...context.params, basis: "recording" });
  return h("div", { class: "nothing" }, h("p", null, t("basis.no_step")), h("p", null, h("a", { href }, t("basis.recording"))));
}

/** Whether the run has rows of a recorded table, on any rank or on one. */
export function has(ranks: readonly Rank[], table: string, trace?: number): boolean {
  return ranks.some((one) => (trace === undefined || one.trace === trace) && (one.tables[table] ?? 0) > 0);
}
