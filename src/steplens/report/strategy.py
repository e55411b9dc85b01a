"""The parallel strategy of a report: every operator of every stage; the pages draw graphs of them with any scopes open."""

from __future__ import annotations

from steplens.analysis.cluster.strategy import stage_operators, stage_ranks
from steplens.report.parts import Parts
from steplens.server.runs import OpenedRun

#: operators of a stage
_MOST = 100_000
_COLUMNS = (
    "node", "name", "type", "scope", "role", "inputs", "output_shape", "output_type", "strategy", "groups", "attributes", "ranks",
)  # fmt: skip


def collect_stage_operators(shown: OpenedRun, parts: Parts) -> None:
    """Put the operators of every pipeline stage into a report."""
    traces = shown.run.traces
    for stage in stage_ranks(traces):
        operators = stage_operators(traces, stage)
        first_operators = operators.head(_MOST).select(_COLUMNS)
        piece, body = f"strategy/{shown.id}/{stage}", first_operators.to_dict(as_series=False)
        parts.add_some(piece, body, "strategy", shown.id, None, str(stage), first_operators.height, operators.height)
