"""Where the time of each step went: on the device (computing, communication, free) and on the host (phases)."""

from __future__ import annotations

import numpy as np
import polars as pl

from steplens.analysis import names
from steplens.analysis.overlap import Int64Array, Intervals, length_inside, merge_intervals, subtract, union
from steplens.trace.checks import parts_of_steps
from steplens.trace.schema import (
    DATALOADER_PREFIX,
    GRADIENTS_PREFIX,
    KIND_COMPUTE,
    OPTIMIZER_CLOSURE,
    OPTIMIZER_STEP_PREFIX,
    PARTIAL_STEPS,
    RECEIVE,
    SCOPE_BACKWARD,
    SCOPE_FUNCTION,
    SCOPE_MODULE,
)
from steplens.trace.trace import Trace

_OPTIMIZER_PREFIX = "Optimizer."
#: in full names of operators of a graph of MindSpore
_GRAPH_OPTIMIZER = "/optimizer-"
#: numbers of conditions in ``_phases``
_GRADIENT, _CALL = 4, 5
#: no number of a step
_NO_STEP = -(1 << 63)
#: later than any time
_NEVER = (1 << 63) - 1

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

#: what the device did between the start of a step and its last device work
DEVICE_PARTS = ("preparing_ns", "computing_ns", "communication_not_overlapped_ns", "free_ns")

#: the collector's finding that recording was stopped before the next step began
STOPPED_INSIDE = "stopped_inside_step"


def step_times(trace: Trace, *, whole_trace_without_steps: bool = False) -> pl.DataFrame:
    """Times of every step, one row each, in ns; columns as in ``COLUMNS``.

    Device side. A device task or communication operation belongs to the step whose range on the device holds its start
    (``trace.device_work.device_steps``): that of the tasks which the step launched. A device that runs behind the host does
    much of it after the step has ended there, so these times may add up to more than ``duration_ns``, and ``preparing_ns``
    may be full of the work of the step before. With C, M and R the
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
    step's thread), ``other_ns`` (none of them). A graph of MindSpore runs on threads of its own: there the launches of all its
    threads count, by their full names (``Gradients/``, ``/optimizer-``), and forward ends with the last gradient. Backward and
    forward include the gaps between two of their calls when nothing of another phase lies in the gap.

    ``complete`` is false for a first or last step that recording holds only a part of, and for any of which the recorder says so:
    it is no part of an average. A step of a schedule that recording was stopped in, and not ended by ``step()``, is one too.

    Source: the ``steps``, ``ops``, ``kernels`` and ``communication`` tables. Unsafe when health reports lost or
    overlapping calls. A trace without steps gives no rows.

    Args:
        trace: one rank.
        whole_trace_without_steps: a trace without steps gives one row for all of it, ``step`` null.
    """
    steps = trace.steps
    if steps is not None and steps.height:
        return trace.once(_of_steps)
    whole = _whole(trace) if whole_trace_without_steps else None
    return pl.DataFrame(schema=COLUMNS) if whole is None else _times(trace, whole)


def _of_steps(trace: Trace) -> pl.DataFrame:
    return _times(trace, trace.required("steps").collect())


def _times(trace: Trace, steps: pl.DataFrame) -> pl.DataFrame:
    start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    columns: dict[str, Int64Array | pl.Series] = {"step": steps["id"], "start_ns": start, "duration_ns": end - start}
    columns.update(_device_times(trace, steps))
    columns.update(_phases(trace, steps))
    columns["complete"] = _complete(trace, steps)
    return pl.DataFrame({name: columns[name] for name in COLUMNS}, schema=COLUMNS)


def _complete(trace: Trace, steps: pl.DataFrame) -> pl.Series:
    tables = {name: frame for name in ("steps", "kernels", "meta") if (frame := trace.table(name)) is not None}
    parts = [part.step for part in parts_of_steps(tables)]
    told = trace.meta_values().get(PARTIAL_STEPS)
    parts += [step for step in told if type(step) is int] if isinstance(told, list) else []
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


def beside_the_device(steps: pl.DataFrame) -> pl.DataFrame:
    """Why the parts of the device do not add up to the steps, where that is so.

    They end with a step's last work, and begin with the first of it, which a device that runs behind the host does late.

    Args:
        steps: of ``step_times``.

    Returns:
        Per step in ns: device_idle_ns after the last work of the step, device_late_ns of its parts after its end on the host.
    """
    work = pl.sum_horizontal(pl.col(*DEVICE_PARTS).fill_null(0))
    beyond = pl.when(work > 0).then(pl.col("duration_ns") - work).otherwise(0)
    return steps.select(device_idle_ns=beyond.clip(lower_bound=0), device_late_ns=(-beyond).clip(lower_bound=0))


