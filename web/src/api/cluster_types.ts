/** The answers of the server about several ranks, as /api/openapi.json describes them. */

/** How a job is spread over ranks. */
export interface Job { mode: string; size: number; stages: number; missing: number[] }

/** The parts of a step of one rank, in ns by the name of the part. */
export interface RankParts {
  rank: number; trace: number | null; stage: number; steps: number; stored: boolean;
  [part: string]: number | boolean | null;
}
export interface ClusterSteps {
  job: Job; steps: number[]; parts: string[]; stacked: string[]; rows: RankParts[]; matching: number;
  communication_rate: number | null; between_stages_rate: number | null; within_stage_rates: Record<string, number>;
}

export interface HeatRank { rank: number; trace: number | null; stage: number; value: number; share: number | null }
export interface Heat { metric: string; unit: string; of: string; ranks: HeatRank[] }

export interface Cost {
  rank: number; stage: number; transfer_ns: number; wait_ns: number; communication_share: number | null; steps: number;
  measured_by: "library" | "arrival";
}
export interface Costs { job: Job; steps: number[]; rows: Cost[]; no_data: number[] }
export interface RankLink {
  source: number; destination: number; transport: string; time_ns: number; bytes: number | null; bytes_per_s: number | null;
  source_stage: number; destination_stage: number;
}
export interface RankLinks {
  kind: "link" | "wait" | ""; rows: RankLink[]; matching: number; sources: number[]; destinations: number[]; transports: string[];
}
export interface CommunicationOperation {
  operation: string; calls: number; transfer_ns: number; wait_ns: number; bytes: number | null; bytes_per_s: number | null;
}
export interface CommunicationOperations { rows: CommunicationOperation[]; matching: number }
export interface OperationLink { operation: string; source: number; destination: number; transport: string; time_ns: number; bytes: number; bytes_per_s: number | null }

export interface RankStep { rank: number; trace: number; stage: number; step: number; start_ns: number; end_ns: number; aligned_by: string }
export interface RankSteps { job: Job; rows: RankStep[]; left_out: number }
export interface JoinedOperator { name: string; number: number; kind: string; ranks: number[]; start_ns: number[]; end_ns: number[] }
export interface Band {
  stage: number; name: string; number: number; kind: string; ranks: number;
  start_min_ns: number; start_mean_ns: number; start_max_ns: number; end_min_ns: number; end_mean_ns: number; end_max_ns: number;
}
export interface Load { rank: number; bucket: number; allocated_bytes: number | null; flops: number | null }
export interface Joined {
  step: number; end_ns: number; ranks: Omit<RankStep, "step">[]; matching_ranks: number; operators: JoinedOperator[]; bands: Band[]; matching: number;
  loads: Load[]; buckets: number;
}

export interface Stage {
  stage: number; ranks: number[]; recorded: number; operators: number; with_strategy: number; redistributions: number;
  gradient_aggregations: number; sends: number; receives: number;
}
export interface StageTransfer { source: number; destination: number; tag: string; send: string; receive: string }
export interface Stages { parallel_type: string; stages: Stage[]; transfers: StageTransfer[] }
export interface StrategyNode {
  id: string; kind: "scope" | "operator"; name: string; scope: string; type: string; role: string; strategy: string; operators: number;
  redistributions: number; gradient_aggregations: number; with_strategy: number;
}
export interface StrategyEdge { source: string; destination: string; count: number }
export interface StrategyGraph { nodes: StrategyNode[]; edges: StrategyEdge[]; left_out: number }
export interface StrategyOperator {
  node: string; name: string; type: string; scope: string; role: string; strategy: number[][] | null; groups: string[]; ranks: number[];
  output_type: string; output_shape: string; inputs: { node: string; name: string }[]; outputs: { node: string; name: string }[];
  attributes: Record<string, string>;
}
export interface StrategyHits { hits: { node: string; name: string; type: string; scope: string }[]; matching: number }

