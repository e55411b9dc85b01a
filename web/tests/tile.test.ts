import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { promisify } from "node:util";

import { describe, expect, test } from "vitest";

import { decode, itemAt } from "../src/api/tile";

const here = import.meta.dirname;
const own = resolve(here, "../../.venv/bin/python");
const python = process.env["STEPLENS_PYTHON"] ?? (existsSync(own) ? own : "python3");
// not the one that blocks: Vitest hears nothing of this file then, and waits a minute for an answer, no longer
const { stdout: output } = await promisify(execFile)(python, [resolve(here, "tile_of_server.py")], {
  encoding: "utf8",
  maxBuffer: 1 << 28,
});
const { document, bytes } = JSON.parse(output) as { document: Record<string, never>; bytes: string };
const buffer = Uint8Array.from(Buffer.from(bytes, "base64")).buffer;

describe("a tile that the server encoded", () => {
  const tile = decode(buffer);
  const told = document as unknown as {
    start_ns: number;
    end_ns: number;
    bucket_ns: number;
    items: number;
    events: number;
    rows: { lane: number; depth: number; first: number; count: number }[];
    names: Record<string, string>;
    columns: Record<string, number[]>;
  };

  test("has the columns of its JSON form", () => {
    expect([...tile.start]).toEqual(told.columns["start_ns"]);
    expect([...tile.end]).toEqual(told.columns["end_ns"]);
    expect([...tile.busy]).toEqual(told.columns["busy_ns"]);
    expect([...tile.event]).toEqual(told.columns["event"]);
    expect([...tile.name]).toEqual(told.columns["name"]);
    expect([...tile.count]).toEqual(told.columns["count"]);
  });

  test("has its header, rows and names", () => {
    expect([tile.start_ns, tile.end_ns, tile.bucket_ns, tile.items, tile.events]).toEqual([
      told.start_ns,
      told.end_ns,
      told.bucket_ns,
      told.items,
      told.events,
    ]);
    expect(tile.rows).toEqual(told.rows);
    expect(Object.fromEntries(tile.names)).toEqual(told.names);
    expect([...tile.names.values()]).toContain("卷积 <b>");
    for (const row of told.rows) expect(tile.byLane.get(row.lane)?.[row.depth]).toEqual(row);
  });

  test("counts merged events", () => {
    expect(tile.items).toBeLessThan(tile.events);
    expect(tile.count.reduce((sum, one) => sum + one, 0)).toBe(told.events);
  });

  test("finds the item at a time, as a search through all of them does", () => {
    for (const row of tile.rows.filter((one) => one.count)) {
      for (let time = 20_000; time < 150_000; time += 997) {
        const all = Array.from({ length: row.count }, (_, place) => row.first + place);
        const inside = all.filter((place) => tile.start[place]! <= time && time < tile.end[place]!);
        const found = itemAt(tile, row, time, 0);
        if (inside.length) expect(inside).toContain(found);
        else if (found >= 0) expect(tile.end[found]).toBe(time);
      }
    }
  });
});

test("bytes that are no tile are refused", () => {
  expect(() => decode(new TextEncoder().encode("<!doctype html>").buffer as ArrayBuffer)).toThrow(RangeError);
  expect(() => decode(new ArrayBuffer(0))).toThrow(RangeError);
});
