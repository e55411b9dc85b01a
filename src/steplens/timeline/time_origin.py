"""From which time the moments of a trace are told: numbers of JavaScript cannot hold a Unix time in ns."""

from __future__ import annotations

from collections.abc import Sequence

from steplens.timeline.layout import SAME_CLOCK_NS
from steplens.trace.building.extents import table_extents
from steplens.trace.trace import Trace

#: tables whose rows happen at some moment
_TABLES = (
    "ops", "python", "api", "kernels", "communication", "steps", "marks", "gc", "memory", "counters", "task_queue",
    "pipeline_samples", "pipeline_batches", "pipeline_tasks",
)  # fmt: skip


def trace_origins(traces: Sequence[Trace]) -> tuple[int, ...]:
    """The origin of every trace.

    Traces whose first events are further apart than a training takes are not on one clock: old device logs count ticks.
    """
    firsts = [_first_event_ns(trace) for trace in traces]
    origin_of: dict[int, int] = {}
    origin = previous = None
    for first in sorted(set(firsts)):
        if origin is None or previous is None or first - previous > SAME_CLOCK_NS:
            origin = first
        origin_of[first] = origin
        previous = first
    return tuple(origin_of[first] for first in firsts)


def _first_event_ns(trace: Trace) -> int:
    """Time of the first event; 0 where nothing has a time. Of a trace with several clocks that of the latest one counts."""
    first_moments = table_extents(trace)
    firsts = [first for table in _TABLES if table in first_moments and (first := first_moments[table].first_ns) is not None]
    return min((first for first in firsts if max(firsts) - first <= SAME_CLOCK_NS), default=0)
