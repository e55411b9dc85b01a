/** The names of the lanes beside the canvas, with what opens a lane and what holds it at the top. */

import type { Lane } from "../api/types";
import { type Child, h, replace, svg } from "../ui/dom";
import * as format from "../words/format";
import { type Key, named, t } from "../words/i18n";
import type { Lanes } from "./lanes";
import { type Band, type LaneBand, laneKey, mainThread } from "./layout";

export interface LabelActions {
  toggle: (trace: number, lane: Lane) => void;
  pin: (trace: number, lane: Lane) => void;
  toggleHead: (key: string) => void;
}

/** What the server calls a curve, in the page's language; allocators number the CPU -1. */
export function seriesName(label: string): string {
  const [, kind, rest] =
    /^(memory (?:allocated|reserved|active)|launched and waiting tasks|data pipeline)([,:] .*)$/.exec(label) ?? [];
  if (kind === undefined || rest === undefined) return label;
  return named("value", `series.${kind}`, kind) + rest.replace(/^, CPU -1\b/, ", CPU");
}

type Work = "autograd" | "task queue" | "training";
const WORK: Readonly<Record<Work, Key>> = {
  autograd: "timeline.track.autograd",
  "task queue": "timeline.track.task_queue",
  training: "timeline.track.training",
};

/** "thread 12 (python)" in the page's language, with the name that was recorded. */
const numbered = (thread: string): string => t("timeline.track.thread", { number: thread.replace(/^thread /i, "") });

/** What the server calls tracks, by what they are; names of threads, groups and layers stay as they were recorded. */
const TRACKS: readonly [pattern: RegExp, words: (...parts: string[]) => string][] = [
  [
    /^device: (.+)$/,
    (state) => t("timeline.track.device", { state: named("value", `cell.${state!.replaceAll(" ", "_")}`, state) }),
  ],
  [/^data pipeline: (.+)$/, (kind) => t("timeline.track.batches", { kind: kind! })],
  [/^marks of (.+)$/, (place) => t("timeline.track.marks", { place: trackName(place!) })],
  [/^garbage collection, (.+)$/, (thread) => t("timeline.track.gc", { thread: trackName(thread!) })],
  [/^communication, group of unknown number$/, () => t("timeline.track.group_unknown")],
  [/^communication, group (.+)$/, (group) => t("timeline.track.group", { group: group! })],
  [/^main (thread .+)$/, (thread) => t("timeline.track.main", { thread: numbered(thread!) })],
  // what the server concludes from the calls of a thread, and what PyTorch names its threads
  [/^(thread \d+) \((autograd|task queue|training)\)$/, (thread, work) => t(WORK[work as Work], { thread: numbered(thread!) })],
  [/^(thread \d+ \(pt_autograd_\d+\))$/, (thread) => t(WORK.autograd, { thread: numbered(thread!) })],
  [/^(thread \d+ \(pt_data_pin\w*\))$/, (thread) => t("timeline.track.pin", { thread: numbered(thread!) })],
  [/^(thread \d+ \(pt_data_worker\w*\))$/, (thread) => t("timeline.track.loader", { thread: numbered(thread!) })],
  [/^(thread \d+ \(pt_(?:gloo|nccl)\w*\))$/, (thread) => t("timeline.track.collectives", { thread: numbered(thread!) })],
  [/^[Tt]hread \d.*$/, (thread) => numbered(thread)],
  [/^thread$/, () => t("timeline.track.thread_unknown")],
  [/^(\w+), ([Tt]hread(?: \d.*)?)$/, (layer, thread) => `${layer}, ${trackName(thread!)}`],
  [/^(.* )?stream of unknown number$/, (device = "") => t("timeline.track.stream_unknown", { device })],
  [/^(.* )?stream (\d+)$/, (device = "", number) => t("timeline.track.stream", { device, number: number! })],
];

/** A track or its heading in the page's language. */
export function trackName(label: string): string {
  for (const [pattern, words] of TRACKS) {
    const parts = pattern.exec(label);
    if (parts) return words(...(parts.length > 1 ? parts.slice(1) : parts));
  }
  return named("lane", label, label);
}

/** Show the names anew; whoever had the focus keeps it. */
export function drawLabels(place: HTMLElement, lanes: Lanes, actions: LabelActions): void {
  const focused = place.contains(document.activeElement) ? document.activeElement?.getAttribute("data-control") : null;
  const held = lanes.all.filter((band) => band.held);
  replace(
    place,
    held.length
      ? h(
          "div",
          { class: "timeline-held", style: { height: `${lanes.held}px` } },
          held.map((band) => label(band, actions)),
        )
      : null,
    lanes.all.filter((band) => !band.held).map((band) => label(band, actions)),
  );
  if (focused) place.querySelector<HTMLElement>(`[data-control="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

function label(band: Band, actions: LabelActions): Child {
  const style = { top: `${band.top}px`, height: `${band.height}px` };
  if (band.kind === "head")
    return h(
      "div",
      { class: `lane-head level-${band.level}`, style, title: trackName(band.text) },
      h(
        "button",
        {
          type: "button",
          class: "lane-name",
          "data-control": `head ${band.key}`,
          "aria-expanded": String(band.open),
          onclick: () => actions.toggleHead(band.key),
        },
        h("span", { class: "arrow", "aria-hidden": "true" }, band.open ? "▾" : "▸"),
        h("span", { class: "head-text" }, trackName(band.text)),
      ),
      band.open ? null : h("span", { class: "note" }, t("timeline.tracks", { count: format.count(band.lanes) })),
    );
  if (band.kind === "series")
    return h(
      "div",
      { class: "lane-label", style, title: seriesName(band.series.label) },
      format.shorten(seriesName(band.series.label), 120),
    );
  const { lane } = band;
  const told = trackName(mainThread(lane) ? `main ${lane.label}` : lane.label);
  const short = band.text === lane.label ? told : band.text ? trackName(band.text) : named("lane", lane.source, lane.source);
  const text = band.of ? `${band.of}: ${told}` : short;
  const about = `${band.of ? text : told} · ${t("timeline.lane_events", { count: format.count(lane.events) })}`;
  const key = laneKey(band.trace, lane);
  return h(
    "div",
    {
      class: "lane-label",
      style,
      title: about,
      "data-lane": `${band.trace}.${lane.lane}`,
      "data-rows": band.depths,
    },
    lane.depths === 1
      ? h("span", { class: "lane-text" }, text)
      : h(
          "button",
          {
            type: "button",
            class: "lane-name",
            "data-control": `open ${key}`,
            "aria-expanded": String(band.open),
            onclick: () => actions.toggle(band.trace, lane),
          },
          h("span", { class: "arrow", "aria-hidden": "true" }, band.open ? "▾" : "▸"),
          h("span", { class: "lane-text" }, text),
        ),
    pin(band, key, text, actions),
  );
}

function pin(band: LaneBand, key: string, text: string, actions: LabelActions): HTMLElement {
  return h(
    "button",
    {
      type: "button",
      class: "lane-pin",
      "data-control": `pin ${key}`,
      title: t("timeline.pin"),
      "aria-label": `${t("timeline.pin")}: ${text}`,
      "aria-pressed": String(band.held),
      onclick: () => actions.pin(band.trace, band.lane),
    },
    svg(
      "svg",
      { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" },
      svg("path", {
        d: "M5 2h6l-1 5 3 3H3l3-3zM8 10v5",
        fill: band.held ? "currentColor" : "none",
        stroke: "currentColor",
        "stroke-width": "1.3",
        "stroke-linejoin": "round",
      }),
    ),
  );
}
