/** The first page: where a step goes, what takes the most, and what to do first. */

import { address } from "../../api/client";
import type { Overview, Steps } from "../../api/types";
import { chart } from "../../charts/chart";
import { flowChart, rangeNote } from "../../charts/pipeline_flow";
import { shareBars } from "../../charts/share_bars";
import { MOST_SHOWN, largest } from "../../charts/share_chart";
import { stepBars } from "../../charts/step_charts";
import { averageFigure } from "../../charts/step_trace_card";
import { report } from "../../report/embedded";
import { drop } from "../../timeline/controls";
import { h, replace, type Child } from "../../ui/dom";
import { fileLink } from "../../ui/file_link";
import { findingWords } from "../../ui/health_words";
import type { Context, Page } from "../../ui/page";
import {
  card,
  deviceOf,
  figure,
  figures,
  findingLine,
  grid,
  has,
  level,
  nothing,
  rankName,
  smallTable,
  stepPartsBars,
} from "../../ui/ui";
import { verdictWords, whichSteps, whyDifferent } from "../../ui/verdict_words";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

/** more ranks are not offered at once: the timeline's page lets choose them, and a window of them */
const MOST_DOWNLOADS = 8;
/** doubts about the data that are told in words */
const MOST_DOUBTS = 4;
/** operations that hold up a data pipeline */
const MOST_BOTTLENECKS = 5;
/** types that are told with their number of tasks */
const MOST_TYPES = 5;

export const overview: Page = {
  id: "overview",
  title: "page.overview",
  async show(context) {
    const [found, steps] = await Promise.all([context.api.get("overview"), context.api.get("steps", { trace: 0 })]);
    return [
      h("p", { class: "verdict" }, verdictWords(found.verdict, found.figures.few)),
      summary(context, found),
      grid(
        stepCard(context, found),
        stepsCard(context, found, steps),
        found.step_ns === null
          ? null
          : card(t("steps.trace"), averageFigure(context, 0), { more: context.to("steps", { rank: 0 }) }),
        adviceCard(context, found),
        operatorsCard(context, found),
        typesCard(context, found),
        memoryCard(context, found),
        pipelineCard(context, found),
        timelineCard(context, found),
        ranksCard(context, found),
        healthCard(context, found),
      ),
    ];
  },
};

function summary(context: Context, found: Overview): Child {
  const devices = [...new Set(found.ranks.flatMap((one) => one.devices))];
  const formats = [...new Set(found.ranks.map((one) => one.format))];
  const distinct = new Set(found.ranks.map((one) => one.rank).filter((rank) => rank !== null)).size;
  const peak = Math.max(...found.ranks.map((one) => one.peak_bytes ?? -1));
  return figures(
    figure(
      t("step.time"),
      found.step_ns === null ? format.NOTHING : format.time(found.step_ns),
      found.steps ? t("median.of", { count: format.count(found.steps) }) : t("steps.none.short"),
      context.to("steps"),
    ),
    // windows of one process, traces of several that know nothing of each other, or files that do not tell their ranks, are no ranks
    distinct < 2 && found.ranks.length > 1
      ? figure(t("traces"), format.count(found.ranks.length), devices.slice(0, 4).join(", "))
      : figure(
          t("ranks"),
          format.count(Math.max(distinct, 1)),
          devices.slice(0, 4).join(", "),
          distinct > 1 ? context.to("ranks") : undefined,
        ),
    figure(t("findings"), found.judged ? format.count(found.findings) : format.NOTHING, null, context.to("advice")),
    peak >= 0 ? figure(t("memory.peak"), format.bytes(peak), null, context.to("memory")) : null,
    figure(t("format"), formats.join(", "), context.run.path),
  );
}

function stepCard(context: Context, found: Overview): Child {
  if (found.step_ns === null)
    return card(t("overview.step"), nothing(t("steps.none"), t("steps.none.why")), { more: context.to("steps") });
  return card(
    t("overview.step"),
    [...stepPartsBars(found.parts), h("p", { class: "note" }, whichSteps(found.figures)), whyDifferent(found.figures)],
    { more: context.to("steps") },
  );
}

function stepsCard(context: Context, found: Overview, steps: Steps): Child {
  if (!steps.steps.length) return null;
  const first = found.ranks[0];
  return card(t("overview.steps"), stepBars(context, steps.steps, 200), {
    more: context.to("steps"),
    note: found.ranks.length > 1 && first ? rankName(first, found.ranks) : null,
  });
}

function adviceCard(context: Context, found: Overview): Child {
  const list = found.advice.length
    ? h(
        "ul",
        { class: "findings" },
        found.advice.map((one) => findingLine(one, context.to("advice", { finding: one.id }))),
      )
    : nothing(t(!found.judged ? "advice.later" : found.step_ns === null ? "advice.none.steps" : "advice.none"));
  return card(t("page.advice"), list, { more: context.to("advice") });
}

