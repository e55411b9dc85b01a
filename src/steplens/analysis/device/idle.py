"""Why the device was idle in a step: every gap in its work attributed to what held the next task back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.device.breakdown import BUSY_KINDS, SHORT_GAP_NS
from steplens.analysis.steps.device import device_periods
from steplens.analysis.steps.device_work import computing_tasks, device_parts
from steplens.analysis.steps.host_calls import SYNCHRONIZATION_NAME
from steplens.analysis.steps.summary import usual_device_steps
from steplens.analysis.steps.training_thread import records_host
from steplens.analysis.tools import names
from steplens.analysis.tools.joined_rows import join_rows
from steplens.analysis.tools.once import once_if_small
from steplens.analysis.tools.overlap import (
    Int64Array,
    Intervals,
    intersect,
    length_inside,
    merge_intervals,
    merged,
    subtract,
    union,
)
from steplens.trace import schema
from steplens.trace.schema import KIND_OTHER
from steplens.trace.trace import Trace

GARBAGE_COLLECTION = "garbage collection"
DATA = "data"
SYNCHRONIZATION = "synchronization"
ALLOCATION = "allocation"
CALLS = "calls"
PYTHON = "python"
LAUNCH = "launch"
#: the host was late, and what it did until then was not recorded
NOT_RECORDED = "not recorded"
BETWEEN_KERNELS = "between kernels"
DEPENDENCY = "dependency"
UNKNOWN = "unknown"
#: in the order in which they are looked for, where several apply
CAUSES = (
    GARBAGE_COLLECTION, DATA, SYNCHRONIZATION, ALLOCATION, CALLS, PYTHON, NOT_RECORDED, LAUNCH, BETWEEN_KERNELS, DEPENDENCY,
    UNKNOWN,
)  # fmt: skip
#: the host was late for another reason than data or a wait of its own: it was launching, or did something else
HOST_CAUSES = (GARBAGE_COLLECTION, ALLOCATION, CALLS, PYTHON, NOT_RECORDED, LAUNCH)
#: the host was in time
DEVICE_CAUSES = (BETWEEN_KERNELS, DEPENDENCY)

#: runtime calls that ask the driver of the device for memory
ALLOCATION_NAME = r"(?i)malloc|^(cuda|hip)(host)?free|^cumem(alloc|free|create|map)"
#: gaps between queued tasks of one stream are plain up to so many times their median: profilers of Ascend lengthen all of them
_USUAL_GAPS = 3
_NEVER = np.iinfo(np.int64).max


@once_if_small
def idle_causes(trace: Trace) -> pl.DataFrame:
    """Idle time of the device per step and cause, in ns; per step it adds up to ``idle_ns`` of ``steps.device.device_periods``.

    A gap lies between two stretches of work (computing, communicating or copying, on all streams together), as far as it lies in
    the device period of the step. With a its start, b its end, and L the time when the host launched the task that ends it:

    1. from a to L the host is late. What it was doing, first match: ``garbage collection``; waiting for ``data``; a call
       that waits for the device (``synchronization``) or allocates its memory (``allocation``); other operator and
       runtime ``calls``; none of them, which is ``python``, or ``not recorded`` where no operators of the training thread are
       there to tell (``records_host``);
    2. from L to b the task was on its way: ``launch``;
    3. the task was launched before the gap began. The gap is a plain one ``between kernels``, what the device takes from one
       task of a stream to the next one in its queue, where a task of the same stream ended at a, no recorded wait fills most of
       the gap, and it is no longer than is usual: 30 us, or three times the median of such gaps where that is more. Else the task
       waited for something on the device, another stream, an event or another rank: ``dependency``;
    4. without L the cause is ``unknown``. Where no task follows, the host launched none until b.

    Where the CPU is the device nothing launches its tasks: they begin when the host comes to them, so that L is b. Its gaps
    are ``garbage collection``, ``data``, ``calls`` and ``python`` (or ``not recorded``).

    Source: ``kernels``, ``communication``, ``ops``, ``api``, ``gc``.

    Returns:
        step, cause and idle_ns, for causes that occur, in order of step and ``CAUSES``.
    """
    gaps = step_gaps(trace)
    if gaps is None:
        return pl.DataFrame(schema={"step": pl.Int64, "cause": pl.String, "idle_ns": pl.Int64})
    frames = [
        pl.DataFrame({"step": gaps.step, "idle_ns": ns}).with_columns(cause=pl.lit(cause))
        for cause, ns in gaps.length_by_cause.items()
    ]
    return (
        pl.concat(frames)
        .group_by("step", "cause")
        .agg(pl.col("idle_ns").sum())
        .filter(pl.col("idle_ns") > 0)
        .select("step", pl.col("cause").cast(pl.Enum(CAUSES)), "idle_ns")
        .sort("step", "cause")
        .cast({"cause": pl.String})
    )


@dataclass(frozen=True)
class StepGaps:
    """Every gap in the work of a device, as far as it lies in the period of a step; arrays of shape (n,), in order of time.

    Attributes:
        step: in whose period it lies.
        start_ns, end_ns: of the part that lies in it.
        begins_ns, ends_ns: of the whole gap: the end of the task before it, and the start of the task behind it.
        launched_ns: the part of each that the host was late ends here at the latest; ``start_ns`` where it was not.
        length_by_cause: cause -> ns of each; they add up to the part.
    """

    step: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    begins_ns: Int64Array
    ends_ns: Int64Array
    launched_ns: Int64Array
    length_by_cause: dict[str, Int64Array]


def step_gaps(trace: Trace) -> StepGaps | None:
    """The gaps of ``idle_causes`` one by one; None where no step has a device period."""
    periods = device_periods(trace).filter("recorded")
    if not periods.height:
        return None
    gaps = _Gaps.of(device_parts(trace).busy, periods["start_ns"].to_numpy(), periods["end_ns"].to_numpy())
    step = periods["step"].gather(pl.Series(gaps.period)).to_numpy()
    launch, is_known = _gap_launches(trace, gaps.ends_ns)
    launched = np.where(is_known, np.clip(launch, gaps.start_ns, gaps.end_ns), gaps.start_ns)
    return StepGaps(step, gaps.start_ns, gaps.end_ns, gaps.begins_ns, gaps.ends_ns, launched, _lengths_by_cause(trace, gaps))


def idle_of_step(traces: Sequence[Trace], idle_ns: float) -> dict[str, float]:
    """Idle time of a step by cause, in ns, in order of ``CAUSES``: it adds up to ``idle_ns``, which ``StepSummary.device`` has.

    As with the other parts of a step each cause is its mean over the usual steps (``usual_device_steps``). Empty where no idle
    time has a cause.

    Args:
        traces: of one run.
        idle_ns: idle time of a step over the chosen steps of these traces.
    """
    if not traces:
        return {}
    rows = join_rows(idle_causes(trace).join(usual_device_steps(trace), on="step", how="semi") for trace in traces)
    sums = dict(rows.group_by("cause").agg(pl.col("idle_ns").sum()).iter_rows())
    sum_ns = float(sum(sums.values()))
    return {cause: sums[cause] / sum_ns * idle_ns for cause in CAUSES if cause in sums} if sum_ns > 0 else {}


def late_intervals(trace: Trace, *, synchronizing: bool = False) -> Intervals:
    """When the device idled in the usual steps for a host that had not launched the next task, for another reason than a wait.

    The time of ``HOST_CAUSES`` but for ``launch``: without waits for data and waits for the device.

    Args:
        trace: of one rank.
        synchronizing: instead the time in which the host waited for the device (``SYNCHRONIZATION``).
    """
    periods = device_periods(trace).filter("recorded").join(usual_device_steps(trace), on="step", how="semi")
    gaps = _Gaps.of(device_parts(trace).busy, periods["start_ns"].to_numpy(), periods["end_ns"].to_numpy())
    launch, is_known = _gap_launches(trace, gaps.ends_ns)
    late = is_known & (launch > gaps.begins_ns)
    until = np.clip(launch, gaps.start_ns, gaps.end_ns)
    host = _host_activities(trace)
    # collecting garbage comes before the waits, as in ``idle_causes``
    intervals = merge_intervals(gaps.start_ns[late], until[late])
    if synchronizing:
        return intersect(intervals, subtract(host[SYNCHRONIZATION], union(host[DATA], host[GARBAGE_COLLECTION])))
    return subtract(intervals, subtract(union(host[DATA], host[SYNCHRONIZATION]), host[GARBAGE_COLLECTION]))


def idle_after(trace: Trace, times_ns: Int64Array) -> Int64Array:
    """How long the device does nothing around each of ``times_ns``, at which the host has just waited for it.

    From the end of the last task that began before the time to the start of the first one after it; 0 where the device is
    still busy then, and before the first and after the last task. Times within one gap share it: the first has it, the
    others have 0.

    Args:
        trace: of an accelerator.
        times_ns: sorted, shape (n,).

    Returns:
        ns, shape (n,).
    """
    tasks = computing_tasks(trace).select("start_ns", "end_ns").drop_nulls().sort("start_ns").collect()
    starts, ends = tasks["start_ns"].to_numpy(), np.maximum.accumulate(tasks["end_ns"].to_numpy())
    after = np.searchsorted(starts, times_ns, side="right")
    is_first_inside = (after > 0) & (after < len(starts)) & np.r_[True, after[1:] != after[:-1]][: len(after)]
    gaps = np.zeros(len(after), dtype=np.int64)
    gaps[is_first_inside] = np.maximum(starts[after[is_first_inside]] - ends[after[is_first_inside] - 1], 0)
    return gaps


def _host_activities(trace: Trace) -> dict[str, Intervals]:
    """When the host did what, by cause; on all threads."""
    ops, api = trace.required("ops"), trace.required("api")
    call = pl.col("scope").is_in([schema.SCOPE_FUNCTION, schema.SCOPE_BACKWARD]) & (pl.col("depth").fill_null(0) >= 0)
    name, runtime = pl.col("name"), names.of_runtime(trace)
    waits = names.containing(runtime, SYNCHRONIZATION_NAME)
    allocates = [one for one in names.containing(runtime, ALLOCATION_NAME) if one not in set(waits)]
    return {
        GARBAGE_COLLECTION: _merge_rows(trace.required("gc")),
        DATA: _merge_rows(ops.filter(name.is_in(names.with_prefix(names.of_calls(trace), schema.DATALOADER_PREFIX)))),
        SYNCHRONIZATION: _merge_rows(api.filter(name.is_in(waits))),
        ALLOCATION: _merge_rows(api.filter(name.is_in(allocates))),
        CALLS: union(_merge_rows(ops.filter(call)), _merge_rows(api)),
    }


def _merge_rows(rows: pl.LazyFrame) -> Intervals:
    frame = rows.select("start_ns", "end_ns").drop_nulls().collect()
    return merged(frame)


@dataclass(frozen=True)
class _Gaps:
    """The parts of gaps in the device's work that lie in its periods; arrays of shape (n,), in order of period and time.

    Attributes:
        period: row of the period.
        start_ns, end_ns: of the part.
        begins_ns, ends_ns: of the whole gap; before the first work and behind the last they have no bounds.
    """

    period: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    begins_ns: Int64Array
    ends_ns: Int64Array

    @classmethod
    def of(cls, busy: Intervals, start: Int64Array, end: Int64Array) -> _Gaps:
        """The gaps of ``busy`` inside each range ``[start, end)``; the ranges may overlap."""
        begins, ends = np.r_[-_NEVER, busy.end], np.r_[busy.start, _NEVER]
        first = np.searchsorted(ends, start, side="right")
        count = np.maximum(np.searchsorted(begins, end, side="left") - first, 0)
        period = np.repeat(np.arange(len(start)), count)
        gap = np.arange(len(period)) + np.repeat(first - np.cumsum(count) + count, count)
        part_start, part_end = np.maximum(begins[gap], start[period]), np.minimum(ends[gap], end[period])
        keep = part_end > part_start
        return cls(period[keep], part_start[keep], part_end[keep], begins[gap][keep], ends[gap][keep])


def _gap_launches(trace: Trace, ends: Int64Array) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
    """When the host launched the task that ends each gap, and whether that is known; of several the first launch."""
    ends_frame = pl.DataFrame({"start_ns": ends}).lazy()
    if trace.has_accelerator:
        columns = ["start_ns", "launch_ns"]
        tasks = trace.required("kernels").filter(pl.col("kind").cast(pl.String).is_in(BUSY_KINDS)).select(columns)
        starts = pl.concat([tasks, trace.required("communication").select(columns)]).drop_nulls("start_ns")
        starts = starts.join(ends_frame.unique(), on="start_ns", how="semi").group_by("start_ns").agg(pl.col("launch_ns").min())
        launch = ends_frame.join(starts, on="start_ns", how="left", maintain_order="left").collect()["launch_ns"]
    else:
        launch = pl.Series("launch_ns", ends)
    # nothing was launched any more
    launch = launch.set(pl.Series(ends == _NEVER), _NEVER)
    return launch.fill_null(0).to_numpy(), launch.is_not_null().to_numpy()


def _plain_gaps(trace: Trace, gaps: _Gaps, early: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which of the gaps that ``early`` marks lie between two tasks of one stream and are no longer than usual."""
    plain = np.zeros(len(early), dtype=bool)
    if not early.any():
        return plain
    lane = ["device", "stream"]
    tasks = trace.required("kernels").select(*lane, "start_ns", "end_ns", kind=pl.col("kind").cast(pl.String))
    busy = tasks.filter(pl.col("kind").is_in(BUSY_KINDS))
    number = np.flatnonzero(early)
    ends = pl.DataFrame({"gap": number, "end_ns": gaps.begins_ns[number], "next_ns": gaps.ends_ns[number]}).lazy()
    # one behind the other: of both at once polars may join all tasks of a stream with each other first
    before = ends.join(busy.select(*lane, "end_ns"), on="end_ns").select("gap", *lane, start_ns="next_ns").collect()
    same = busy.select(*lane, "start_ns").join(before.lazy(), on=[*lane, "start_ns"]).select("gap").unique().collect()
    plain[same["gap"].to_numpy()] = True
    lengths = gaps.ends_ns - gaps.begins_ns
    if plain.any():
        usual = float(np.median(lengths[plain]))
        plain &= lengths <= max(SHORT_GAP_NS, _USUAL_GAPS * usual)
    # waits that the device records, on streams that also work
    waits = tasks.filter(pl.col("kind") == KIND_OTHER).join(busy.select(*lane).unique(), on=lane, how="semi")
    waited = length_inside(_merge_rows(waits), gaps.start_ns, gaps.end_ns)
    return plain & (2 * waited < gaps.end_ns - gaps.start_ns)


