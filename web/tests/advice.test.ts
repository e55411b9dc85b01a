import { describe, expect, test } from "vitest";

import { togetherWords } from "../src/ui/ui";

const found = { step_ns: 100e6, together_ns: 30e6, likely_together_ns: 12e6, together: "bounded", at_stake: false } as const;

describe("what all findings save together", () => {
  test("is told as the server decided it from all of them", () => {
    expect(togetherWords({ ...found, together: "" })).toBe("");
    expect(togetherWords({ ...found, together: "overlap" })).toMatch(/overlap/);
    expect(togetherWords(found)).toBe(
      "All findings together save likely 12 ms (12 %), at most 30 ms (30 %); what overlaps is counted once.",
    );
    expect(togetherWords({ ...found, likely_together_ns: 30e6, at_stake: true })).toBe(
      "All findings together save at most 30 ms (30 %), without what is at stake; what overlaps is counted once.",
    );
  });
});
