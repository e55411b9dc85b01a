import { expect, test } from "vitest";

import type { HealthFinding } from "../src/api/types";
import { alike } from "../src/pages/health/health";

const finding = (group: number, count: number, source: string): HealthFinding => ({
  check: "unmatched_launches",
  severity: "info",
  count,
  message: `${count} of 425 ends of arrows`,
  texts: {},
  unsafe: [],
  source,
  group,
});

test("findings of several traces that the server calls one are one row, the one with the most events first", () => {
  const found = [finding(0, 4, "a"), finding(1, 9, "a"), finding(0, 5, "b"), finding(0, 5, "c")];
  const rows = alike(found).map((group) => group.map((one) => `${one.source}${one.count}`));
  expect(rows).toEqual([["b5", "c5", "a4"], ["a9"]]);
});
