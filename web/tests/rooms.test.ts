import { readFileSync, readdirSync, statSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";

import { describe, expect, test } from "vitest";

const source = resolve(import.meta.dirname, "../src");
/** each imports from itself and from what stands before it; those in one line may use each other */
const ORDER = [
  ["browser"],
  ["words"],
  ["api", "report"],
  ["ui"],
  ["timeline"],
  ["charts", "tables"],
  ["pages"],
  ["app"],
  ["main.ts"],
];
const MOST_FILES = 15;

const entries = readdirSync(source, { recursive: true, encoding: "utf8" });
const files = entries.filter((name) => name.endsWith(".ts") && !name.endsWith(".d.ts"));
const imported = new Map(files.map((file) => [file, importsOf(file)]));

/** The modules that a module imports, types included. */
function importsOf(file: string): string[] {
  const paths = [...readFileSync(join(source, file), "utf8").matchAll(/(?:from |import |import\()"(\.[^"]+)"/g)].map(
    (match) => match[1]!,
  );
  return paths.flatMap((path) => {
    const target = relative(source, resolve(source, dirname(file), path));
    return [`${target}.ts`, `${target}/index.ts`].filter((name) => files.includes(name));
  });
}

const layerOf = (file: string): number => ORDER.findIndex((rooms) => rooms.includes(file.split("/")[0]!));
const pageOf = (file: string): string => file.split("/").slice(0, 2).join("/");

describe("the rooms of the pages", () => {
  test("each has its place in the order", () => {
    expect(files.length).toBeGreaterThan(80);
    expect(files.filter((file) => layerOf(file) < 0)).toEqual([]);
  });

  test("import only from below, and a page never from another page", () => {
    const against = [...imported].flatMap(([file, targets]) =>
      targets
        .filter(
          (target) =>
            layerOf(target) > layerOf(file)
            || (file.startsWith("pages/")
              && file !== "pages/index.ts"
              && target.startsWith("pages/")
              && pageOf(target) !== pageOf(file)),
        )
        .map((target) => `${file} imports ${target}`),
    );
    expect(against).toEqual([]);
  });

  test("have no circle of imports", () => {
    const done = new Set<string>();
    const visit = (file: string, path: readonly string[]): string[] => {
      if (path.includes(file)) return [[...path.slice(path.indexOf(file)), file].join(" -> ")];
      if (done.has(file)) return [];
      const circles = imported.get(file)!.flatMap((target) => visit(target, [...path, file]));
      done.add(file);
      return circles;
    };
    expect(files.flatMap((file) => visit(file, []))).toEqual([]);
  });

  test(`hold ${MOST_FILES} files at most`, () => {
    const rooms = entries.filter((name) => statSync(join(source, name)).isDirectory());
    const filesIn = (room: string): number =>
      readdirSync(join(source, room), { withFileTypes: true }).filter((entry) => entry.isFile()).length;
    expect(rooms.filter((room) => filesIn(room) > MOST_FILES)).toEqual([]);
  });
});
