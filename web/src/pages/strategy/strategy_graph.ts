/** The graph of a pipeline stage: closed scopes and operators in layers, with strategies, redistributions and gradient aggregations. */

import type { StrategyGraph, StrategyNode } from "../../api/types";
import { layered } from "./graph_layout";
import { svg, type Child } from "../../ui/dom";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

const [WIDTH, HEIGHT] = [190, 46];
const [ACROSS, DOWN] = [70, 18];
const MARGIN = 10;
const LETTERS = 26;

/** The drawing; `onPick` is told of a click on a node, or Enter. */
export function strategyGraph(
  found: StrategyGraph,
  chosen: string,
  label: string,
  onPick: (node: StrategyNode) => void,
): SVGElement {
  const places = layered(
    found.nodes.map((one) => one.id),
    found.edges,
  );
  const x = (id: string): number => MARGIN + places.get(id)!.layer * (WIDTH + ACROSS);
  const y = (id: string): number => MARGIN + places.get(id)!.order * (HEIGHT + DOWN);
  const width = Math.max(0, ...found.nodes.map((one) => x(one.id) + WIDTH)) + MARGIN;
  const height = Math.max(0, ...found.nodes.map((one) => y(one.id) + HEIGHT)) + MARGIN;
  const edge = (source: string, destination: string, count: number): SVGElement => {
    const back = x(destination) <= x(source);
    const [fromX, fromY] = [x(source) + (back ? 0 : WIDTH), y(source) + HEIGHT / 2];
    const [toX, toY] = [x(destination) + (back ? WIDTH : 0), y(destination) + HEIGHT / 2];
    const half = (toX - fromX) / 2;
    return svg(
      "path",
      {
        class: back ? "strategy-edge back" : "strategy-edge",
        d: `M${fromX},${fromY} C${fromX + half},${fromY} ${toX - half},${toY} ${toX},${toY}`,
        "stroke-width": Math.min(1 + Math.log2(count), 6),
        "marker-end": "url(#strategy-arrow)",
      },
      svg("title", null, t("strategy.connections", { count: format.count(count) })),
    );
  };
  return svg(
    "svg",
    { class: "strategy-graph", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label },
    svg(
      "defs",
      null,
      svg(
        "marker",
        {
          id: "strategy-arrow",
          viewBox: "0 0 8 8",
          refX: 7,
          refY: 4,
          markerWidth: 7,
          markerHeight: 7,
          markerUnits: "userSpaceOnUse",
          orient: "auto",
        },
        svg("path", { d: "M0,0 L8,4 L0,8 z" }),
      ),
    ),
    found.edges.map((one) => edge(one.source, one.destination, one.count)),
    found.nodes.map((one) => node(one, x(one.id), y(one.id), one.id === chosen, onPick)),
  );
}

function node(one: StrategyNode, x: number, y: number, chosen: boolean, onPick: (node: StrategyNode) => void): SVGElement {
  const act = (): void => onPick(one);
  const title = one.kind === "scope" ? one.name : one.type || one.name;
  const role = one.role ? named("value", `strategy.${one.role}`, one.role) : "";
  const below =
    one.kind === "scope"
      ? t("strategy.inside", { count: format.count(one.operators) })
      : one.strategy
        ? cuts(one.strategy)
        : role;
  const kind = `strategy-node ${one.kind}${one.role ? ` ${one.role.replaceAll("_", "-")}` : ""}${one.with_strategy ? " with-strategy" : ""}${chosen ? " chosen" : ""}`;
  const counts =
    one.kind === "scope"
      ? [
          one.redistributions ? `${named("value", "strategy.redistribution")}: ${format.count(one.redistributions)}` : "",
          one.gradient_aggregations
            ? `${named("value", "strategy.gradient_aggregation")}: ${format.count(one.gradient_aggregations)}`
            : "",
        ]
      : [role];
  const said = [one.kind === "scope" ? one.id : one.name, below, ...counts].filter((text) => text).join(" · ");
  const marks: Child =
    one.kind === "scope"
      ? [
          one.redistributions ? svg("circle", { class: "redistribution", cx: x + WIDTH - 10, cy: y + 10, r: 4 }) : null,
          one.gradient_aggregations
            ? svg("circle", { class: "gradient-aggregation", cx: x + WIDTH - 22, cy: y + 10, r: 4 })
            : null,
        ]
      : null;
  return svg(
    "g",
    {
      class: kind,
      tabindex: 0,
      role: "button",
      "data-node": one.id,
      onclick: act,
      onkeydown: (event: KeyboardEvent) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        act();
      },
    },
    svg("title", null, said),
    svg("rect", { x, y, width: WIDTH, height: HEIGHT, rx: one.kind === "scope" ? 10 : 3 }),
    svg("text", { x: x + 10, y: y + 19 }, `${one.kind === "scope" ? "+ " : ""}${format.shorten(title, LETTERS)}`),
    svg("text", { class: "small-text", x: x + 10, y: y + 36 }, format.shorten(below, LETTERS + 6)),
    marks,
  );
}

/** `[[2,1],[1,1]]` -> "2×1 | 1×1": into how many parts each dimension of each input is cut. */
export function cuts(strategy: string): string {
  try {
    const inputs = JSON.parse(strategy) as unknown;
    if (!Array.isArray(inputs)) return strategy;
    return inputs.map((one) => (Array.isArray(one) ? (one.length ? one.join("×") : "–") : String(one))).join(" | ");
  } catch {
    return strategy;
  }
}

/** Paths of all scopes around an operator, the outermost first. */
export function scopesAround(scope: string): string[] {
  const parts = scope ? scope.split("/") : [];
  return parts.map((_, place) => parts.slice(0, place + 1).join("/"));
}