function operatorsCard(context: Context, found: Overview): Child {
  // a source of device tasks alone has the types of its operators beside this place
  if (!found.operators.length && found.types.length) return null;
  if (!found.operators.length)
    return card(t("overview.operators"), nothing(t("operators.none"), t("operators.none.why")), {
      more: context.to("operators"),
    });
  return card(
    t("overview.operators"),
    shareBars(
      found.operators.map((row) => ({
        name: String(row["name"]),
        value: Number(row["self_ns"]),
        share: Number(row["self_percent"]),
        note: `${format.count(Number(row["calls"]))} ×`,
        href: context.to("timeline", { find: String(row["name"]) }),
      })),
    ),
    { more: context.to("operators"), note: t("overview.operators.what") },
  );
}

/** The share of every type of operator, and the largest ones with their number of tasks and mean. */
function typesCard(context: Context, found: Overview): Child {
  const whole = found.types.reduce((sum, one) => sum + one.total_ns, 0);
  if (!whole) return null;
  const nameOf = (one: { type: string | null }): string => one.type ?? format.NOTHING;
  const slices = largest(
    found.types.map((one) => ({ name: nameOf(one), value: one.total_ns })),
    MOST_SHOWN,
    (count) => t("rest", { count: format.count(count) }),
  );
  const tasks = (name: string): string => context.to("kernels", { by: "type", of: name });
  return card(
    t("overview.types"),
    [
      chart(
        {
          label: t("overview.types"),
          height: 220,
          say: format.time,
          onPick: ({ dataIndex }) => {
            if (dataIndex < Math.min(found.types.length, MOST_SHOWN)) location.hash = tasks(slices[dataIndex]!.name);
          },
          option: (colours) => ({
            tooltip: {
              formatter: (one: { name: string; value: number }) =>
                h("span", null, `${one.name}: ${format.time(one.value)} (${format.share(one.value / whole)})`),
            },
            legend: {
              type: "scroll",
              orient: "vertical",
              left: "50%",
              top: "middle",
              formatter: (name: string) => format.shorten(name, 28),
              textStyle: { color: colours.text },
              pageTextStyle: { color: colours.text },
            },
            series: [
              {
                type: "pie",
                radius: ["45%", "80%"],
                center: ["25%", "50%"],
                label: { show: false },
                itemStyle: { borderColor: colours.surface, borderWidth: 1 },
                data: slices,
              },
            ],
          }),
        },
        context.signal,
      ),
      shareBars(
        found.types.slice(0, MOST_TYPES).map((one) => ({
          name: nameOf(one),
          value: one.total_ns,
          share: (one.total_ns / whole) * 100,
          note: `${format.count(one.count)} × ${format.time(one.total_ns / one.count)}`,
          href: tasks(nameOf(one)),
        })),
      ),
    ],
    { more: context.to("kernels", { by: "type" }), note: t("overview.types.what") },
  );
}

function memoryCard(context: Context, found: Overview): Child {
  if (!found.memory.length)
    return card(t("page.memory"), nothing(t("memory.none"), t("memory.none.why")), { more: context.to("memory") });
  const many = found.ranks.length > 1;
  return card(
    t("page.memory"),
    smallTable(
      t("page.memory"),
      [...(many ? [t("rank")] : []), t("device"), t("memory.peak"), t("memory.peak.when"), t("memory.open")],
      found.memory
        .slice(0, 8)
        .map((row) => [
          ...(many ? [format.value(row["rank"], "")] : []),
          deviceOf(row),
          format.value(row["peak_allocated"], "bytes"),
          format.value(row["peak_allocated_ns"], "moment"),
          format.value(row["open_bytes"], "bytes"),
        ]),
      many ? [2, 3, 4] : [1, 2, 3],
    ),
    { more: context.to("memory") },
  );
}

