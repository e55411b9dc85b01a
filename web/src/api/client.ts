/** Questions to the server, or to the report that this page is. */

import { withToken } from "../browser/token";
import { report } from "../report/embedded";
import type { Query } from "../report/questions";
import { Refused, Unreachable } from "./refused";
import { type Tile, decode } from "./tile";
import type * as T from "./types";

export { Refused, Unreachable };

/** what the user gave to the server, as far as it said */
let opened: readonly string[] = [];

/** The address of an answer. */
export function address(path: string, query: Query = {}): string {
  const text = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined) continue;
    for (const one of Array.isArray(value) ? (value as readonly string[]) : [value]) text.append(name, String(one));
  }
  const tail = text.toString();
  return `./api/${path}${tail ? `?${tail}` : ""}`;
}

/** What is asked of the server; a browser says no more of one that is gone than that it could not fetch. */
async function reached<A>(asked: Promise<A>): Promise<A> {
  try {
    return await asked;
  } catch (error) {
    // an answer that breaks off inside is no JSON, and the one of a page that is left is no failure
    if (error instanceof TypeError) throw new Unreachable(globalThis.location?.origin ?? "", opened);
    throw error;
  }
}

async function request(path: string, query: Query, init: RequestInit): Promise<Response> {
  const asked = fetch(address(path, query), { ...init, headers: withToken(init.headers), credentials: "same-origin" });
  const response = await reached(asked);
  if (response.ok) return response;
  const problem = (await response.json().catch(() => null)) as T.Problem | null;
  throw new Refused(response.status, problem ?? { problem: `HTTP ${response.status}`, where: path, remedy: "" });
}

/** An answer as JSON; `body` is that of a page of a table. */
async function ask<A>(path: string, query: Query, init: RequestInit, body?: T.TableQuery): Promise<A> {
  const held = report();
  if (held) return (await held.answer(path, query, body)) as A;
  const sent = body
    ? { ...init, method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }
    : init;
  const response = await request(path, query, sent);
  return (await reached(response.json())) as A;
}

/** What is said beside an address: what has to be asked of it, and when to stop waiting. */
type Question<P extends T.RunPath> =
  object extends T.Asked<P> ? [query?: T.Asked<P>, signal?: AbortSignal] : [query: T.Asked<P>, signal?: AbortSignal];

/** Answers about one run. */
export class RunApi {
  constructor(
    readonly run: number,
    readonly signal: AbortSignal,
  ) {}

  /** What an address answers; of the query what the address has a place for stands there. */
  get<P extends T.RunPath>(path: P, ...[query, signal = this.signal]: Question<P>): Promise<T.Answer<P>> {
    const rest = { ...query } as Record<string, Query[string]>;
    const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => {
      const value = String(rest[name]);
      delete rest[name];
      return value;
    });
    return ask(`runs/${this.run}/${filled}`, rest, { signal });
  }

  async tile(query: Query, signal: AbortSignal): Promise<Tile> {
    const held = report();
    if (held) return held.tile(this.run, query);
    const response = await request(`runs/${this.run}/timeline/tile`, query, { signal });
    return decode(await reached(response.arrayBuffer()));
  }

  table(name: string, query: T.TableQuery, signal = this.signal): Promise<T.TablePage> {
    return ask<T.TablePage>(`runs/${this.run}/tables/${name}`, {}, { signal }, query);
  }

  /** All rows of a small table as objects. */
  async rows(name: string, query: T.TableQuery = {}): Promise<Record<string, unknown>[]> {
    const page = await this.table(name, { limit: 1000, ...query });
    return page.rows.map((row) => Object.fromEntries(page.columns.map((column, place) => [column.name, row[place]])));
  }

  async capture(wanted: T.CaptureWanted): Promise<{ request: string }> {
    const init = {
      method: "POST",
      body: JSON.stringify(wanted),
      headers: { "Content-Type": "application/json" },
      signal: this.signal,
    };
    return (await (await request(`runs/${this.run}/captures`, {}, init)).json()) as { request: string };
  }

  /** Have two versions of a folder of them opened. */
  async openVersions(before: number, after: number, by: string): Promise<T.OpenedPair> {
    const sent = { method: "POST", signal: this.signal };
    return (await (await request(`runs/${this.run}/history/opened`, { before, after, by }, sent)).json()) as T.OpenedPair;
  }

  async reopen(): Promise<void> {
    await request(`runs/${this.run}/reopen`, {}, { method: "POST", signal: this.signal });
  }
}

/** Where the file of an address can be had without the token: once, and soon. */
export async function fileAddress(of: string): Promise<string> {
  const sent = {
    method: "POST",
    body: JSON.stringify({ address: of.replace(/^\./, "") }),
    headers: { "Content-Type": "application/json" },
  };
  const { address: found } = (await (await request("tickets", {}, sent)).json()) as T.Ticket;
  return `.${found}`;
}

export async function session(): Promise<T.Session> {
  const found = await ask<T.Session>("session", {}, {});
  opened = found.runs.map((one) => one.path);
  return found;
}

export const compare = (before: number, after: number, signal: AbortSignal): Promise<T.Comparison> =>
  ask("compare", { before, after }, { signal });

/** The calls of both runs by call path; `of` is "host" or "device". */
export const comparedCalls = (before: number, after: number, of: string, signal: AbortSignal): Promise<T.ComparedCalls> =>
  ask("compare/calls", { before, after, of }, { signal });

/** What became of the advice. */
export const comparedFindings = (before: number, after: number, signal: AbortSignal): Promise<T.ComparedFindings> =>
  ask("compare/findings", { before, after }, { signal });

/** A step of both runs, its parts matched. */
export const alignedSteps = (before: number, after: number, signal: AbortSignal): Promise<T.AlignedSteps> =>
  ask("compare/steps", { before, after }, { signal });
