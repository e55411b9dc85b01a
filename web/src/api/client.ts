/** Questions to the server, or to the report that this page is. */

import { withToken } from "../browser/token";
import { report } from "../report/embedded";
import type { Query } from "../report/questions";
import { Refused } from "./refused";
import { type Tile, decode } from "./tile";
import type * as T from "./types";

export { Refused };

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

async function request(path: string, query: Query, init: RequestInit): Promise<Response> {
  const response = await fetch(address(path, query), { ...init, headers: withToken(init.headers), credentials: "same-origin" });
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
  return (await (await request(path, query, sent)).json()) as A;
}

/** Answers about one run. */
export class RunApi {
  constructor(
    readonly run: number,
    readonly signal: AbortSignal,
  ) {}

  /** What an address answers; of `query` what the address has a place for stands there. */
  private get<P extends T.RunPath>(path: P, query: T.Asked<P>, signal = this.signal): Promise<T.Answer<P>> {
    const rest = { ...query } as Record<string, Query[string]>;
    const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => {
      const value = String(rest[name]);
      delete rest[name];
      return value;
    });
    return ask(`runs/${this.run}/${filled}`, rest, { signal });
  }

  overview = () => this.get("overview", {});
  ranks = () => this.get("ranks", {});
  steps = (trace: number | null) => this.get("steps", { trace });
  health = () => this.get("health", {});
  advice = () => this.get("advice", {});
  tables = () => this.get("tables", {});
  pipeline = (trace: number) => this.get("pipeline", { trace });
  stepTrace = (trace: number, query: Omit<T.Asked<"step-trace">, "trace">) => this.get("step-trace", { trace, ...query });
  flops = (trace: number) => this.get("flops", { trace });
  shapes = (trace: number, level: T.ShapeLevel) => this.get("shapes", { trace, level });
  shapeSeries = (trace: number, level: T.ShapeLevel, types: string[]) => this.get("shapes/series", { trace, level, types });
  shapeRuns = (trace: number, level: T.ShapeLevel, types: string[], name: string) =>
    this.get("shapes/runs", { trace, level, types, name });
  operation = (trace: number, op: number) => this.get("pipeline/operation", { trace, op });
  batches = (trace: number, kind: T.Place["kind"], points: number) => this.get("pipeline/batches", { trace, kind, points });
  processors = (trace: number, query: Omit<T.Asked<"pipeline/processors">, "trace">) =>
    this.get("pipeline/processors", { trace, ...query });
  memory = (trace: number) => this.get("memory", { trace });
  plannedGraphs = (trace: number) => this.get("memory/graphs", { trace });
  plannedCurve = (trace: number, graph: number, points: number) => this.get("memory/graphs/{graph}", { trace, graph, points });
  plannedTensors = (trace: number, graph: number, node: number) =>
    this.get("memory/graphs/{graph}/tensors", { trace, graph, node });
  captures = () => this.get("captures", {});
  adviceOf = (trace: number | null) => this.get("advice", { trace });
  queue = (trace: number, op: number, points: number) => this.get("pipeline/queue", { trace, op, points });
  communication = () => this.get("communication", {});
  communicationCosts = (query: T.Asked<"communication/costs">) => this.get("communication/costs", query);
  communicationLinks = (query: T.Asked<"communication/links">) => this.get("communication/links", query);
  communicationOperations = (query: T.Asked<"communication/operations">) => this.get("communication/operations", query);
  operationLinks = (query: T.Asked<"communication/operation_links">) => this.get("communication/operation_links", query);
  clusterSteps = (query: T.Asked<"cluster/steps">) => this.get("cluster/steps", query);
  heat = () => this.get("cluster/heat", {});
  rankSteps = () => this.get("marey/steps", {});
  joinedOperators = (query: T.Asked<"marey/operators">) => this.get("marey/operators", query);
  strategy = () => this.get("strategy", {});
  strategyGraph = (query: T.Asked<"strategy/graph">) => this.get("strategy/graph", query);
  strategyOperator = (query: T.Asked<"strategy/operator">) => this.get("strategy/operator", query);
  strategyFind = (query: T.Asked<"strategy/find">) => this.get("strategy/find", query);
  alive = (trace: number, time_ns: number) => this.get("memory/alive", { trace, time_ns });
  search = (text: string, signal: AbortSignal) => this.get("search", { text }, signal);
  live = () => this.get("live", {});
  timeline = (trace: number) => this.get("timeline", { trace });
  event = (trace: number, event: number) => this.get("timeline/events/{event}", { trace, event });
  selection = (query: T.Asked<"timeline/selection">) => this.get("timeline/selection", query);
  find = (query: T.Asked<"timeline/search">, signal = this.signal) => this.get("timeline/search", query, signal);
  occurrences = (query: T.Asked<"timeline/occurrences">) => this.get("timeline/occurrences", query);
  flows = (query: T.Asked<"timeline/flows">, signal: AbortSignal) => this.get("timeline/flows", query, signal);
  series = (query: T.Asked<"timeline/series/{series}">, signal = this.signal) =>
    this.get("timeline/series/{series}", query, signal);

  async tile(query: Query, signal: AbortSignal): Promise<Tile> {
    const held = report();
    if (held) return held.tile(this.run, query);
    return decode(await (await request(`runs/${this.run}/timeline/tile`, query, { signal })).arrayBuffer());
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

export function session(): Promise<T.Session> {
  return ask("session", {}, {});
}

export function compare(before: number, after: number, signal: AbortSignal): Promise<T.Comparison> {
  return ask("compare", { before, after, limit: 200 }, { signal });
}