def computing_tasks(trace: Trace) -> pl.LazyFrame:
    """The device tasks that compute: no copies, no communication, no waiting."""
    return trace.required("kernels").filter(pl.col("kind") == KIND_COMPUTE)


def _device_times(trace: Trace, steps: pl.DataFrame) -> dict[str, Int64Array]:
    ids = steps["id"]
    space, computing, receive, other = _device_work(trace, ids) if ids.null_count() else trace.once(_device_work_of_steps)
    communication = union(receive, other)
    computing_ns, communication_ns = space.lengths(computing), space.lengths(communication)
    not_overlapped = space.lengths(subtract(communication, computing))
    first, last = space.bounds(computing, communication)
    span = last - first
    bubble = space.lengths(receive)
    worked = span > 0
    return {
        "computing_ns": computing_ns,
        "communication_ns": communication_ns,
        "overlapped_ns": communication_ns - not_overlapped,
        "communication_not_overlapped_ns": not_overlapped,
        "free_ns": span - computing_ns - not_overlapped,
        "preparing_ns": np.where(worked, np.maximum(first - steps["start_ns"].to_numpy(), 0), 0),
        "stage_ns": span - bubble,
        "bubble_ns": bubble,
        "exclude_receive_ns": np.maximum(not_overlapped - bubble, 0),
    }


def communication_alone(trace: Trace) -> pl.DataFrame:
    """What communication adds to the device time of every step, ns: step, alone_ns, receive_alone_ns, collective_alone_ns.

    With C, M and R the unions of the step's computing, communication and receive intervals and N that of its other
    communication: ``alone_ns`` = |M outside C|, ``receive_alone_ns`` = |R outside C and N|, ``collective_alone_ns`` =
    |N outside C|.
    """
    steps = trace.required("steps").select("id").collect()["id"]
    space, computing, received, other = trace.once(_device_work_of_steps)
    return pl.DataFrame(
        {
            "step": steps,
            "alone_ns": space.lengths(subtract(union(received, other), computing)),
            "receive_alone_ns": space.lengths(subtract(subtract(received, computing), other)),
            "collective_alone_ns": space.lengths(subtract(other, computing)),
        }
    )


def _device_work_of_steps(trace: Trace) -> tuple[_GroupSpace, Intervals, Intervals, Intervals]:
    return _device_work(trace, trace.required("steps").select("id").collect()["id"])


def _device_work(trace: Trace, steps: pl.Series) -> tuple[_GroupSpace, Intervals, Intervals, Intervals]:
    """When the device computed, received and communicated otherwise, each step in a stretch of its own."""
    receive = pl.col("kind") == RECEIVE
    tasks = computing_tasks(trace).select("start_ns", "end_ns", "step").collect()
    operations = trace.required("communication").select("start_ns", "end_ns", "step", receive=receive).collect()
    space = _GroupSpace([tasks, operations], len(steps))
    return (
        space,
        space.intervals(tasks, steps),
        space.intervals(operations.filter("receive"), steps),
        space.intervals(operations.filter(~pl.col("receive").fill_null(False)), steps),
    )


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

    def intervals(self, frame: pl.DataFrame, steps: pl.Series) -> Intervals:
        """The intervals of the rows of a frame, each in the stretch of its step's place in ``steps`` (or in the only one's)."""
        start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
        if steps.null_count():
            return merge_intervals(start - self.origin, end - self.origin)
        if not len(steps):
            return merge_intervals(start[:0], end[:0])
        ids = steps.to_numpy()
        order = np.argsort(ids, kind="stable")
        wanted = frame["step"].fill_null(_NO_STEP).to_numpy()
        group = order[np.maximum(np.searchsorted(ids[order], wanted, side="right") - 1, 0)]
        keep = ids[group] == wanted
        offset = group * self.stretch - self.origin
        return merge_intervals((start + offset)[keep], (end + offset)[keep])

    def _rows(self, merged: Intervals) -> tuple[Int64Array, Int64Array]:
        """Where in a merged set every group begins and ends."""
        borders = np.searchsorted(merged.start, np.arange(self.groups + 1) * self.stretch)
        return borders[:-1], borders[1:]

    def lengths(self, merged: Intervals) -> Int64Array:
        """Total length per group, ns."""
        first, behind = self._rows(merged)
        total = np.r_[0, np.cumsum(merged.end - merged.start)]
        lengths: Int64Array = total[behind] - total[first]
        return lengths

    def bounds(self, *sets: Intervals) -> tuple[Int64Array, Int64Array]:
        """First start and last end per group in any of the merged sets, as Unix ns; 0 and 0 for a group without intervals."""
        start, end = np.full(self.groups, _NEVER), np.full(self.groups, -_NEVER)
        for merged in sets:
            first, behind = self._rows(merged)
            known = behind > first
            back = self.origin - np.arange(self.groups)[known] * self.stretch
            start[known] = np.minimum(start[known], merged.start[first[known]] + back)
            end[known] = np.maximum(end[known], merged.end[behind[known] - 1] + back)
        empty = start == _NEVER
        return np.where(empty, 0, start), np.where(empty, 0, end)


