import { readFileSync } from "node:fs";
import { resolve } from "node:path";

import { describe, expect, test } from "vitest";

import { pieces } from "../src/ui/prose";

const root = resolve(import.meta.dirname, "../..");
const read = (path: string): string => readFileSync(resolve(root, path), "utf8");
const words = (text: string): { text: string; code: boolean } => ({ text, code: false });
const code = (text: string): { text: string; code: boolean } => ({ text, code: true });

describe("sentences with code", () => {
  test("have it between backticks", () => {
    expect(pieces("Run it on every rank (no `if rank == 0`), then `a`.")).toEqual([
      words("Run it on every rank (no "),
      code("if rank == 0"),
      words("), then "),
      code("a"),
      words("."),
    ]);
    expect(pieces("`all of it`")).toEqual([code("all of it")]);
    expect(pieces("none")).toEqual([words("none")]);
    expect(pieces("")).toEqual([]);
  });

  test("keep a backtick that has no second one", () => {
    expect(pieces("a folder named a`b")).toEqual([words("a folder named a`b")]);
    expect(pieces("`one` and a`b")).toEqual([code("one"), words(" and a`b")]);
    expect(pieces("over\n`two\nlines`")).toEqual([words("over\n`two\nlines`")]);
  });

  test.each(["src/steplens/advice/words/en.json", "src/steplens/advice/words/zh.json", "src/steplens/trace/words/zh.json"])(
    "of %s leave no backtick behind",
    (path) => {
      const texts = [...read(path).matchAll(/"((?:[^"\\]|\\.)*)"/g)].map((one) => JSON.parse(`"${one[1]}"`) as string);
      const marked = texts.filter((one) => one.includes("`"));
      expect(marked.length).toBeGreaterThan(0);
      expect(marked.flatMap(pieces).filter((one) => one.text.includes("`"))).toEqual([]);
    },
  );
});
