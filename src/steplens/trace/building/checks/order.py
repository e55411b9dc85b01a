"""Order of events: lengths are positive, tasks of a stream follow one another, nothing is recorded twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np
import polars as pl

from steplens.trace import health
from steplens.trace.building.checks.common import Tables, device_tasks, format_duration, time_resolution, to_int64_array
from steplens.trace.building.lookup import sort_rows
from steplens.trace.building.nesting import Int64Array, Nesting

#: what the two clock readings of neighbouring tasks may overlap by without anything being wrong
_JITTER_NS = 1_000
#: from this share of the busy time on an overlap changes sums that people look at
_MUCH = 0.01
#: from this resolution on, two events of one name can honestly have the same times
_COARSE_NS = 1_000

#: tables of intervals, what they are called in front of users, and what a wrong one makes unsafe; negative lengths of
#: ``ops`` are found where calls are nested
_INTERVALS: dict[str, tuple[str, tuple[str, ...]]] = {
    "kernels": ("device tasks", (health.KERNEL_TIMES, health.STEP_DEVICE_TIMES, health.OVERLAP)),
    "communication": ("communication operations", (health.COMMUNICATION_TIMES, health.OVERLAP)),
    "api": ("runtime calls", (health.RUNTIME_CALLS,)),
    "task_queue": ("tasks of the queue", (health.RUNTIME_CALLS, health.OPERATOR_DEVICE_TIMES)),
    "python": ("Python frames", (health.CALL_STACKS,)),
    "steps": ("steps", (health.STEP_TIMES,)),
    "marks": ("marks", (health.USER_MARKS,)),
    "gc": ("garbage collections", (health.GARBAGE_COLLECTION,)),
}


@dataclass(frozen=True)
class _Events:
    """How to recognise an event that is there twice.

    Attributes:
        what: what the table's rows are called in front of users.
        number: the column with the source's own number of an event, or none: without a number, events of a coarse clock
            cannot be told apart.
        times: start, and end where there is one.
        identity: all that two copies have in common.
        lane: those of them by which the rows of one thread or stream are told, which mostly lie together in order of time.
        unsafe: what a copy makes unsafe.
    """

    what: str
    number: str
    times: tuple[str, ...]
    identity: tuple[str, ...]
    unsafe: tuple[str, ...]
    lane: tuple[str, ...] = ()


_CALL = ("name", "start_ns", "end_ns", "pid", "tid")
_EVENTS: dict[str, _Events] = {
    "ops": _Events(
        "operator calls",
        "external_id",
        ("start_ns", "end_ns"),
        (*_CALL, "external_id", "sequence", "scope"),
        (health.OPERATOR_CALLS, health.OPERATOR_TIMES, health.OPERATOR_SELF_TIMES),
        ("pid", "tid"),
    ),
    "kernels": _Events(
        "device tasks",
        "correlation",
        ("start_ns", "end_ns"),
        ("name", "start_ns", "end_ns", "device", "stream", "correlation", "task_id", "context_id"),
        (health.KERNEL_CALLS, health.KERNEL_TIMES, health.OPERATOR_DEVICE_TIMES),
        ("device", "stream"),
    ),
    "api": _Events(
        "runtime calls", "correlation", ("start_ns", "end_ns"), (*_CALL, "layer", "correlation"), (health.RUNTIME_CALLS,)
    ),
    "python": _Events("Python frames", "id", ("start_ns", "end_ns"), (*_CALL, "id"), (health.CALL_STACKS,)),
    # an address can be used twice within a microsecond
    "memory": _Events(
        "allocator events",
        "",
        ("time_ns",),
        ("time_ns", "event", "address", "bytes", "allocated", "reserved", "device_type", "device", "stream", "tid", "component"),
        (health.MEMORY,),
    ),
    "allocations": _Events(
        "allocations",
        "",
        ("allocation_ns", "release_ns"),
        ("name", "allocation_ns", "release_ns", "bytes", "allocation_allocated", "release_allocated", "device_type", "device"),
        (health.MEMORY,),
    ),
}


def negative_durations(tables: Tables) -> Iterator[health.HealthFinding]:
    """Nothing ends before it starts."""
    for name, (subject, unsafe) in _INTERVALS.items():
        frame = tables.get(name)
        if frame is None:
            continue
        pairs = [(f"{part}end_ns", f"{part}start_ns") for part in ("", "enqueue_", "dequeue_")]
        pairs = pairs[1:] if name == "task_queue" else pairs[:1]
        negative = int(reduce(or_, ((frame[end] < frame[start]) for end, start in pairs)).sum())
        if negative:
            yield health.finding(
                "negative_duration", health.ERROR, negative, f"{negative} {subject} end before they start", *unsafe
            )


def overlapping_calls(lane: Int64Array, nesting: Nesting, start: Int64Array, end: Int64Array) -> Iterator[health.HealthFinding]:
    """A call of a thread lies inside another one or beside it. For ``build_trace``, which alone knows the nesting.

    Args:
        lane: number of the thread of each call.
        nesting: their nesting.
        start: start times, ns.
        end: end times, ns.
    """
    following = np.minimum(nesting.subtree_end, len(start) - 1)
    # few calls begin before the end of one that they are not inside of, and those are looked at
    call = np.flatnonzero((nesting.subtree_end < len(start)) & (start[following] < end))
    following = following[call]
    overlap = (lane[call] == lane[following]) & (nesting.parent[call] == nesting.parent[following])
    if not overlap.any():
        return
    out = int((end[following] - end[call])[overlap].max())
    count = int(overlap.sum())
    message = f"{count} calls begin inside another call of their thread and end behind it, by up to {format_duration(out)}"
    step = time_resolution(pl.Series(start))
    if step >= out:
        message += f" (all times are multiples of {format_duration(step)})"
    yield health.finding("overlapping_calls", health.WARNING, count, message, health.OPERATOR_SELF_TIMES)


def overlapping_tasks(tables: Tables) -> Iterator[health.HealthFinding]:
    """A stream runs one task after the other; the tasks of one graph launch may run side by side."""
    tasks = device_tasks(tables)
    if tasks is None:
        return
    tasks = tasks.select("device", "stream", "start_ns", "end_ns", "correlation").drop_nulls(["stream", "start_ns", "end_ns"])
    tasks = sort_rows(tasks, ["device", "stream", "start_ns", "end_ns"])
    same_stream = (tasks["stream"] == tasks["stream"].shift()) & tasks["device"].eq_missing(tasks["device"].shift())
    same_launch = (tasks["correlation"] == tasks["correlation"].shift()).fill_null(False)
    allowed = _JITTER_NS + time_resolution(tasks["start_ns"])
    reach = tasks.select(pl.col("end_ns").cum_max().over("device", "stream")).to_series()
    overlap = reach.shift() - tasks["start_ns"]
    lengths = tasks["end_ns"] - tasks["start_ns"]
    is_overlapping = (same_stream & ~same_launch & (overlap > allowed)).fill_null(False)
    if not is_overlapping.any():
        return
    busy = int(lengths.sum())
    total = int(pl.select(pl.min_horizontal(overlap, lengths)).to_series().filter(is_overlapping).sum())
    count = int(is_overlapping.sum())
    share = f"{format_duration(total)} of {format_duration(busy)}"
    message = f"{count} tasks overlap the one before them on their stream, by {share} of device time"
    severity, unsafe = (health.WARNING, (health.KERNEL_TIMES, health.OVERLAP)) if total > _MUCH * busy else (health.INFO, ())
    yield health.finding("overlapping_tasks", severity, count, message, *unsafe)


def duplicated_events(tables: Tables) -> Iterator[health.HealthFinding]:
    """No event is there twice, with all that identifies it."""
    for name, events in _EVENTS.items():
        # tasks of the CPU are its calls, which are looked at themselves
        frame = device_tasks(tables) if name == "kernels" else tables.get(name)
        if frame is None:
            continue
        frame = frame[list(events.identity)]
        rows = _rows_with_repeated_times(frame, events.times, events.lane)
        if not len(rows):
            continue
        suspects = frame[rows]
        if time_resolution(frame[events.times[0]]) >= _COARSE_NS:
            if not events.number:
                continue
            suspects = suspects.drop_nulls(events.number)
        copies = suspects.height - suspects.unique().height
        if copies:
            message = f"{copies} {events.what} are copies of others, with the same times and the same numbers"
            yield health.finding("duplicated_events", health.ERROR, copies, message, *events.unsafe)


def _rows_with_repeated_times(frame: pl.DataFrame, times: tuple[str, ...], lane: tuple[str, ...] = ()) -> Int64Array:
    """Rows whose times occur more than once, by a hash of them (and by nothing else, so these are candidates only).

    Where the rows of a lane lie together in order, those that have their times from another lane may be missing.
    """
    columns = (frame[times[0]], frame[times[-1]])
    start, end = (to_int64_array(column.fill_null(-1) if column.null_count() else column) for column in columns)
    if (start[1:] > start[:-1]).all():
        return np.empty(0, dtype=np.int64)
    # few events start with another one
    changes = _lane_changes(frame, lane)
    if changes is not None and bool(((start[1:] >= start[:-1]) | changes).all()):
        starts_with_next = (start[1:] == start[:-1]) & ~changes
        rows = np.flatnonzero(np.r_[starts_with_next, False] | np.r_[False, starts_with_next])
    else:
        # a table of a few threads takes little sorting
        order = np.argsort(start, kind="stable")
        starts_with_next = start[order[1:]] == start[order[:-1]]
        rows = np.sort(order[np.r_[starts_with_next, False] | np.r_[False, starts_with_next]])
    start, end = start[rows], end[rows]
    # odd constants spread the bits; nothing depends on which
    key = (start * np.int64(-7046029254386353131)) ^ (end * np.int64(-4417276706812531889))
    ordered = np.sort(key)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    return rows[np.isin(key, repeated)]


def _lane_changes(frame: pl.DataFrame, lane: tuple[str, ...]) -> np.typing.NDArray[np.bool_] | None:
    """Whether each row but the first is of another lane than the one before; None where those of a lane do not lie together."""
    if not lane or any(frame[name].null_count() or not frame[name].dtype.is_integer() for name in lane):
        return None
    columns = [frame[name].to_numpy() for name in lane]
    changes: np.typing.NDArray[np.bool_] = reduce(or_, (column[1:] != column[:-1] for column in columns))
    first = np.flatnonzero(np.r_[True, changes])
    lanes = np.column_stack([column[first] for column in columns])
    return changes if len(np.unique(lanes, axis=0)) == len(first) else None
