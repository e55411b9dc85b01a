"""The health certificate: every check on the data, in one visible table.

A check looks at the linked tables of one trace (or at the traces of one run) and yields findings; no finding means that
its invariant holds, or that the trace has nothing to check it on. docs/health.md says of each what it means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from steplens.common.worker_processes import map_in_two_threads
from steplens.trace.building.checks import clock, flows, launches, options, order, ranks, steps, trend
from steplens.trace.building.checks.common import Tables
from steplens.trace.building.checks.flows import unmatched_flows
from steplens.trace.building.checks.launches import launches_device_work
from steplens.trace.building.checks.order import overlapping_calls
from steplens.trace.building.checks.steps import parts_of_steps
from steplens.trace.health import HealthFinding, HealthLog
from steplens.trace.trace import Trace

__all__ = ["ACROSS", "CHECKS", "across", "launches_device_work", "overlapping_calls", "parts_of_steps", "run", "unmatched_flows"]

#: of so many rows a check takes longer than a thread to start
_MANY_ROWS = 1 << 20

#: checks of one trace
CHECKS: tuple[Callable[[Tables], Iterable[HealthFinding]], ...] = (
    order.negative_durations,
    order.duplicated_events,
    order.overlapping_tasks,
    clock.out_of_range,
    clock.timestamp_precision,
    clock.tasks_before_launch,
    clock.device_clock_late,
    flows.backward_flows,
    launches.launches_without_kernels,
    launches.kernels_without_launches,
    steps.missing_steps,
    steps.overlapping_steps,
    steps.slow_first_step,
    steps.uneven_steps,
    trend.steps_get_faster,
    ranks.rank_unknown,
    options.recorded_options,
)

#: checks of all traces of a run together
ACROSS: tuple[Callable[[Sequence[tuple[Path, Trace]]], Iterable[HealthFinding]], ...] = (
    ranks.missing_ranks,
    ranks.duplicated_ranks,
    ranks.different_steps,
    ranks.mixed_captures,
)


def check_tables(tables: Tables, health: HealthLog) -> None:
    """Check the linked tables of one trace, all with the columns of the schema, and add what is found."""
    if sum(frame.height for frame in tables.values()) < _MANY_ROWS:
        for check in CHECKS:
            health.extend(check(tables))
        return
    for its_findings in map_in_two_threads(lambda check: list(check(tables)), CHECKS):
        health.extend(its_findings)


def compare_traces(traces: Sequence[tuple[Path, Trace]]) -> list[HealthFinding]:
    """Check the traces of one run, each with the path it comes from, against each other."""
    return [item for check in ACROSS for item in check(traces)]
