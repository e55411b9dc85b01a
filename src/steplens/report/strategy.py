"""The parallel strategy of a report: every operator of every stage; the pages draw graphs of them with any scopes open."""

from __future__ import annotations

from steplens.analysis.cluster.strategy import stage_operators, stage_ranks
from steplens.report.parts import Parts
from steplens.server.runs import Shown

#: operators of a stage
_MOST = 100_000
_COLUMNS = (
    "node", "name", "type", "scope", "role", "inputs", "output_shape", "output_type", "strategy", "groups", "attributes", "ranks",
)  # fmt: skip


def collect(shown: Shown, parts: Parts) -> None:
    """Put the operators of every pipeline stage into a report."""
    traces = shown.run.traces
    for stage in stage_ranks(traces):
        found = stage_operators(traces, stage)
        kept = found.head(_MOST).select(_COLUMNS)
        fits = parts.add(f"strategy/{shown.id}/{stage}", kept.to_dict(as_series=False))
        held = kept.height if fits else 0
        if held < found.height:
            parts.lost("strategy", shown.id, None, str(stage), held, found.height, "many" if fits else "size")
