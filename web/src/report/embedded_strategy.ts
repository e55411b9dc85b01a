/** The parallel strategy of a report: graphs with the scopes that are open, single operators, and a search, as the server answers. */

import type { StrategyEdge, StrategyGraph, StrategyHits, StrategyNode, StrategyOperator } from "../api/types";
import { Refused } from "../api/refused";
import type { Query } from "./questions";

type Name = "node" | "name" | "type" | "scope" | "role" | "output_shape" | "output_type" | "strategy" | "attributes";
/** A part `strategy/RUN/STAGE`: the operators of a stage as columns, in the order of the graph. */
export type Operators = Record<Name, string[]> & Record<"inputs" | "groups", string[][]> & { ranks: number[][] };

/** nodes of a graph, hits of a search and outputs of an operator that one answer has */
const [NODES, HITS, OUTPUTS] = [300, 50, 1000];

export const STRATEGY = { graph, operator, find } as const;

/** The merged graph; a closed scope stands for its operators. */
function graph(held: Operators, query: Query): StrategyGraph {
  const open = new Set(listOf(query["expanded"]));
  const nodes = new Map<string, StrategyNode>();
  const ids = held.node.map((node, at) => closedScope(held.scope[at]!, open) ?? `#${node}`);
  ids.forEach((id, at) => {
    const found = nodes.get(id) ?? madeOf(held, id, at);
    nodes.set(id, found);
    found.operators++;
    found.redistributions += Number(held.role[at] === "redistribution");
    found.gradient_aggregations += Number(held.role[at] === "gradient_aggregation");
    found.with_strategy += Number(held.strategy[at] !== "");
  });
  const every = [...nodes.values()];
  const shown = every.slice(0, Number(query["most"] ?? NODES));
  const left_out = every.slice(shown.length).reduce((sum, one) => sum + one.operators, 0);
  return { nodes: shown, edges: edgesOf(held, ids, new Set(shown.map((one) => one.id))), left_out };
}

/** The outermost closed scope around an operator; null where all are open. */
function closedScope(scope: string, open: ReadonlySet<string>): string | null {
  let path = "";
  for (const part of scope ? scope.split("/") : []) {
    path = path ? `${path}/${part}` : part;
    if (!open.has(path)) return path;
  }
  return null;
}

function madeOf(held: Operators, id: string, at: number): StrategyNode {
  const counts = { operators: 0, redistributions: 0, gradient_aggregations: 0, with_strategy: 0 };
  if (id.startsWith("#")) {
    const [name, scope, type, role, strategy] = (["name", "scope", "type", "role", "strategy"] as const).map(
      (column) => held[column][at]!,
    ) as [string, string, string, string, string];
    return { id, kind: "operator", name, scope, type, role, strategy, ...counts };
  }
  const end = id.lastIndexOf("/");
  return {
    id,
    kind: "scope",
    name: id.slice(end + 1),
    scope: end < 0 ? "" : id.slice(0, end),
    type: "",
    role: "",
    strategy: "",
    ...counts,
  };
}

function edgesOf(held: Operators, ids: readonly string[], kept: ReadonlySet<string>): StrategyEdge[] {
  const place = new Map(held.node.map((node, at) => [node, ids[at]!]));
  const edges = new Map<string, StrategyEdge>();
  ids.forEach((destination, at) => {
    for (const input of held.inputs[at]!) {
      const source = place.get(input);
      if (source === undefined || source === destination || !kept.has(source) || !kept.has(destination)) continue;
      const key = JSON.stringify([source, destination]);
      const found = edges.get(key) ?? { source, destination, count: 0 };
      edges.set(key, found);
      found.count++;
    }
  });
  return [...edges.values()];
}

function operator(held: Operators, query: Query): StrategyOperator {
  const wanted = String(query["node"] ?? "");
  const at = held.node.indexOf(wanted);
  if (at < 0)
    throw new Refused(404, { problem: `the stage has no operator '${wanted.slice(0, 64)}'`, where: "node", remedy: "" });
  const ends = (is: (place: number) => boolean): { node: string; name: string }[] =>
    held.node.flatMap((node, place) => (is(place) ? [{ node, name: held.name[place]! }] : []));
  const inputs = new Set(held.inputs[at]);
  const text = held.strategy[at]!;
  return {
    ...(Object.fromEntries(
      (["node", "name", "type", "scope", "role", "output_type", "output_shape"] as const).map((column) => [
        column,
        held[column][at]!,
      ]),
    ) as Record<"node" | "name" | "type" | "scope" | "role" | "output_type" | "output_shape", string>),
    groups: held.groups[at]!,
    ranks: held.ranks[at]!,
    strategy: text ? (JSON.parse(text) as number[][]) : null,
    inputs: ends((place) => inputs.has(held.node[place]!)),
    outputs: ends((place) => held.inputs[place]!.includes(wanted)).slice(0, OUTPUTS),
    attributes: JSON.parse(held.attributes[at]! || "{}") as Record<string, string>,
  };
}

function find(held: Operators, query: Query): StrategyHits {
  const wanted = String(query["text"] ?? "").toLowerCase();
  const hits = held.node.flatMap((node, at) => {
    const one = { node, name: held.name[at]!, type: held.type[at]!, scope: held.scope[at]! };
    return one.name.toLowerCase().includes(wanted) || one.type.toLowerCase().includes(wanted) ? [one] : [];
  });
  return { hits: hits.slice(0, Number(query["limit"] ?? HITS)), matching: hits.length };
}

const listOf = (value: Query[string]): readonly string[] =>
  Array.isArray(value) ? (value as readonly string[]) : value === null || value === undefined ? [] : [String(value)];
