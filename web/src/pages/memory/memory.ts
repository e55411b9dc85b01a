/** Memory: peaks, the curve over time, and what was allocated at a moment of it. */

import type { Alive, Curve, MemoryOverview, Series, Timeline } from "../../api/types";
import { numberOf } from "../../browser/route";
import { bytesAxis, chart, tip, valueAxis } from "../../charts/chart";
import { table } from "../../tables/table";
import { topicTables } from "../../tables/topic_tables";
import { h, replace, type Child } from "../../ui/dom";
import { problemBox } from "../../ui/notices";
import type { Context, Page } from "../../ui/page";
import { card, choice, deviceOf, grid, has, nothing, rankChoice, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";
import { type MemoryMarks, deviceAt, deviceFigures, markLines, memoryMarks } from "./memory_marks";
import { planCard } from "./memory_plan";

const POINTS = 1200;
/** how long the pointer rests before what is alive there is asked for */
const HOVER_MS = 250;
const MORE = [
  "memory_peak",
  "memory_peak_by_module",
  "memory_peak_by_line",
  "memory_peak_by_phase",
  "memory_peak_by_block",
  "memory_categories",
  "memory_growth",
  "memory_churn",
  "memory_churn_by_operator",
  "memory_churn_by_module",
  "memory_churn_by_line",
  "fragmentation",
];
const MOST_OWNERS = 12;

export const memory: Page = {
  id: "memory",
  title: "page.memory",
  async show(context) {
    const [ranks, listed] = await Promise.all([context.api.get("ranks"), context.api.get("tables")]);
    const trace = numberOf(context.params, "rank") ?? 0;
    const plan = has(ranks, "source_tables", trace) ? await planCard(context, trace) : null;
    if (!has(ranks, "memory") && !has(ranks, "allocations")) {
      return [
        h("div", { class: "controls" }, rankChoice(context, ranks, false)),
        plan ?? nothing(t("memory.none"), t("memory.none.why")),
      ];
    }
    const [timeline, found] = await Promise.all([context.api.get("timeline", { trace }), context.api.get("memory", { trace })]);
    // what says the same in every row is no column
    const of = [...places(timeline.series).keys()];
    const components = new Set(of.map((one) => one.split(" ").at(-1)));
    const alone = [...(components.size < 2 ? ["component"] : []), ...(found.devices.length < 2 ? ["device_type", "device"] : [])];
    const cpu = found.devices.length > 0 && found.devices.every((one) => one.device_type === "CPU");
    return [
      h("div", { class: "controls" }, rankChoice(context, ranks, false)),
      deviceFigures(context, trace, found),
      grid(
        await curveCard(context, trace, timeline, found),
        plan,
        // the allocator of the CPU reserves nothing
        card(
          named("table", "memory"),
          table(context, {
            name: "memory",
            trace,
            height: 240,
            without: [...alone, ...(cpu ? ["peak_reserved", "device"] : [])],
          }),
          { wide: true },
        ),
        topicTables(context, t("memory.more"), listed, MORE, trace, alone),
        card(
          named("table", "allocations"),
          table(context, {
            name: "allocations",
            trace,
            height: 480,
            without: alone,
            columns: [
              "name",
              "bytes",
              "allocation_ns",
              "release_ns",
              "device_type",
              "device",
              "component",
              "allocation_allocated",
            ],
            sort: [{ column: "bytes", descending: true }],
          }),
          { wide: true, note: t("memory.allocations.what") },
        ),
      ),
    ];
  },
};

/** Series of one device are drawn together: allocated, reserved, active. */
function places(series: readonly Series[]): Map<string, Series[]> {
  const found = new Map<string, Series[]>();
  for (const one of series) {
    const match = /^memory (\w+), (.*)$/.exec(one.label);
    if (match) found.set(match[2]!, [...(found.get(match[2]!) ?? []), one]);
  }
  return found;
}

/** Of the allocators of the first device the one that holds most: the peak is mostly its. */
async function fullest(
  context: Context,
  all: ReadonlyMap<string, readonly Series[]>,
  span: { trace: number; start_ns: number; end_ns: number; points: number },
): Promise<string | undefined> {
  const device = (place: string): string => place.split(" ").slice(0, 2).join(" ");
  const [first] = all.keys();
  const alike = [...all.keys()].filter((one) => device(one) === device(first!));
  if (alike.length < 2) return first;
  const most = await Promise.all(
    alike.map(async (place) => {
      const series = all.get(place)!.find((one) => one.label.startsWith("memory allocated"));
      if (!series) return 0;
      const curve = await context.api.get("timeline/series/{series}", { series: series.series, ...span }).catch(() => null);
      return Math.max(0, ...(curve?.max ?? []).map((value) => value ?? 0));
    }),
  );
  return alike[most.indexOf(Math.max(...most))];
}

async function curveCard(context: Context, trace: number, timeline: Timeline, found: MemoryOverview): Promise<Child> {
  const all = places(timeline.series);
  const span = { trace, start_ns: timeline.start_ns, end_ns: timeline.end_ns + 1, points: POINTS };
  const asked_place = context.params["place"] ?? "";
  const place = all.has(asked_place) ? asked_place : await fullest(context, all, span);
  if (place === undefined) return card(t("memory.curve"), nothing(t("memory.no_curve")), { wide: true });
  const every = all.get(place)!;
  const asked = await Promise.all(
    every.map((one) => context.api.get("timeline/series/{series}", { series: one.series, ...span })),
  );
  // an allocator that reserves nothing, as that of the CPU, has no curve of it
  const drawn = every.map((one, at) => ({ one, curve: asked[at]! })).filter(({ curve }) => curve.max.some((value) => value));
  const series = drawn.map(({ one }) => one);
  const curves = drawn.map(({ curve }) => curve);
  if (!series.length) return card(t("memory.curve"), nothing(t("memory.no_curve")), { wide: true });
  const alive = h("div", { "aria-live": "polite" });
  const show = async (at: number): Promise<void> => {
    context.note({ at: Math.round(at) });
    try {
      replace(alive, aliveTables(context, await context.api.get("memory/alive", { trace, time_ns: Math.round(at) })));
    } catch (error) {
      if (!context.signal.aborted) replace(alive, problemBox(error));
    }
  };
  const allocated = curves[series.findIndex((one) => one.label.startsWith("memory allocated"))] ?? curves[0]!;
  const device = deviceAt(found, place);
  // a bucket of the curve tells the peak and not exactly when it was
  const exact = device?.peak_bytes != null && allocated.max.includes(device.peak_bytes);
  const peak = exact ? device.peak_ns : highest(allocated);
  const at = numberOf(context.params, "at") ?? peak;
  if (at !== null) void show(at);
  const content: Child = [
    h(
      "div",
      { class: "controls" },
      all.size > 1
        ? choice(
            t("device"),
            [...all.keys()].map((one) => [one, one.replace(/ -1(?= |$)/, "")]),
            place,
            (value) => context.visit({ place: value, at: null }),
          )
        : null,
      peak === null ? null : h("button", { type: "button", onclick: () => void show(peak) }, t("memory.at_peak")),
      h("a", { href: context.to("timeline", { rank: trace }) }, t("timeline.show")),
    ),
    curveChart(context, series, curves, timeline, show, memoryMarks(found, place, at)),
    h("p", { class: "note", role: "status" }, t("memory.marks.what")),
    /^CPU .*PTA$/.test(place) ? h("p", { class: "note" }, t("memory.cpu.before")) : null,
    alive,
  ];
  // the component tells allocators of one device apart, and nothing where there is one
  const components = new Set([...all.keys()].map((one) => one.split(" ").at(-1)));
  const title = place.replace(/ -1(?= |$)/, "");
  return card(`${t("memory.curve")}: ${components.size > 1 ? title : title.replace(/ [^ ]*$/, "")}`, content, {
    wide: true,
    note: t("memory.click"),
  });
}

function highest(curve: Curve): number | null {
  let best: number | null = null;
  let most = -Infinity;
  curve.max.forEach((value, place) => {
    if (value !== null && value > most) [best, most] = [curve.time_ns[place]!, value];
  });
  return best;
}

function curveChart(
  context: Context,
  series: readonly Series[],
  curves: readonly Curve[],
  timeline: Timeline,
  show: (at: number) => Promise<void>,
  marks: MemoryMarks,
): HTMLElement {
  const [delayed, most] = [
    later(show),
    Math.max(...curves.flatMap((curve) => curve.max.map((one) => one ?? 0)), marks.capacity_bytes ?? 0, 1),
  ];
  // a click holds its moment until the pointer has left: the tip knows the places of changes only
  let held = false;
  const frame = chart(
    {
      label: t("memory.curve"),
      height: 300,
      onPlace: (at) => {
        held = true;
        delayed.stop();
        void show(at);
      },
      option: (colours) => ({
        grid: { left: 76, right: 20, top: 30, bottom: 60 },
        legend: { type: "scroll", top: 0, textStyle: { color: colours.text } },
        dataZoom: [
          { type: "inside" },
          { type: "slider", height: 18, bottom: 8, labelFormatter: (value: number) => format.moment(value, 1e5) },
        ],
        xAxis: valueAxis(colours, format.time, {
          min: firstOf(curves) ?? timeline.start_ns,
          max: lastOf(curves) ?? timeline.end_ns,
          splitLine: { show: false },
          axisLabel: { color: colours.faint, formatter: atMark(timeline), hideOverlap: true, showMaxLabel: false },
        }),
        yAxis: bytesAxis(colours, most),
        tooltip: {
          trigger: "axis",
          formatter: (hovered: { seriesName: string; color: string; value: [number, number] }[]) => {
            // what is alive follows the pointer once it rests
            if (hovered[0] && !held) delayed.call(hovered[0].value[0]);
            return tip(
              format.moment(hovered[0]?.value[0] ?? 0, 1e3),
              hovered.map((one) => ({ colour: one.color, name: one.seriesName, value: format.bytes(one.value[1]) })),
            );
          },
        },
        series: series.map((one, place) => ({
          type: "line",
          step: "end",
          showSymbol: false,
          name: t(`memory.${/^memory (\w+)/.exec(one.label)![1] as "allocated" | "reserved" | "active"}`),
          color: colours.series[place],
          data: points(curves[place]!),
          ...(place === 0 ? { markLine: markLines(marks, colours) } : {}),
        })),
      }),
    },
    context.signal,
  );
  frame.addEventListener("pointerleave", () => (held = false));
  return frame;
}

/** When the first value was recorded: data loaders may be known long before. */
function firstOf(curves: readonly Curve[]): number | null {
  const known = curves.flatMap((curve) => curve.time_ns.filter((_, place) => curve.last[place] != null).slice(0, 1));
  return known.length ? Math.min(...known) : null;
}

/** When the last value was recorded: devices may be recorded for a part of the window. */
function lastOf(curves: readonly Curve[]): number | null {
  const ends = curves.flatMap((curve) => curve.time_ns.filter((_, place) => curve.last[place] != null).slice(-1));
  return ends.length ? Math.max(...ends) : null;
}

/** What stands below a mark of the axis of time: no mark needs more digits than a hundredth of the whole. */
const atMark =
  (timeline: Timeline) =>
  (value: number): string =>
    value === 0 ? "0" : format.rounded(value, (timeline.end_ns - timeline.start_ns) / 100);

/** Calls something with the last of several values, once no other has come for a moment. */
function later(call: (value: number) => unknown): { call: (value: number) => void; stop: () => void } {
  let timer = 0;
  const stop = (): void => clearTimeout(timer);
  return {
    stop,
    call: (value) => {
      stop();
      timer = window.setTimeout(() => void call(value), HOVER_MS);
    },
  };
}

/** Both extremes of every bucket, so that no peak is lost, and the value that it ends with. */
function points(curve: Curve): [number, number][] {
  return curve.time_ns.flatMap((time, place): [number, number][] => {
    const [low, high, last] = [curve.min[place], curve.max[place], curve.last[place]];
    if (low === null || high === null || last === null || low === undefined || high === undefined || last === undefined)
      return [];
    return low === high
      ? [[time, last]]
      : [
          [time, high],
          [time, low],
          [time, last],
        ];
  });
}

function aliveTables(context: Context, found: Alive): Child {
  const owners = found.by_owner.slice(0, MOST_OWNERS);
  return [
    h(
      "h3",
      null,
      t("memory.alive", {
        at: format.moment(found.time_ns, 1e3),
        count: format.count(found.allocations),
        bytes: format.bytes(found.bytes),
      }),
    ),
    found.unlisted.map((row) =>
      h(
        "p",
        null,
        t("memory.rest", {
          bytes: format.value(row["rest_bytes"], "bytes"),
          total: format.value(row["allocated_bytes"], "bytes"),
          place: [deviceOf(row), found.unlisted.length > 1 ? row["component"] : null].filter(Boolean).join(" "),
        }),
      ),
    ),
    owners.length
      ? h(
          "div",
          { class: "two" },
          smallTable(
            t("memory.owners"),
            [t("memory.owner"), t("device"), named("column", "allocations"), named("column", "bytes")],
            owners.map((row) => [
              format.shorten(String(row["name"] ?? t("memory.outside")), 120),
              deviceOf(row),
              format.value(row["allocations"], ""),
              format.value(row["bytes"], "bytes"),
            ]),
            [2, 3],
          ),
          smallTable(
            t("memory.largest"),
            [t("memory.largest"), named("column", "bytes"), named("column", "allocation_ns"), named("column", "release_ns")],
            found.largest
              .slice(0, MOST_OWNERS)
              .map((row) => [
                h(
                  "a",
                  { href: context.to("timeline", { find: String(row["name"] ?? "") }) },
                  format.shorten(String(row["name"] ?? t("memory.outside")), 80),
                ),
                format.value(row["bytes"], "bytes"),
                format.value(row["allocation_ns"], "moment"),
                format.value(row["release_ns"], "moment"),
              ]),
            [1, 2, 3],
          ),
        )
      : h("p", { class: "note" }, t("memory.nothing_alive")),
  ];
}
