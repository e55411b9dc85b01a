/** The answers of the server, as /api/openapi.json describes them. Times are ns from the origin of the run. */

export type Row = Record<string, unknown>;

export interface Problem { problem: string; where: string; remedy: string }

export interface Progress {
  state: "waiting" | "opening" | "ready" | "failed";
  done: number; total: number; what: string; bytes: number; seconds: number; timelines: number;
  problem: Problem | null;
}
export interface RunState { run: number; path: string; name: string; origin_ns: string; generation: number; traces: TraceState[]; strategy: boolean; progress: Progress; draft: Draft | null }
export interface Draft { run: number; one_of: number; origin_ns: string }
export interface TraceState { trace: number; rank: number | null; origin_ns: string }
export interface Session { version: string; languages: string[]; runs: RunState[] }
export interface Live { generation: number; changed: boolean; files: number }

export interface Rank {
  trace: number; rank: number | null; path: string; origin_ns: string; format: string; device_kind: string; devices: string[];
  tables: Record<string, number>; streams: number; steps: number; step_ns: number | null; parts: Record<string, number>;
  figures: StepFigures; peak_bytes: number | null;
}
export interface Step {
  trace?: number; rank?: number; step: number | null; start_ns: number; duration_ns: number; complete: boolean;
  [part: string]: number | boolean | null | undefined;
}
export interface Spread {
  count: number; mean_ns: number | null; std_ns: number | null; min_ns: number | null; median_ns: number | null;
  p90_ns: number | null; p99_ns: number | null; max_ns: number | null;
  edges_ns: number[]; counts: number[]; outliers: Row[];
}
export interface Steps { steps: Step[]; spread: Spread }
export interface FigureSegment { name: string; start_ns: number; duration_ns: number; steps: number }
export interface FigureRow { kind: "total" | "parts" | "collectives"; stream: number | null; segments: FigureSegment[]; left_out: number }
export interface PartOfSteps {
  part: string; mean_ns: number | null; median_ns: number | null; p90_ns: number | null; share: number | null; steps: number;
}
export interface StepTrace {
  step: number | null; steps: number[]; excluded: number[]; rows: FigureRow[]; parts: PartOfSteps[];
  forward_names: string[]; backward_names: string[]; forward_point: string | null; backward_point: string | null;
}
export interface StepFigures {
  steps: number; device_steps: number; step_time_ns: number | null; quartiles_ns: [number, number] | null; host_ns: number | null; device_ns: number | null;
  differs: string; behind: boolean; sentence: string; chosen: number[]; left_out: { step: number; reason: string }[]; few: boolean;
}
export interface Verdict {
  kind: string; share: number; of_device: boolean; busy: number | null; device: string; leading: string; leading_share: number; cause: string;
  rank: number | null; confidence: string; table: string; sentence: string;
}
export interface Overview {
  verdict: Verdict; figures: StepFigures;
  ranks: Rank[]; steps: number; step_ns: number | null; parts: Record<string, number>;
  operators: Row[]; types: { type: string | null; count: number; total_ns: number }[]; memory: Row[]; pipeline: Row[];
  advice: Finding[]; findings: number; judged: boolean; health: Record<string, number>;
}
export interface HealthFinding { check: string; severity: string; count: number; message: string; unsafe: string[]; source: string }

export interface Saving { low_ns: number; likely_ns: number; high_ns: number }
export interface FindingText { title: string; cause: string; remedy: string; patch: string }
export interface Evidence {
  what: string; value: number | null; unit: string; per_step: boolean; steps: number[]; places: string[];
  words: Record<string, string>;
}
export interface Finding {
  id: string; rule: string; subject: string; level: string; confidence: number; share: number; saving: Saving | null;
  evidence: Evidence[]; texts: Record<string, FindingText>;
}
export interface Silenced { rule: string; conclusion: string; reason: string }
export interface Advice { step_ns: number; findings: Finding[]; silenced: Silenced[] }

export interface Column { name: string; type: "text" | "integer" | "number" | "boolean" | "list"; unit: string }
export interface Condition {
  column: string; contains?: string; one_of?: (string | number | boolean)[]; at_least?: number; at_most?: number; missing?: boolean;
}
export interface Order { column: string; descending: boolean }
export interface TableQuery { trace?: number | null; where?: Condition[]; sort?: Order[]; offset?: number; limit?: number }
export interface TablePage { name: string; title: string; columns: Column[]; rows: unknown[][]; matching: number; total: number; kept?: "all" | "window" | "first"; embedded?: number }
export interface TableShown { name: string; title: string; recorded: boolean; per_trace: boolean }

export interface Operation {
  id: number; type: string | null; workers: number | null; parent: number | null; children: number[] | null;
  queue_capacity: number | null; mean_size: number | null; usage: number | null; empty_share: number | null;
}
export interface Place {
  kind: "iterate" | "send" | "receive"; batches: number; empty: number; not_empty: number; full: number | null;
  capacity: number | null; mean_size: number | null; costs: Record<string, number>;
}
export interface Pipeline { operations: Operation[]; bottlenecks: number[]; places: Place[] }
export interface Extremes { min: number[]; max: number[]; last: number[] }
export interface BatchCurve extends Extremes { name: string; mean: number; batch: number[] }
export interface BatchCurves { kind: string; batches: number; curves: BatchCurve[] }
export interface Neighbour { id: number; type: string; workers: number | null }
export interface OperationShown {
  id: number; type: string; workers: number | null; capacity: number | null; usage: number | null; mean_size: number | null;
  samples: number; interval_ms: number | null; parent: Neighbour | null; children: Neighbour[];
  remedy: "source" | "generator" | "map" | "batch" | "other"; findings: Finding[];
}
export interface ProcessorCurve extends Extremes {
  scope: "host" | "process" | "op"; op: number | null; type: string | null; name: string; unit: string; mean: number; samples: number;
  sample: number[];
}
export interface Processors {
  cores: number | null; interval_ms: number | null; first_batch: number | null; last_batch: number | null; idle_percent: number | null;
  curves: ProcessorCurve[]; left_out: number;
}
export interface QueueCurve { samples: number; capacity: number | null; sample: number[]; min: number[]; max: number[]; last: number[] }

