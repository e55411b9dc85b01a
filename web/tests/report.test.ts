import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { promisify } from "node:util";

import { describe, expect, test } from "vitest";

import type { TableQuery } from "../src/api/types";
import { Embedded } from "../src/report/embedded";
import { SHAPES } from "../src/report/embedded_shapes";
import { keyOf } from "../src/report/questions";

const here = import.meta.dirname;
const own = resolve(here, "../../.venv/bin/python");
const python = process.env["STEPLENS_PYTHON"] ?? (existsSync(own) ? own : "python3");
// not the one that blocks: Vitest hears nothing of this file then, and waits a minute for an answer, no longer
const { stdout: output } = await promisify(execFile)(python, [resolve(here, "report_of_server.py")], {
  encoding: "utf8",
  maxBuffer: 1 << 30,
});

interface Case {
  path: string;
  query: Record<string, string | number | boolean>;
  body: TableQuery | null;
  answer: Record<string, unknown>;
}
interface TileCase {
  query: Record<string, number>;
  answer: { events: number; columns: Record<string, number[]> };
}
const { parts, cases, tiles, events, bounds } = JSON.parse(output) as {
  parts: Record<string, string>;
  cases: Case[];
  tiles: TileCase[];
  events: number;
  bounds: [number, number];
};
const report = new Embedded((name) => parts[name] ?? null);

describe("a report whose window is the whole run", () => {
  test.each([...new Set(cases.map((one) => one.path.replace(/\d+$/, "N")))])("answers %s as the server does", async (path) => {
    const asked = cases.filter((one) => one.path.replace(/\d+$/, "N") === path);
    expect(asked.length).toBeGreaterThan(0);
    for (const { path: exact, query, body, answer } of asked) {
      const found = (await report.answer(exact, query, body ?? undefined)) as Record<string, unknown>;
      if (Array.isArray(answer)) {
        expect(found, JSON.stringify([exact, query])).toEqual(answer);
        continue;
      }
      // of a report alone: how much of a table it has, and what words a hit was found by
      const { kept: _kept, embedded: _embedded, partial: _partial, ...rest } = found;
      const hits = (rest["hits"] as Record<string, unknown>[] | undefined)?.map(({ words: _words, ...hit }) => hit);
      expect(hits ? { ...rest, hits } : rest, JSON.stringify([exact, query, body])).toEqual(answer);
    }
  });

  test("has every event in one item or box of a tile", async () => {
    const [start_ns, end] = bounds;
    for (const pixels of [10, 1000, 100_000, end]) {
      const tile = await report.tile(0, { start_ns, end_ns: end + 1, pixels });
      expect(tile.events).toBe(events);
    }
  });

  test("shows single events where the server does", async () => {
    for (const { query, answer } of tiles) {
      const tile = await report.tile(0, { ...query, pixels: 1e9 });
      const single = new Set([...tile.event].filter((_, place) => tile.count[place] === 1));
      answer.columns["event"]!.forEach((event, place) => {
        const inside =
          answer.columns["end_ns"]![place]! > query["start_ns"]! && answer.columns["start_ns"]![place]! < query["end_ns"]!;
        if (answer.columns["count"]![place] === 1 && inside) expect(single).toContain(event);
      });
    }
  });
});

test("what is not there is refused with a remedy", async () => {
  await expect(report.answer("runs/0/no/such", {})).rejects.toMatchObject({ status: 404 });
  await expect(report.answer("runs/0/tables/operators", {}, { where: [{ column: "nothing" }] })).rejects.toMatchObject({
    status: 422,
  });
  await expect(report.answer("runs/9/overview", {})).rejects.toMatchObject({ status: 404 });
});

test("of very many runs of operators it has the extremes, and tells how many there are", () => {
  const count = 10_000;
  const places = Array.from({ length: count }, (_, at) => at);
  const runs = {
    step: places,
    type: places.map(() => 0),
    duration_ns: places.map((at) => (at * 7919) % 1000),
    name: places.map(() => 0),
    name_texts: ["Add"],
    shapes: places.map(() => 0),
    shapes_texts: [null],
  };
  const held = { steps: [], types: [{ type: "Add", total: 5 * count, average_ns: [], count: [], shapes: [] }], runs };
  const found = SHAPES.runs(held, { types: ["Add"], points: 10 });
  expect(found.total).toBe(5 * count);
  expect(found.runs.length).toBe(10);
  expect(new Set(found.runs.map((one) => one.duration_ns))).toEqual(new Set([0, 999]));
  expect(SHAPES.runs(held, { types: ["Add"], name: "nothing" })).toEqual({ runs: [], total: 0 });
  expect(() => SHAPES.series(held, { types: ["Mul"] })).toThrow("no such type");
});

test("questions are told apart by what they ask, in any order of words", () => {
  const questions = { known: {}, defaults: { a: { sort: "rank" } }, how_much: ["points"], of_rows: ["offset"] };
  expect(keyOf("a", { z: 1, b: null, points: 5, offset: 2, sort: "rank", c: true }, questions)).toBe("a?c=true&z=1");
});
