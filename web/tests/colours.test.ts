import { readFileSync } from "node:fs";

import { describe, expect, test } from "vitest";

import { PARTS, type Palette } from "../src/browser/theme";
import { sliceColours } from "../src/charts/share_chart";
import { changeColour } from "../src/pages/compare/change_colours";
import { Colours, contrast } from "../src/timeline/colours";

const css = readFileSync(new URL("../src/styles/style.css", import.meta.url), "utf8");

/** The colours of a rule of the style sheet; what the dark theme does not name it takes from the light one. */
function rule(selector: string): Record<string, string> {
  const at = css.indexOf(`${selector} {`);
  const text = css.slice(at, css.indexOf("}", at));
  return Object.fromEntries([...text.matchAll(/--([\w-]+):\s*(#[0-9a-f]{6})/g)].map((found) => [found[1]!, found[2]!]));
}

const light = rule(":root");
const themes = { light, dark: { ...light, ...rule(':root[data-theme="dark"]') } };
const GROUNDS = ["page", "surface", "hover", "mark"];

const paletteOf = (name: "light" | "dark"): Palette => {
  const read = (colour: string): string => themes[name][colour]!;
  return {
    dark: name === "dark",
    text: read("text"),
    faint: read("faint"),
    line: read("line"),
    surface: read("surface"),
    accent: read("accent"),
    grew: read("grew"),
    shrank: read("shrank"),
    unchanged: read("unchanged"),
    series: Array.from({ length: 20 }, (_, place) => read(`series-${place}`)),
    parts: Object.fromEntries(PARTS.map((part) => [part, read(`part-${part.replaceAll("_", "-")}`)])),
  };
};

/** Distance of two colours as they are seen: in OKLab, where 0 is the same and 1 black and white. */
function difference(one: string, other: string): number {
  const [left, right] = [oklab(one), oklab(other)];
  return Math.hypot(...left.map((value, axis) => value - right[axis]!));
}

function oklab(colour: string): number[] {
  const rgb = [1, 3, 5]
    .map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  const times = (rows: number[][], by: number[]): number[] =>
    rows.map((row) => row.reduce((sum, factor, place) => sum + factor * by[place]!, 0));
  const cones = times(
    [
      [0.4122214708, 0.5363325363, 0.0514459929],
      [0.2119034982, 0.6806995451, 0.1073969566],
      [0.0883024619, 0.2817188376, 0.6299787005],
    ],
    rgb,
  ).map(Math.cbrt);
  return times(
    [
      [0.2104542553, 0.793617785, -0.0040720468],
      [1.9779984951, -2.428592205, 0.4505937099],
      [0.0259040371, 0.7827717662, -0.808675766],
    ],
    cones,
  );
}

/** What protanopes, deuteranopes and tritanopes see of linear red, green and blue (Machado, Oliveira and Fernandes 2009). */
const DEFICIENCIES = [
  [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
  [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
  [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039],
];

function asSeen(colour: string, matrix: readonly number[] | null): string {
  if (!matrix) return colour;
  const rgb = [1, 3, 5]
    .map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return `#${[0, 1, 2]
    .map((row) => rgb.reduce((sum, part, place) => sum + part * matrix[row * 3 + place]!, 0))
    .map((part) => Math.min(Math.max(part, 0), 1))
    .map((part) => (part <= 0.0031308 ? part * 12.92 : 1.055 * part ** (1 / 2.4) - 0.055))
    .map((part) =>
      Math.round(part * 255)
        .toString(16)
        .padStart(2, "0"),
    )
    .join("")}`;
}

test("contrast is that of WCAG", () => {
  expect(contrast("#000000", "#ffffff")).toBeCloseTo(21, 6);
  expect(contrast("#777777", "#ffffff")).toBeCloseTo(4.48, 2);
  expect(contrast("#d5dbe6", "#d5dbe6")).toBe(1);
  expect(contrast("#000", "#fff")).toBeCloseTo(21, 6);
});

describe.each(["light", "dark"] as const)("in %s colours", (name) => {
  const colours = themes[name];
  const palette = paletteOf(name);

  test("text stands out from every ground", () => {
    for (const text of ["text", "faint", "accent", "good"])
      for (const ground of ["page", "surface"])
        expect(contrast(colours[text]!, colours[ground]!), `${text} on ${ground}`).toBeGreaterThanOrEqual(4.5);
    for (const ground of GROUNDS) expect(contrast(colours["text"]!, colours[ground]!), ground).toBeGreaterThanOrEqual(4.5);
    for (const level of ["bad", "warn"])
      expect(contrast(colours[level]!, colours[`${level}-ground`]!), level).toBeGreaterThanOrEqual(4.5);
    expect(contrast(colours["on-accent"]!, colours["accent"]!)).toBeGreaterThanOrEqual(4.5);
  });

  test("names stand out on every colour of a difference, and who sees no red or green tells more from less", () => {
    const labels = new Colours(palette);
    for (let change = -20; change <= 20; change++) {
      const ground = changeColour(change, 20, palette);
      expect(contrast(labels.on(ground), ground), String(change)).toBeGreaterThanOrEqual(4.5);
    }
    for (const end of [palette.grew, palette.shrank]) {
      expect(contrast(end, palette.surface)).toBeGreaterThanOrEqual(3);
      expect(difference(end, palette.unchanged)).toBeGreaterThan(0.1);
    }
    for (const seen of [...DEFICIENCIES, null])
      expect(difference(asSeen(palette.grew, seen), asSeen(palette.shrank, seen))).toBeGreaterThan(0.12);
  });

  test("what charts draw stands out from the surface, and no two series look alike", () => {
    for (const [part, colour] of Object.entries(palette.parts))
      expect(contrast(colour, palette.surface), part).toBeGreaterThanOrEqual(3);
    palette.series.forEach((colour, place) =>
      expect(contrast(colour, palette.surface), `series ${place}`).toBeGreaterThanOrEqual(3),
    );
    expect(contrast(colours["edge"]!, palette.surface)).toBeGreaterThanOrEqual(3);
    expect(new Set(palette.series).size).toBe(palette.series.length);
  });

  test("no two parts of a step look alike", () => {
    const parts = Object.entries(palette.parts);
    parts.forEach(([one, colour], place) => {
      for (const [other, beside] of parts.slice(place + 1))
        expect(difference(colour, beside), `${one}, ${other}`).toBeGreaterThanOrEqual(0.07);
    });
  });

  test("boxes of the timeline stand out from the surface, and the names from the boxes", () => {
    const timeline = new Colours(palette);
    const boxes = new Set(Array.from({ length: 3000 }, (_, number) => timeline.of(`operator ${number}`, "operators")));
    expect(boxes.size).toBeGreaterThan(60);
    for (const box of boxes) {
      expect(contrast(box, palette.surface), box).toBeGreaterThanOrEqual(3);
      expect(contrast(timeline.on(box), box), box).toBeGreaterThanOrEqual(4.5);
    }
    for (const state of ["computing", "exposed communication", "overlapped communication", "exposed copies", "idle"]) {
      const box = timeline.of(state, "device_states");
      expect(contrast(timeline.on(box), box), state).toBeGreaterThanOrEqual(4.5);
    }
  });
});

test("slices beside each other differ in hue, the rest's grey is nobody's, and a name keeps its colour", () => {
  const names = Array.from({ length: 20 }, (_, place) => `aten::operator_${place}`);
  const places = sliceColours(names);
  expect(places).toHaveLength(names.length);
  for (const [place, one] of places.entries()) {
    expect(one % 10).not.toBe(9);
    expect(one % 10).not.toBe(places[(place + 1) % places.length]! % 10);
  }
  expect(sliceColours(names.slice(0, 1))).toEqual(places.slice(0, 1));
});
