/** Where the ranks of a job are: which of them a text means, and what they make by stage, process group or host. */

import type { SideBySide } from "../api/types";
import { t } from "../words/i18n";

/** of more ranks no page has a line, an option or a bar for each */
export const MANY_RANKS = 32;

export const isMany = (ranks: readonly unknown[]): boolean => ranks.length > MANY_RANKS;

export const GROUPINGS = ["rank", "stage", "group", "host"] as const;
export type Grouping = (typeof GROUPINGS)[number];

/** Ranks that belong together; `rows` are their places in the answer. */
export interface RankGroup {
  name: string;
  rows: readonly number[];
}

/** What a text asks of one rank: all of these have to be true. */
type Wanted = (row: number) => boolean;

/** The rows that a text means, in the order of their ranks: "517", "host 12", "stage 3", part of a host's name, or several of these. */
export function findRows(found: Pick<SideBySide, "rank" | "stage" | "host">, text: string): number[] {
  const every = found.rank.map((_, row) => row);
  const wanted = parse(found, text);
  const rows = every.filter((row) => wanted.every((is) => is(row)));
  // a number alone is a rank first, and else whatever has it in its name
  const number = /^\s*\d+\s*$/.test(text) ? Number(text) : null;
  if (number === null) return rows;
  const exact = every.filter((row) => found.rank[row] === number);
  return [...exact, ...rows.filter((row) => !exact.includes(row))];
}

function parse(found: Pick<SideBySide, "rank" | "stage" | "host">, text: string): Wanted[] {
  const words = text
    .toLowerCase()
    .split(/[\s,:=]+/)
    .filter(Boolean);
  const wanted: Wanted[] = [];
  const kinds: readonly (readonly [names: readonly string[], of: (value: string) => Wanted])[] = [
    [["rank", t("rank").toLowerCase()], (value) => (row) => String(found.rank[row]) === value],
    [["stage", t("stage").toLowerCase()], (value) => (row) => String(found.stage[row] ?? "") === value],
    [["host", t("host").toLowerCase()], (value) => (row) => isHost(found.host[row]!, value)],
  ];
  for (let place = 0; place < words.length; place++) {
    const word = words[place]!;
    const kind = kinds.find(([names]) => names.includes(word));
    const value = words[place + 1];
    if (kind) {
      // the word alone is about to get its number
      if (value !== undefined) wanted.push(kind[1](value));
      place++;
    } else if (/^\d+$/.test(word))
      wanted.push((row) => String(found.rank[row]).startsWith(word) || isHost(found.host[row]!, word));
    else wanted.push((row) => found.host[row]!.toLowerCase().includes(word));
  }
  return wanted;
}

/** Whether a host is called so: by its name, a part of it, or its number without zeros in front. */
function isHost(host: string, value: string): boolean {
  const number = /(\d+)\D*$/.exec(host)?.[1];
  if (/^\d+$/.test(value)) return number !== undefined && Number(number) === Number(value);
  return host.toLowerCase().includes(value);
}

/** By what the ranks can be grouped: by what tells any of them apart. */
export function groupings(found: SideBySide): Grouping[] {
  const isKnown: Readonly<Record<Grouping, boolean>> = {
    rank: true,
    stage: found.stages > 1,
    group: found.groups.length > 1,
    host: new Set(found.host.filter(Boolean)).size > 1,
  };
  return GROUPINGS.filter((one) => isKnown[one]);
}

/** The ranks in groups, in order of their first rank; a rank is in every process group that it has. */
export function groupRows(found: SideBySide, by: Grouping, rows: readonly number[]): RankGroup[] {
  if (by === "group") {
    const wanted = new Set(rows);
    const row_of = new Map(found.rank.map((rank, row) => [rank, row]));
    return found.groups
      .map((one) => ({
        name: one.name,
        rows: one.ranks.flatMap((rank) => row_of.get(rank) ?? []).filter((row) => wanted.has(row)),
      }))
      .filter((one) => one.rows.length);
  }
  const groups = new Map<string, number[]>();
  for (const row of rows) {
    const name =
      by === "rank" ? `${found.rank[row]}/${found.trace[row]}` : by === "stage" ? String(found.stage[row]) : found.host[row]!;
    const known = groups.get(name);
    if (known) known.push(row);
    else groups.set(name, [row]);
  }
  return [...groups].map(([name, members]) => ({ name, rows: members }));
}

/** Mean of the figures that are known; null where none is. */
export function meanOfRows(values: readonly (number | null)[], rows: readonly number[]): number | null {
  let sum = 0;
  let count = 0;
  for (const row of rows) {
    const value = values[row];
    if (typeof value === "number") {
      sum += value;
      count++;
    }
  }
  return count ? sum / count : null;
}

/** The row with the largest figure; null where none is known. */
export function largestRow(values: readonly (number | null)[], rows: readonly number[]): number | null {
  let largest: number | null = null;
  for (const row of rows) {
    const value = values[row];
    if (typeof value === "number" && (largest === null || value > values[largest]!)) largest = row;
  }
  return largest;
}

/** What tells ranks apart: what each does itself, where that is known, else how long its steps are. */
export const tellingFigure = (found: SideBySide): string =>
  ["own_ns", "step_time_ns"].find((name) => found.figures[name]) ?? Object.keys(found.figures)[0] ?? "";

/** Numbers as ranges, at most a few of them: "0, 32, 64 …". */
export function fewRanks(ranks: readonly number[], most = 4): string {
  const sorted = [...ranks].sort((one, other) => one - other);
  const consecutive = sorted.length > 1 && sorted.at(-1)! - sorted[0]! === sorted.length - 1;
  if (consecutive) return `${sorted[0]}–${sorted.at(-1)}`;
  return sorted.slice(0, most).join(", ") + (sorted.length > most ? " …" : "");
}
