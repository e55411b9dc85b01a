/** A folder of versions of a program: each figure over all of them, where it moved, and two of them to compare. */

import { session } from "../../api/client";
import type { FigureHistory, History, HistoryChange, HistoryVersion } from "../../api/types";
import { formatRoute, numberOf } from "../../browser/route";
import { h, replace, type Child } from "../../ui/dom";
import { problemBox } from "../../ui/notices";
import { HISTORY, isHistoryAlone, type Context, type Page } from "../../ui/page";
import { card, choice, figure, figures, grid, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { current, named, t } from "../../words/i18n";
import { historyChart, isStretch, moved, valueRange } from "./history_chart";

const OPERATORS = "operators.";
const STEP = "step";
const MOST_CHANGES = 40;
/** how often it is asked whether versions are open, ms */
const POLL_MS = 300;

export const history: Page = {
  id: HISTORY,
  title: "page.history",
  live: true,
  unopened: true,
  listed: (found, run) => (found.runs[run]?.versions ?? 0) > 1 || isHistoryAlone(found.runs[run]),
  async show(context) {
    const by = context.params["by"] === "name" ? "name" : "time";
    const found = await context.api.get("history", { by });
    const chosen = found.figures.find((one) => one.figure === context.params["figure"]) ?? found.figures[0]!;
    const pair = chosenPair(context, found, chosen);
    return [
      h(
        "div",
        { class: "controls" },
        choice(
          t("history.figure"),
          found.figures.map((one) => [one.figure, `${figureName(one.figure)}${changesNote(one)}`]),
          chosen.figure,
          (value) => context.visit({ figure: value, before: null, after: null }),
        ),
        choice(
          t("history.order"),
          [
            ["time", t("history.order.time")],
            ["name", t("history.order.name")],
          ],
          by,
          (value) => context.visit({ by: value === "time" ? null : value, before: null, after: null }),
        ),
      ),
      problems(found),
      summary(found, chosen),
      grid(chartCard(context, found, chosen, pair), compareCard(context, found, pair), changesCard(context, found)),
    ];
  },
};

/** What a figure is called. */
export function figureName(name: string): string {
  if (name.startsWith(OPERATORS)) return name.slice(OPERATORS.length);
  if (name === STEP) return t("history.step");
  return name === "memory_peak" ? t("memory.peak") : named("part", name);
}

const changesNote = (one: FigureHistory): string =>
  one.changes.length ? ` (${t("history.moved", { count: one.changes.length })})` : "";

/** The two versions to compare: as the address says, or those around the last change. */
function chosenPair(context: Context, found: History, chosen: FigureHistory): [number, number] {
  const last = found.versions.length - 1;
  const change = chosen.changes.at(-1) ?? found.figures.flatMap((one) => one.changes.slice(-1))[0];
  const [before, after] = change ? aroundChange(chosen, change) : [last - 1, last];
  const place = (name: string, otherwise: number): number => Math.min(numberOf(context.params, name) ?? otherwise, last);
  return [place("before", before), place("after", after)];
}

/** The last version that surely has the earlier level, and the first that surely has the new one. */
export function aroundChange(chosen: FigureHistory, change: HistoryChange): [number, number] {
  const before = chosen.versions.filter((version) => version < change.earliest).at(-1) ?? Math.max(change.version - 1, 0);
  return [before, change.latest];
}

function problems(found: History): Child {
  if (!found.problems.length) return null;
  const first = found.problems[0]!;
  return h(
    "p",
    { class: "callout", role: "note" },
    t("history.left_out", { count: found.problems.length, first: `${first.where}: ${first.problem}` }),
  );
}

function summary(found: History, chosen: FigureHistory): Child {
  const last = chosen.values.length - 1;
  const say = (value: number): string => format.value(value, chosen.unit);
  const newest = found.versions[chosen.versions[last]!]!;
  const change = chosen.changes.at(-1);
  return figures(
    figure(
      t("history.newest", { version: newest.name }),
      say(chosen.values[last]!),
      t("history.interval", { low: say(chosen.low[last]!), high: say(chosen.high[last]!) }),
    ),
    figure(
      t("history.last"),
      change ? moved(change) : t("history.unmoved"),
      change ? `${found.versions[change.version]!.name}; ${sureness(found, change)}` : t("history.unmoved.what"),
    ),
    figure(t("history.versions"), format.count(found.versions.length), span(found)),
  );
}

const day = (version: HistoryVersion): string =>
  version.recorded_ns === null ? "" : new Date(Number(BigInt(version.recorded_ns) / 1_000_000n)).toLocaleString(current());

function span(found: History): string {
  const [first, last] = [found.versions[0]!, found.versions.at(-1)!].map(day);
  return first && last ? t("history.span", { first, last }) : "";
}

/** The interval of a change, and what is not known of it. */
function sureness(found: History, change: HistoryChange): string {
  if (change.ratio === null) return t("history.none_before");
  const interval = t("history.interval", {
    low: format.signedShare(change.low ?? 0),
    high: format.signedShare(change.high ?? 0),
  });
  if (!change.lasts) return `${interval}; ${t("history.unsure")}`;
  if (change.earliest === change.latest) return interval;
  const names = { first: found.versions[change.earliest]!.name, last: found.versions[change.latest]!.name };
  return `${interval}; ${t("history.between", names)}`;
}

function chartCard(context: Context, found: History, chosen: FigureHistory, pair: readonly [number, number]): Child {
  const say = (place: number): Child => {
    const version = found.versions[chosen.versions[place]!]!;
    const value = (number: number): string => format.value(number, chosen.unit);
    return [
      h("strong", null, version.name),
      h("div", null, value(chosen.values[place]!)),
      h("div", null, t("history.interval", { low: value(chosen.low[place]!), high: value(chosen.high[place]!) })),
      h(
        "div",
        { class: "note" },
        [day(version), version.commit, t("history.recordings", { count: version.recordings })].filter(Boolean).join(" · "),
      ),
    ];
  };
  const pick = (version: number): void => {
    const before = version === pair[1] ? pair[0] : pair[1];
    context.visit({ before: Math.min(before, version), after: Math.max(before, version) });
  };
  const title = figureName(chosen.figure);
  return card(title, historyChart(title, chosen, found.versions, pair, say, pick, context.signal), {
    wide: true,
    note: chartNote(chosen),
  });
}

/** What the picture shows, and what is only there at times. */
export function chartNote(chosen: FigureHistory): string {
  const [low, high] = valueRange(chosen);
  return [
    t("history.chart.what"),
    chosen.changes.some(isStretch) ? t("history.chart.stretch") : "",
    chosen.versions.some((_, place) => chosen.low[place]! < low || chosen.high[place]! > high) ? t("history.chart.beyond") : "",
  ]
    .filter(Boolean)
    .join(" ");
}

/** Two versions, and the way to what differs between them. */
function compareCard(context: Context, found: History, [before, after]: readonly [number, number]): Child {
  const items = found.versions.map((version, place): [string, string] => [String(place), version.name]);
  const pair = [found.versions[before]!, found.versions[after]!];
  const problem = h("div", null);
  const button = h(
    "button",
    { type: "button", onclick: () => void compareVersions(context, before, after, button, problem) },
    t("history.compare"),
  );
  const command = `steplens compare ${pair.map((version) => quoted(version.path)).join(" ")}`;
  return card(
    t("history.compare.two"),
    [
      h(
        "div",
        { class: "controls" },
        choice(t("compare.before"), items, String(before), (value) => context.visit({ before: value })),
        choice(t("compare.after"), items, String(after), (value) => context.visit({ after: value })),
        before !== after && pair.every((version) => version.openable) ? button : null,
      ),
      problem,
      h("p", { class: "note" }, t("history.command"), " ", h("code", null, command)),
    ],
    { wide: true },
  );
}

const quoted = (path: string): string => (/^[\w./:@%+=,-]+$/.test(path) ? path : `'${path.replaceAll("'", `'\\''`)}'`);

/** Have two versions opened, and show what differs between them. */
async function compareVersions(
  context: Context,
  before: number,
  after: number,
  button: HTMLButtonElement,
  problem: HTMLElement,
): Promise<void> {
  button.disabled = true;
  replace(problem, h("p", { class: "note", role: "status" }, t("loading")));
  try {
    const pair = await context.api.openVersions(before, after, context.params["by"] ?? "time");
    for (;;) {
      const { runs } = await session();
      if (context.signal.aborted) return;
      const states = [runs[pair.before], runs[pair.after]].map((run) => run?.progress.state);
      if (states.every((state) => state === "ready" || state === "failed")) break;
      await new Promise((next) => setTimeout(next, POLL_MS));
    }
    // the pages know the new runs only once they have asked
    document.dispatchEvent(new Event("steplens-reopen"));
    location.hash = formatRoute(pair.after, "compare", { before: pair.before, after: pair.after });
  } catch (error) {
    if (context.signal.aborted) return;
    button.disabled = false;
    replace(problem, problemBox(error));
  }
}

/** Every change of every figure, the last one first; of one version the step before its parts. */
function changesCard(context: Context, found: History): Child {
  const all = found.figures
    .flatMap((one) => one.changes.map((change) => ({ one, change })))
    .sort((first, second) => second.change.version - first.change.version);
  if (!all.length) return card(t("history.changes"), h("p", null, t("history.unmoved.what")), { wide: true });
  const rows = all.slice(0, MOST_CHANGES).map(({ one, change }): Child[] => {
    const [before, after] = aroundChange(one, change);
    const version = found.versions[change.version]!;
    return [
      h("a", { href: context.to("history", { ...context.params, figure: one.figure, before, after }) }, version.name),
      day(version),
      h("span", { title: figureName(one.figure) }, format.shorten(figureName(one.figure), 60)),
      moved(change),
      sureness(found, change),
    ];
  });
  const heads = [t("history.version"), t("history.recorded"), t("history.figure"), t("history.change"), t("history.sure")];
  return card(
    t("history.changes"),
    [
      smallTable(t("history.changes"), heads, rows, [3]),
      all.length > MOST_CHANGES ? h("p", { class: "note" }, t("rest", { count: format.count(all.length - MOST_CHANGES) })) : null,
    ],
    { wide: true, note: t("history.changes.what") },
  );
}
