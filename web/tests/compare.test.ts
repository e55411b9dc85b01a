import { describe, expect, test } from "vitest";

import type { ComparedCall, ComparedPath, ComparedSide, StepChange } from "../src/api/types";
import { largestChanges, pathOf, widthOf } from "../src/pages/compare/call_flames";
import { changeColour, mixed } from "../src/pages/compare/change_colours";
import { intervalWords, othersWords, pathName, signedTime } from "../src/pages/compare/changes";
import { directionOf, marksOf, reachOf } from "../src/pages/compare/interval_bar";
import { changesBetween, scaleOf } from "../src/pages/compare/step_picture";
import { percentText, sideWords, verdictWords } from "../src/pages/compare/verdict";
import { placeBoxes } from "../src/timeline/flame_boxes";

const side = (step_ns: number | null, more: Partial<ComparedSide> = {}): ComparedSide => ({
  run: 0,
  path: "run",
  recordings: 1,
  steps: 12,
  step_ns,
  medians_ns: step_ns === null ? [] : [step_ns],
  spread: null,
  ranks: 1,
  devices: ["CPU"],
  peak_bytes: null,
  ...more,
});
const step = (ratio: number, low: number, high: number, verdict: StepChange["verdict"], runs_needed: number | null = null) => ({
  ratio,
  low,
  high,
  verdict,
  runs_needed,
  least_change: 0.02,
});
const both = { before: side(10e6), after: side(11e6) };

describe("the verdict on a step", () => {
  test("is the sentence of the terminal", () => {
    expect(verdictWords({ ...both, step: step(0.169, 0.131, 0.208, "slower") })).toBe(
      "A step is 16.9 % slower; the interval of 95 % is +13.1 % to +20.8 %.",
    );
    expect(verdictWords({ ...both, step: step(-0.05, -0.07, -0.03, "faster") })).toBe(
      "A step is 5.0 % faster; the interval of 95 % is -7.0 % to -3.0 %.",
    );
    expect(verdictWords({ ...both, step: step(0.001, -0.01, 0.012, "alike") })).toMatch(
      /^A step is as long as before, within 2 %/,
    );
  });

  test("says what it would take to tell", () => {
    const words = verdictWords({ ...both, step: step(0.082, -0.05, 0.23, "cannot tell", 12) });
    expect(words).toContain("To tell a change of 2.0 % takes about 12 recordings a side like these.");
    expect(verdictWords({ ...both, step: step(0.03, -0.5, 0.9, "cannot tell") })).toContain("A thousand recordings");
    expect(verdictWords({ before: side(null, { steps: 0 }), after: side(1, { steps: 2 }), step: null })).toBe(
      "Cannot tell whether a step became longer: too few steps (0 before, 2 after); 3 are the least.",
    );
  });

  test("has percentages with a sign", () => {
    expect([0.0123, -0.0123, 0.0001].map(percentText)).toEqual(["+1.2 %", "-1.2 %", "+0.0 %"]);
  });

  test("says of how much a side is", () => {
    expect(sideWords(side(1e6, { recordings: 5, steps: 1050, ranks: 8 }))).toBe(
      "typical step of 5 recordings (geometric mean of their medians) · 1,050 steps · 8 ranks · CPU",
    );
    expect(sideWords(side(1e6, { steps: 210 }))).toBe("median of 210 steps · CPU");
    expect(sideWords(side(null, { steps: 0 }))).toBe("no steps were recorded");
  });
});

describe("an interval", () => {
  test("is not of the causes that are only counted, as in the terminal", () => {
    expect(othersWords(17, 0)).toBe("17 more, which chance may explain");
    expect(othersWords(17, 2)).toBe("17 more, 2 of them beyond chance");
    expect(othersWords(17, null)).toBe("17 more");
  });

  test("says whether chance may explain a difference", () => {
    expect([directionOf(5, 4), directionOf(-5, 4), directionOf(5, 6), directionOf(5, null)]).toEqual([
      "grew",
      "shrank",
      "unsure",
      "unsure",
    ]);
  });

  test("lies around its difference, on the line of all", () => {
    const reach = reachOf([
      { difference_ns: 10, error_ns: 5 },
      { difference_ns: -5, error_ns: null },
    ]);
    expect(reach).toEqual({ least: -5, most: 15 });
    const { zero, low, at, high } = marksOf(10, 5, reach, 210);
    expect([zero, low, at, high]).toEqual([55, 105, 155, 205]);
    // without any difference there is a line all the same
    expect(marksOf(0, null, reachOf([]), 110)).toEqual({ zero: 5, low: 5, at: 5, high: 5 });
  });

  test("is told in words", () => {
    expect(intervalWords(2e6, 1e6)).toBe("+1 ms to +3 ms");
    expect(intervalWords(2e6, null)).toBe("too few steps to tell");
    expect([signedTime(0), signedTime(-1500)]).toEqual(["0", "-1.5 µs"]);
  });
});

