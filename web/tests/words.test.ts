import { readFileSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";

import { describe, expect, test } from "vitest";

import { CAUSES } from "../src/charts/idle_chart";
import en from "../src/words/en.json";
import zh from "../src/words/zh.json";

const source = resolve(import.meta.dirname, "../src");
const holes = (text: string): string[] => [...text.matchAll(/\{(\w+)\}/g)].map((one) => one[1]!).sort();
/** of tables, but no titles */
const CONTROLS = /^table\.(contains|at_)|\.one$/;
const code = readdirSync(source, { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".ts"))
  .map((name) => readFileSync(join(source, name), "utf8"))
  .join("\n");

describe("the catalogues", () => {
  test("have the same keys, none of them empty", () => {
    expect(Object.keys(zh).sort()).toEqual(Object.keys(en).sort());
    for (const text of [...Object.values(en), ...Object.values(zh)]) expect(text.trim()).not.toBe("");
  });

  test("fill in the same values", () => {
    for (const [key, text] of Object.entries(en)) expect(holes((zh as Record<string, string>)[key]!), key).toEqual(holes(text));
  });

  test("are given what they fill in", () => {
    const words = en as Record<string, string>;
    const bare = [...code.matchAll(/\bt\("([\w.]+)"\)/g)].map((one) => one[1]!);
    expect(bare.filter((key) => holes(words[key] ?? "").length > 0)).toEqual([]);
  });

  test("have no words that no page says", () => {
    // names of the server's tables, columns and parts are looked up by what the server says
    const looked_up =
      /^(table\.[a-z_]+|column\.|part\.|lane\.|value\.|level\.|theme\.|chart\.|shapes\.level\.|flops\.(treemap|sankey)$|pipeline\.(view|remedy)\.|processors\.(host|process)$|operators\.by\.|recorded\.|report\.(what|why)\.|kernels\.by\.|memory\.(allocated|reserved|active)$|table\.(contains|at_))/;
    // "rest.one" is what "rest" says of a single one
    const said = (key: string): boolean => code.includes(`"${key}"`);
    const unused = Object.keys(en).filter((key) => !looked_up.test(key) && !said(key) && !said(key.replace(/\.one$/, "")));
    expect(unused).toEqual([]);
  });

  test("have words for every cause of idle time, and no name that one page looks up with a space and another without", () => {
    const causes = Object.keys(CAUSES).map((cause) => `value.idle.${cause.replaceAll(" ", "_")}`);
    const keys = causes.flatMap((key) => [key, `${key}.what`, `${key}.why`]);
    expect(keys.filter((key) => !(key in en) || !(key in zh))).toEqual([]);
    // names of the server's conclusions and curves are looked up as they are
    const spaced = Object.keys(en).filter((key) => key.includes(" ") && !/^value\.(unsafe|series|heat\.of)\./.test(key));
    expect(spaced).toEqual([]);
  });

  test("have a heading for every check of the data and a word for every conclusion that the documentation lists", () => {
    const rows = readFileSync(resolve(source, "../../docs/health.md"), "utf8")
      .split("\n")
      .filter((line) => line.startsWith("| "));
    const checks = rows.flatMap((line) =>
      [...line.split("|")[1]!.matchAll(/`([a-z_]+)`/g)].map((one) => `value.check.${one[1]}`),
    );
    const first = rows.findIndex((line) => line.startsWith("| conclusion "));
    const conclusions = rows.slice(first + 1).map((line) => `value.unsafe.${line.split("|")[1]!.trim()}`);
    expect(checks.length).toBeGreaterThan(100);
    expect(conclusions.length).toBeGreaterThan(20);
    expect([...checks, ...conclusions].filter((key) => !(key in zh))).toEqual([]);
  });

  test("are told in Chinese characters", () => {
    const same = Object.entries(en).filter(
      ([key, text]) => (zh as Record<string, string>)[key] === text && /[a-z]{4}/.test(text),
    );
    expect(same.map(([key]) => key)).toEqual(["rank.n", "lane.python"]);
  });

  test("name figures and columns by words of the glossary, in both languages", () => {
    const rows = readFileSync(resolve(source, "../../docs/glossary.md"), "utf8")
      .split("\n")
      .filter((line) => line.startsWith("| "))
      .map((line) => line.split("|").map((cell) => cell.trim()));
    const terms = new Map(rows.flatMap((row) => row[1]!.split("; ").map((term) => [term, row[2]!.split("；")] as const)));
    for (const row of rows)
      expect(
        row.slice(3, 5).every((text) => /[.。…-]$/.test(text) || text.startsWith("Def") || text === "定义"),
        row[1],
      ).toBe(true);
    // words of everyday, which say what stands in a column
    const everyday = new Set(
      "Name,Device type,Start,End,Duration,Size,Time,Thread,Process,No.,Value,Unit,Call,Part,First,Last".split(","),
    );
    const stem = (title: string): string => title.replace(/,? (by|per) .*$|, as measured by the library$/, "");
    const labels = Object.entries(en).filter(
      ([key]) =>
        /^(page|menu|part|lane|column)\./.test(key)
        || (/^table\./.test(key)
          && !/^table\.(recorded|stored)_/.test(key)
          && !code.includes(`t("${key}"`)
          && !CONTROLS.test(key)),
    );
    expect(labels.length).toBeGreaterThan(300);
    const strange = labels.filter(([, text]) => !terms.has(text) && !terms.has(stem(text)) && !everyday.has(text));
    expect(strange).toEqual([]);
    const untranslated = labels.filter(
      ([key, text]) => terms.has(text) && !terms.get(text)!.includes((zh as Record<string, string>)[key]!),
    );
    expect(untranslated).toEqual([]);
  });
});
