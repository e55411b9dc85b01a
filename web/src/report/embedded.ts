/** A report: a page that holds the answers to its questions in itself, as `steplens report` wrote them. */

import { Refused } from "../api/refused";
import type { Tile } from "../api/tile";
import type * as T from "../api/types";
import { pageAnswer } from "./embedded_pages";
import { type Table, pageOf } from "./embedded_table";
import { EmbeddedTimeline } from "./embedded_timeline";
import { type Query, type Questions, keyOf, missing, nearest, ofRows } from "./questions";

export interface LeftOut {
  what: string;
  run: number;
  trace: number | null;
  name: string;
  shown: number;
  of: number;
  why: string;
}
export interface Manifest {
  version: string;
  created: string;
  redacted: boolean;
  rows: number;
  limit_bytes: number;
  per_kind: number;
  windows: { start_ns: number; end_ns: number; step: number | null; median: boolean }[];
  left_out: LeftOut[];
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
    if (/^compare(\/|$)/.test(path)) {
      const found = (await this.json<Record<string, [status: number, body: unknown]>>("compare"))?.[keyOf(path, query)];
      return found ? answered(...found) : Promise.reject(missing(path));
    }
    const match = /^runs\/(\d+)\/(.*)$/.exec(path);
    if (!match) throw missing(path);
    const run = Number(match[1]);
    const rest = match[2]!;
    const name = /^tables\/([a-z_]+)$/.exec(rest);
    if (name && body) return this.table(run, name[1]!, body);
    if (rest === "search") return this.search(run, String(query["text"] ?? ""));
    const timeline = /^timeline\/(\w+)(?:\/(\d+))?$/.exec(rest);
    if (timeline && timeline[1] !== "tile")
      return this.timeline(run, query).answer(timeline[1]!, Number(timeline[2] ?? NaN), query);
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
    const [questions, bodies] = await Promise.all([
      this.json<Questions>(`answers/${run}`),
      this.json<unknown[]>(`bodies/${run}`),
    ]);
    if (!questions || !bodies) throw missing(path);
    const { known } = questions;
    const plain = keyOf(path, query, questions);
    const found = known[plain] ?? known[keyOf(path, query)] ?? known[nearest(Object.keys(known), path, query) ?? ""];
    if (!found) throw missing(path);
    const answer = answered(found[0], bodies[found[1]]);
    return ofRows(answer, query, questions) ?? Promise.reject(missing(path));
  }

  private async table(run: number, name: string, query: T.TableQuery): Promise<T.TablePage> {
    const ranks = (await this.known(run, `runs/${run}/ranks`, {})) as T.Rank[];
    const trace = ranks.length > 1 ? (query.trace ?? null) : null;
    const [own, every] = await Promise.all([
      trace === null ? null : this.json<Table>(`table/${run}/${name}/${trace}`),
      this.json<Table>(`table/${run}/${name}/all`),
    ]);
    if (own) return pageOf(own, query, null);
    if (!every) throw missing(named(name));
    return pageOf(every, query, trace);
  }

  private async search(run: number, text: string): Promise<T.Hits> {
    const [entries, { per_kind }] = await Promise.all([this.json<Record<string, Entry[]>>(`search/${run}`), this.manifest()]);
    if (!entries) throw missing("search");
    const wanted = text.toLowerCase();
    const found = Object.entries(entries).map(([kind, all]) => ({ kind, all: all.filter((one) => one.words.includes(wanted)) }));
    return {
      hits: found.flatMap(({ all }) => all.slice(0, per_kind)),
      matching: Object.fromEntries(found.map(({ kind, all }) => [kind, all.length])),
    };
  }
}

/** What the server answered; a problem is thrown. */
function answered(status: number, body: unknown): unknown {
  if (status !== 200) throw new Refused(status, body as T.Problem);
  return body;
}

const named = (table: string): string => `tables/${table}`;

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
