import { describe, expect, test } from "vitest";

import type { Rank } from "../src/api/types";
import { hasLongerLink } from "../src/pages/communication/link_views";
import { phaseDifferences } from "../src/pages/ranks/differences";
import { heatClass } from "../src/pages/ranks/heat_map";
import { layered } from "../src/pages/strategy/graph_layout";
import { cuts, scopesAround } from "../src/pages/strategy/strategy_graph";
import { cellText } from "../src/tables/table_row";

const edge = (source: string, destination: string): { source: string; destination: string } => ({ source, destination });

/** The longest path to every node of a graph without cycles, by trying all. */
function longest(node: string, edges: readonly { source: string; destination: string }[]): number {
  return Math.max(0, ...edges.filter((one) => one.destination === node).map((one) => longest(one.source, edges) + 1));
}

/** Numbers that look random and are the same every time. */
function* numbers(seed: number): Generator<number> {
  for (let value = seed; ;) yield (value = (value * 1103515245 + 12345) % 2147483648) / 2147483648;
}

describe("the layered layout", () => {
  test("puts every node behind all that lead to it, as far as the longest path", () => {
    for (let seed = 1; seed < 30; seed++) {
      const random = numbers(seed);
      const next = (): number => random.next().value as number;
      const nodes = Array.from({ length: 2 + Math.floor(next() * 12) }, (_, place) => `n${place}`);
      const edges = nodes.flatMap((one, place) =>
        nodes
          .slice(place + 1)
          .filter(() => next() < 0.3)
          .map((other) => edge(one, other)),
      );
      const places = layered(nodes, edges);
      for (const node of nodes) expect(places.get(node)!.layer).toBe(longest(node, edges));
      const seen = new Set([...places.values()].map((one) => `${one.layer}/${one.order}`));
      expect(seen.size).toBe(nodes.length);
    }
  });

  test("turns edges round that close a cycle, and keeps what it does not know", () => {
    const places = layered(["a", "b", "c"], [edge("a", "b"), edge("b", "c"), edge("c", "a"), edge("c", "c"), edge("x", "a")]);
    expect(["a", "b", "c"].map((one) => places.get(one)!.layer)).toEqual([0, 1, 2]);
    expect(places.size).toBe(3);
    expect(layered([], []).size).toBe(0);
  });

  test("lays neighbours beside each other", () => {
    const places = layered(["a", "b", "p", "q"], [edge("a", "q"), edge("b", "p")]);
    const [a, b, p, q] = ["a", "b", "p", "q"].map((one) => places.get(one)!.order);
    expect(a! < b!).toBe(q! < p!);
  });

  test("is quick for a thousand nodes", () => {
    const nodes = Array.from({ length: 1000 }, (_, place) => `n${place}`);
    const edges = nodes.slice(1).flatMap((one, place) => [edge(nodes[place]!, one), edge(nodes[Math.floor(place / 2)]!, one)]);
    const places = layered(nodes, edges);
    expect(places.get("n999")!.layer).toBe(999);
  });
});

describe("heat maps", () => {
  test("a class is the lower edge, and one of everything belongs to the uppermost", () => {
    expect([0, 0.05, 0.1, 0.325, 0.99998777, 1].map((share) => heatClass(share, 0.1))).toEqual([0, 0, 0.1, 0.3, 0.9, 0.9]);
    expect([0.325, 0.3, 1].map((share) => heatClass(share, 0.05))).toEqual([0.3, 0.3, 0.95]);
    expect([0.325, 0.58, 1].map((share) => heatClass(share, 0.02))).toEqual([0.32, 0.58, 0.98]);
  });
});

describe("strategies", () => {
  test("are told in parts per dimension", () => {
    expect(cuts("[[2, 1, 1, 1], [1, 1]]")).toBe("2×1×1×1 | 1×1");
    expect(cuts("[[], [4]]")).toBe("– | 4");
    expect(cuts("anything")).toBe("anything");
  });

  test("an operator lies in the scopes of its path", () => {
    expect(scopesAround("Default/network/layer0")).toEqual(["Default", "Default/network", "Default/network/layer0"]);
    expect(scopesAround("")).toEqual([]);
  });
});

describe("what a late rank does more than the others", () => {
  const rank = (number: number, parts: Record<string, number>, device_kind = "CPU"): Rank =>
    ({ rank: number, step_ns: 100, device_kind, parts }) as unknown as Rank;

  test("is told by phases, the largest first, without what only waits", () => {
    const ranks = [
      rank(0, { data_wait_ns: 40, forward_ns: 12, backward_ns: 30, gradient_sync_ns: 20, device_wait_ns: 9 }),
      rank(1, { data_wait_ns: 2, forward_ns: 10, backward_ns: 50, gradient_sync_ns: 45, device_wait_ns: 1 }),
      rank(2, { data_wait_ns: 4, forward_ns: 14, backward_ns: 60, gradient_sync_ns: 53, device_wait_ns: 1 }),
    ];
    expect(phaseDifferences(0, ranks)).toEqual([
      { name: "data_wait", ns: 40, others_ns: 3 },
      { name: "backward", ns: 10, others_ns: 6 },
    ]);
    expect(phaseDifferences(0, ranks.slice(0, 1))).toEqual([]);
  });

  test("is work of a device of its own, too", () => {
    const ranks = [rank(0, { computing_ns: 9 }, "CUDA"), rank(1, { computing_ns: 4 }, "CUDA")];
    expect(phaseDifferences(0, ranks)).toEqual([{ name: "computing", ns: 9, others_ns: 4 }]);
  });

  test("has words in tables, and not the name of a column", () => {
    expect(cellText("data_wait_ns", { name: "differs", type: "text", unit: "" })).toBe("Data loading");
    expect(cellText("data_wait_ns", { name: "name", type: "text", unit: "" })).toBe("data_wait_ns");
  });
});

describe("links beside what their ranks transfer", () => {
  const costs = [
    { rank: 0, transfer_ns: 5, measured_by: "library" },
    { rank: 1, transfer_ns: null, measured_by: null },
    { rank: 2, transfer_ns: 1, measured_by: "arrival" },
  ] as const;
  const link = (source: number, destination: number, time_ns: number) => ({ source, destination, time_ns });

  test("are longer only where the library measured both", () => {
    expect(hasLongerLink(costs, [link(0, 1, 5), link(1, 2, 9), link(7, 8, 9)])).toBe(false);
    expect(hasLongerLink(costs, [link(0, 1, 6)])).toBe(true);
    // measured by its other end
    expect(hasLongerLink(costs, [link(3, 0, 6)])).toBe(true);
    expect(hasLongerLink([], [link(0, 1, 6)])).toBe(false);
  });
});