function pipelineCard(context: Context, found: Overview): Child {
  const wait = found.parts["data_wait_ns"] ?? 0;
  const recorded = has(found.ranks, "pipeline_ops") || has(found.ranks, "pipeline_batches");
  const [flow, range] = [h("div"), h("div")];
  if (has(found.ranks, "pipeline_batches", 0)) {
    context.api
      .get("pipeline", { trace: 0 })
      .then((one) => {
        replace(
          flow,
          one.places.length
            ? [
                found.ranks.length > 1 ? h("p", { class: "note" }, rankName(found.ranks[0]!, found.ranks)) : null,
                flowChart(one.places),
              ]
            : null,
        );
        replace(range, rangeNote(one.places, found.ranks[0]!.parts["data_wait_ns"] ?? 0));
      })
      .catch(() => replace(flow));
  }
  const content: Child = [
    flow,
    found.step_ns && (recorded || wait > 0)
      ? h("p", null, t("pipeline.wait", { time: format.time(wait), share: format.share(wait / found.step_ns) }))
      : null,
    range,
    found.pipeline.length
      ? h(
          "ul",
          null,
          found.pipeline.slice(0, MOST_BOTTLENECKS).map((row) =>
            h(
              "li",
              null,
              found.ranks.length > 1 ? `${rankName(found.ranks[Number(row["trace"])]!, found.ranks)}: ` : "",
              row["usage"] == null
                ? t("pipeline.bottleneck.plain", { name: String(row["type"] ?? row["id"]) })
                : t("pipeline.bottleneck", {
                    name: String(row["type"] ?? row["id"]),
                    usage: format.value(row["usage"], "ratio"),
                  }),
            ),
          ),
          found.pipeline.length > MOST_BOTTLENECKS
            ? h("li", { class: "note" }, t("rest", { count: format.count(found.pipeline.length - MOST_BOTTLENECKS) }))
            : null,
        )
      : h("p", { class: "note" }, recorded ? t("pipeline.no_bottleneck") : t("pipeline.none.why")),
  ];
  return card(t("page.pipeline"), content, { more: context.to("pipeline") });
}

function timelineCard(context: Context, found: Overview): Child {
  const names = ["ops", "kernels", "communication", "api", "python", "marks", "gc"];
  // what the CPU computes and communicates are operator calls, which are counted once
  const again = ["kernels", "communication"];
  const rowsOf = (one: Overview["ranks"][number], name: string): number =>
    one.device_kind === "CPU" && again.includes(name) ? 0 : (one.tables[name] ?? 0);
  const rows = names
    .map((name) => [name, found.ranks.reduce((sum, one) => sum + rowsOf(one, name), 0)] as const)
    .filter(([, rows]) => rows > 0);
  const streams = found.ranks.reduce((sum, one) => sum + (one.device_kind === "CPU" ? 0 : one.streams), 0);
  return card(
    t("page.timeline"),
    [
      smallTable(
        t("page.timeline"),
        [t("timeline.kind"), t("timeline.events")],
        [
          ...(streams ? [[t("overview.streams"), format.count(streams)]] : []),
          ...rows.map(([name, rows]) => [named("table", `recorded_${name}`, name), format.count(rows)]),
        ],
        [1],
      ),
      report() ? null : h("p", { class: "controls downloads" }, downloads(context, found)),
    ],
    { more: context.to("timeline") },
  );
}

/** The whole timeline for Perfetto: all ranks in one file, and each alone; of many ranks, those that are chosen on the timeline's page. */
function downloads(context: Context, found: Overview): Child {
  const { ranks } = found;
  const link = (text: string, label: string, of: { trace: number } | { traces: string }): HTMLElement =>
    fileLink(text, address(`runs/${context.run.run}/download`, { ...of, to: "chrome" }), { "aria-label": label });
  const download = t("timeline.download");
  if (ranks.length === 1) return link(download, download, { trace: 0 });
  const together = `${download}: ${t("timeline.download.together", { count: ranks.length })}`;
  return [
    ranks.length <= MOST_DOWNLOADS ? link(together, together, { traces: ranks.map((one) => one.trace).join(",") }) : null,
    drop(
      t("timeline.download.single"),
      ranks
        .slice(0, MOST_DOWNLOADS)
        .map((one) => link(rankName(one, ranks), `${download}: ${rankName(one, ranks)}`, { trace: one.trace })),
    ),
  ];
}

function ranksCard(context: Context, found: Overview): Child {
  if (found.ranks.length < 2) return null;
  return card(
    t("ranks"),
    smallTable(
      t("ranks"),
      [t("rank"), t("step.time"), named("part", "computing"), named("part", "exposed_communication")],
      found.ranks
        .slice(0, 8)
        .map((one) => [
          rankName(one, found.ranks),
          format.value(one.step_ns, "ns"),
          format.value(one.parts["computing_ns"], "ns"),
          format.value(one.parts["exposed_communication_ns"], "ns"),
        ]),
      [1, 2, 3],
    ),
    { more: context.to("ranks") },
  );
}

function healthCard(context: Context, found: Overview): Child {
  const entries = Object.entries(found.health);
  if (!entries.length) return card(t("page.health"), h("p", null, t("health.good")), { more: context.to("health") });
  const counts = entries.map(([severity, count]) =>
    h("li", { class: "finding" }, level(severity), t("health.count", { count: format.count(count) })),
  );
  const list = h("ul", { class: "findings" }, counts);
  if (entries.reduce((sum, [, count]) => sum + count, 0) <= MOST_DOUBTS) {
    // few enough to be said instead of counted
    context.api
      .get("health")
      .then((all) =>
        replace(
          list,
          all.map((one) => h("li", { class: "finding" }, level(one.severity), h("span", null, findingWords(one)))),
        ),
      )
      .catch(() => undefined);
  }
  return card(t("page.health"), list, { more: context.to("health") });
}
