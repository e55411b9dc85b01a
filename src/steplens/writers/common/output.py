"""What every writer is given: the trace, the time base and the settings of the run; and how it says "nothing to write"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from steplens.common.options import LEVEL0 as LEVEL0
from steplens.common.options import LEVEL1 as LEVEL1
from steplens.common.options import LEVEL2 as LEVEL2
from steplens.common.options import LEVEL_NONE as LEVEL_NONE
from steplens.formats.ascend_results import TIME_BASE_KEY
from steplens.trace.building import devices
from steplens.trace.columns import SPANS
from steplens.trace.schema import CORE_CPU, KIND_COMMUNICATION, KIND_COMPUTE, KIND_COPY
from steplens.trace.trace import Trace
from steplens.writers.device_tasks import device_tasks

#: the common time base of a result is a multiple of this (Kineto's own rule), ns
TIME_BASE_UNIT_NS = 7_889_238 * 1_000_000_000

NPU = devices.NPU

#: tables whose rows are events of an output
_EVENT_TABLES = (
    "ops", "python", "api", "kernels", "communication", "steps", "gc", "marks", "memory", "allocations", "counters", "task_queue",
)  # fmt: skip


class NothingToWriteError(Exception):
    """The source of an output is missing or empty; the text says why. The output counts as skipped, not as failed."""


@dataclass(frozen=True)
class Output:
    """One result being written.

    Attributes:
        trace: the tables of the rank.
        base_ns: Unix ns that every time of a text output is relative to.
        level: profiler level the run was collected with ("Level_none", "Level0", "Level1", "Level2").
        metadata: ``profiler_metadata.json`` of the run, for the outputs that repeat it.
    """

    trace: Trace
    base_ns: int
    level: str = LEVEL0
    metadata: Mapping[str, Any] = field(default_factory=dict)


def first_event_ns(trace: Trace) -> int | None:
    """Unix ns of the earliest event of the trace; None when it has no event."""
    tables = [table for table in _EVENT_TABLES if table in trace]
    starts = [trace.required(table).select(pl.col(SPANS[table][0]).min()).collect().item() for table in tables]
    return min((start for start in starts if start is not None), default=None)


def time_base_ns(trace: Trace, recorded: object = None) -> int:
    """Unix ns that the times of the text outputs are relative to.

    The largest multiple of 7,889,238 s that is not after the run's first event: every rank of a job gets the same one,
    and what remains keeps ns exact in a double. A base recorded at collection is used when it is not after that event.

    Args:
        trace: the tables of the rank.
        recorded: ``base_time_ns`` of ``profiler_metadata.json``; anything but a usable integer is ignored.
    """
    first = first_event_ns(trace)
    for candidate in (recorded, trace.meta_value(TIME_BASE_KEY)):
        if type(candidate) is int and candidate >= 0 and (first is None or 0 <= first - candidate < 2**53):
            return candidate
    return first // TIME_BASE_UNIT_NS * TIME_BASE_UNIT_NS if first is not None else 0


def has_rows(trace: Trace, *tables: str) -> bool:
    """Whether one of the tables has a row."""
    return any(trace.required(table).select(pl.len()).collect().item() for table in tables)


def step_exists(trace: Trace) -> bool:
    """Whether the run has steps, so that kernel rows carry a step id."""
    return has_rows(trace, "steps")


def main_pid(trace: Trace) -> int:
    """The recorded process: the one that steps, else the one with most operator calls, else what the source says, else 0."""
    for table in ("steps", "ops", "python", "gc"):
        pids = trace.required(table).group_by("pid").len().sort("len", "pid", descending=[True, False]).collect()
        if pids.height and pids["pid"][0] is not None:
            return int(pids["pid"][0])
    recorded = trace.meta_value("pid")
    return recorded if type(recorded) is int and 0 <= recorded < 2**32 else 0


def device_kind(trace: Trace) -> str:
    """What the devices of the run are: "CPU", "CUDA", "ROCM" or "NPU", which an Ascend run has even without device tasks."""
    kind = devices.device_kind(trace)
    idle = kind == CORE_CPU and not has_rows(trace, "kernels")
    return NPU if idle and str(trace.meta_value("source_format")).startswith("ascend") else kind


def listed_tasks(trace: Trace) -> pl.LazyFrame:
    """The device tasks that the tables of tasks list: those that compute or communicate, on a GPU also those that copy.

    An NPU's queues hold many more: waits, event records, the inner tasks of a collective. They are in the timeline.
    """
    kinds = [KIND_COMPUTE, KIND_COMMUNICATION]
    if device_kind(trace) != NPU:
        kinds.append(KIND_COPY)
    return with_own_types(trace).filter(pl.col("kind").cast(pl.String).is_in(kinds) | pl.col("kind").is_null())


def with_own_types(trace: Trace) -> pl.LazyFrame:
    """The device tasks with the types that the source itself names; an NPU's task without one has none.

    The clients compute with an NPU's types: a category in place of an unknown one would end up in their sums.
    """
    kernels = device_tasks(trace)
    if device_kind(trace) != NPU:
        return kernels
    is_category = pl.col("type").cast(pl.String) == pl.col("category").cast(pl.String)
    return kernels.with_columns(type=pl.when(~is_category.fill_null(False)).then("type"))


def used_devices(trace: Trace) -> list[int]:
    """Devices that ran a task or communicated, ascending."""
    tables = ("kernels", "communication")
    used = pl.concat(trace.required(table).select(pl.col("device").fill_null(0)).unique() for table in tables)
    return used.unique().sort("device").collect()["device"].to_list()
