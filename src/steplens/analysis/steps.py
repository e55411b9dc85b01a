"""Where the time of each step went: on the device (computing, communication, free) and on the host (phases)."""

from __future__ import annotations

import numpy as np
import polars as pl

from steplens.analysis.overlap import Int64Array, Intervals, intersect, merge_intervals, subtract, union
from steplens.trace.checks import parts_of_steps
from steplens.trace.schema import (
    DATALOADER_PREFIX,
    KIND_COMPUTE,
    OPTIMIZER_CLOSURE,
    OPTIMIZER_STEP_PREFIX,
    SCOPE_BACKWARD,
    SCOPE_FUNCTION,
    SCOPE_MODULE,
)
from steplens.trace.trace import Trace

_OPTIMIZER_PREFIX = "Optimizer."

COLUMNS = {
    "step": pl.Int64,
    "start_ns": pl.Int64,
    "duration_ns": pl.Int64,
    "computing_ns": pl.Int64,
    "communication_ns": pl.Int64,
    "overlapped_ns": pl.Int64,
    "communication_not_overlapped_ns": pl.Int64,
    "free_ns": pl.Int64,
    "preparing_ns": pl.Int64,
    "data_wait_ns": pl.Int64,
    "forward_ns": pl.Int64,
    "backward_ns": pl.Int64,
    "optimizer_ns": pl.Int64,
    "other_ns": pl.Int64,
    "stage_ns": pl.Int64,
    "bubble_ns": pl.Int64,
    "exclude_receive_ns": pl.Int64,
    "complete": pl.Boolean,
}


#: the collector's finding that recording was stopped before the next step began
STOPPED_INSIDE = "stopped_inside_step"


def step_times(trace: Trace, *, whole_trace_without_steps: bool = False) -> pl.DataFrame:
    """Times of every step, one row each, in ns; columns as in ``COLUMNS``.

    Device side. A device task or communication operation belongs to the step that holds its start. With C, M and R the
    unions of the step's computing, communication and receive intervals, over all streams:

    * ``computing_ns`` = |C|, ``communication_ns`` = |M|, ``overlapped_ns`` = |C and M|,
      ``communication_not_overlapped_ns`` = |M outside C|;
    * ``free_ns`` = span(C or M) - |C or M|: the gaps between the first and the last device work of the step;
    * ``preparing_ns``: from the start of the step to its first device work; 0 where it has none;
    * ``bubble_ns`` = |R|, ``stage_ns`` = span(C or M) - bubble, ``exclude_receive_ns`` = not overlapped - bubble, at least 0.

    Host side. The step range is cut into phases that add up to ``duration_ns``. Where several apply, the first wins:
    ``data_wait_ns`` (the step's thread waits for the DataLoader), ``optimizer_ns`` (ranges named ``Optimizer.*``, without the
    closure that ``Optimizer.step`` calls back for),
    ``backward_ns`` (autograd's calls on any thread of the process), ``forward_ns`` (other operator and module calls of the
    step's thread), ``other_ns`` (none of them). Backward and forward include the gaps between two of their calls when
    nothing of another phase lies in the gap.

    ``complete`` is false for a first or last step that recording holds only a part of: it is no part of an average. A step of
    a schedule that recording was stopped in, and not ended by ``step()``, is one too.

    Source: the ``steps``, ``ops``, ``kernels`` and ``communication`` tables. Unsafe when health reports lost or
    overlapping calls. A trace without steps gives no rows.

    Args:
        trace: one rank.
        whole_trace_without_steps: a trace without steps gives one row for all of it, ``step`` null.
    """
    steps = trace.steps
    if steps is None or not steps.height:
        if not whole_trace_without_steps:
            return pl.DataFrame(schema=COLUMNS)
        whole = _whole(trace)
        if whole is None:
            return pl.DataFrame(schema=COLUMNS)
        steps = whole
    start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    columns: dict[str, Int64Array | pl.Series] = {"step": steps["id"], "start_ns": start, "duration_ns": end - start}
    columns.update(_device_times(trace, steps))
    columns.update(_phases(trace, steps))
    columns["complete"] = _complete(trace, steps)
    return pl.DataFrame({name: columns[name] for name in COLUMNS}, schema=COLUMNS)


def _complete(trace: Trace, steps: pl.DataFrame) -> pl.Series:
    tables = {name: frame for name in ("steps", "kernels") if (frame := trace.table(name)) is not None}
    parts = [part.step for part in parts_of_steps(tables)]
    stopped = trace.required("health").filter(pl.col("check").cast(pl.String) == STOPPED_INSIDE).select(pl.len()).collect().item()
    if stopped:
        # the last one lasted until somebody stopped recording, and not until the step was done
        parts.append(steps.sort("start_ns")["id"][-1])
    return pl.select(~pl.lit(steps["id"]).is_in(parts).fill_null(False)).to_series()


