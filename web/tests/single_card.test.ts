import { describe, expect, test } from "vitest";

import type { FlopNode, MemoryOverview, Operation, Place, StepFigures, Verdict } from "../src/api/types";
import { points } from "../src/charts/bucket_chart";
import { boxes, waitedWords } from "../src/charts/pipeline_flow";
import { stepsOf } from "../src/charts/step_trace_card";
import { memoryMarks } from "../src/pages/memory/memory_marks";
import { pathOf, topOf } from "../src/pages/operators/flops_card";
import { loadingWords } from "../src/pages/overview/loading";
import { layout } from "../src/pages/pipeline/graph";
import { slowestWords } from "../src/pages/pipeline/slowest";
import { quantile } from "../src/pages/steps/summary";
import {
  deviceBase,
  hostBase,
  meanAndMedian,
  meanLength,
  meanOf,
  meanOfEach,
  meanWord,
  medianWord,
  shareOfSteps,
  titleOfMean,
  whichParts,
} from "../src/ui/step_means";
import { isHostBound } from "../src/ui/verdict_words";

const operation = (id: number, parent: number | null, children: number[]): Operation => ({
  operation: `Map_${id}`,
  id,
  type: "Map",
  workers: 1,
  parent,
  children,
  queue_capacity: 8,
  mean_size: 4,
  usage: 0.5,
  empty_share: 0,
});
const place = (kind: Place["kind"], empty: number, batches: number): Place => ({
  kind,
  batches,
  empty,
  not_empty: batches - empty,
  full: null,
  capacity: null,
  mean_size: 1,
  costs: { wait_ns: 5 },
});

describe("the slowest operation of a data pipeline", () => {
  const operations = [operation(0, null, [1]), operation(1, 0, [])];

  test("is named as the server names it", () => {
    expect(slowestWords({ operations, bottlenecks: [1], keeps_up: false })).toBe(
      "Map_1 is the bottleneck: its queue is 50 % full on average.",
    );
    expect(slowestWords({ operations, bottlenecks: [0, 1], keeps_up: false })).toMatch(/^Map_0 is .*\. Map_1 is .*\.$/);
    const last = { ...operations[0]!, usage: null };
    expect(slowestWords({ operations: [last, operations[1]!], bottlenecks: [0], keeps_up: false })).toBe(
      "Map_0 is the bottleneck.",
    );
  });

  test("is none where batches wait for the training, or no queue tells", () => {
    expect(slowestWords({ operations, bottlenecks: [], keeps_up: true })).toMatch(/keeps up/);
    expect(slowestWords({ operations, bottlenecks: [], keeps_up: false })).toMatch(/no operation/);
    const untold = operations.map((one) => ({ ...one, usage: null }));
    expect(slowestWords({ operations: untold, bottlenecks: [], keeps_up: false })).toBe("");
    expect(slowestWords({ operations: [], bottlenecks: [], keeps_up: false })).toBe("");
  });
});

describe("the graph of a data pipeline", () => {
  const tree = [
    operation(0, null, [1, 4]),
    operation(1, 0, [2, 3]),
    operation(4, 0, []),
    operation(2, 1, []),
    operation(3, 1, []),
  ];

  test("lets data flow to the right, and no two operations overlap", () => {
    const { placed, width, height } = layout(tree);
    expect(placed.size).toBe(tree.length);
    for (const one of tree) {
      const mine = placed.get(one.id)!;
      expect(mine.x).toBeLessThan(width);
      expect(mine.y).toBeLessThan(height);
      if (one.parent !== null) expect(mine.x).toBeLessThan(placed.get(one.parent)!.x);
    }
    const spots = [...placed.values()].map((one) => `${one.x},${one.y}`);
    expect(new Set(spots).size).toBe(spots.length);
  });

  test("has every operation of several trees, and of one whose parent is missing", () => {
    expect(layout([operation(0, null, []), operation(7, 99, []), operation(8, null, [])]).placed.size).toBe(3);
    expect(layout([]).placed.size).toBe(0);
  });
});