describe("the picture of the step", () => {
  test("holds all steps, the interval and the changes of no interest", () => {
    const spread = { edges_ns: [9e6, 10e6, 12e6], counts: [3, 4], outside: 0 };
    const { start, end } = scaleOf({ before: side(10e6, { spread }), after: side(11e6), step: step(0.1, -0.3, 0.4, "slower") });
    expect(start).toBeLessThan(7e6);
    expect(end).toBeGreaterThan(14e6);
    expect(end - start).toBeLessThan(8e6);
    // a single step of no spread has a scale all the same
    const one = scaleOf({ before: side(5), after: side(5), step: null });
    expect(one.end).toBeGreaterThan(one.start);
  });

  test("has round marks, 0 among them", () => {
    expect(changesBetween(-0.023, 0.21, 700)).toEqual([0, 0.05, 0.1, 0.15000000000000002, 0.2]);
    expect(changesBetween(-0.4, 3, 350)).toEqual([0, 1, 2, 3]);
    // a mark at the edge is moved inwards, and shall not touch the one beside it
    expect(changesBetween(-0.3, 2.22, 1000)).toEqual([0, 0.5, 1, 1.5, 2]);
  });
});

const call = (name: string, parent: number, before_ns: number, after_ns: number, own = 0): ComparedCall => ({
  name,
  parent,
  module: "",
  before_calls: 1,
  after_calls: 1,
  before_ns,
  after_ns,
  before_self_ns: 0,
  after_self_ns: own,
});

describe("flame graphs of two sides", () => {
  const nodes = [
    call("step", -1, 100, 120),
    call("linear", 0, 60, 90, 5),
    call("mm", 1, 50, 80, 30),
    call("gone", 0, 20, 0, -20),
  ];
  const parents = nodes.map((node) => node.parent);

  test("place boxes below one another, as wide as their share", () => {
    const sizes = nodes.map((node) => node.before_ns);
    expect(placeBoxes(parents, sizes, -1, 200)).toEqual([
      { place: 0, left: 0, share: 0.5, depth: 0 },
      { place: 1, left: 0, share: 0.3, depth: 1 },
      { place: 2, left: 0, share: 0.25, depth: 2 },
      { place: 3, left: 0.3, share: 0.1, depth: 1 },
    ]);
    // one of them fills the width, and what has no time there is not drawn
    const after = nodes.map((node) => node.after_ns);
    expect(placeBoxes(parents, after, 1, 90).map((one) => [one.place, one.depth])).toEqual([
      [1, 0],
      [2, 1],
    ]);
    expect(placeBoxes(parents, after, 3, 0)).toEqual([]);
  });

  test("are as wide as the side that has the calls", () => {
    const found = { nodes, before_ns: 100, after_ns: 120 };
    expect([widthOf(found, -1, "after"), widthOf(found, 1, "before"), widthOf(found, 3, "after")]).toEqual([
      "after",
      "before",
      "before",
    ]);
  });

  test("have a table of the largest changes of calls themselves", () => {
    expect(largestChanges(nodes)).toEqual([2, 3, 1]);
    expect(pathOf(nodes, 2)).toEqual(["step", "linear", "mm"]);
  });

  test("are red where time grew and blue where it shrank", () => {
    const colours = { grew: "#ff0000", shrank: "#0000ff", unchanged: "#808080" };
    expect([changeColour(8, 8, colours), changeColour(-8, 8, colours), changeColour(0, 8, colours)]).toEqual([
      "#ff0000",
      "#0000ff",
      "#808080",
    ]);
    expect(changeColour(0, 0, colours)).toBe("#808080");
    expect(mixed("#000", "#ffffff", 0.5)).toBe("#808080");
  });
});

test("a call path is named by its last operator, and by more where that would not tell", () => {
  const row = (path: string, module = ""): ComparedPath => ({
    path,
    name: path.split(" > ").at(-1)!,
    module,
    before_ns: 1,
    after_ns: 2,
    difference_ns: 1,
    before_launched_by: "",
    after_launched_by: "",
  });
  const rows = [row("a > b > mm"), row("a > c > mm"), row("a > add", "layer.0")];
  expect(rows.map((one) => pathName(one, rows))).toEqual(["b > mm", "c > mm", "layer.0: add"]);
});
