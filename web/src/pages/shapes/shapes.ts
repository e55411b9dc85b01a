/** Operators of a net whose shapes change: their times from step to step, and single runs with their shapes. */

import type { ShapeRuns, ShapeSeries, ShapeType } from "../../api/types";
import { numberOf } from "../../browser/route";
import { chart, nameAxis, tip, valueAxis } from "../../charts/chart";
import { topicTables } from "../../tables/topic_tables";
import { h, replace, type Child } from "../../ui/dom";
import { problemBox } from "../../ui/notices";
import type { Context, Page } from "../../ui/page";
import { card, grid, has, nothing, rankChoice, smallTable, tabs } from "../../ui/ui";
import * as format from "../../words/format";
import { t } from "../../words/i18n";

const LEVELS = ["operator", "kernel"] as const;
const MOST = 8;
const MORE = ["shapes", "shapes_by_step", "dynamic_shapes", "dynamic_shapes_by_kernel"];

export const shapes: Page = {
  id: "shapes",
  title: "page.shapes",
  async show(context) {
    const [ranks, listed] = await Promise.all([context.api.get("ranks"), context.api.get("tables")]);
    const trace = numberOf(context.params, "rank") ?? 0;
    const level = LEVELS.find((one) => one === context.params["level"]) ?? "operator";
    const found = await context.api.get("shapes", { trace, level });
    const head = [
      tabs(
        t("shapes.level"),
        LEVELS.map((id) => ({
          id,
          title: t(`shapes.level.${id}`),
          href: context.to("shapes", { rank: context.params["rank"], level: id }),
        })),
        level,
      ),
      h("div", { class: "controls" }, rankChoice(context, ranks, false)),
    ];
    if (!found.types.length)
      return [head, nothing(t("shapes.none"), has(ranks, "steps", trace) ? t("shapes.none.why") : t("steps.none.why"))];
    const known = found.types.map((one) => one.type);
    const chosen = chosenTypes(context, known, found.first);
    const name = context.params["name"] ?? "";
    const [series, runs] = await Promise.all([
      context.api.get("shapes/series", { trace, level, types: chosen }),
      context.api.get("shapes/runs", { trace, level, types: chosen, name }),
    ]);
    return [
      head,
      typeBoxes(context, found.types, chosen, found.left_out),
      grid(
        card(t("shapes.series"), seriesChart(context, series), { wide: true, note: t("shapes.series.what") }),
        scatterCard(context, runs, chosen, name),
        topicTables(context, t("operators.more"), listed, MORE, trace),
      ),
    ];
  },
};

function chosenTypes(context: Context, known: readonly string[], first: readonly string[]): string[] {
  try {
    const told: unknown = JSON.parse(context.params["types"] ?? "null");
    const wanted = Array.isArray(told) ? known.filter((one) => told.includes(one)).slice(0, MOST) : [];
    return wanted.length ? wanted : [...first];
  } catch {
    return [...first];
  }
}

function typeBoxes(context: Context, types: readonly ShapeType[], chosen: readonly string[], left_out: number): HTMLElement {
  const choose = (type: string, on: boolean): void => {
    const next = on ? [...chosen, type] : chosen.filter((one) => one !== type);
    context.visit({ types: next.length ? JSON.stringify(next.slice(-MOST)) : null });
  };
  const list = h("div", { class: "type-boxes" });
  const fill = (text: string): void => {
    const matching = types.filter((one) => one.type.toLowerCase().includes(text.toLowerCase()));
    replace(
      list,
      matching.slice(0, 200).map((one) => {
        const box = h("input", {
          type: "checkbox",
          checked: chosen.includes(one.type),
          onchange: () => choose(one.type, box.checked),
        });
        return h(
          "label",
          null,
          box,
          format.shorten(one.type, 120),
          h(
            "span",
            { class: "note" },
            ` ${format.count(one.count)} × · ${format.time(one.total_ns)}${one.shapes === null ? "" : ` · ${t("shapes.shapes", { count: format.count(one.shapes) })}`}`,
          ),
        );
      }),
      matching.length > 200 || left_out
        ? h("p", { class: "note" }, t("rest", { count: format.count(Math.max(matching.length - 200, 0) + left_out) }))
        : null,
    );
  };
  const search = h("input", {
    type: "search",
    "aria-label": t("shapes.find"),
    placeholder: t("shapes.find"),
    autocomplete: "off",
    oninput: () => fill(search.value),
  });
  fill("");
  return h(
    "details",
    { class: "drop" },
    h("summary", null, t("shapes.types", { chosen: chosen.length, count: types.length })),
    h("div", { class: "drop-list" }, search, list, h("p", { class: "note" }, t("shapes.most", { count: MOST }))),
  );
}

