/** The parallel strategy: the pipeline's stages, the graph of one, and everything about one of its operators. */

import type { StrategyGraph, StrategyNode, StrategyOperator, Stages } from "../../api/types";
import { numberOf } from "../../browser/route";
import { h, replace, type Child } from "../../ui/dom";
import type { Context, Page } from "../../ui/page";
import { card, choice, grid, nothing, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";
import { scopesAround, strategyGraph } from "./strategy_graph";

const MOST_NODES = 300;

export const strategy: Page = {
  id: "strategy",
  title: "page.strategy",
  async show(context) {
    const found = await context.api.get("strategy");
    if (!found.stages.length) return nothing(t("strategy.none"), t("strategy.none.why"));
    const stage = numberOf(context.params, "stage") ?? found.stages[0]!.stage;
    const expanded = expandedOf(context);
    const panel = h("div", { class: "strategy-panel", role: "status" });
    const chosen = context.params["node"] ?? "";
    const [graph, operator] = await Promise.all([
      context.api.get("strategy/graph", { stage, expanded, most: MOST_NODES }),
      chosen ? context.api.get("strategy/operator", { stage, node: chosen }).catch(() => null) : null,
    ]);
    replace(panel, operator ? operatorPanel(context, operator) : h("p", { class: "note" }, t("strategy.pick")));
    return grid(
      pipelineCard(context, found, stage),
      card(
        `${t("strategy.graph")}: ${t("stage.n", { number: stage })}`,
        [
          h("div", { class: "controls" }, stageChoice(context, found, stage), searchBox(context, stage)),
          openScopes(context, expanded),
          legend(),
          graphBox(context, graph, expanded, chosen),
        ],
        { wide: true, note: t("strategy.graph.what") },
      ),
      card(t("strategy.operator"), panel, { wide: true }),
    );
  },
};

/** Scopes that are open, in the address as a JSON list. */
function expandedOf(context: Context): string[] {
  try {
    const listed = JSON.parse(context.params["open"] ?? "[]") as unknown;
    return Array.isArray(listed) ? listed.filter((one): one is string => typeof one === "string").slice(0, 200) : [];
  } catch {
    return [];
  }
}

const keep = (expanded: readonly string[]): string | null => (expanded.length ? JSON.stringify(expanded) : null);

function pipelineCard(context: Context, found: Stages, stage: number): Child {
  const boxes = found.stages.map((one, place) => [
    place ? h("span", { class: "stage-arrow", "aria-hidden": "true" }, "→") : null,
    h(
      "a",
      {
        class: "stage-box",
        href: context.to("strategy", { stage: one.stage }),
        "aria-current": one.stage === stage ? "true" : null,
      },
      h("strong", null, t("stage.n", { number: one.stage })),
      h("span", null, `${t("ranks")}: ${shortRanks(one.ranks)}`),
      h(
        "span",
        { class: "note" },
        t("strategy.counts", { operators: format.count(one.operators), cut: format.count(one.with_strategy) }),
      ),
      h(
        "span",
        { class: "note" },
        t("strategy.roles", {
          redistributions: format.count(one.redistributions),
          aggregations: format.count(one.gradient_aggregations),
        }),
      ),
      one.recorded < one.ranks.length
        ? h("span", { class: "note" }, t("strategy.recorded", { recorded: one.recorded, ranks: one.ranks.length }))
        : null,
    ),
  ]);
  const pairs = found.transfers.map((one) => [
    `${one.source} → ${one.destination}`,
    one.tag,
    format.shorten(one.send, 90),
    format.shorten(one.receive, 90),
  ]);
  return card(
    t("strategy.pipeline"),
    [
      h("div", { class: "stages" }, boxes),
      pairs.length
        ? smallTable(t("strategy.transfers"), [t("stage"), t("strategy.tag"), t("strategy.send"), t("strategy.receive")], pairs)
        : null,
    ],
    { wide: true, note: t("strategy.type", { type: found.parallel_type || format.NOTHING }) },
  );
}

function shortRanks(ranks: readonly number[]): string {
  return ranks.length > 12 ? `${ranks.slice(0, 12).join(", ")} … (${ranks.length})` : ranks.join(", ");
}

function stageChoice(context: Context, found: Stages, stage: number): HTMLElement | null {
  if (found.stages.length < 2) return null;
  return choice(
    t("stage"),
    found.stages.map((one): [string, string] => [String(one.stage), t("stage.n", { number: one.stage })]),
    String(stage),
    (value) => context.visit({ stage: value, open: null, node: null }),
  );
}

/** Finds operators by name or type; picking one opens the scopes around it. */
function searchBox(context: Context, stage: number): HTMLElement {
  const input = h("input", { type: "search", placeholder: t("strategy.search"), "aria-label": t("strategy.search") });
  const hits = h("ul", { class: "strategy-hits", role: "status" });
  const ask = async (event: Event): Promise<void> => {
    event.preventDefault();
    const text = input.value.trim();
    if (!text) return replace(hits);
    const found = await context.api.get("strategy/find", { stage, text, limit: 20 });
    replace(
      hits,
      found.hits.length ? null : h("li", null, t("search.nothing")),
      found.hits.map((one) =>
        h(
          "li",
          null,
          h(
            "a",
            { href: context.to("strategy", { stage, node: one.node, open: keep(scopesAround(one.scope)) }) },
            format.shorten(one.name, 100),
          ),
          h("span", { class: "note" }, ` ${one.type}`),
        ),
      ),
      found.matching > found.hits.length
        ? h("li", { class: "note" }, t("rest", { count: format.count(found.matching - found.hits.length) }))
        : null,
    );
  };
  return h(
    "form",
    { class: "strategy-search", role: "search", "aria-label": t("strategy.find"), onsubmit: (event: Event) => void ask(event) },
    input,
    h("button", { type: "submit" }, t("strategy.find")),
    hits,
  );
}

function openScopes(context: Context, expanded: readonly string[]): Child {
  if (!expanded.length) return null;
  const close = (scope: string): string | null => keep(expanded.filter((one) => one !== scope && !one.startsWith(`${scope}/`)));
  return h(
    "div",
    { class: "controls" },
    h("span", { class: "note" }, t("strategy.open")),
    expanded.map((scope) =>
      h(
        "button",
        {
          type: "button",
          class: "chip",
          "data-close": scope,
          "aria-label": `${t("strategy.close")}: ${scope}`,
          onclick: () => context.visit({ open: close(scope) }),
        },
        `${format.shorten(scope, 60)} ✕`,
      ),
    ),
  );
}

function legend(): Child {
  const item = (kind: string, text: string): Child => h("li", null, h("span", { class: `swatch strategy-${kind}` }), text);
  return h(
    "ul",
    { class: "legend" },
    item("scope", t("strategy.scope")),
    item("cut", t("strategy.cut")),
    item("redistribution", named("value", "strategy.redistribution")),
    item("gradient-aggregation", named("value", "strategy.gradient_aggregation")),
  );
}

function graphBox(context: Context, graph: StrategyGraph, expanded: readonly string[], chosen: string): Child {
  const pick = (node: StrategyNode): void => {
    if (node.kind === "scope") context.visit({ open: keep([...expanded, node.id]) });
    else context.visit({ node: node.id.slice(1) });
  };
  return [
    h(
      "div",
      { class: "strategy-scroll", tabindex: 0, role: "region", "aria-label": t("strategy.graph") },
      strategyGraph(graph, chosen ? `#${chosen}` : "", t("strategy.graph"), pick),
    ),
    graph.left_out ? h("p", { class: "note" }, t("strategy.left_out", { count: format.count(graph.left_out) })) : null,
  ];
}

function operatorPanel(context: Context, one: StrategyOperator): Child {
  const here = (node: string): string => context.to("strategy", { ...context.params, node });
  const ends = (list: StrategyOperator["inputs"]): Child =>
    list.length
      ? h(
          "ul",
          null,
          list.slice(0, 50).map((end) => h("li", null, h("a", { href: here(end.node) }, format.shorten(end.name, 100)))),
        )
      : format.NOTHING;
  const pair = (name: string, value: Child): Child => [h("dt", null, name), h("dd", null, value || format.NOTHING)];
  return [
    h("h3", null, one.name),
    h(
      "dl",
      { class: "pairs" },
      pair(t("strategy.kind"), one.type),
      pair(t("strategy.scope"), one.scope),
      pair(t("strategy.role"), one.role ? named("value", `strategy.${one.role}`, one.role) : ""),
      pair(t("ranks"), shortRanks(one.ranks)),
      pair(t("strategy.groups"), one.groups.join(", ")),
      pair(t("strategy.output"), [one.output_type, one.output_shape].filter((text) => text).join(" ")),
      pair(t("strategy.inputs"), ends(one.inputs)),
      pair(t("strategy.outputs"), ends(one.outputs)),
    ),
    one.strategy ? matrices(one.strategy) : null,
    h("h3", null, t("strategy.attributes")),
    Object.keys(one.attributes).length
      ? h(
          "dl",
          { class: "pairs" },
          Object.entries(one.attributes).map(([name, value]) => pair(name, h("code", null, value))),
        )
      : h("p", { class: "note" }, format.NOTHING),
  ];
}

/** Into how many parts each dimension of each input is cut. */
function matrices(strategy: readonly (readonly number[])[]): Child {
  const inputs = strategy.map((one) => (Array.isArray(one) ? one : [one as unknown as number]));
  const most = Math.max(...inputs.map((one) => one.length), 1);
  const heads = [t("strategy.input"), ...Array.from({ length: most }, (_, place) => t("strategy.dimension", { number: place }))];
  const rows = inputs.map((one, place) => [
    String(place),
    ...Array.from({ length: most }, (_, at) =>
      at < one.length ? h("span", { class: Number(one[at]) > 1 ? "cut" : "" }, String(one[at])) : "",
    ),
  ]);
  return [
    h("h3", null, t("strategy.matrix")),
    smallTable(t("strategy.matrix"), heads, rows, heads.map((_, place) => place).slice(1)),
  ];
}