def _whole(trace: Trace) -> pl.DataFrame | None:
    """One row that spans all calls and device work, on the thread with the most calls; None where there is neither."""
    ops = trace.required("ops")
    spans = [trace.required(table).select("start_ns", "end_ns") for table in ("ops", "kernels", "communication")]
    bounds = pl.concat(spans).select(pl.col("start_ns").min(), pl.col("end_ns").max()).collect()
    if bounds["start_ns"][0] is None:
        return None
    calls = ops.group_by("pid", "tid").agg(calls=pl.len())
    busiest = calls.sort("calls", "tid", descending=[True, False]).head(1).select("pid", "tid").collect()
    pid, tid = busiest.row(0) if busiest.height else (None, None)
    return bounds.select(
        id=pl.lit(None, dtype=pl.Int64),
        start_ns="start_ns",
        end_ns="end_ns",
        pid=pl.lit(pid, dtype=pl.Int64),
        tid=pl.lit(tid, dtype=pl.Int64),
    )


def computing_tasks(trace: Trace) -> pl.LazyFrame:
    """The device tasks that compute: no copies, no communication, no waiting."""
    return trace.required("kernels").filter(pl.col("kind").cast(pl.String) == KIND_COMPUTE)


def _device_times(trace: Trace, steps: pl.DataFrame) -> dict[str, Int64Array]:
    ids = steps["id"]
    tasks = computing_tasks(trace).select("start_ns", "end_ns", "step").collect()
    operations = (
        trace.required("communication")
        .select("start_ns", "end_ns", "step", receive=pl.col("kind").cast(pl.String) == "receive")
        .collect()
    )
    group_of = {value: index for index, value in enumerate(ids.to_list())}
    space = _GroupSpace([tasks, operations], len(ids))
    computing = space.intervals(tasks, group_of)
    communication = space.intervals(operations, group_of)
    receive = space.intervals(operations.filter("receive"), group_of)
    busy = union(computing, communication)
    not_overlapped = space.lengths(subtract(communication, computing))
    first, last = space.bounds(busy)
    span = last - first
    bubble = space.lengths(receive)
    worked = span > 0
    return {
        "computing_ns": space.lengths(computing),
        "communication_ns": space.lengths(communication),
        "overlapped_ns": space.lengths(intersect(communication, computing)),
        "communication_not_overlapped_ns": not_overlapped,
        "free_ns": span - space.lengths(busy),
        "preparing_ns": np.where(worked, np.maximum(first - steps["start_ns"].to_numpy(), 0), 0),
        "stage_ns": span - bubble,
        "bubble_ns": bubble,
        "exclude_receive_ns": np.maximum(not_overlapped - bubble, 0),
    }


