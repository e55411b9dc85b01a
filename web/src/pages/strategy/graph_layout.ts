/** A layered layout of a directed graph: every edge leads to a later layer, and neighbours lie near each other. */

export interface Placed {
  /** from 0, in the direction of the edges */
  layer: number;
  /** within the layer, from 0 */
  order: number;
}

const SWEEPS = 6;

/**
 * Places nodes in layers.
 *
 * 1. Edges that close a cycle, met by a depth-first walk in the order of the nodes, count the other way round.
 * 2. A node's layer is the length of the longest path to it.
 * 3. Some sweeps up and down order each layer by the mean place of its neighbours in the layer before.
 *
 * Takes time in proportion to nodes and edges (times the sweeps and the logarithm of a layer).
 */
export function layered(
  nodes: readonly string[],
  edges: readonly { source: string; destination: string }[],
): Map<string, Placed> {
  const known = new Set(nodes);
  const real = edges.filter((one) => known.has(one.source) && known.has(one.destination) && one.source !== one.destination);
  const forward = withoutCycles(nodes, real);
  const [next, before] = [neighbours(forward, "source", "destination"), neighbours(forward, "destination", "source")];
  const layers = longestPaths(nodes, next, before);
  const rows: string[][] = [];
  for (const node of nodes) (rows[layers.get(node)!] ??= []).push(node);
  const order = new Map<string, number>();
  const number = (row: readonly string[]): void => row.forEach((node, place) => order.set(node, place));
  rows.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    const sides = down ? before : next;
    const turns = rows.map((_, place) => (down ? place : rows.length - 1 - place));
    for (const turn of turns) {
      const row = rows[turn]!;
      const centre = new Map(
        row.map((node) => [node, mean((sides.get(node) ?? []).map((other) => order.get(other)!)) ?? order.get(node)!]),
      );
      row.sort((one, other) => centre.get(one)! - centre.get(other)! || order.get(one)! - order.get(other)!);
      number(row);
    }
  }
  return new Map(nodes.map((node) => [node, { layer: layers.get(node)!, order: order.get(node)! }]));
}

type Edge = readonly [source: string, destination: string];

function withoutCycles(
  nodes: readonly string[],
  edges: readonly { source: string; destination: string }[],
): { source: string; destination: string }[] {
  const next = neighbours(edges, "source", "destination");
  const state = new Map<string, "open" | "done">();
  const back = new Set<string>();
  const key = ([source, destination]: Edge): string => JSON.stringify([source, destination]);
  for (const root of nodes) {
    if (state.has(root)) continue;
    const stack: { node: string; place: number }[] = [{ node: root, place: 0 }];
    state.set(root, "open");
    while (stack.length) {
      const top = stack[stack.length - 1]!;
      const target = next.get(top.node)?.[top.place++];
      if (target === undefined) {
        state.set(top.node, "done");
        stack.pop();
      } else if (state.get(target) === "open") back.add(key([top.node, target]));
      else if (!state.has(target)) {
        state.set(target, "open");
        stack.push({ node: target, place: 0 });
      }
    }
  }
  return edges.map((one) =>
    back.has(key([one.source, one.destination])) ? { source: one.destination, destination: one.source } : one,
  );
}

function neighbours(
  edges: readonly { source: string; destination: string }[],
  from: "source" | "destination",
  to: "source" | "destination",
): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const one of edges) {
    const list = found.get(one[from]);
    if (list) list.push(one[to]);
    else found.set(one[from], [one[to]]);
  }
  return found;
}

function longestPaths(
  nodes: readonly string[],
  next: ReadonlyMap<string, readonly string[]>,
  before: ReadonlyMap<string, readonly string[]>,
): Map<string, number> {
  const layers = new Map<string, number>(nodes.map((node) => [node, 0]));
  const waiting = new Map(nodes.map((node) => [node, before.get(node)?.length ?? 0]));
  const ready = nodes.filter((node) => waiting.get(node) === 0);
  for (let place = 0; place < ready.length; place++) {
    const node = ready[place]!;
    for (const target of next.get(node) ?? []) {
      layers.set(target, Math.max(layers.get(target)!, layers.get(node)! + 1));
      const left = waiting.get(target)! - 1;
      waiting.set(target, left);
      if (left === 0) ready.push(target);
    }
  }
  return layers;
}

const mean = (values: readonly number[]): number | null =>
  values.length ? values.reduce((sum, one) => sum + one, 0) / values.length : null;
