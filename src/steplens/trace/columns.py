"""What the columns of all tables hold, as their names tell it, and when the rows of recorded tables begin and end.

The one place for both: what shows, cuts or shifts tables asks here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from steplens.trace.names import MOMENT as MOMENT
from steplens.trace.schema import SCHEMA

_UNITS = {
    **dict.fromkeys(
        (
            "start_ns", "end_ns", "device_start_ns", "launch_ns", "allocation_ns", "release_ns", "active_release_ns",
            "peak_allocated_ns", "peak_ns", "enqueue_start_ns", "enqueue_end_ns", "dequeue_start_ns", "dequeue_end_ns", "from_ns",
            "to_ns", "next_start_ns", "next_end_ns", "pickle_start_ns", "pickle_end_ns", "receive_start_ns", "receive_end_ns",
            "pin_end_ns",
        ),
        MOMENT,
    ),
    **dict.fromkeys(("bytes", "bytes_each", "allocated", "reserved", "active"), "bytes"),
    **dict.fromkeys(("bytes_per_step", "bytes_per_step_low", "bytes_per_step_high"), "bytes"),
    **dict.fromkeys(("share", "usage"), "ratio"),
    "percent": "percent",
    "flops": "FLOP",
}  # fmt: skip
_UNITS_BY_ENDING = {
    "_ns2": "ns2",
    "_ns": "ns",
    "_us": "us",
    "_ms": "ms",
    "_bytes": "bytes",
    "_allocated": "bytes",
    "_reserved": "bytes",
    "_active": "bytes",
    "_mb": "MB",
    "_gbps": "GB/s",
    "_percent": "percent",
    "_ratio": "ratio",
    "_share": "ratio",
    "bytes_per_second": "B/s",
    "bytes_per_s": "B/s",
    "flops_per_second": "FLOP/s",
    # as MindSpore names them
    "(us)": "us",
    "(ms)": "ms",
}
#: of recorded tables in which names that are lengths elsewhere are moments
_RECORDED_MOMENTS = {
    "step_points": ("forward_ns", "backward_ns"),
    "pipeline_epochs": ("workers_ns", "first_batch_ns"),
    "pipeline_tasks": ("collate_ns",),
    "python_samples": ("wanted_ns",),
}
#: recorded tables whose rows begin and end in columns of other names than start_ns and end_ns; a moment ends where it begins
_OTHER_SPANS = {
    **dict.fromkeys(("memory", "counters", "python_samples", "pipeline_samples", "pipeline_batches"), ("time_ns", "time_ns")),
    "allocations": ("allocation_ns", "release_ns"),
    "task_queue": ("enqueue_start_ns", "dequeue_end_ns"),
    "flows": ("from_ns", "to_ns"),
    "communication_times": ("start_ns", "start_ns"),
}
#: recorded table -> the columns in which its rows begin and end; without those whose rows have no times, or no ends
SPANS = {
    table: span
    for table, columns in SCHEMA.items()
    if set(span := _OTHER_SPANS.get(table, ("start_ns", "end_ns"))) <= columns.keys()
}


def unit_of(column: str, exceptions: Mapping[str, str] = MappingProxyType({})) -> str:
    """The unit of a column of numbers: "ns", "bytes", "percent" (0 to 100), "ratio" (0 to 1), ``MOMENT`` ...; empty for none.

    Args:
        column: its name.
        exceptions: column -> unit, of the table's columns whose names do not tell it.
    """
    by_ending = (unit for ending, unit in _UNITS_BY_ENDING.items() if column.endswith(ending))
    return exceptions.get(column) or _UNITS.get(column) or next(by_ending, "")


def recorded_units(table: str) -> dict[str, str]:
    """The ``exceptions`` of a recorded table: what was recorded at a time; of an analysis it is how long something took."""
    return dict.fromkeys(("time_ns", *_RECORDED_MOMENTS.get(table, ())), MOMENT)