describe("the way of a batch", () => {
  test("has all five places when the device has a queue", () => {
    const shown = boxes([place("iterate", 0, 2), place("send", 3, 4), place("receive", 0, 4)]);
    expect(shown.map((one) => one.id)).toEqual(["processing", "host", "transfer", "device", "get_next"]);
    // three of four batches found the host's queue empty, none the device's
    expect(shown.map((one) => one.state)).toEqual([undefined, "empty", undefined, "good", undefined]);
  });

  test("ends in the training loop without a device's queue, and says no more than was recorded", () => {
    expect(boxes([place("iterate", 0, 2)]).map((one) => one.id)).toEqual(["processing", "host", "loop"]);
    expect(boxes([]).map((one) => one.id)).toEqual(["processing", "loop"]);
  });

  test("tells a loop's whole wait for a batch and what it consists of, as the steps count it", () => {
    const of = (costs: Record<string, number>, more: Partial<Place> = {}): string[] =>
      boxes([{ ...place("iterate", 0, 9), capacity: 4, costs, ...more }]).at(-1)!.lines;
    const [whole, ...parts] = of({ get_ns: 24e6, total_ns: 24e6, wait_ns: 66_910 });
    expect(whole).toContain("24 ms");
    expect(parts.join(" ")).toMatch(/66\.91 .s until .* 23\.93 ms to receive/);
    // waited for nobody, because nobody makes batches ahead: not "0 ns"
    const alone = { batches: 0, empty: 0, not_empty: 0, capacity: null, mean_size: null };
    const lines = of({ get_ns: 34e6, total_ns: 34e6, wait_ns: 0 }, alone);
    expect(lines[0]).toContain("34 ms");
    expect(lines.join(" ")).not.toContain("0 ns");
    expect(lines[1]).toContain("no workers");
    // MindSpore's iterator does not tell how long it waited
    expect(of({ total_ns: 5e6 }, alone)).toHaveLength(1);
  });

  test("tells steps that waited from those whose batch was ready", () => {
    const waiting = { steps: [3, 5, 6], of: 5, wait_ns: 64e6, ready_ns: 150e3, since: null };
    expect(waitedWords(waiting)).toMatch(/^3 of these 5 steps wait, .*: 64 ms on average.* \(150 .s on average/);
    expect(waitedWords({ ...waiting, steps: [3] })).toMatch(/^1 of these 5 steps waits, .*: 64 ms\./);
    expect(waitedWords({ ...waiting, since: 3 })).toMatch(/^From step 3 on every step waits: 64 ms on average/);
    // all alike: the mean of all says it
    expect(waitedWords(null)).toBe("");
  });

  test("calls a queue whose sizes are unknown neither empty nor full", () => {
    const [, host] = boxes([{ ...place("iterate", 0, 0), mean_size: null }]);
    expect(host!.lines).toHaveLength(1);
  });
});

test("buckets keep both extremes and end with their last value", () => {
  const curve = { name: "", unit: "", mean: null, place: [0, 10], min: [1, 4], max: [9, 4], last: [3, 4] };
  expect(points(curve)).toEqual([
    [0, 9],
    [0, 1],
    [0, 3],
    [10, 4],
  ]);
});

test("a scope is told with everything around it", () => {
  const node = (id: number, parent: number | null, name: string): FlopNode => ({
    id,
    parent,
    depth: id,
    name,
    flops: 1,
    percent: 1,
    operators: 1,
  });
  const nodes = [node(0, null, "Total"), node(1, 0, "net"), node(2, 1, "conv")];
  expect(pathOf(nodes, nodes[2]!)).toBe("net / conv");
  expect(pathOf(nodes, nodes[0]!)).toBe("Total");
  // "net" is the last that holds more than an operator
  expect(topOf(nodes)).toBe(1);
  expect(topOf([...nodes, node(3, 0, "head")])).toBe(0);
});

describe("marks on the curve of memory", () => {
  const device = (number: number) => ({
    device_type: "CUDA",
    device: number,
    capacity_bytes: 10 + number,
    static_bytes: 1,
    peak_bytes: 5,
    peak_ns: 150,
    peak_step: 2,
    allocations: 1,
    releases: 1,
  });
  const step = (id: number) => ({
    step: id,
    start_ns: id * 100 - 100,
    forward_ns: id * 100 - 90,
    backward_ns: id * 100 - 20,
    end_ns: id * 100,
  });
  const found: MemoryOverview = { devices: [device(0), device(1)], steps: [step(1), step(2)] };

  test("are those of the device and of the step at the moment", () => {
    expect(memoryMarks(found, "CUDA 1 PTA", 30)).toEqual({ capacity_bytes: 11, static_bytes: 1, step: found.steps[0] });
  });

  test("are those of the step with the peak where no step has the moment", () => {
    expect(memoryMarks(found, "CUDA 0", 1e6).step).toBe(found.steps[1]);
    expect(memoryMarks(found, "NPU 0", null)).toEqual({ capacity_bytes: null, static_bytes: null, step: null });
  });
});

describe("the time that a step loads data", () => {
  const of = (rank: number, ms: number, itself = false) => ({ name: `Rank ${rank}`, ns: ms * 1e6, step_ns: 50e6, itself });

  test("is that of the rank which loads the longest, never a mean over ranks", () => {
    expect(loadingWords([of(0, 36), of(1, 2)])).toBe("Rank 0 waits 36 ms per step for data (72 %); Rank 1: 2 ms.");
    expect(loadingWords([of(3, 36), of(0, 5), of(1, 4), of(2, 2)])).toContain("; the others 2 ms to 5 ms.");
  });

  test("is no wait where the loop loads its data itself", () => {
    expect(loadingWords([{ ...of(0, 36), mean: " (mean)" }])).toBe("The training waits 36 ms (mean) per step for data (72 %).");
    expect(loadingWords([of(0, 36, true)])).toBe("The training loop spends 36 ms per step on loading its data itself (72 %).");
    expect(loadingWords([of(0, 36, true), of(1, 2, true)])).not.toContain("waits");
  });

  test("is a mean of the usual steps, and a share of their mean length", () => {
    const figures = {
      ...{ differs: "", host_mean_ns: 28.17e6, device_mean_ns: 28.17e6, step_mean_ns: 28.17e6, step_time_ns: 27.87e6 },
      ...{ usual: [3, 4, 5, 7], usual_on_device: [3, 4, 5, 7], usual_steps: 4, steps: 5, ranks: 1 },
      ...{ chosen: [3, 4, 5, 6, 7], outliers: [6] },
    };
    expect(meanOf(figures)).toBe("mean of steps 3–5, 7");
    expect(meanOf({ ...figures, ranks: 2, usual_steps: 8, steps: 8 })).toBe("mean of steps 3–5, 7 on 2 ranks");
    // the median has an outlier that the means have not
    expect(whichParts({ ...figures, sentence: "median of steps 3-7" } as StepFigures)).toBe(
      "Parts: mean of steps 3–5, 7; step time: median of steps 3–7. Outliers (6) count in the step time (a median), not in the parts (means).",
    );
    // of steps without parts the length is known
    expect(titleOfMean({ ...figures, usual: [], usual_on_device: [] })).toBe("Mean of steps 3–5, 7");
    expect(meanOf({ ...figures, ranks: 2, usual: [3], usual_steps: 2, steps: 2 })).toBe("mean of step 3 on 2 ranks");
    // parts of some of the usual steps are as long as these
    expect([meanLength(figures), meanLength({ ...figures, usual: [3], host_mean_ns: 20e6 })]).toEqual([28.17e6, 20e6]);
    // one rank leaves out a step that the other does not
    expect(meanOf({ ...figures, ranks: 2, usual_steps: 9, steps: 10 })).toBe("mean of 9 of 10 steps on 2 ranks");
    expect(shareOfSteps(figures, 13.1e6)).toBe("mean of steps 3–5, 7; 46.5 % of the mean step of 28.17 ms.");
    // of a single step both are the same
    expect(meanOf({ ...figures, usual: [3] })).toBe("step 3");
    expect(shareOfSteps({ ...figures, usual: [3] }, 12.96e6)).toBeNull();
    // where host and device differ, shares are of the step, as in the verdict
    const cut = { ...figures, differs: "cut window", device_mean_ns: 20e6 };
    expect([hostBase(cut), deviceBase(cut), deviceBase(figures)]).toEqual([28.17e6, 28.17e6, 28.17e6]);
    expect(meanAndMedian(28.17e6, 27.87e6)).toBe("");
    expect(meanAndMedian(47.26e6, 41.65e6)).toBe(" Mean 47.26 ms, median 41.65 ms: the parts add up to the mean.");
    expect(meanAndMedian(null, 41.65e6)).toBe("");
    // what is of each rank for itself, and a word behind a figure that stands alone
    const other = { ...figures, usual_on_device: [3, 4] };
    expect(meanOfEach([{ figures }, { figures }])).toBe("mean of steps 3–5, 7");
    expect(meanOfEach([{ figures }, { figures: other }])).toBe("mean of the steps of each rank, without outliers");
    expect(meanOfEach([{ figures: { ...figures, usual_on_device: [3] } }])).toBe("step 3");
    expect(meanOfEach([{ figures: { ...figures, chosen: [] } }])).toBe("");
    expect([meanWord(figures), meanWord({ ...figures, usual: [3] })]).toEqual([" (mean)", ""]);
    expect([medianWord(figures), medianWord({ steps: 1 })]).toEqual([" (median)", ""]);
  });
});

test("the table of parts has the means of the server in its first row, and quantiles between two values", () => {
  expect([0, 0.5, 0.9, 1].map((share) => quantile([1, 2, 4, 6], share))).toEqual([1, 3, expect.closeTo(5.4), 6]);
  expect(quantile([], 0.5)).toBeNull();
});

test("the interval of a first step is not known, and no 0", () => {
  const rows = [
    { step: 5, total_ns: 9, interval_ns: 0, tail_ns: 0 },
    { step: 6, total_ns: 9, interval_ns: 0, tail_ns: 1 },
  ];
  expect(stepsOf(rows).map((one) => [one["interval_ns"], one["tail_ns"]])).toEqual([
    [null, 0],
    [0, 1],
  ]);
});

test("operators open by the host's time where a device idles for the host, and nowhere else", () => {
  const of = (kind: string, of_device = true): Verdict => ({ kind, of_device }) as unknown as Verdict;
  expect(["host", "synchronizing"].every((kind) => isHostBound(of(kind)))).toBe(true);
  expect(["input", "rank", "compute", "communication", "idle"].some((kind) => isHostBound(of(kind)))).toBe(false);
  expect(isHostBound(of("host", false))).toBe(false);
});