def _lengths_by_cause(trace: Trace, gaps: _Gaps) -> dict[str, Int64Array]:
    """Length of each part of a gap by cause, ns.

    What several intervals of the host cover goes to the first of them: what a cause adds to all before it is its own.
    """
    launch, is_known = _gap_launches(trace, gaps.ends_ns)
    begin, end = gaps.start_ns, gaps.end_ns
    early = is_known & (launch <= gaps.begins_ns)
    late = is_known & ~early
    plain = _plain_gaps(trace, gaps, early)
    split = np.clip(launch, begin, end)
    lengths = {
        UNKNOWN: np.where(is_known, 0, end - begin),
        BETWEEN_KERNELS: np.where(plain, end - begin, 0),
        DEPENDENCY: np.where(early & ~plain, end - begin, 0),
        LAUNCH: np.where(late, end - split, 0),
    }
    empty = np.empty(0, dtype=np.int64)
    covers, covered = Intervals(empty, empty), np.zeros(len(begin), dtype=np.int64)
    for cause, intervals in _host_activities(trace).items():
        covers = union(covers, intervals)
        within = length_inside(covers, begin, split)
        lengths[cause] = np.where(late, within - covered, 0)
        covered = within
    lengths[PYTHON if records_host(trace) else NOT_RECORDED] = np.where(late, split - begin - covered, 0)
    return lengths
