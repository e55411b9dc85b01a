/** Changing shapes of a report: types from step to step, and single runs, as the server chooses among them. */

import { Refused } from "../api/refused";
import type { ShapeRuns, ShapeSeries } from "../api/types";
import type { Query } from "./questions";

/** A part `shapes/RUN/TRACE/LEVEL`: `total` counts the runs of a type, of which the report may have only some. */
export interface Shapes {
  steps: number[];
  types: { type: string; total: number; average_ns: number[]; count: number[]; shapes: (number | null)[] }[];
  runs: {
    step: number[];
    type: number[];
    duration_ns: number[];
    name: number[];
    name_texts: string[];
    shapes: number[];
    shapes_texts: (string | null)[];
  };
}
type Run = ShapeRuns["runs"][number];

/** runs that one answer has */
const POINTS = 4000;

export const SHAPES = { series: shapeSeries, runs: shapeRuns } as const;

function shapeSeries(held: Shapes, query: Query): ShapeSeries[] {
  return [...new Set(typesOf(query))].map((wanted) => {
    const found = held.types.find((one) => one.type === wanted);
    if (!found) throw new Refused(404, { problem: "no such type ran in a step", where: `types ${wanted}`, remedy: "" });
    const { type, average_ns, count, shapes } = found;
    return { type, step: held.steps, average_ns, count, shapes };
  });
}

function shapeRuns(held: Shapes, query: Query): ShapeRuns {
  const wanted = new Set(typesOf(query));
  const chosen = held.types.map((one) => wanted.has(one.type));
  const part = String(query["name"] ?? "").toLowerCase();
  const named = held.runs.name_texts.map((one) => one.toLowerCase().includes(part));
  const { step, type, duration_ns, name, name_texts, shapes, shapes_texts } = held.runs;
  const runs: Run[] = [];
  for (let at = 0; at < step.length; at++) {
    if (!chosen[type[at]!] || !named[name[at]!]) continue;
    runs.push({
      step: step[at]!,
      type: held.types[type[at]!]!.type,
      name: name_texts[name[at]!]!,
      duration_ns: duration_ns[at]!,
      shapes: shapes_texts[shapes[at]!]!,
    });
  }
  // of those that a name chooses, the report knows only those that it has
  const total = part ? runs.length : held.types.filter((_, at) => chosen[at]).reduce((sum, one) => sum + one.total, 0);
  return { runs: extremes(runs, Number(query["points"] ?? POINTS)), total };
}

function typesOf(query: Query): readonly string[] {
  const told = query["types"];
  return Array.isArray(told) ? (told as readonly string[]) : told === null || told === undefined ? [] : [String(told)];
}

/** At most so many runs: of every stretch of equal length the shortest and the longest. */
function extremes(runs: readonly Run[], most: number): Run[] {
  if (runs.length <= most) return [...runs];
  const stretches = Math.max(Math.floor(most / 2), 1);
  const kept = new Set<number>();
  let [stretch, low, high] = [0, 0, 0];
  const keep = (): void => void kept.add(low).add(high);
  runs.forEach((run, at) => {
    const own = Math.floor((at * stretches) / runs.length);
    if (own !== stretch) {
      keep();
      [stretch, low, high] = [own, at, at];
    } else if (run.duration_ns < runs[low]!.duration_ns) low = at;
    else if (run.duration_ns > runs[high]!.duration_ns) high = at;
  });
  keep();
  return [...kept].sort((one, other) => one - other).map((at) => runs[at]!);
}
