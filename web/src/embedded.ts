/** A report: a page that holds the answers to its questions in itself, as `steplens report` wrote them. */

import { pageAnswer } from "./embedded_pages";
import { type Table, pageOf } from "./embedded_table";
import { EmbeddedTimeline } from "./embedded_timeline";
import { t } from "./i18n";
import { Refused } from "./refused";
import type { Tile } from "./timeline/tile";
import type * as T from "./types";

export type Query = Readonly<Record<string, string | number | boolean | readonly string[] | null | undefined>>;

export interface LeftOut { what: string; run: number; trace: number | null; name: string; shown: number; of: number; why: string }
export interface Manifest {
  version: string; created: string; redacted: boolean; rows: number; limit_bytes: number; per_kind: number;
  windows: { start_ns: number; end_ns: number; step: number | null; median: boolean }[];
  left_out: LeftOut[];
}

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
type Entry = T.Hit & { words: string };

export class Embedded {
  private readonly bytes = new Map<string, Promise<Uint8Array<ArrayBuffer> | null>>();
  private readonly values = new Map<string, Promise<unknown>>();
  private readonly timelines = new Map<string, EmbeddedTimeline>();

  /** `read` gives a part as it is written: compressed, in base64; null where there is none. */
  constructor(private readonly read: (name: string) => string | null) {}

  /** The bytes of a part; null where the report has none of this name. */
  piece(name: string): Promise<Uint8Array<ArrayBuffer> | null> {
    const found = this.bytes.get(name) ?? unpacked(this.read(name));
    this.bytes.set(name, found);
    return found;
  }

  /** A part that is JSON; null where the report has none of this name. */
  json<A>(name: string): Promise<A | null> {
    const made = async (): Promise<unknown> => {
      const bytes = await this.piece(name);
      this.bytes.delete(name);
      return bytes && (JSON.parse(new TextDecoder().decode(bytes)) as unknown);
    };
    const found = this.values.get(name) ?? made();
    this.values.set(name, found);
    return found as Promise<A | null>;
  }

  async manifest(): Promise<Manifest> {
    return (await this.json<Manifest>("report"))!;
  }

  /** What the server would answer; `body` is that of a table's page. */
  async answer(path: string, query: Query, body?: T.TableQuery): Promise<unknown> {
    if (path === "session") return this.json("session");
    if (path === "compare") return (await this.json<Record<string, unknown>>("compare"))?.[keyOf(path, query)] ?? Promise.reject(missing(path));
    const match = /^runs\/(\d+)\/(.*)$/.exec(path);
    if (!match) throw missing(path);
    const run = Number(match[1]);
    const rest = match[2]!;
    const name = /^tables\/([a-z_]+)$/.exec(rest);
    if (name && body) return this.table(run, name[1]!, body);
    if (rest === "search") return this.search(run, String(query["text"] ?? ""));
    const timeline = /^timeline\/(\w+)(?:\/(\d+))?$/.exec(rest);
    if (timeline && timeline[1] !== "tile") return this.timeline(run, query).answer(timeline[1]!, Number(timeline[2] ?? NaN), query);
    const worked = await pageAnswer((part) => this.json(part), run, rest, query);
    return worked ?? this.known(run, path, query);
  }

  tile(run: number, query: Query): Promise<Tile> {
    return this.timeline(run, query).tile(query);
  }

  private timeline(run: number, query: Query): EmbeddedTimeline {
    const key = `${run}/${Number(query["trace"] ?? 0)}`;
    const found = this.timelines.get(key) ?? new EmbeddedTimeline(this, run, Number(query["trace"] ?? 0));
    this.timelines.set(key, found);
    return found;
  }

  private async known(run: number, path: string, query: Query): Promise<unknown> {
    const [questions, bodies] = await Promise.all([this.json<Questions>(`answers/${run}`), this.json<unknown[]>(`bodies/${run}`)]);
    if (!questions || !bodies) throw missing(path);
    const { known } = questions;
    const plain = keyOf(path, query, questions);
    const found = known[plain] ?? known[keyOf(path, query)] ?? known[nearest(Object.keys(known), path, query) ?? ""];
    if (!found) throw missing(path);
    const answer = bodies[found[1]];
    if (found[0] !== 200) throw new Refused(found[0], answer as T.Problem);
    return ofRows(answer, query, questions) ?? Promise.reject(missing(path));
  }

  private async table(run: number, name: string, query: T.TableQuery): Promise<T.TablePage> {
    const ranks = (await this.known(run, `runs/${run}/ranks`, {})) as T.Rank[];
    const trace = ranks.length > 1 ? (query.trace ?? null) : null;
    const [own, every] = await Promise.all([trace === null ? null : this.json<Table>(`table/${run}/${name}/${trace}`), this.json<Table>(`table/${run}/${name}/all`)]);
    if (own) return pageOf(own, query, null);
    if (!every) throw missing(named(name));
    return pageOf(every, query, trace);
  }

  private async search(run: number, text: string): Promise<T.Hits> {
    const [entries, { per_kind }] = await Promise.all([this.json<Record<string, Entry[]>>(`search/${run}`), this.manifest()]);
    if (!entries) throw missing("search");
    const wanted = text.toLowerCase();
    const found = Object.entries(entries).map(([kind, all]) => ({ kind, all: all.filter((one) => one.words.includes(wanted)) }));
    return { hits: found.flatMap(({ all }) => all.slice(0, per_kind)), matching: Object.fromEntries(found.map(({ kind, all }) => [kind, all.length])) };
  }
}

const named = (table: string): string => `tables/${table}`;

/** What a report calls a question: the path and the sorted parameters; without those that do not matter. */
export function keyOf(path: string, query: Query, questions: Questions | null = null): string {
  const skip = (name: string, value: unknown): boolean => value === null || value === undefined || name === "limit" || name === "points" || (Array.isArray(value) && !value.length)
    || (questions !== null && (questions.how_much.includes(name) || questions.of_rows.includes(name) || questions.defaults[path]?.[name] === value));
  const told = Object.entries(query).filter(([name, value]) => !skip(name, value));
  const tail = told.map(([name, value]) => `${name}=${String(value)}`).sort().join("&");
  return tail ? `${path}?${tail}` : path;
}

/** The rows of an answer that a question asks for, in its order; null where the answer cannot be chosen from. */
function ofRows(answer: unknown, query: Query, { of_rows }: Questions): unknown {
  const asked = Object.fromEntries(Object.entries(query).filter(([name, value]) => of_rows.includes(name) && value !== null && value !== undefined));
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
  const found = typeof one === "number" && typeof other === "number" ? one - other : String(one) < String(other) ? -1 : Number(String(one) > String(other));
  return down ? -found : found;
}

/** The question that a report knows whose moment is nearest to that of another. */
function nearest(known: readonly string[], path: string, query: Query): string | null {
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

async function unpacked(text: string | null): Promise<Uint8Array<ArrayBuffer> | null> {
  if (text === null) return null;
  const binary = atob(text);
  const packed = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place++) packed[place] = binary.charCodeAt(place);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const part = (name: string): Element | null => document.querySelector(`script[data-part="${CSS.escape(name)}"]`);

let found: Embedded | null | undefined;
/** The report that this page is; null where a server answers. */
export function report(): Embedded | null {
  found ??= typeof document !== "undefined" && part("report") ? new Embedded((name) => part(name)?.textContent ?? null) : null;
  return found;
}
