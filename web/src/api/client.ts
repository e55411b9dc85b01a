/** Questions to the server, or to the report that this page is. */

import { withToken } from "../browser/token";
import { report } from "../report/embedded";
import type { Query } from "../report/questions";
import type * as C from "./cluster_types";
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
  const sent = body ? { ...init, method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } } : init;
  return (await (await request(path, query, sent)).json()) as A;
}

/** Answers about one run. */
export class RunApi {
  constructor(
    readonly run: number,
    readonly signal: AbortSignal,
  ) {}

  private get<A>(path: string, query: Query = {}, signal = this.signal): Promise<A> {
    return ask<A>(`runs/${this.run}/${path}`, query, { signal });
  }

  overview = (): Promise<T.Overview> => this.get("overview");
  ranks = (): Promise<T.Rank[]> => this.get("ranks");
  steps = (trace: number | null): Promise<T.Steps> => this.get("steps", { trace });
  health = (): Promise<T.HealthFinding[]> => this.get("health");
  advice = (): Promise<T.Advice> => this.get("advice");
  tables = (): Promise<T.TableShown[]> => this.get("tables");
  pipeline = (trace: number): Promise<T.Pipeline> => this.get("pipeline", { trace });
  stepTrace = (trace: number, query: Query): Promise<T.StepTrace> => this.get("step-trace", { trace, ...query });
  flops = (trace: number): Promise<T.Flops> => this.get("flops", { trace });
  shapes = (trace: number, level: string): Promise<T.ShapeTypes> => this.get("shapes", { trace, level });
  shapeSeries = (trace: number, level: string, types: readonly string[]): Promise<T.ShapeSeries[]> => this.get("shapes/series", { trace, level, types });
  shapeRuns = (trace: number, level: string, types: readonly string[], name: string): Promise<T.ShapeRuns> => this.get("shapes/runs", { trace, level, types, name });
  operation = (trace: number, op: number): Promise<T.OperationShown> => this.get("pipeline/operation", { trace, op });
  batches = (trace: number, kind: string, points: number): Promise<T.BatchCurves> => this.get("pipeline/batches", { trace, kind, points });
  processors = (trace: number, query: Query): Promise<T.Processors> => this.get("pipeline/processors", { trace, ...query });
  memory = (trace: number): Promise<T.MemoryOverview> => this.get("memory", { trace });
  plannedGraphs = (trace: number): Promise<T.PlannedGraph[]> => this.get("memory/graphs", { trace });
  plannedCurve = (trace: number, graph: number, points: number): Promise<T.PlannedCurve> => this.get(`memory/graphs/${graph}`, { trace, points });
  plannedTensors = (trace: number, graph: number, node: number): Promise<T.NodeTensors> => this.get(`memory/graphs/${graph}/tensors`, { trace, node });
  captures = (): Promise<T.Captures> => this.get("captures");
  adviceOf = (trace: number | null): Promise<T.Advice> => this.get("advice", { trace });
  queue = (trace: number, op: number, points: number): Promise<T.QueueCurve> => this.get("pipeline/queue", { trace, op, points });
  communication = (): Promise<T.Communication> => this.get("communication");
  communicationCosts = (query: Query): Promise<C.Costs> => this.get("communication/costs", query);
  communicationLinks = (query: Query): Promise<C.RankLinks> => this.get("communication/links", query);
  communicationOperations = (query: Query): Promise<C.CommunicationOperations> => this.get("communication/operations", query);
  operationLinks = (query: Query): Promise<C.OperationLink[]> => this.get("communication/operation_links", query);
  clusterSteps = (query: Query): Promise<C.ClusterSteps> => this.get("cluster/steps", query);
  heat = (): Promise<C.Heat[]> => this.get("cluster/heat");
  rankSteps = (): Promise<C.RankSteps> => this.get("marey/steps");
  joinedOperators = (query: Query): Promise<C.Joined> => this.get("marey/operators", query);
  strategy = (): Promise<C.Stages> => this.get("strategy");
  strategyGraph = (query: Query): Promise<C.StrategyGraph> => this.get("strategy/graph", query);
  strategyOperator = (query: Query): Promise<C.StrategyOperator> => this.get("strategy/operator", query);
  strategyFind = (query: Query): Promise<C.StrategyHits> => this.get("strategy/find", query);
  alive = (trace: number, time_ns: number): Promise<T.Alive> => this.get("memory/alive", { trace, time_ns });
  search = (text: string, signal: AbortSignal): Promise<T.Hits> => this.get("search", { text }, signal);
  live = (): Promise<T.Live> => this.get("live");
  timeline = (trace: number): Promise<T.Timeline> => this.get("timeline", { trace });
  event = (trace: number, event: number): Promise<T.EventShown> => this.get(`timeline/events/${event}`, { trace });
  selection = (query: Query): Promise<T.Selection> => this.get("timeline/selection", query);
  find = (query: Query, signal = this.signal): Promise<T.Found> => this.get("timeline/search", query, signal);
  occurrences = (query: Query): Promise<T.Occurrences> => this.get("timeline/occurrences", query);
  flows = (query: Query, signal: AbortSignal): Promise<T.Arrows> => this.get("timeline/flows", query, signal);
  series = (series: number, query: Query, signal = this.signal): Promise<T.Curve> =>
    this.get(`timeline/series/${series}`, query, signal);

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
    const init = { method: "POST", body: JSON.stringify(wanted), headers: { "Content-Type": "application/json" }, signal: this.signal };
    return (await (await request(`runs/${this.run}/captures`, {}, init)).json()) as { request: string };
  }

  async reopen(): Promise<void> {
    await request(`runs/${this.run}/reopen`, {}, { method: "POST", signal: this.signal });
  }
}

/** Where the file of an address can be had without the token: once, and soon. */
export async function fileAddress(of: string): Promise<string> {
  const sent = { method: "POST", body: JSON.stringify({ address: of.replace(/^\./, "") }), headers: { "Content-Type": "application/json" } };
  const { address: found } = (await (await request("tickets", {}, sent)).json()) as T.Ticket;
  return `.${found}`;
}

export function session(): Promise<T.Session> {
  return ask("session", {}, {});
}

export function compare(before: number, after: number, signal: AbortSignal): Promise<T.Comparison> {
  return ask("compare", { before, after, limit: 200 }, { signal });
}
