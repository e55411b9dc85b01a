// "make web-types" makes this from the server's OpenAPI document; do not edit it.

export interface paths {
    "/api/compare": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["compare_two"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/compare/calls": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["compare_calls"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/compare/findings": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["compare_findings"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/compare/steps": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["aligned_steps"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["run_state"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/advice": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["advice"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/captures": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["captures"];
        put?: never;
        post: operations["ask_for_capture"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/cluster/differences": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["cluster_differences"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/cluster/heat": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["cluster_heat"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/cluster/rank-steps": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["steps_of_ranks"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/cluster/side-by-side": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["side_by_side"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/cluster/steps": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["cluster_parts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/communication": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["communication"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/communication/costs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["communication_costs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/communication/links": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["communication_links"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/communication/operation_links": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["links_of_operation"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/communication/operations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["operations_of_rank"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/download": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["download"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/flops": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["flops"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/health": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["health"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["history_of_folder"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/history/opened": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["open_versions"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/live": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["is_changed"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/marey/operators": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["marey_operators"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/marey/steps": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["marey_steps"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/memory": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["memory"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/memory/alive": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["alive"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/memory/graphs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["planned_graphs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/memory/graphs/{graph}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["planned_curve"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/memory/graphs/{graph}/tensors": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["planned_tensors"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/operators/annotations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["list_annotations"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/overview": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["overview"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/pipeline": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["pipeline"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/pipeline/batches": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["pipeline_batches"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/pipeline/operation": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["pipeline_one"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/pipeline/processors": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["processors"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/pipeline/queue": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["queue"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/ranks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["ranks"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/reopen": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["reopen"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/search": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["search"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/shapes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["shape_types"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/shapes/runs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["shape_runs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/shapes/series": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["shape_series"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/step-trace": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["step_trace_figure"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/steps": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["steps"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/strategy": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["strategy_stages"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/strategy/find": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["strategy_find"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/strategy/graph": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["strategy_graph"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/strategy/operator": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["strategy_operator"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/tables": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["list_tables"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/tables/{table}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["read_page"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/tables/{table}/csv": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["read_csv"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/timeline": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["timeline"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/timeline/events/{event}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["event"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/timeline/flame": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["flame_of_selection"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/timeline/flows": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["arrows"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/timeline/occurrences": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["occurrences"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/timeline/opening": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["first_view"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/timeline/phases": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["phases_of_lanes"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/timeline/search": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["find"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/timeline/selection": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["selection"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/timeline/series/{series}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["curve"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/timeline/tile": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["tile"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{run}/trends": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["read_trends"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/session": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["session"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tickets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["make_ticket"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        AdviceShown: {
            at_stake: boolean;
            findings: components["schemas"]["FindingShown"][];
            likely_together_ns: number;
            silenced: components["schemas"]["SilencedShown"][];
            step_ns: number;
            /** @enum {string} */
            together: "" | "overlap" | "bounded";
            together_ns: number;
        };
        AlignedStep: {
            length_ns: number;
            parts: components["schemas"]["StepPartShown"][];
            recording: string;
            recordings: number;
            run: number;
            start_ns: number;
            step: number;
            trace: number;
        };
        AlignedSteps: {
            after: components["schemas"]["AlignedStep"] | null;
            before: components["schemas"]["AlignedStep"] | null;
        };
        Alive: {
            allocations: number;
            by_owner: {
                [key: string]: unknown;
            }[];
            bytes: number;
            largest: {
                [key: string]: unknown;
            }[];
            time_ns: number;
            unlisted: {
                [key: string]: unknown;
            }[];
        };
        Arrow: {
            end: components["schemas"]["End"];
            kind: string;
            start: components["schemas"]["End"];
        };
        Arrows: {
            arrows: components["schemas"]["Arrow"][];
            total: number;
            unplaced: number;
        };
        Asked: {
            folder: string;
            request: string;
        };
        BatchCurve: {
            batch: number[];
            last: number[];
            max: number[];
            mean: number;
            min: number[];
            name: string;
        };
        BatchCurves: {
            batches: number;
            curves: components["schemas"]["BatchCurve"][];
            kind: string;
        };
        Brief: {
            depth: number;
            end_ns: number;
            event: number;
            lane: number;
            name: string;
            start_ns: number;
        };
        CaptureRequest: {
            analysed: boolean;
            first_step: number | null;
            id: string;
            last_step: number | null;
            reason: string;
            result: string;
            state: string;
        };
        Captures: {
            folder: string | null;
            processes: components["schemas"]["Process"][];
        };
        ChangeShown: {
            earliest: number;
            high: number | null;
            lasts: boolean;
            latest: number;
            low: number | null;
            ratio: number | null;
            version: number;
        };
        ClusterSteps: {
            between_stages_rate: number | null;
            communication_rate: number | null;
            job: components["schemas"]["Job"];
            matching: number;
            parts: string[];
            rows: ({
                rank: number;
                stage: number;
                steps: number;
                stored: boolean;
                trace: number | null;
            } & {
                [key: string]: number | boolean | null;
            })[];
            stacked: string[];
            steps: number[];
            within_stage_rates: {
                [key: string]: number;
            };
        };
        Column: {
            name: string;
            /** @enum {string} */
            type: "text" | "integer" | "number" | "boolean" | "list";
            unit: string;
        };
        Communication: {
            collectives: {
                behind_ns: number | null;
                bus_bytes_per_s: number | null;
                bytes: number | null;
                duration_ns: number;
                expected_ns: number | null;
                exposed_ns: number | null;
                in_step_ns: number | null;
                label: string;
                long: boolean;
                name: string;
                rank: number;
                ranks: number | null;
                rate_bytes_per_s: number | null;
                step: number;
                trace: number | null;
                transfer_ns: number | null;
                wait_ns: number | null;
            }[];
            collectives_of: number;
            hold_ups: {
                [key: string]: unknown;
            }[];
            job_ranks: number;
            long: components["schemas"]["LongCollectives"] | null;
            messages: number;
            overlap: {
                [key: string]: unknown;
            }[];
            recorded_order: components["schemas"]["RecordedOrder"] | null;
            recorded_ranks: number;
            slow_rank: components["schemas"]["SlowRank"] | null;
            waits: {
                [key: string]: unknown;
            }[];
        };
        ComparedCall: {
            after_calls: number;
            after_ns: number;
            after_self_ns: number;
            before_calls: number;
            before_ns: number;
            before_self_ns: number;
            module: string;
            name: string;
            parent: number;
        };
        ComparedCalls: {
            after_ns: number;
            before_ns: number;
            left_out: number;
            nodes: components["schemas"]["ComparedCall"][];
        };
        ComparedCause: {
            after_ns: number;
            before_ns: number;
            difference_ns: number;
            error_ns: number | null;
            share: number | null;
            texts: {
                [key: string]: string;
            };
        };
        ComparedCauses: {
            causes: components["schemas"]["ComparedCause"][];
            explained: number | null;
            more: number;
            more_certain: number | null;
            others_ns: number;
            /** @enum {string} */
            side: "host" | "device";
        };
        ComparedFindings: {
            cured: components["schemas"]["FindingShown"][];
            new: components["schemas"]["FindingShown"][];
            promised_ns: number;
            remaining: components["schemas"]["FindingShown"][];
        };
        ComparedName: {
            after_calls: number | null;
            after_ns: number | null;
            before_calls: number | null;
            before_ns: number | null;
            difference_ns: number;
            error_ns: number | null;
            name: string;
        };
        ComparedPart: {
            after_ns: number;
            before_ns: number;
            difference_ns: number;
            error_ns: number | null;
            part: string;
            share: number | null;
        };
        ComparedPath: {
            after_launched_by: string;
            after_ns: number;
            before_launched_by: string;
            before_ns: number;
            difference_ns: number;
            module: string;
            name: string;
            path: string;
        };
        ComparedRuns: {
            after: components["schemas"]["ComparedSide"];
            before: components["schemas"]["ComparedSide"];
            calls_of: ("host" | "device")[];
            causes: components["schemas"]["ComparedCauses"] | null;
            common_share: number | null;
            device_parts: components["schemas"]["ComparedPart"][];
            device_time: components["schemas"]["ComparedPath"][];
            different: number;
            different_tasks: number;
            doubts: {
                [key: string]: string;
            }[];
            matched: number | null;
            operators: components["schemas"]["ComparedName"][];
            parts: components["schemas"]["ComparedPart"][];
            step: components["schemas"]["StepChange"] | null;
            tasks: components["schemas"]["ComparedName"][];
        };
        ComparedSide: {
            devices: string[];
            medians_ns: number[];
            path: string;
            peak_bytes: number | null;
            ranks: number;
            recordings: number;
            run: number;
            spread: components["schemas"]["StepSpread"] | null;
            step_ns: number | null;
            steps: number;
        };
        Condition: {
            at_least?: number | null;
            at_most?: number | null;
            column: string;
            contains?: string | null;
            missing?: boolean | null;
            one_of?: (boolean | number | string)[] | null;
        };
        Costs: {
            job: components["schemas"]["Job"];
            no_data: number[];
            rows: {
                communication_ns: number;
                communication_share: number | null;
                exposed_ns: number | null;
                measured_by: ("library" | "arrival") | null;
                overlapped_ns: number | null;
                rank: number;
                stage: number;
                steps: number;
                transfer_ns: number | null;
                unexplained_ns: number;
                wait_ns: number | null;
            }[];
            steps: number[];
        };
        CurveShown: {
            before: number | null;
            count: number[];
            last: (number | null)[];
            max: (number | null)[];
            min: (number | null)[];
            time_ns: number[];
        };
        DeviceMemory: {
            allocations: number | null;
            capacity_bytes: number | null;
            device: number | null;
            device_type: string | null;
            peak_bytes: number | null;
            peak_ns: number | null;
            peak_step: number | null;
            releases: number | null;
            static_bytes: number | null;
        };
        Draft: {
            one_of: number;
            origin_ns: string;
            run: number;
        };
        End: {
            depth: number;
            event: number | null;
            lane: number;
            time_ns: number;
        };
        EventPlace: {
            end_ns?: number | null;
            place: string;
            start_ns?: number | null;
            step: number | null;
            trace: number;
        };
        EventShown: {
            callers: components["schemas"]["Brief"][];
            columns: {
                [key: string]: unknown;
            };
            depth: number;
            end_ns: number;
            event: number;
            lane: number;
            links: components["schemas"]["Link"][];
            name: string;
            source: string;
            start_ns: number;
            table: string;
        };
        EvidenceShown: {
            events: components["schemas"]["EventPlace"][];
            of_mean: boolean;
            other_most: number;
            other_places: number;
            other_places_ns: number;
            per_step: boolean;
            places: string[];
            places_count: number[];
            places_ns: number[];
            steps: number[];
            unit: string;
            value: number | null;
            what: string;
            whole_ns: number;
            words: {
                [key: string]: string;
            };
        };
        FigureRow: {
            /** @enum {string} */
            kind: "total" | "parts" | "collectives";
            left_out: number;
            segments: components["schemas"]["SegmentShown"][];
            stream: number | null;
        };
        FigureShown: {
            changes: components["schemas"]["ChangeShown"][];
            figure: string;
            high: number[];
            levels: components["schemas"]["LevelShown"][];
            low: number[];
            unit: string;
            values: number[];
            versions: number[];
        };
        FileWanted: {
            address: string;
        };
        FindingShown: {
            after_ns: {
                [key: string]: number;
            };
            at_stake: boolean;
            confidence: number;
            evidence: components["schemas"]["EvidenceShown"][];
            first: string[];
            id: string;
            level: string;
            overlaps: string[];
            ranks: number[];
            rule: string;
            saving: components["schemas"]["SavingShown"] | null;
            share: number;
            step_ns: number;
            subject: string;
            texts: {
                [key: string]: components["schemas"]["FindingText"];
            };
        };
        FindingText: {
            cause: string;
            high: string;
            likely: string;
            low: string;
            patch: string;
            remedy: string;
            title: string;
        };
        FirstView: {
            end_ns: number;
            start_ns: number;
            step: number;
            trace: number;
        };
        Flame: {
            /** @enum {string} */
            by: "name" | "module" | "stack";
            left_out: number;
            nodes: components["schemas"]["FlameNode"][];
            offered: string[];
            total_ns: number;
        };
        FlameNode: {
            count: number;
            name: string;
            parent: number;
            self_ns: number;
            total_ns: number;
        };
        Flops: {
            cube: components["schemas"]["Units"] | null;
            left_out: number;
            nodes: components["schemas"]["Node"][];
            peak_flops_per_s: number | null;
            peak_name: string | null;
            ranks: components["schemas"]["RankWork"][];
            steps: number;
            vector: components["schemas"]["Units"] | null;
            work: components["schemas"]["Work"] | null;
        };
        Found: {
            lanes: {
                [key: string]: number;
            };
            next: components["schemas"]["Brief"] | null;
            total: number;
        };
        GroupShown: {
            name: string;
            ranks: number[];
        };
        HealthFinding: {
            check: string;
            count: number;
            group: number;
            message: string;
            severity: string;
            source: string;
            texts: {
                [key: string]: string;
            };
            unsafe: string[];
        };
        Heat: {
            metric: string;
            of: string;
            ranks: {
                rank: number;
                share: number | null;
                stage: number;
                trace: number | null;
                value: number;
            }[];
            unit: string;
        };
        HistoryShown: {
            figures: components["schemas"]["FigureShown"][];
            problems: components["schemas"]["Problem"][];
            versions: components["schemas"]["VersionShown"][];
        };
        Hit: {
            /** @default 0 */
            count: number;
            kind: string;
            name: string;
            title: string;
            /** @default 0 */
            total_ns: number;
        };
        Hits: {
            hits: components["schemas"]["Hit"][];
            matching: {
                [key: string]: number;
            };
        };
        Job: {
            missing: number[];
            mode: string;
            recorded: number;
            size: number;
            stages: number;
        };
        Joined: {
            bands: {
                end_max_ns: number;
                end_mean_ns: number;
                end_min_ns: number;
                kind: string;
                name: string;
                number: number;
                ranks: number;
                stage: number;
                start_max_ns: number;
                start_mean_ns: number;
                start_min_ns: number;
            }[];
            buckets: number;
            delays: {
                doing: string[];
                doing_ns: number[];
                from_ns: number;
                grown_ns: number;
                name: string;
                number: number;
                rank: number;
                spread_ns: number;
                stage: number;
                start_ns: number;
            }[];
            end_ns: number;
            loads: {
                allocated_bytes: number | null;
                bucket: number;
                flops: number | null;
                rank: number;
            }[];
            matching: number;
            matching_ranks: number;
            operators: {
                end_ns: number[];
                kind: string;
                name: string;
                number: number;
                ranks: number[];
                start_ns: number[];
            }[];
            ranks: {
                aligned_by: string;
                end_ns: number;
                rank: number;
                stage: number;
                start_ns: number;
                trace: number;
            }[];
            step: number;
        };
        LaneInSelection: {
            count: number;
            covered_ns: number;
            cut: number;
            lane: number;
        };
        LaneShown: {
            depths: number;
            end_ns: number;
            events: number;
            /** @enum {string} */
            group: "program" | "host" | "device";
            key: {
                [key: string]: unknown;
            };
            label: string;
            lane: number;
            source: string;
            start_ns: number;
            table: string;
        };
        LevelShown: {
            first: number;
            last: number;
            value: number;
        };
        Link: {
            count: number;
            events: components["schemas"]["Brief"][];
            kind: string;
        };
        Links: {
            destinations: number[];
            /** @enum {string} */
            kind: "link" | "wait" | "";
            matching: number;
            rows: {
                bytes: number | null;
                bytes_per_s: number | null;
                destination: number;
                destination_stage: number;
                source: number;
                source_stage: number;
                time_ns: number;
                transport: string;
            }[];
            sources: number[];
            transports: string[];
        };
        Live: {
            changed: boolean;
            files: number;
            generation: number;
        };
        LongCollectives: {
            calls: number;
            duration_ns: number;
            expected_ns: number;
            of_calls: number;
            ranks: number;
            steps: number;
        };
        LongStepShown: {
            factor: number;
            rank: number | null;
            step: number;
            step_time_ns: number;
        };
        MemoryOverview: {
            devices: components["schemas"]["DeviceMemory"][];
            steps: components["schemas"]["StepPoints"][];
        };
        MemoryTrend: {
            bytes: number[];
            device: number | null;
            device_type: string | null;
            owner: components["schemas"]["PeakOwner"] | null;
            peak_bytes: number;
            peak_ns: number;
            peak_step: number | null;
            time_ns: number[];
        };
        NameInSelection: {
            count: number;
            longest: number;
            max_ns: number;
            min_ns: number;
            name: string;
            self_ns: number;
            source: string;
            total_ns: number;
        };
        Neighbour: {
            id: number;
            operation: string;
            type: string;
            workers: number | null;
        };
        Node: {
            depth: number;
            flops: number;
            id: number;
            name: string;
            operators: number;
            parent: number | null;
            percent: number;
        };
        NodeCurve: {
            last: number[];
            max: number[];
            min: number[];
            node: number[];
            nodes: number;
        };
        NodeTensors: {
            bytes: number;
            count: number;
            node: number;
            tensors: components["schemas"]["Tensor"][];
        };
        Occurrences: {
            events: components["schemas"]["Brief"][];
            total: number;
        };
        OpenedPair: {
            after: number;
            before: number;
        };
        Operations: {
            matching: number;
            rows: {
                bytes: number | null;
                bytes_per_s: number | null;
                calls: number;
                operation: string;
                transfer_ns: number;
                wait_ns: number;
            }[];
        };
        OperationShown: {
            capacity: number | null;
            children: components["schemas"]["Neighbour"][];
            findings: components["schemas"]["FindingShown"][];
            id: number;
            interval_ms: number | null;
            mean_size: number | null;
            operation: string;
            parent: components["schemas"]["Neighbour"] | null;
            /** @enum {string} */
            remedy: "source" | "generator" | "map" | "batch" | "other";
            samples: number;
            type: string;
            usage: number | null;
            workers: number | null;
        };
        Order: {
            column: string;
            /** @default false */
            descending: boolean;
        };
        Overview: {
            advice: components["schemas"]["FindingShown"][];
            at_stake: boolean;
            base_ns: number;
            figures: components["schemas"]["StepFigures"];
            findings: number;
            health: {
                [key: string]: number;
            };
            idle: {
                [key: string]: number;
            };
            job_ranks: number;
            judged: boolean;
            likely_together_ns: number;
            parts: {
                [key: string]: number;
            };
            pipeline: {
                [key: string]: unknown;
            }[];
            ranks: components["schemas"]["Rank"][];
            recorded_ranks: number;
            step_ns: number | null;
            steps: number;
            /** @enum {string} */
            together: "" | "overlap" | "bounded";
            together_ns: number;
            verdict: components["schemas"]["VerdictShown"];
            work: components["schemas"]["WorkShown"][];
            work_steps: number;
            work_trace: number | null;
        };
        PartShown: {
            mean_ns: number | null;
            median_ns: number | null;
            p90_ns: number | null;
            part: string;
            share: number | null;
            steps: number;
        };
        PeakOwner: {
            bytes: number;
            name: string | null;
            percent: number | null;
        };
        PhaseRuns: {
            phase: string[];
            start_ns: number[];
        };
        Phases: {
            host: components["schemas"]["PhaseRuns"];
            lanes: {
                [key: string]: components["schemas"]["PhaseRuns"];
            };
        };
        Pipeline: {
            bottlenecks: number[];
            keeps_up: boolean;
            operations: {
                children: number[] | null;
                empty_share: number | null;
                id: number;
                mean_size: number | null;
                operation: string;
                parent: number | null;
                queue_capacity: number | null;
                type: string | null;
                usage: number | null;
                workers: number | null;
            }[];
            places: components["schemas"]["Place"][];
        };
        Place: {
            batches: number;
            capacity: number | null;
            costs: {
                [key: string]: number;
            };
            empty: number;
            full: number | null;
            /** @enum {string} */
            kind: "iterate" | "send" | "receive";
            mean_size: number | null;
            not_empty: number;
        };
        PlannedGraph: {
            backward_name: string | null;
            backward_node: number | null;
            capacity_bytes: number | null;
            forward_name: string | null;
            forward_node: number | null;
            graph: number;
            nodes: number;
            peak_bytes: number;
            peak_node: number | null;
            static_bytes: number;
            tensors: number;
        };
        Problem: {
            problem: string;
            /** @default  */
            remedy: string;
            /** @default  */
            where: string;
        };
        Process: {
            eligible: boolean;
            pid: number;
            problem: string;
            program: string;
            rank: number;
            recorded: number | null;
            requests: components["schemas"]["CaptureRequest"][];
            state: string;
            step: number | null;
            step_age_ns: number | null;
            wanted: number | null;
            why_not: string;
        };
        ProcessorCurve: {
            last: number[];
            max: number[];
            mean: number;
            min: number[];
            name: string;
            op: number | null;
            operation: string | null;
            sample: number[];
            samples: number;
            /** @enum {string} */
            scope: "host" | "process" | "op";
            unit: string;
        };
        Processors: {
            cores: number | null;
            curves: components["schemas"]["ProcessorCurve"][];
            first_batch: number | null;
            idle_percent: number | null;
            interval_ms: number | null;
            last_batch: number | null;
            left_out: number;
        };
        Progress: {
            bytes: number;
            /** @enum {string} */
            doing: "reading" | "analysing" | "comparing";
            done: number;
            part: number;
            problem: components["schemas"]["Problem"] | null;
            seconds: number;
            /** @enum {string} */
            state: "waiting" | "opening" | "ready" | "failed";
            timelines: number;
            total: number;
            what: string;
        };
        Query: {
            /** @default 100 */
            limit: number;
            /** @default 0 */
            offset: number;
            /** @default [] */
            sort: components["schemas"]["Order"][];
            trace?: number | null;
            /** @default [] */
            where: components["schemas"]["Condition"][];
        };
        QueueCurve: {
            capacity: number | null;
            last: number[];
            max: number[];
            min: number[];
            sample: number[];
            samples: number;
        };
        Rank: {
            device_kind: string;
            devices: string[];
            figures: components["schemas"]["StepFigures"];
            format: string;
            framework: string;
            loads_itself: boolean;
            origin_ns: string;
            parts: {
                [key: string]: number;
            };
            path: string;
            peak_bytes: number | null;
            rank: number | null;
            recorder: string;
            step_ns: number | null;
            steps: number;
            streams: number;
            tables: {
                [key: string]: number;
            };
            trace: number;
            waiting: components["schemas"]["WaitingStepsShown"] | null;
        };
        RankDifferences: {
            matching: number;
            of_stage: boolean;
            rank: number;
            rows: {
                calls: number;
                device_self_ns: number;
                line: string | null;
                more_device_ns: number;
                more_ns: number;
                name: string | null;
                other_calls: number;
                other_device_self_ns: number;
                other_self_ns: number;
                self_ns: number;
            }[];
        };
        RankSteps: {
            job: components["schemas"]["Job"];
            left_out: number;
            rows: {
                aligned_by: string;
                end_ns: number;
                rank: number;
                stage: number;
                start_ns: number;
                step: number;
                trace: number;
            }[];
        };
        RankWork: {
            flops: number;
            rank: number | null;
            trace: number;
        };
        RecordedOrder: {
            hold_up_ns: number;
            late: boolean;
            of_steps: number;
            rank: number;
            ranks: number[];
            steps: number;
        };
        RunList: {
            runs: components["schemas"]["RunShown"][];
            total: number;
        };
        RunShown: {
            duration_ns: number;
            name: string;
            shapes: string | null;
            step: number;
            type: string;
        };
        RunState: {
            draft: components["schemas"]["Draft"] | null;
            generation: number;
            growing: boolean;
            name: string;
            not_recorded: string[];
            origin_ns: string;
            path: string;
            progress: components["schemas"]["Progress"];
            run: number;
            strategy: boolean;
            traces: components["schemas"]["TraceState"][];
            versions: number;
        };
        SavingShown: {
            high_ns: number;
            likely_ns: number;
            low_ns: number;
        };
        SegmentShown: {
            duration_ns: number;
            name: string;
            start_ns: number;
            steps: number;
        };
        Selection: {
            different: number;
            lanes: components["schemas"]["LaneInSelection"][];
            names: components["schemas"]["NameInSelection"][];
        };
        SeriesShown: {
            label: string;
            samples: number;
            series: number;
            unit: string;
        };
        Session: {
            languages: string[];
            runs: components["schemas"]["RunState"][];
            version: string;
        };
        SideBySide: {
            figures: {
                [key: string]: (number | null)[];
            };
            groups: components["schemas"]["GroupShown"][];
            host: string[];
            rank: number[];
            stage: (number | null)[];
            stages: number;
            steps: number[];
            trace: number[];
        };
        SilencedShown: {
            conclusion: string;
            reason: string;
            rule: string;
            texts: {
                [key: string]: string;
            };
        };
        SlowRank: {
            chance: number;
            hold_up_ns: number;
            of_steps: number;
            rank: number;
            steps: number[];
        };
        Spread: {
            count: number;
            counts: number[];
            edges_ns: number[];
            max_ns: number | null;
            mean_ns: number | null;
            median_ns: number | null;
            min_ns: number | null;
            outliers: {
                [key: string]: unknown;
            }[];
            p90_ns: number | null;
            p99_ns: number | null;
            std_ns: number | null;
        };
        Stages: {
            parallel_type: string;
            stages: {
                gradient_aggregations: number;
                operators: number;
                ranks: number[];
                receives: number;
                recorded: number;
                redistributions: number;
                sends: number;
                stage: number;
                with_strategy: number;
            }[];
            transfers: {
                destination: number;
                receive: string;
                send: string;
                source: number;
                tag: string;
            }[];
        };
        StepChange: {
            high: number;
            least_change: number;
            low: number;
            ratio: number;
            runs_needed: number | null;
            /** @enum {string} */
            verdict: "slower" | "faster" | "alike" | "cannot tell";
        };
        StepFigures: {
            behind: boolean;
            chosen: number[];
            device: {
                [key: string]: number;
            };
            device_mean_ns: number | null;
            device_ns: number | null;
            device_steps: number;
            differs: string;
            distinct: number;
            few: boolean;
            gradient_sync_ns: number;
            host: {
                [key: string]: number;
            };
            host_mean_ns: number | null;
            host_ns: number | null;
            left_out: components["schemas"]["StepLeftOut"][];
            long_steps: components["schemas"]["LongStepShown"][];
            outliers: number[];
            overlapped_communication_ns: number;
            quartiles_ns: [
                number,
                number
            ] | null;
            queue_wait: {
                [key: string]: number;
            };
            ranks: number;
            sentence: string;
            step_mean_ns: number | null;
            step_time_ns: number | null;
            steps: number;
            usual: number[];
            usual_on_device: number[];
            usual_steps: number;
        };
        StepIdle: {
            cause: string;
            idle_ns: number;
            step: number;
        };
        StepLeftOut: {
            reason: string;
            step: number;
        };
        StepLength: {
            counted: boolean;
            step: number;
            step_time_ns: number;
        };
        StepPartShown: {
            callers: string[];
            end_ns: number;
            kind: string;
            match: number;
            name: string;
            start_ns: number;
            thread: number;
        };
        StepPoints: {
            backward_ns: number | null;
            end_ns: number;
            forward_ns: number | null;
            start_ns: number;
            step: number;
        };
        Steps: {
            spread: components["schemas"]["Spread"];
            steps: ({
                complete: boolean;
                duration_ns: number | null;
                rank?: number;
                start_ns: number | null;
                step: number | null;
                trace?: number;
            } & {
                [key: string]: number | boolean | null;
            })[];
        };
        StepShown: {
            end_ns: number;
            start_ns: number;
            step: number;
        };
        StepsOfRanks: {
            last_steps: number[];
            metric: string;
            metrics: string[];
            quantiles: number[];
            rank: number[];
            spread: (number | null)[][];
            steps: number[];
            trace: number[];
            values: (number | null)[][];
        };
        StepSpread: {
            counts: number[];
            edges_ns: number[];
            outside: number;
        };
        StepTrace: {
            backward_names: string[];
            backward_point: string | null;
            excluded: number[];
            forward_names: string[];
            forward_point: string | null;
            parts: components["schemas"]["PartShown"][];
            rows: components["schemas"]["FigureRow"][];
            step: number | null;
            steps: number[];
        };
        StrategyGraph: {
            edges: {
                count: number;
                destination: string;
                source: string;
            }[];
            left_out: number;
            nodes: {
                gradient_aggregations: number;
                id: string;
                /** @enum {string} */
                kind: "scope" | "operator";
                name: string;
                operators: number;
                redistributions: number;
                role: string;
                scope: string;
                strategy: string;
                type: string;
                with_strategy: number;
            }[];
        };
        StrategyHit: {
            name: string;
            node: string;
            scope: string;
            type: string;
        };
        StrategyHits: {
            hits: components["schemas"]["StrategyHit"][];
            matching: number;
        };
        StrategyOperator: {
            attributes: {
                [key: string]: string;
            };
            groups: string[];
            inputs: {
                name: string;
                node: string;
            }[];
            name: string;
            node: string;
            output_shape: string;
            output_type: string;
            outputs: {
                name: string;
                node: string;
            }[];
            ranks: number[];
            role: string;
            scope: string;
            strategy: number[][] | null;
            type: string;
        };
        TablePage: {
            columns: components["schemas"]["Column"][];
            empty: string[];
            matching: number;
            name: string;
            rows: unknown[][];
            title: string;
            total: number;
        };
        TableShown: {
            name: string;
            per_trace: boolean;
            recorded: boolean;
            title: string;
        };
        Tensor: {
            bytes: number;
            kind: string | null;
            life_end: number;
            life_start: number;
            owner: string | null;
            tensor: number;
            type: string | null;
        };
        Ticket: {
            address: string;
        };
        TileRow: {
            count: number;
            depth: number;
            first: number;
            lane: number;
        };
        TileShown: {
            bucket_ns: number;
            columns: {
                [key: string]: number[];
            };
            end_ns: number;
            events: number;
            items: number;
            names: {
                [key: string]: string;
            };
            rows: components["schemas"]["TileRow"][];
            start_ns: number;
        };
        TimelineShown: {
            end_ns: number;
            events: number;
            lanes: components["schemas"]["LaneShown"][];
            origin_ns: string;
            series: components["schemas"]["SeriesShown"][];
            start_ns: number;
            steps: components["schemas"]["StepShown"][];
            unplaced: {
                [key: string]: number;
            };
        };
        TraceState: {
            origin_ns: string;
            rank: number | null;
            trace: number;
        };
        Trends: {
            idle: components["schemas"]["StepIdle"][];
            memory: components["schemas"]["MemoryTrend"] | null;
            steps: components["schemas"]["StepLength"][];
        };
        TypeList: {
            first: string[];
            left_out: number;
            steps: number;
            types: components["schemas"]["TypeShown"][];
        };
        TypeSeries: {
            average_ns: number[];
            count: number[];
            shapes: (number | null)[];
            step: number[];
            type: string;
        };
        TypeShown: {
            count: number;
            shapes: number | null;
            steps: number;
            total_ns: number;
            type: string;
        };
        Units: {
            best_flops_per_s: number | null;
            best_utilization_percent: number | null;
            flops: number;
            operators: number;
        };
        VerdictShown: {
            busy: number | null;
            cause: string;
            cause_share: number;
            confidence: string;
            device: string;
            doubts: string[];
            is_behind: boolean;
            kind: string;
            leading: string;
            leading_share: number;
            name: string;
            name_share: number;
            of_device: boolean;
            phase: string;
            phase_share: number;
            rank: number | null;
            sentence: string;
            sentences: {
                [key: string]: string;
            };
            share: number;
            table: string;
        };
        VersionShown: {
            commit: string;
            name: string;
            openable: boolean;
            path: string;
            recorded_ns: string | null;
            recordings: number;
        };
        WaitingStepsShown: {
            of: number;
            ready_ns: number;
            since: number | null;
            steps: number[];
            wait_ns: number;
        };
        Wanted: {
            /** @default true */
            analyse: boolean;
            ranks?: number[] | null;
            /** @default [] */
            record: ("record_shapes" | "profile_memory" | "with_stack" | "with_flops" | "with_modules")[];
            /** @default 1 */
            steps: number;
            /** @default 0 */
            warmup: number;
        };
        Work: {
            flops: number;
            flops_per_s: number | null;
            source: string;
            utilization_percent: number | null;
        };
        WorkShown: {
            calls: number;
            calls_least: number;
            calls_most: number;
            kind: string;
            label: string;
            name: string;
            ratio: number;
            step_ns: number;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type AdviceShown = components['schemas']['AdviceShown'];
export type AlignedStep = components['schemas']['AlignedStep'];
export type AlignedSteps = components['schemas']['AlignedSteps'];
export type Alive = components['schemas']['Alive'];
export type Arrow = components['schemas']['Arrow'];
export type Arrows = components['schemas']['Arrows'];
export type Asked = components['schemas']['Asked'];
export type BatchCurve = components['schemas']['BatchCurve'];
export type BatchCurves = components['schemas']['BatchCurves'];
export type Brief = components['schemas']['Brief'];
export type CaptureRequest = components['schemas']['CaptureRequest'];
export type Captures = components['schemas']['Captures'];
export type ChangeShown = components['schemas']['ChangeShown'];
export type ClusterSteps = components['schemas']['ClusterSteps'];
export type Column = components['schemas']['Column'];
export type Communication = components['schemas']['Communication'];
export type ComparedCall = components['schemas']['ComparedCall'];
export type ComparedCalls = components['schemas']['ComparedCalls'];
export type ComparedCause = components['schemas']['ComparedCause'];
export type ComparedCauses = components['schemas']['ComparedCauses'];
export type ComparedFindings = components['schemas']['ComparedFindings'];
export type ComparedName = components['schemas']['ComparedName'];
export type ComparedPart = components['schemas']['ComparedPart'];
export type ComparedPath = components['schemas']['ComparedPath'];
export type ComparedRuns = components['schemas']['ComparedRuns'];
export type ComparedSide = components['schemas']['ComparedSide'];
export type Condition = components['schemas']['Condition'];
export type Costs = components['schemas']['Costs'];
export type CurveShown = components['schemas']['CurveShown'];
export type DeviceMemory = components['schemas']['DeviceMemory'];
export type Draft = components['schemas']['Draft'];
export type End = components['schemas']['End'];
export type EventPlace = components['schemas']['EventPlace'];
export type EventShown = components['schemas']['EventShown'];
export type EvidenceShown = components['schemas']['EvidenceShown'];
export type FigureRow = components['schemas']['FigureRow'];
export type FigureShown = components['schemas']['FigureShown'];
export type FileWanted = components['schemas']['FileWanted'];
export type FindingShown = components['schemas']['FindingShown'];
export type FindingText = components['schemas']['FindingText'];
export type FirstView = components['schemas']['FirstView'];
export type Flame = components['schemas']['Flame'];
export type FlameNode = components['schemas']['FlameNode'];
export type Flops = components['schemas']['Flops'];
export type Found = components['schemas']['Found'];
export type GroupShown = components['schemas']['GroupShown'];
export type HealthFinding = components['schemas']['HealthFinding'];
export type Heat = components['schemas']['Heat'];
export type HistoryShown = components['schemas']['HistoryShown'];
export type Hit = components['schemas']['Hit'];
export type Hits = components['schemas']['Hits'];
export type Job = components['schemas']['Job'];
export type Joined = components['schemas']['Joined'];
export type LaneInSelection = components['schemas']['LaneInSelection'];
export type LaneShown = components['schemas']['LaneShown'];
export type LevelShown = components['schemas']['LevelShown'];
export type Link = components['schemas']['Link'];
export type Links = components['schemas']['Links'];
export type Live = components['schemas']['Live'];
export type LongCollectives = components['schemas']['LongCollectives'];
export type LongStepShown = components['schemas']['LongStepShown'];
export type MemoryOverview = components['schemas']['MemoryOverview'];
export type MemoryTrend = components['schemas']['MemoryTrend'];
export type NameInSelection = components['schemas']['NameInSelection'];
export type Neighbour = components['schemas']['Neighbour'];
export type Node = components['schemas']['Node'];
export type NodeCurve = components['schemas']['NodeCurve'];
export type NodeTensors = components['schemas']['NodeTensors'];
export type Occurrences = components['schemas']['Occurrences'];
export type OpenedPair = components['schemas']['OpenedPair'];
export type Operations = components['schemas']['Operations'];
export type OperationShown = components['schemas']['OperationShown'];
export type Order = components['schemas']['Order'];
export type Overview = components['schemas']['Overview'];
export type PartShown = components['schemas']['PartShown'];
export type PeakOwner = components['schemas']['PeakOwner'];
export type PhaseRuns = components['schemas']['PhaseRuns'];
export type Phases = components['schemas']['Phases'];
export type Pipeline = components['schemas']['Pipeline'];
export type Place = components['schemas']['Place'];
export type PlannedGraph = components['schemas']['PlannedGraph'];
export type Problem = components['schemas']['Problem'];
export type Process = components['schemas']['Process'];
export type ProcessorCurve = components['schemas']['ProcessorCurve'];
export type Processors = components['schemas']['Processors'];
export type Progress = components['schemas']['Progress'];
export type Query = components['schemas']['Query'];
export type QueueCurve = components['schemas']['QueueCurve'];
export type Rank = components['schemas']['Rank'];
export type RankDifferences = components['schemas']['RankDifferences'];
export type RankSteps = components['schemas']['RankSteps'];
export type RankWork = components['schemas']['RankWork'];
export type RecordedOrder = components['schemas']['RecordedOrder'];
export type RunList = components['schemas']['RunList'];
export type RunShown = components['schemas']['RunShown'];
export type RunState = components['schemas']['RunState'];
export type SavingShown = components['schemas']['SavingShown'];
export type SegmentShown = components['schemas']['SegmentShown'];
export type Selection = components['schemas']['Selection'];
export type SeriesShown = components['schemas']['SeriesShown'];
export type Session = components['schemas']['Session'];
export type SideBySide = components['schemas']['SideBySide'];
export type SilencedShown = components['schemas']['SilencedShown'];
export type SlowRank = components['schemas']['SlowRank'];
export type Spread = components['schemas']['Spread'];
export type Stages = components['schemas']['Stages'];
export type StepChange = components['schemas']['StepChange'];
export type StepFigures = components['schemas']['StepFigures'];
export type StepIdle = components['schemas']['StepIdle'];
export type StepLeftOut = components['schemas']['StepLeftOut'];
export type StepLength = components['schemas']['StepLength'];
export type StepPartShown = components['schemas']['StepPartShown'];
export type StepPoints = components['schemas']['StepPoints'];
export type Steps = components['schemas']['Steps'];
export type StepShown = components['schemas']['StepShown'];
export type StepsOfRanks = components['schemas']['StepsOfRanks'];
export type StepSpread = components['schemas']['StepSpread'];
export type StepTrace = components['schemas']['StepTrace'];
export type StrategyGraph = components['schemas']['StrategyGraph'];
export type StrategyHit = components['schemas']['StrategyHit'];
export type StrategyHits = components['schemas']['StrategyHits'];
export type StrategyOperator = components['schemas']['StrategyOperator'];
export type TablePage = components['schemas']['TablePage'];
export type TableShown = components['schemas']['TableShown'];
export type Tensor = components['schemas']['Tensor'];
export type Ticket = components['schemas']['Ticket'];
export type TileRow = components['schemas']['TileRow'];
export type TileShown = components['schemas']['TileShown'];
export type TimelineShown = components['schemas']['TimelineShown'];
export type TraceState = components['schemas']['TraceState'];
export type Trends = components['schemas']['Trends'];
export type TypeList = components['schemas']['TypeList'];
export type TypeSeries = components['schemas']['TypeSeries'];
export type TypeShown = components['schemas']['TypeShown'];
export type Units = components['schemas']['Units'];
export type VerdictShown = components['schemas']['VerdictShown'];
export type VersionShown = components['schemas']['VersionShown'];
export type WaitingStepsShown = components['schemas']['WaitingStepsShown'];
export type Wanted = components['schemas']['Wanted'];
export type Work = components['schemas']['Work'];
export type WorkShown = components['schemas']['WorkShown'];
export type $defs = Record<string, never>;
export interface operations {
    compare_two: {
        parameters: {
            query?: {
                after?: number;
                before?: number;
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ComparedRuns"];
                };
            };
        };
    };
    compare_calls: {
        parameters: {
            query?: {
                after?: number;
                before?: number;
                limit?: number;
                of?: "host" | "device";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ComparedCalls"];
                };
            };
        };
    };
    compare_findings: {
        parameters: {
            query?: {
                after?: number;
                before?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ComparedFindings"];
                };
            };
        };
    };
    aligned_steps: {
        parameters: {
            query?: {
                after?: number;
                before?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AlignedSteps"];
                };
            };
        };
    };
    run_state: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunState"];
                };
            };
        };
    };
    advice: {
        parameters: {
            query?: {
                trace?: number | null;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AdviceShown"];
                };
            };
        };
    };
    captures: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Captures"];
                };
            };
        };
    };
    ask_for_capture: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Wanted"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Asked"];
                };
            };
        };
    };
    cluster_differences: {
        parameters: {
            query: {
                limit?: number;
                rank: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RankDifferences"];
                };
            };
        };
    };
    cluster_heat: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Heat"][];
                };
            };
        };
    };
    steps_of_ranks: {
        parameters: {
            query?: {
                metric?: string;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StepsOfRanks"];
                };
            };
        };
    };
    side_by_side: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SideBySide"];
                };
            };
        };
    };
    cluster_parts: {
        parameters: {
            query?: {
                descending?: boolean;
                limit?: number;
                offset?: number;
                sort?: string;
                stage?: number | null;
                step?: number | null;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ClusterSteps"];
                };
            };
        };
    };
    communication: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Communication"];
                };
            };
        };
    };
    communication_costs: {
        parameters: {
            query?: {
                stage?: number | null;
                step?: number | null;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Costs"];
                };
            };
        };
    };
    communication_links: {
        parameters: {
            query?: {
                descending?: boolean;
                destination?: number | null;
                limit?: number;
                offset?: number;
                sort?: string;
                source?: number | null;
                stage?: number | null;
                step?: number | null;
                transport?: string | null;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Links"];
                };
            };
        };
    };
    links_of_operation: {
        parameters: {
            query?: {
                operation?: string | null;
                rank?: number;
                step?: number | null;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        bytes: number;
                        bytes_per_s: number | null;
                        destination: number;
                        operation: string;
                        source: number;
                        time_ns: number;
                        transport: string;
                    }[];
                };
            };
        };
    };
    operations_of_rank: {
        parameters: {
            query?: {
                limit?: number;
                rank?: number;
                step?: number | null;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Operations"];
                };
            };
        };
    };
    download: {
        parameters: {
            query?: {
                end_ns?: number | null;
                start_ns?: number | null;
                to?: "chrome" | "kineto" | "speedscope" | "pprof" | "stacks";
                trace?: number;
                traces?: string | null;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": string;
                };
            };
        };
    };
    flops: {
        parameters: {
            query?: {
                trace?: number | null;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Flops"];
                };
            };
        };
    };
    health: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HealthFinding"][];
                };
            };
        };
    };
    history_of_folder: {
        parameters: {
            query?: {
                by?: "time" | "name";
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HistoryShown"];
                };
            };
        };
    };
    open_versions: {
        parameters: {
            query: {
                after: number;
                before: number;
                by?: "time" | "name";
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OpenedPair"];
                };
            };
        };
    };
    is_changed: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Live"];
                };
            };
        };
    };
    marey_operators: {
        parameters: {
            query: {
                buckets?: number;
                from_ns?: number;
                limit?: number;
                offset?: number;
                ranks_at_once?: number;
                stage?: number | null;
                step: number;
                to_ns?: number | null;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Joined"];
                };
            };
        };
    };
    marey_steps: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RankSteps"];
                };
            };
        };
    };
    memory: {
        parameters: {
            query?: {
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MemoryOverview"];
                };
            };
        };
    };
    alive: {
        parameters: {
            query: {
                limit?: number;
                time_ns: number;
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Alive"];
                };
            };
        };
    };
    planned_graphs: {
        parameters: {
            query?: {
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PlannedGraph"][];
                };
            };
        };
    };
    planned_curve: {
        parameters: {
            query?: {
                points?: number;
                trace?: number;
            };
            header?: never;
            path: {
                graph: number;
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodeCurve"];
                };
            };
        };
    };
    planned_tensors: {
        parameters: {
            query: {
                limit?: number;
                node: number;
                trace?: number;
            };
            header?: never;
            path: {
                graph: number;
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodeTensors"];
                };
            };
        };
    };
    list_annotations: {
        parameters: {
            query?: {
                trace?: number | null;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": string[];
                };
            };
        };
    };
    overview: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Overview"];
                };
            };
        };
    };
    pipeline: {
        parameters: {
            query?: {
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Pipeline"];
                };
            };
        };
    };
    pipeline_batches: {
        parameters: {
            query: {
                kind: "iterate" | "send" | "receive";
                points?: number;
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BatchCurves"];
                };
            };
        };
    };
    pipeline_one: {
        parameters: {
            query: {
                op: number;
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OperationShown"];
                };
            };
        };
    };
    processors: {
        parameters: {
            query?: {
                first?: number | null;
                last?: number | null;
                points?: number;
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Processors"];
                };
            };
        };
    };
    queue: {
        parameters: {
            query: {
                op: number;
                points?: number;
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["QueueCurve"];
                };
            };
        };
    };
    ranks: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Rank"][];
                };
            };
        };
    };
    reopen: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunState"];
                };
            };
        };
    };
    search: {
        parameters: {
            query: {
                text: string;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Hits"];
                };
            };
        };
    };
    shape_types: {
        parameters: {
            query?: {
                level?: "operator" | "kernel";
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TypeList"];
                };
            };
        };
    };
    shape_runs: {
        parameters: {
            query: {
                level?: "operator" | "kernel";
                name?: string;
                points?: number;
                trace?: number;
                types: string[];
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunList"];
                };
            };
        };
    };
    shape_series: {
        parameters: {
            query: {
                level?: "operator" | "kernel";
                trace?: number;
                types: string[];
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TypeSeries"][];
                };
            };
        };
    };
    step_trace_figure: {
        parameters: {
            query?: {
                backward_point?: string | null;
                forward_point?: string | null;
                step?: number | null;
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StepTrace"];
                };
            };
        };
    };
    steps: {
        parameters: {
            query?: {
                trace?: number | null;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Steps"];
                };
            };
        };
    };
    strategy_stages: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Stages"];
                };
            };
        };
    };
    strategy_find: {
        parameters: {
            query: {
                limit?: number;
                stage?: number;
                text: string;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StrategyHits"];
                };
            };
        };
    };
    strategy_graph: {
        parameters: {
            query?: {
                expanded?: string[] | null;
                most?: number;
                stage?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StrategyGraph"];
                };
            };
        };
    };
    strategy_operator: {
        parameters: {
            query: {
                node: string;
                stage?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StrategyOperator"];
                };
            };
        };
    };
    list_tables: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TableShown"][];
                };
            };
        };
    };
    read_page: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                run: number;
                table: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Query"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TablePage"];
                };
            };
        };
    };
    read_csv: {
        parameters: {
            query?: {
                query?: string;
            };
            header?: never;
            path: {
                run: number;
                table: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/csv": string;
                };
            };
        };
    };
    timeline: {
        parameters: {
            query?: {
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TimelineShown"];
                };
            };
        };
    };
    event: {
        parameters: {
            query?: {
                trace?: number;
            };
            header?: never;
            path: {
                event: number;
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventShown"];
                };
            };
        };
    };
    flame_of_selection: {
        parameters: {
            query: {
                by?: "name" | "module" | "stack";
                end_ns: number;
                lanes?: string | null;
                limit?: number;
                start_ns: number;
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Flame"];
                };
            };
        };
    };
    arrows: {
        parameters: {
            query: {
                end_ns: number;
                event?: number | null;
                limit?: number;
                start_ns: number;
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Arrows"];
                };
            };
        };
    };
    occurrences: {
        parameters: {
            query: {
                by?: "start" | "duration";
                lanes?: string | null;
                limit?: number;
                offset?: number;
                text: string;
                trace?: number;
                whole?: boolean;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Occurrences"];
                };
            };
        };
    };
    first_view: {
        parameters: {
            query?: {
                trace?: number | null;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FirstView"] | null;
                };
            };
        };
    };
    phases_of_lanes: {
        parameters: {
            query?: {
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Phases"];
                };
            };
        };
    };
    find: {
        parameters: {
            query: {
                direction?: "next" | "previous";
                from_event?: number;
                from_ns?: number;
                lanes?: string | null;
                text: string;
                trace?: number;
                whole?: boolean;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Found"];
                };
            };
        };
    };
    selection: {
        parameters: {
            query: {
                end_ns: number;
                lanes?: string | null;
                limit?: number;
                start_ns: number;
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Selection"];
                };
            };
        };
    };
    curve: {
        parameters: {
            query: {
                end_ns: number;
                points?: number;
                start_ns: number;
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
                series: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CurveShown"];
                };
            };
        };
    };
    tile: {
        parameters: {
            query: {
                end_ns: number;
                format?: "binary" | "json";
                lanes?: string | null;
                pixels: number;
                start_ns: number;
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TileShown"];
                    "application/vnd.steplens.tile": string;
                };
            };
        };
    };
    read_trends: {
        parameters: {
            query?: {
                trace?: number;
            };
            header?: never;
            path: {
                run: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Trends"];
                };
            };
        };
    };
    session: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Session"];
                };
            };
        };
    };
    make_ticket: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["FileWanted"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Ticket"];
                };
            };
        };
    };
}
