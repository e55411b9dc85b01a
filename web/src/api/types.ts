/**
 * The answers of the server by the names that the pages use. schema.d.ts, made from the server's OpenAPI document, has the types.
 * Times are ns from the origin of the run.
 */

import type * as S from "./schema";

export type * from "./schema";
export type {
  ComparedRuns as Comparison,
  CurveShown as Curve,
  EvidenceShown as Evidence,
  AdviceShown as Advice,
  FindingShown as Finding,
  FigureShown as FigureHistory,
  ChangeShown as HistoryChange,
  HistoryShown as History,
  VersionShown as HistoryVersion,
  LaneShown as Lane,
  Links as RankLinks,
  Node as FlopNode,
  NodeCurve as PlannedCurve,
  RunList as ShapeRuns,
  SegmentShown as FigureSegment,
  SeriesShown as Series,
  StepPartShown as StepPart,
  TimelineShown as Timeline,
  TypeSeries as ShapeSeries,
  TypeShown as ShapeType,
  VerdictShown as Verdict,
} from "./schema";

export type Row = Record<string, unknown>;
export type Extremes = Pick<S.QueueCurve, "min" | "max" | "last">;
/** `kept` and `embedded`: which and how many of its rows a report has. */
export type TablePage = S.TablePage & { kept?: "all" | "window" | "first"; embedded?: number };
/** `partial`: a report has no more of it. */
export type EventShown = S.EventShown & { partial?: boolean };

/** Of what is asked for, only what differs from the default has to be said. */
export type TableQuery = Partial<S.Query>;
export type CaptureWanted = Partial<S.Wanted>;

export type Step = S.Steps["steps"][number];
export type Operation = S.Pipeline["operations"][number];
export type RankParts = S.ClusterSteps["rows"][number];
export type HeatRank = S.Heat["ranks"][number];
export type Cost = S.Costs["rows"][number];
export type Delay = S.Joined["delays"][number];
export type RankDifference = S.RankDifferences["rows"][number];
export type CollectiveShown = S.Communication["collectives"][number];
export type CommunicationOperation = S.Operations["rows"][number];
export type RankLink = S.Links["rows"][number];
export type OperationLink = S.operations["links_of_operation"]["responses"][200]["content"]["application/json"][number];
export type RankStep = S.RankSteps["rows"][number];
export type JoinedOperator = S.Joined["operators"][number];
export type Band = S.Joined["bands"][number];
export type Load = S.Joined["loads"][number];
export type StrategyNode = S.StrategyGraph["nodes"][number];
export type StrategyEdge = S.StrategyGraph["edges"][number];

/** Addresses of a run that can be asked, without what all of them begin with. */
export type RunPath = {
  [P in keyof S.paths]: P extends `/api/runs/{run}/${infer Rest}` ? (S.paths[P] extends { get: object } ? Rest : never) : never;
}[keyof S.paths];
type Get<P extends RunPath> = Extract<S.paths[`/api/runs/{run}/${P}`], { get: object }>["get"];
type Loose<Q> = [Q] extends [never] ? object : { [N in keyof Q]: Q[N] | undefined };
/** What an address may be asked: its parameters and what fills the places in it. */
export type Asked<P extends RunPath> = Loose<NonNullable<Get<P>["parameters"]["query"]>>
  & Omit<Get<P>["parameters"]["path"], "run">;
/** What an address answers. */
export type Answer<P extends RunPath> = Get<P>["responses"][200]["content"] extends { "application/json": infer A } ? A : never;
