"""From which time the moments of a trace are told: numbers of JavaScript cannot hold a Unix time in ns."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from steplens.timeline.layout import SAME_CLOCK_NS
from steplens.trace.trace import Trace

#: when the first event of each table begins
_STARTS = {
    "ops": "start_ns", "python": "start_ns", "api": "start_ns", "kernels": "start_ns", "communication": "start_ns",
    "steps": "start_ns", "marks": "start_ns", "gc": "start_ns", "memory": "time_ns", "counters": "time_ns",
    "task_queue": "enqueue_start_ns", "pipeline_samples": "time_ns", "pipeline_batches": "time_ns",
    "pipeline_tasks": "start_ns",
}  # fmt: skip


def origins(traces: Sequence[Trace]) -> tuple[int, ...]:
    """The origin of every trace.

    Traces whose first events are further apart than a training takes are not on one clock: old device logs count ticks.
    """
    firsts = [_first(trace) for trace in traces]
    found: dict[int, int] = {}
    origin = previous = None
    for first in sorted(set(firsts)):
        if origin is None or previous is None or first - previous > SAME_CLOCK_NS:
            origin = first
        found[first] = origin
        previous = first
    return tuple(found[first] for first in firsts)


def _first(trace: Trace) -> int:
    """Time of the first event; 0 where nothing has a time. Of a trace with several clocks that of the latest one counts."""
    found = [
        trace.required(table).select(pl.col(column).min()).collect().item() for table, column in _STARTS.items() if table in trace
    ]
    firsts = [int(first) for first in found if first is not None]
    return min((first for first in firsts if max(firsts) - first <= SAME_CLOCK_NS), default=0)
