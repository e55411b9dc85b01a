/** Which ranks a text means, what groups of ranks are, and what a picture of very many of them has at a place. */

import { describe, expect, it } from "vitest";

import type { SideBySide, StepsOfRanks } from "../src/api/types";
import { offers } from "../src/ui/rank_picker";
import { fewRanks, findRows, groupRows, groupings, largestRow, meanOfRows } from "../src/ui/rank_places";
import { farthest } from "../src/pages/ranks/rank_map";
import { cellAt, layOut, rangeOf, rowHeight, shade } from "../src/pages/ranks/strip_layout";

const RANKS = 64;
const ranks = Array.from({ length: RANKS }, (_, rank) => rank);
const found: SideBySide = {
  trace: ranks,
  rank: ranks,
  stage: ranks.map((rank) => (rank < 32 ? 1 : 2)),
  host: ranks.map((rank) => `node${String(Math.floor(rank / 8)).padStart(4, "0")}`),
  steps: ranks.map(() => 3),
  figures: {
    own_ns: ranks.map((rank) => (rank === 21 ? 500 : 100 + rank)),
    step_time_ns: ranks.map((rank) => (rank === 3 ? null : 1000)),
  },
  stages: 2,
  groups: [
    { name: "1", ranks: [0, 2, 4] },
    { name: "2", ranks: [1, 2, 63] },
  ],
};
const meant = (text: string): number[] => findRows(found, text).map((row) => found.rank[row]!);

describe("a text that means ranks", () => {
  it("is a number, and what begins with it or stands on a host of that number behind", () => {
    expect(meant("5")).toEqual(
      [5, 40, 41, 42, 43, 44, 45, 46, 47, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59].sort((a, b) =>
        a === 5 ? -1 : b === 5 ? 1 : a - b,
      ),
    );
    expect(meant("21")[0]).toBe(21);
  });
  it("names a rank, a host by number or name, or a stage", () => {
    expect(meant("rank 7")).toEqual([7]);
    expect(meant("host 3")).toEqual([24, 25, 26, 27, 28, 29, 30, 31]);
    expect(meant("NODE0003")).toEqual(meant("host 3"));
    expect(meant("stage 2")).toEqual(ranks.slice(32));
    expect(meant("stage 2, host 4")).toEqual(meant("host 4"));
    expect(meant("stage 1 host 4")).toEqual([]);
  });
  it("means all where it says nothing yet, and none where nothing is called so", () => {
    expect(meant("")).toHaveLength(RANKS);
    expect(meant("host")).toHaveLength(RANKS);
    expect(meant("elsewhere")).toEqual([]);
    expect(meant("rank 700")).toEqual([]);
  });
  it("is no text: the slowest are offered first", () => {
    expect(offers(found, "")[0]).toBe(21);
    expect(offers(found, " ")[1]).toBe(63);
    expect(offers(found, "rank 9")).toEqual([9]);
  });
});

describe("groups", () => {
  it("are by whatever tells ranks apart", () => {
    expect(groupings(found)).toEqual(["rank", "stage", "group", "host"]);
    expect(groupings({ ...found, stages: 1, groups: [], host: ranks.map(() => "") })).toEqual(["rank"]);
  });
  it("have every rank once, but for process groups", () => {
    for (const by of ["rank", "stage", "host"] as const)
      expect(groupRows(found, by, ranks).flatMap((one) => one.rows)).toEqual(ranks);
    expect(groupRows(found, "host", ranks)).toHaveLength(8);
    expect(groupRows(found, "group", [0, 1, 2])).toEqual([
      { name: "1", rows: [0, 2] },
      { name: "2", rows: [1, 2] },
    ]);
  });
  it("have means and a largest of what is known", () => {
    expect(meanOfRows([1, null, 3], [0, 1, 2])).toBe(2);
    expect(meanOfRows([null], [0])).toBeNull();
    expect(largestRow(found.figures["own_ns"]!, [20, 21, 22])).toBe(21);
    expect(largestRow([null, null], [0, 1])).toBeNull();
    expect(fewRanks([3, 1, 2])).toBe("1–3");
    expect(fewRanks([0, 32, 64, 96, 128])).toBe("0, 32, 64, 96 …");
  });
});

describe("the picture", () => {
  const layout = layOut([
    { name: "a", rows: [4, 5] },
    { name: "b", rows: [0, 1] },
  ]);
  it("has groups beside each other and every place one rank", () => {
    expect(layout.groups.map((one) => [one.first, one.count])).toEqual([
      [0, 2],
      [2, 2],
    ]);
    expect(cellAt(layout, 3, 10, 0, 0, 400)).toEqual({ row: 0, rank: 4 });
    expect(cellAt(layout, 3, 10, 399, 29, 400)).toEqual({ row: 2, rank: 1 });
    expect(cellAt(layout, 3, 10, 400, 29, 400)).toBeNull();
    expect(cellAt(layout, 3, 10, 10, 30, 400)).toBeNull();
    expect(rowHeight(3)).toBe(26);
    expect(rowHeight(200) * 200).toBeLessThanOrEqual(420);
  });
  it("has colours between its least and its most, and none for what hardly differs", () => {
    expect(shade(10, [0, 10], "#ffffff", "#000000")).toBe("rgb(0 0 0)");
    expect(shade(99, [0, 10], "#fff", "#000")).toBe("rgb(0 0 0)");
    expect(shade(0, [0, 10], "#ffffff", "#000000")).not.toBe("rgb(255 255 255)");
    expect(rangeOf([1, 2, null, 3])).toEqual([1, 3]);
    const [least, most] = rangeOf([1000, 1001]);
    expect(most - least).toBeCloseTo(20.02);
    expect(rangeOf([])).toEqual([0, 1]);
  });
  it("names the ranks that are farthest above the median of their steps", () => {
    const shown: StepsOfRanks = {
      metric: "own_ns",
      metrics: ["own_ns"],
      trace: [0, 1, 2],
      rank: [0, 1, 2],
      steps: [1, 2],
      last_steps: [1, 2],
      values: [
        [1, 1],
        [5, 7],
        [2, null],
      ],
      quantiles: [0, 0.5, 1],
      spread: [
        [1, 1],
        [2, 4],
        [5, 7],
      ],
    };
    expect(farthest(shown, 3)).toEqual([{ place: 1, above: 3 }]);
  });
});
