/** The step on the first page: phases of the host above parts of the device, on one scale and with shares of one base. */

import type { Overview } from "../../api/types";
import { type ScaleBar, type ScalePart, stepScale } from "../../charts/step_scale";
import { type Child, h } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { deviceBase, hostBase, isApart, isSingle, meanAndMedian, whichParts } from "../../ui/step_means";
import { DEVICE_PARTS, HOST_PARTS, partOf, rankName } from "../../ui/ui";
import { longSteps, queueWaits, whyDifferent } from "../../ui/verdict_words";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

/** what a bar lacks to its base is told from here on */
const LEAST_REST = 0.005;
/** the longest step of a rank is so many times the shortest: they do not train together */
const UNLIKE = 1.5;

/** ranks of which a part differs by this share of a step are shown beside each other */
const APART = 0.15;

/** what lasts while a device does not compute, and what waits for others */
const EXPOSED: readonly string[] = ["gradient_sync", "device_wait", "data_wait", "exposed_communication", "exposed_copy", "idle"];
/** which page shows more of a part */
const PAGES: Readonly<Record<string, string>> = {
  data_wait: "pipeline",
  gradient_sync: "communication",
  computing: "kernels",
  exposed_communication: "communication",
  exposed_copy: "kernels",
};

type Rank = Overview["ranks"][number];

/** What a figure of a step is of: of all traces, or of one. */
interface Source {
  figures: Overview["figures"];
  parts: Overview["parts"];
  base_ns: number;
}

/** The figure, and below it which steps it is of and what its shares are of. */
export function stepFigureOf(context: Context, found: Overview): Child {
  const timed = found.ranks.filter((one) => one.step_ns !== null);
  const beside = unlikeRanks(found, timed);
  if (beside.length) {
    const sources = beside.map((one): Source => ({ ...one, base_ns: deviceBase(one.figures) }));
    const left = timed.length - beside.length;
    return [
      figureOf(
        context,
        found,
        sources,
        beside.map((one) => `${rankName(one, found.ranks)}: `),
      ),
      left > 0 ? h("p", { class: "note" }, t("overview.step.others", { count: format.count(left) })) : null,
    ];
  }
  const lengths = timed.map((one) => one.step_ns!);
  const unlike = Math.max(...lengths) > UNLIKE * Math.min(...lengths);
  // a median over ranks whose steps are unlike is a step of none of them
  const alone = unlike ? (timed.find((one) => one.figures.device_ns !== null) ?? timed[0]) : undefined;
  const source: Source = alone ? { ...alone, base_ns: deviceBase(alone.figures) } : found;
  return [
    figureOf(context, found, [source], [""], alone !== undefined),
    alone
      ? h(
          "p",
          { class: "note" },
          t("overview.step.alone", {
            name: rankName(alone, found.ranks),
            least: format.time(Math.min(...lengths)),
            most: format.time(Math.max(...lengths)),
          }),
        )
      : null,
    partOf(source.parts, "host_rest") === null ? null : h("p", { class: "note" }, t("parts.host_rest.why")),
    longSteps(source.figures),
    queueWaits(source.figures),
    whyDifferent(source.figures),
  ];
}

/**
 * The two ranks to show beside each other where ranks spend their steps unlike each other: a mean of them is a step that no rank
 * has. The one that the verdict names first, else the one that waits the least; then the one least like it. None where they are alike.
 */
function unlikeRanks(found: Overview, timed: readonly Rank[]): Rank[] {
  if (new Set(timed.map((one) => one.rank).filter((rank) => rank !== null)).size < 2) return [];
  const waits = (one: Rank): number =>
    (partOf(one.parts, "exposed_communication") ?? partOf(one.parts, "gradient_sync") ?? 0) / one.figures.step_mean_ns!;
  const named = timed.find((one) => found.verdict.rank !== null && one.rank === found.verdict.rank);
  const first = named ?? [...timed].sort((one, other) => waits(one) - waits(other))[0]!;
  const apart = (one: Rank): number =>
    Math.max(
      ...[...HOST_PARTS, ...DEVICE_PARTS].map(
        (name) => Math.abs((partOf(one.parts, name) ?? 0) - (partOf(first.parts, name) ?? 0)) / first.figures.step_mean_ns!,
      ),
    );
  const other = timed.filter((one) => one.rank !== first.rank).sort((one, another) => apart(another) - apart(one))[0];
  return other && (named || apart(other) > APART) ? [first, other] : [];
}

