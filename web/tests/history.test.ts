import { describe, expect, test } from "vitest";

import type { AlignedStep, FigureHistory, HistoryChange, StepPart } from "../src/api/types";
import { mostMoved, sectionsOf, stepsNote } from "../src/pages/compare/aligned_steps";
import { aroundChange, chartNote, figureName } from "../src/pages/history/history";
import { moved, valueMarks, valueRange } from "../src/pages/history/history_chart";

const change = (more: Partial<HistoryChange> = {}): HistoryChange => ({
  version: 4,
  earliest: 3,
  latest: 5,
  ratio: 0.1,
  low: 0.08,
  high: 0.12,
  lasts: true,
  ...more,
});
const history = (values: number[], halves: number, versions = values.map((_, place) => place)): FigureHistory => ({
  figure: "step",
  unit: "ns",
  versions,
  values,
  low: values.map((value) => value - halves),
  high: values.map((value) => value + halves),
  levels: [],
  changes: [],
});

describe("the chart of a history", () => {
  test("shows all values with room around them, and not every end of an interval", () => {
    const [low, high] = valueRange(history([100, 101, 99, 120], 2));
    expect(low).toBeLessThan(99);
    expect(high).toBeGreaterThan(120);
    const [least, most] = valueRange(history([100, 101, 99, 100], 500));
    expect(least).toBeGreaterThan(80);
    expect(most).toBeLessThan(120);
    const [from, to] = valueRange(history([0, 0, 0], 0));
    expect(from).toBe(0);
    expect(to).toBe(0);
  });

  test("has round marks inside of its axis", () => {
    expect(valueMarks([15.2, 20.9])).toEqual([16, 18, 20]);
    expect(valueMarks([0, 0])).toEqual([0]);
    for (const mark of valueMarks([983, 1017])) expect(mark >= 983 && mark <= 1017 && mark % 10 === 0).toBe(true);
  });

  test("says how large a change is, and that it may not last", () => {
    expect(moved(change())).toMatch(/^\+10\s%$/);
    expect(moved(change({ ratio: -0.05, lasts: false }))).toMatch(/^-5\s% \?$/);
    expect(moved(change({ ratio: null }))).toBe("new");
  });

  test("explains what is drawn, and nothing else", () => {
    const steady = history([100, 101, 99, 100], 1);
    expect(chartNote(steady)).toContain("The two bars below it mark the versions that are chosen for comparing");
    expect(chartNote(steady)).not.toMatch(/shaded|arrow/);
    expect(chartNote({ ...steady, changes: [change()] })).toContain("A shaded stretch says");
    expect(chartNote({ ...steady, changes: [change({ earliest: 4, latest: 4 })] })).not.toContain("shaded");
    expect(chartNote({ ...steady, high: [100, 900, 99, 100] })).toContain("An arrow at the edge says");
  });

  test("compares versions that surely have both levels", () => {
    expect(aroundChange(history([1, 1, 1, 1, 2, 2, 2], 0), change())).toEqual([2, 5]);
    expect(aroundChange(history([1, 1, 2, 2], 0, [0, 2, 4, 6]), change({ earliest: 4, latest: 4 }))).toEqual([2, 4]);
  });

  test("calls figures as the other pages do", () => {
    expect(figureName("operators.aten::mm")).toBe("aten::mm");
    expect([figureName("step"), figureName("forward"), figureName("memory_peak")]).toEqual([
      "Step time",
      "Forward",
      "Memory peak",
    ]);
  });
});

describe("two steps on one axis", () => {
  const part = (name: string, start_ns: number, end_ns: number, match: number, kind = "call", thread = 0): StepPart => ({
    kind,
    thread,
    name,
    start_ns,
    end_ns,
    callers: [],
    match,
  });
  const step = (run: number, parts: StepPart[]): AlignedStep => ({
    run,
    trace: 0,
    recording: "a_run",
    recordings: 1,
    step: 5,
    start_ns: 0,
    length_ns: 100,
    parts,
  });
  const before = step(0, [part("forward", 0, 50, 0, "phase"), part("mm", 0, 20, 1), part("relu", 20, 25, -1)]);
  const after = step(1, [
    part("forward", 0, 90, 0, "phase"),
    part("mm", 0, 70, 1),
    part("gelu", 70, 80, -1),
    part("x", 0, 9, -1, "call", 1),
  ]);

  test("have a section for each kind and thread, phases first", () => {
    expect(sectionsOf(before, after).map(({ kind, thread }) => `${kind} ${thread}`)).toEqual(["phase 0", "call 0", "call 1"]);
  });

  test("say of which recording they are where there are several", () => {
    expect(stepsNote(before, after)).not.toContain("a_run");
    expect(stepsNote({ ...before, recordings: 10 }, after)).toMatch(/ The step before is of a_run: of 10 recordings the one /);
    expect(stepsNote(before, { ...after, recordings: 3 })).toMatch(/ The step after is of a_run: of 3 recordings the one /);
  });

  test("tell what differs the most, and what one has alone", () => {
    const rows = mostMoved(before, after, "call").map((pair) => [(pair.before ?? pair.after)!.name, pair.difference]);
    expect(rows).toEqual([
      ["mm", 50],
      ["gelu", 10],
      ["x", 9],
      ["relu", -5],
    ]);
  });

  test("tell many short calls of one name together", () => {
    const many = Array.from({ length: 30 }, (_, place) => part("item", 90 + place, 91 + place, -1));
    const rows = mostMoved(before, step(1, [...after.parts, ...many]), "call").map((pair) => [
      (pair.before ?? pair.after)!.name,
      pair.difference,
      pair.count,
    ]);
    expect(rows.slice(0, 3)).toEqual([
      ["mm", 50, 1],
      ["item", 30, 30],
      ["gelu", 10, 1],
    ]);
  });
});