class _GroupSpace:
    """A time line on which every step has a stretch of its own, so that one pass handles the intervals of all steps.

    Time t of group g lies at ``t - origin + g * stretch``; a stretch is longer than everything together, so the
    intervals of different steps never meet, even where a task runs on into the next step.
    """

    def __init__(self, frames: list[pl.DataFrame], groups: int) -> None:
        starts = [int(frame["start_ns"].min()) for frame in frames if frame.height]  # type: ignore[arg-type]
        ends = [int(frame["end_ns"].max()) for frame in frames if frame.height]  # type: ignore[arg-type]
        self.origin = min(starts, default=0)
        self.stretch = max(ends, default=0) - self.origin + 1
        self.groups = groups

    def intervals(self, frame: pl.DataFrame, group_of: dict[int | None, int]) -> Intervals:
        group = (
            frame["step"].replace_strict(list(group_of), list(group_of.values()), default=-1, return_dtype=pl.Int64)
            if None not in group_of
            else pl.Series([0], dtype=pl.Int64).new_from_index(0, frame.height)
        )
        offset = group.to_numpy() * self.stretch - self.origin
        keep = group.to_numpy() >= 0
        return merge_intervals((frame["start_ns"].to_numpy() + offset)[keep], (frame["end_ns"].to_numpy() + offset)[keep])

    def lengths(self, merged: Intervals) -> Int64Array:
        """Total length per group, ns."""
        result = np.zeros(self.groups, dtype=np.int64)
        np.add.at(result, merged.start // self.stretch, merged.end - merged.start)
        return result

    def bounds(self, merged: Intervals) -> tuple[Int64Array, Int64Array]:
        """First start and last end per group as Unix ns; 0 and 0 for a group without intervals."""
        group = merged.start // self.stretch
        first = np.full(self.groups, np.iinfo(np.int64).max)
        last = np.zeros(self.groups, dtype=np.int64)
        np.minimum.at(first, group, merged.start - group * self.stretch + self.origin)
        np.maximum.at(last, group, merged.end - group * self.stretch + self.origin)
        return np.where(last > 0, first, 0), last


def _phases(trace: Trace, steps: pl.DataFrame) -> dict[str, Int64Array]:
    name = pl.col("name").cast(pl.String)
    pid, tid = steps["pid"][0], steps["tid"][0]
    on_thread = (pl.col("pid") == pl.lit(pid, dtype=pl.Int64)) & (pl.col("tid") == pl.lit(tid, dtype=pl.Int64))
    scope = pl.col("scope")
    kind = (
        pl.when(on_thread & name.str.starts_with(DATALOADER_PREFIX))
        .then(pl.lit("data"))
        .when(on_thread & (name == OPTIMIZER_CLOSURE))
        .then(pl.lit("closure"))
        .when(on_thread & name.str.starts_with(OPTIMIZER_STEP_PREFIX))
        .then(pl.lit("optimizer step"))
        .when(on_thread & name.str.starts_with(_OPTIMIZER_PREFIX))
        .then(pl.lit("optimizer"))
        .when((pl.col("pid") == pl.lit(pid, dtype=pl.Int64)) & (scope == SCOPE_BACKWARD))
        .then(pl.lit("backward"))
        .when(on_thread & scope.is_in([SCOPE_FUNCTION, SCOPE_MODULE]))
        .then(pl.lit("forward"))
    )
    ranges = trace.required("ops").select("start_ns", "end_ns", kind=kind).drop_nulls("kind").collect()
    found = {
        key[0]: merge_intervals(part["start_ns"].to_numpy(), part["end_ns"].to_numpy())
        for key, part in ranges.partition_by("kind", as_dict=True).items()
    }
    nothing = merge_intervals(np.empty(0, np.int64), np.empty(0, np.int64))
    data = found.get("data", nothing)
    # a closure runs forward and backward inside the step, and at times Optimizer.zero_grad
    updates = subtract(found.get("optimizer step", nothing), found.get("closure", nothing))
    optimizer = subtract(union(updates, found.get("optimizer", nothing)), data)
    taken = union(data, optimizer)
    backward = subtract(found.get("backward", nothing), taken)
    forward = subtract(subtract(found.get("forward", nothing), taken), backward)
    borders = steps["start_ns"].to_numpy()
    backward = bridge(backward, union(taken, forward), borders)
    forward = bridge(forward, union(taken, backward), borders)
    start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    phases = {
        "data_wait_ns": _inside(data, start, end),
        "forward_ns": _inside(forward, start, end),
        "backward_ns": _inside(backward, start, end),
        "optimizer_ns": _inside(optimizer, start, end),
    }
    return {**phases, "other_ns": end - start - sum(phases.values())}


def bridge(a: Intervals, blockers: Intervals, borders: Int64Array) -> Intervals:
    """``a`` with every gap filled that holds no part of ``blockers`` and no time of ``borders``."""
    if len(a.start) < 2:
        return a
    gap_start, gap_end = a.end[:-1], a.start[1:]
    blocked = _inside(blockers, gap_start, gap_end) > 0
    blocked |= np.searchsorted(np.sort(borders), gap_start, side="left") != np.searchsorted(
        np.sort(borders), gap_end, side="right"
    )
    first, last = np.r_[True, blocked], np.r_[blocked, True]
    return Intervals(a.start[first], a.end[last])


def _inside(a: Intervals, start: Int64Array, end: Int64Array) -> Int64Array:
    """Length of ``a`` inside each range ``[start, end)``, ns; shape of ``start``."""
    if len(a.start) == 0:
        return np.zeros(len(start), dtype=np.int64)
    before = np.r_[0, np.cumsum(a.end - a.start)]

    def covered(time: Int64Array) -> Int64Array:
        index = np.searchsorted(a.start, time, side="right")
        inside_last = np.where(
            index > 0, np.minimum(time, a.end[np.maximum(index - 1, 0)]) - a.start[np.maximum(index - 1, 0)], 0
        )
        return np.where(index > 0, before[np.maximum(index - 1, 0)] + inside_last, 0)

    return covered(end) - covered(start)