def _phases(trace: Trace, steps: pl.DataFrame) -> dict[str, Int64Array]:
    known = names.of_calls(trace)
    pid, tid = (pl.lit(steps[column][0], dtype=pl.Int64) for column in ("pid", "tid"))
    own_process = pl.col("pid") == pid
    own_thread = own_process & (pl.col("tid") == tid)

    def starts(prefix: str) -> pl.Expr:
        return own_thread & pl.col("name").is_in(names.with_prefix(known, prefix))

    scope = pl.col("scope")
    is_call = scope.is_in([SCOPE_FUNCTION, SCOPE_MODULE])
    # a graph of MindSpore runs on threads of its own, and the full names of its operators say what they are part of
    gradients = names.with_prefix(known, GRADIENTS_PREFIX)
    is_graph = bool(gradients) and not trace.required("ops").filter(own_thread & is_call).head(1).collect().height
    in_graph = own_process & pl.lit(is_graph)
    kind = pl.coalesce(
        pl.when(condition).then(pl.lit(number, dtype=pl.UInt8))
        for number, condition in enumerate(
            (
                starts(DATALOADER_PREFIX),
                own_thread & (pl.col("name") == OPTIMIZER_CLOSURE),
                starts(OPTIMIZER_STEP_PREFIX),
                starts(_OPTIMIZER_PREFIX) | (in_graph & pl.col("name").is_in(names.containing(known, _GRAPH_OPTIMIZER))),
                own_process & (scope == SCOPE_BACKWARD),
                (own_thread | in_graph) & is_call,
            )
        )
    )
    ranges = trace.required("ops").select("start_ns", "end_ns", kind=kind).drop_nulls("kind").collect()
    if is_graph:
        ranges = _up_to_the_last_gradient(ranges, steps)
    at = ranges["kind"].to_numpy()
    begin, behind = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
    # in the order of the conditions
    data, closures, stepping, optimizing, backward, forward = (
        merge_intervals(begin[at == number], behind[at == number]) for number in range(6)
    )
    # a closure runs forward and backward inside the step, and at times Optimizer.zero_grad
    optimizer = subtract(union(subtract(stepping, closures), optimizing), data)
    taken = union(data, optimizer)
    backward = subtract(backward, taken)
    forward = subtract(subtract(forward, taken), backward)
    borders = steps["start_ns"].to_numpy()
    backward = bridge(backward, union(taken, forward), borders)
    forward = bridge(forward, union(taken, backward), borders)
    start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    phases = {
        "data_wait_ns": length_inside(data, start, end),
        "forward_ns": length_inside(forward, start, end),
        "backward_ns": length_inside(backward, start, end),
        "optimizer_ns": length_inside(optimizer, start, end),
    }
    return {**phases, "other_ns": end - start - sum(phases.values())}


def _up_to_the_last_gradient(ranges: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Ranges without the forward ones that begin behind a step's last gradient: they update something, or copy."""
    step = np.searchsorted(steps["start_ns"].to_numpy(), ranges["start_ns"].to_numpy(), side="right")
    is_gradient = pl.col("kind") == _GRADIENT
    last = pl.col("start_ns").filter(is_gradient).max().over("step")
    late = (pl.col("kind") == _CALL) & (pl.col("start_ns") > last)
    return ranges.with_columns(step=step).filter(~late.fill_null(False)).drop("step")


def bridge(a: Intervals, blockers: Intervals, borders: Int64Array) -> Intervals:
    """``a`` with every gap filled that holds no part of ``blockers`` and no time of ``borders``."""
    if len(a.start) < 2:
        return a
    gap_start, gap_end = a.end[:-1], a.start[1:]
    blocked = length_inside(blockers, gap_start, gap_end) > 0
    blocked |= np.searchsorted(np.sort(borders), gap_start, side="left") != np.searchsorted(
        np.sort(borders), gap_end, side="right"
    )
    first, last = np.r_[True, blocked], np.r_[blocked, True]
    return Intervals(a.start[first], a.end[last])