function seriesChart(context: Context, series: readonly ShapeSeries[]): HTMLElement {
  const steps = series[0]?.step ?? [];
  return chart(
    {
      label: t("shapes.series"),
      height: 280,
      option: (colours) => ({
        grid: { left: 70, right: 20, top: 30, bottom: 40 },
        legend: { type: "scroll", top: 0 },
        dataZoom: [{ type: "inside" }, { type: "slider", height: 14, bottom: 2 }],
        xAxis: nameAxis(colours, steps, { boundaryGap: false }),
        yAxis: valueAxis(colours, format.time),
        tooltip: {
          trigger: "axis",
          formatter: (hovered: { dataIndex: number; seriesIndex: number; color: string }[]) =>
            tip(
              `${t("step")} ${steps[hovered[0]?.dataIndex ?? 0] ?? ""}`,
              hovered.map((one) => {
                const mine = series[one.seriesIndex]!;
                const shapes = mine.shapes[one.dataIndex];
                return {
                  colour: one.color,
                  name: format.shorten(mine.type, 60),
                  value: `${format.time(mine.average_ns[one.dataIndex]!)} · ${mine.count[one.dataIndex]} ×${shapes == null ? "" : ` · ${t("shapes.shapes", { count: shapes })}`}`,
                };
              }),
            ),
        },
        series: series.map((one, place) => ({
          type: "line",
          name: format.shorten(one.type, 80),
          color: colours.series[place],
          showSymbol: steps.length < 80,
          symbolSize: 6,
          data: one.average_ns,
        })),
      }),
    },
    context.signal,
  );
}

function scatterCard(context: Context, found: ShapeRuns, chosen: readonly string[], name: string): HTMLElement {
  const shown = h("div", { "aria-live": "polite" }, h("p", { class: "note" }, t("shapes.click")));
  const runs = chosen.map((type) => found.runs.filter((one) => one.type === type));
  const pick = (series: number, place: number): void => {
    const one = runs[series]?.[place];
    if (!one) return;
    try {
      replace(shown, runDetails(one));
    } catch (error) {
      replace(shown, problemBox(error));
    }
  };
  const input = h("input", {
    type: "search",
    value: name,
    "aria-label": t("shapes.name"),
    placeholder: t("shapes.name"),
    autocomplete: "off",
  });
  return card(
    t("shapes.runs"),
    [
      h(
        "form",
        {
          class: "controls",
          onsubmit: (event: Event) => (event.preventDefault(), context.visit({ name: input.value.trim() || null })),
        },
        input,
        h("button", { type: "submit" }, t("table.filter")),
        h(
          "span",
          { class: "note" },
          t("shapes.of", { shown: format.count(found.runs.length), total: format.count(found.total) }),
        ),
      ),
      chart(
        {
          label: t("shapes.runs"),
          height: 320,
          onPick: ({ seriesIndex, dataIndex }) => pick(seriesIndex, dataIndex),
          option: (colours) => ({
            grid: { left: 70, right: 20, top: 30, bottom: 40 },
            legend: { type: "scroll", top: 0 },
            dataZoom: [{ type: "inside" }, { type: "slider", height: 14, bottom: 2 }],
            xAxis: valueAxis(colours, format.count, { min: "dataMin", max: "dataMax", minInterval: 1 }),
            yAxis: valueAxis(colours, format.time),
            tooltip: {
              formatter: (one: { seriesIndex: number; dataIndex: number; color: string }) => {
                const run = runs[one.seriesIndex]![one.dataIndex]!;
                return tip(format.shorten(run.name, 100), [
                  { colour: one.color, name: `${t("step")} ${run.step}`, value: format.time(run.duration_ns) },
                  { name: t("shapes.of_run"), value: format.shorten(run.shapes ?? format.NOTHING, 60) },
                ]);
              },
            },
            series: runs.map((mine, place) => ({
              type: "scatter",
              name: format.shorten(chosen[place]!, 80),
              color: colours.series[place],
              symbolSize: 8,
              cursor: "pointer",
              data: mine.map((one) => [one.step, one.duration_ns]),
            })),
          }),
        },
        context.signal,
      ),
      shown,
    ],
    { wide: true },
  );
}

function runDetails(one: ShapeRuns["runs"][number]): Child {
  return smallTable(
    t("shapes.runs"),
    [t("step"), t("shapes.type"), t("shapes.operator"), t("time"), t("shapes.of_run")],
    [[String(one.step), one.type, one.name, format.time(one.duration_ns), h("code", null, one.shapes ?? format.NOTHING)]],
    [3],
  );
}