export interface SlowRank { rank: number; hold_up_ns: number; steps: number[]; of_steps: number; chance: number }
export interface Communication { overlap: Row[]; waits: Row[]; recorded_ranks: number; job_ranks: number; hold_ups: Row[]; slow_rank: SlowRank | null }
export interface DeviceMemory {
  device_type: string | null; device: number | null; capacity_bytes: number | null; static_bytes: number | null; peak_bytes: number | null;
  peak_ns: number | null; peak_step: number | null; allocations: number | null; releases: number | null;
}
export interface StepPoints { step: number; start_ns: number; forward_ns: number | null; backward_ns: number | null; end_ns: number }
export interface MemoryOverview { devices: DeviceMemory[]; steps: StepPoints[] }
export interface PlannedGraph {
  graph: number; nodes: number; tensors: number; capacity_bytes: number | null; static_bytes: number; peak_bytes: number; peak_node: number | null;
  forward_node: number | null; backward_node: number | null; forward_name: string | null; backward_name: string | null;
}
export interface PlannedCurve extends Extremes { nodes: number; node: number[] }
export interface NodeTensors {
  node: number; count: number; bytes: number;
  tensors: { tensor: number; owner: string | null; kind: string | null; type: string | null; bytes: number; life_start: number; life_end: number }[];
}
export interface Units { flops: number; operators: number; best_flops_per_s: number | null; best_utilization_percent: number | null }
export interface FlopNode { id: number; parent: number | null; depth: number; name: string; flops: number; percent: number; operators: number }
export interface Flops {
  work: { flops: number; flops_per_s: number | null; utilization_percent: number | null; source: string } | null;
  cube: Units | null; vector: Units | null; peak_name: string | null; peak_flops_per_s: number | null; nodes: FlopNode[]; left_out: number;
}
export interface ShapeType { type: string; steps: number; count: number; total_ns: number; shapes: number | null }
export interface ShapeTypes { types: ShapeType[]; first: string[]; steps: number; left_out: number }
export interface ShapeSeries { type: string; step: number[]; average_ns: number[]; count: number[]; shapes: (number | null)[] }
export interface ShapeRuns { runs: { step: number; type: string; name: string; duration_ns: number; shapes: string | null }[]; total: number }
export interface CaptureRequest {
  id: string; state: string; first_step: number | null; last_step: number | null; reason: string; result: string; analysed: boolean;
}
export interface Process {
  pid: number; rank: number; program: string; state: string; step: number | null; step_age_ns: number | null; eligible: boolean;
  why_not: string; problem: string; recorded: number | null; wanted: number | null; requests: CaptureRequest[];
}
export interface Captures { folder: string | null; processes: Process[] }
export interface Ticket { address: string }
export interface CaptureWanted { steps: number; warmup: number; record: string[]; ranks: number[] | null }

export interface Alive { time_ns: number; allocations: number; bytes: number; by_owner: Row[]; largest: Row[] }
export interface Hit { kind: string; name: string; title: string; count: number; total_ns: number }
export interface Hits { hits: Hit[]; matching: Record<string, number> }

export interface Lane {
  lane: number; source: string; table: string; group: "program" | "host" | "device"; label: string; key: Record<string, unknown>;
  depths: number; events: number; start_ns: number; end_ns: number;
}
export interface Series { series: number; label: string; unit: string; samples: number }
export interface Timeline {
  origin_ns: string; start_ns: number; end_ns: number; events: number; unplaced: Record<string, number>;
  lanes: Lane[]; series: Series[]; steps: { step: number; start_ns: number; end_ns: number }[];
}
export interface Brief { event: number; name: string; lane: number; depth: number; start_ns: number; end_ns: number }
export interface Link { kind: string; count: number; events: Brief[] }
export interface EventShown extends Brief { source: string; table: string; columns: Row; links: Link[]; partial?: boolean }
export interface NameInSelection {
  source: string; name: string; count: number; total_ns: number; min_ns: number; max_ns: number; longest: number;
}
export interface Selection { names: NameInSelection[]; different: number; lanes: { lane: number; count: number; covered_ns: number }[] }
export interface Found { total: number; lanes: Record<string, number>; next: Brief | null }
export interface Occurrences { total: number; events: Brief[] }
export interface End { lane: number; time_ns: number; event: number | null; depth: number }
export interface Arrow { kind: string; start: End; end: End }
export interface Arrows { arrows: Arrow[]; total: number; unplaced: number }
export interface Curve {
  before: number | null; time_ns: number[]; min: (number | null)[]; max: (number | null)[]; last: (number | null)[]; count: number[];
}

export interface Side { run: number; path: string; steps: number; step_ns: number | null; parts: Record<string, number>; peak_bytes: number | null }
export interface Comparison {
  before: Side; after: Side; operators: Row[]; different: number; parts: Row[]; tasks: Row[]; different_tasks: number;
  cured: Finding[]; remaining: Finding[]; new: Finding[]; promised_ns: number;
}
