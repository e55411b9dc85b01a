"""The planned memory of a report: the tensors of every graph, of which the pages show those that live at a node."""

from __future__ import annotations

from steplens.analysis.memory.memory_graphs import graph_tensors, memory_graphs
from steplens.report.parts import Parts
from steplens.server.runs import OpenedRun

#: tensors of a graph
_MOST = 50_000
_COLUMNS = ("tensor", "owner", "kind", "type", "bytes", "life_start", "life_end")


def collect_memory_plans(shown: OpenedRun, parts: Parts) -> None:
    """Put the tensors of every graph whose memory was planned into a report, of very many the largest."""
    for number, trace in enumerate(shown.run.traces):
        for graph in memory_graphs(trace)["graph"]:
            tensors = graph_tensors(trace, graph).sort("bytes", "tensor", descending=[True, False])
            largest, piece = tensors.head(_MOST), f"plan/{shown.id}/{number}/{graph}"
            rows = largest.select(_COLUMNS).to_dicts()
            parts.add_some(piece, rows, "plans", shown.id, number, str(graph), largest.height, tensors.height)
