import { describe, expect, test } from "vitest";

import { formatRoute, numberOf, parseRoute } from "../src/browser/route";
import { readState, writeState } from "../src/tables/table_state";

describe("the address", () => {
  test("keeps every parameter, whatever is in it", () => {
    const params = { rank: "3", find: "a&b=c#d?é <img>", "operators.where": '[{"column":"name","contains":"%"}]' };
    expect(parseRoute(formatRoute(2, "operators", params))).toEqual({ run: 2, page: "operators", params });
  });

  test("leaves out what has no value", () => {
    expect(formatRoute(0, "steps", { step: null, rank: undefined, find: "", at: 0 })).toBe("#/0/steps?at=0");
  });

  test.each(["", "#", "#/", "#//", "#/x/../../etc", "#/99999999999999/OPERATORS", "?%%%"])("has a page for %j", (hash) => {
    expect(parseRoute(hash)).toMatchObject({ run: 0, page: "overview" });
  });

  test("knows the earlier names of tables", () => {
    const kept = "#/0/operators?by=module&modules.where=%5B%5D&more=idle_causes&find=modules";
    expect(parseRoute(kept).params).toEqual({ by: "module", "operators_by_module.where": "[]", more: "idle", find: "modules" });
    expect(parseRoute("#/0/tables?table=runtime_calls").params).toEqual({ table: "api_calls" });
  });

  test("numbers are whole and not below 0", () => {
    expect(numberOf({ a: "12" }, "a")).toBe(12);
    for (const wrong of ["-1", "1e3", "", "x", "1.5"]) expect(numberOf({ a: wrong }, "a")).toBeNull();
    expect(numberOf({}, "a")).toBeNull();
  });
});

describe("the state of a table", () => {
  test("is what was written", () => {
    const state = {
      sort: [{ column: "self_ns", descending: true }],
      where: [{ column: "name", contains: "-x" }],
      all: true,
      columns: ["name", "self_ns"],
      widths: { name: 12.5 },
    };
    const written = writeState("operators", state) as Record<string, string>;
    expect(readState(written, "operators", [])).toEqual(state);
    expect(readState(written, "kernels", [{ column: "a", descending: false }])).toEqual({
      sort: [{ column: "a", descending: false }],
      where: [],
      all: false,
      columns: null,
      widths: {},
    });
    expect(readState({ "t.widths": "name:x,:3,calls,self_ns:7" }, "t", []).widths).toEqual({ self_ns: 7 });
  });

  test.each(["{", "null", "3", '"x"', '[1, null, {"contains": "x"}]'])("ignores the conditions %j", (text) => {
    expect(readState({ "t.where": text }, "t", []).where).toEqual([]);
  });
});
