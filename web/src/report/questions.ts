/** Which of the answers that a report holds is the one to a question. */

import { Refused } from "../api/refused";
import type * as T from "../api/types";
import { t } from "../words/i18n";

export type Query = Readonly<Record<string, string | number | boolean | readonly string[] | null | undefined>>;

/** parameters of which the nearest value that a report has is answered for; the answer tells its own */
const NEAREST = "time_ns";

/** That something is not in the report, and how to see it. */
export function missing(what: string, remedy = t("report.missing.remedy")): Refused {
  return new Refused(404, { problem: t("report.missing"), where: what, remedy });
}

/**
 * The questions that a report knows; parameters as by default are as if they were not there, those that say how much do not
 * matter, and by those of rows it is this page that chooses.
 */
export interface Questions {
  known: Readonly<Record<string, [status: number, place: number]>>;
  defaults: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  how_much: readonly string[];
  of_rows: readonly string[];
}

/** What a report calls a question: the path and the sorted parameters; without those that do not matter. */
export function keyOf(path: string, query: Query, questions: Questions | null = null): string {
  const skip = (name: string, value: unknown): boolean =>
    value === null
    || value === undefined
    || name === "limit"
    || name === "points"
    || (Array.isArray(value) && !value.length)
    || (questions !== null
      && (questions.how_much.includes(name) || questions.of_rows.includes(name) || questions.defaults[path]?.[name] === value));
  const told = Object.entries(query).filter(([name, value]) => !skip(name, value));
  const tail = told
    .map(([name, value]) => `${name}=${String(value)}`)
    .sort()
    .join("&");
  return tail ? `${path}?${tail}` : path;
}

/** The rows of an answer that a question asks for, in its order; null where the answer cannot be chosen from. */
export function ofRows(answer: unknown, query: Query, { of_rows }: Questions): unknown {
  const asked = Object.fromEntries(
    Object.entries(query).filter(([name, value]) => of_rows.includes(name) && value !== null && value !== undefined),
  );
  if (!Object.keys(asked).length) return answer;
  const { sort, descending, offset, ...equal } = asked;
  const held = answer as { rows?: T.Row[]; matching?: number };
  if (!Array.isArray(held?.rows)) return Object.keys(equal).length || Number(offset ?? 0) > 0 ? null : answer;
  const rows = held.rows.filter((row) => Object.entries(equal).every(([name, value]) => row[name] === value));
  if (typeof sort === "string") {
    const value = (row: T.Row): unknown => row[sort] ?? (row["parts"] as T.Row | undefined)?.[sort];
    rows.sort((one, other) => inOrder(value(one), value(other), descending === true));
  }
  const first = Number(offset ?? 0);
  const page = rows.slice(first, first + Number(query["limit"] ?? rows.length));
  return { ...held, rows: page, ...(Object.keys(equal).length && "matching" in held ? { matching: rows.length } : {}) };
}

/** What has no value comes last. */
function inOrder(one: unknown, other: unknown, down: boolean): number {
  const [no, nor] = [one === null || one === undefined, other === null || other === undefined];
  if (no || nor) return Number(no) - Number(nor);
  const found =
    typeof one === "number" && typeof other === "number"
      ? one - other
      : String(one) < String(other)
        ? -1
        : Number(String(one) > String(other));
  return down ? -found : found;
}

/** The question that a report knows whose moment is nearest to that of another. */
export function nearest(known: readonly string[], path: string, query: Query): string | null {
  const wanted = Number(query[NEAREST] ?? NaN);
  if (Number.isNaN(wanted)) return null;
  const [before, after] = keyOf(path, { ...query, [NEAREST]: "" }).split(`${NEAREST}=`) as [string, string];
  let best: string | null = null;
  let distance = Infinity;
  for (const key of known) {
    if (!key.startsWith(`${before}${NEAREST}=`) || !key.endsWith(after)) continue;
    const away = Math.abs(Number(key.slice(before.length + NEAREST.length + 1, key.length - after.length)) - wanted);
    if (away < distance) [best, distance] = [key, away];
  }
  return best;
}
