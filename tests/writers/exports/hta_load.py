"""Loads folders of traces with HolisticTraceAnalysis and prints what it finds, as JSON, a line per folder.

Runs under the interpreter of the peer's own environment: ``python hta_load.py FOLDER...``. What the peer raises is printed in
place of a number: ``ZeroDivisionError``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from hta.trace_analysis import TraceAnalysis


def rows(frame: Any) -> list[dict[str, Any]]:
    """A pandas frame as rows of plain values."""
    result: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return result


def tried(question: Callable[[], Any]) -> Any:
    """The answer, or the name of what was raised."""
    try:
        return question()
    except Exception as error:
        return type(error).__name__


def main(folder: str) -> dict[str, Any]:
    """What the peer says of the traces in one folder."""
    analyzer = TraceAnalysis(trace_dir=folder, include_last_profiler_step=True)
    ranks = sorted(analyzer.t.traces)
    return {
        "ranks": ranks,
        "rows": {rank: len(analyzer.t.traces[rank]) for rank in ranks},
        "temporal": tried(lambda: rows(analyzer.get_temporal_breakdown(visualize=False))),
        "overlap": tried(lambda: rows(analyzer.get_comm_comp_overlap(visualize=False))),
        "kinds": tried(lambda: rows(analyzer.get_gpu_kernel_breakdown(visualize=False)[0])),
        "idle": tried(lambda: rows(analyzer.get_idle_time_breakdown(ranks=ranks[:1], visualize=False)[0])),
        "launches": tried(lambda: len(analyzer.get_cuda_kernel_launch_stats(ranks=ranks[:1], visualize=False)[ranks[0]])),
        "queue": tried(lambda: len(analyzer.get_queue_length_summary(ranks=ranks[:1]))),
        "critical_path": tried(
            lambda: len(
                analyzer.critical_path_analysis(rank=ranks[0], annotation="ProfilerStep", instance_id=0)[0].critical_path_nodes
            )
        ),
    }


if __name__ == "__main__":
    for given in sys.argv[1:]:
        print(json.dumps(main(given)))