/** How long each bar is, and its median where that differs visibly; once where both bars of a rank read the same. */
function lengthsOf(
  bars: readonly ScaleBar[],
  bases: readonly number[],
  medians: readonly number[],
  names: readonly string[],
): string {
  const apart = bars.some((bar, row) => isApart(bar.ns, medians[row]!));
  const words = bars.map((bar, row) => {
    const rank = names.find((one) => one && bar.name.startsWith(one)) ?? "";
    const median = apart ? ` (${t("overview.median", { time: format.time(medians[row]!) })})` : "";
    return { rank, name: bar.name, length: `${format.time(bases[row]!)}${median}` };
  });
  const once = words.map(({ rank, name, length }) => {
    const alike = rank !== "" && words.every((one) => one.rank !== rank || one.length === length);
    return `${alike ? rank.replace(/: $/, "") : name} ${length}`;
  });
  return [...new Set(once)].join(", ");
}

function figureOf(context: Context, found: Overview, sources: readonly Source[], names: readonly string[], alone = false): Child {
  const [bars, bases, medians]: [ScaleBar[], number[], number[]] = [[], [], []];
  for (const [place, { figures, parts, base_ns }] of sources.entries()) {
    const host_ns = figures.host_mean_ns ?? 0;
    const device_ns = figures.device_mean_ns ?? 0;
    const device_base = base_ns || device_ns;
    const add = (name: string, ns: number, median: number | null, of: readonly string[], base: number, left: string): void => {
      if (of.every((one) => partOf(parts, one) === null)) return;
      const waits = of === HOST_PARTS ? figures.queue_wait : {};
      bars.push({
        name: `${names[place]!}${name}`,
        ns,
        parts: [...partsOf(context, parts, of, base, waits), ...rest(base, ns, left)],
      });
      bases.push(base);
      medians.push(median ?? ns);
    };
    // where host and device differ, both are told as shares of the step, as in the verdict
    add(t("overview.host"), host_ns, figures.host_ns, HOST_PARTS, hostBase(figures), t("overview.rest.host"));
    add(found.verdict.device, device_ns, figures.device_ns, DEVICE_PARTS, device_base, t("overview.rest.device"));
  }
  if (!bars.length) return h("p", { class: "note" }, t("overview.step.none"));
  const whole = Math.max(...bases);
  const figures = sources[0]!.figures;
  // what reads the same is the same
  const alike = !alone && sources.length === 1 && new Set(bases.map(format.time)).size === 1;
  // the share that the verdict names is of one of these bars; of a rank that is waited for it is of the step time
  const ofDevice = !alone && sources.length === 1 && found.verdict.of_device && found.verdict.kind !== "rank";
  return [
    stepScale(bars, whole, context.signal),
    h(
      "p",
      { class: "note sentence" },
      partsOfSources(sources, names),
      " ",
      alike
        ? t(isSingle(figures) ? "overview.base" : "overview.base.mean", { time: format.time(bases.at(-1)!) })
            + meanAndMedian(bases.at(-1)!, figures.step_time_ns)
        : t(ofDevice ? "overview.base.each.device" : "overview.base.each", {
            bases: lengthsOf(bars, bases, medians, names),
            device: found.verdict.device,
          }),
      bars.some((bar) => bar.parts.some((part) => part.exposed)) ? ` ${t("overview.hatched")}` : "",
      found.verdict.of_device || bars.length < 2 ? "" : ` ${t("overview.base.cpu")}`,
    ),
  ];
}

/** Which steps the bars are of; of several ranks each, where one leaves out a step that another one does not. */
function partsOfSources(sources: readonly Source[], names: readonly string[]): string {
  const texts = sources.map((one) => whichParts(one.figures));
  return new Set(texts).size < 2 ? texts[0]! : texts.map((text, place) => `${names[place]!}${text}`).join(" ");
}

function partsOf(
  context: Context,
  parts: Overview["parts"],
  names: readonly string[],
  base: number,
  waits: Readonly<Record<string, number>>,
): ScalePart[] {
  return names
    .map((name) => ({ name, ns: partOf(parts, name) ?? 0 }))
    .filter((one) => one.ns > 0)
    .map(({ name, ns }) => ({
      look: name.replaceAll("_", "-"),
      name: named("part", name),
      ns,
      share: ns / Math.max(base, 1),
      exposed: EXPOSED.includes(name),
      href: context.to(PAGES[name] ?? "steps"),
      rest: name === "host_rest",
      note: noteOf(waits[`${name}_ns`] ?? 0, base),
    }));
}

function noteOf(wait: number, base: number): string | undefined {
  return wait > LEAST_REST * base ? t("parts.queue_wait", { time: format.time(wait) }) : undefined;
}

function rest(base: number, ns: number, name: string): ScalePart[] {
  const left = base - ns;
  return left > LEAST_REST * base ? [{ look: "rest", name, ns: left, share: left / base, rest: true }] : [];
}
