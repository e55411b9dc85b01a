"""What compilers planned, in a report: memory and parallel strategy.

Of memory it is the tensors of every graph, of which the pages show those that live at a node; of the strategy every operator of
every stage, of which the pages draw graphs with any scopes open.
"""

from __future__ import annotations

from steplens.analysis.cluster.strategy import stage_operators, stage_ranks
from steplens.analysis.memory.memory_graphs import graph_tensors, memory_graphs
from steplens.report.parts import Parts
from steplens.server.runs import OpenedRun

#: tensors of a graph
_MOST_TENSORS = 50_000
_TENSOR_COLUMNS = ("tensor", "owner", "kind", "type", "bytes", "life_start", "life_end")
#: operators of a stage
_MOST_OPERATORS = 100_000
_STRATEGY_COLUMNS = (
    "node", "name", "type", "scope", "role", "inputs", "output_shape", "output_type", "strategy", "groups", "attributes", "ranks",
)  # fmt: skip


def collect_memory_plans(shown: OpenedRun, parts: Parts) -> None:
    """Put the tensors of every graph whose memory was planned into a report, of very many the largest."""
    for number, trace in enumerate(shown.run.traces):
        for graph in memory_graphs(trace)["graph"]:
            tensors = graph_tensors(trace, graph).sort("bytes", "tensor", descending=[True, False])
            largest, piece = tensors.head(_MOST_TENSORS), f"plan/{shown.id}/{number}/{graph}"
            rows = largest.select(_TENSOR_COLUMNS).to_dicts()
            parts.add_some(piece, rows, "plans", shown.id, number, str(graph), largest.height, tensors.height)


def collect_stage_operators(shown: OpenedRun, parts: Parts) -> None:
    """Put the operators of every pipeline stage into a report."""
    traces = shown.run.traces
    for stage in stage_ranks(traces):
        operators = stage_operators(traces, stage)
        first_operators = operators.head(_MOST_OPERATORS).select(_STRATEGY_COLUMNS)
        piece, body = f"strategy/{shown.id}/{stage}", first_operators.to_dict(as_series=False)
        parts.add_some(piece, body, "strategy", shown.id, None, str(stage), first_operators.height, operators.height)
