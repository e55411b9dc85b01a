"""Where in a step the device idled for the host: between which two tasks, how often and how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.analysis.device.breakdown import BUSY_KINDS
from steplens.analysis.device.idle import idle_causes, late_intervals
from steplens.analysis.steps.summary import usual_device_steps
from steplens.analysis.tools.schemas import table_schema
from steplens.trace.trace import Trace

#: names that most tasks of a device have as a prefix and nobody looks for
_OF_A_GRAPH = r"^Default/(?:.*/)?"
#: a launch that takes as long as the quickest quarter of them
_QUICK = 0.25
_GAPS = table_schema("before: String, after: String, step, is_inside: Boolean, idle_ns, start_ns, end_ns, trace, gap")


@dataclass(frozen=True)
class LaunchGaps:
    """The gaps between the tasks of a step that had not been launched in time, without those between two steps.

    Attributes:
        launches: how many a step has.
        quick_ns: a quarter of them are no longer.
        least_ns: what every step idles in them at the same places; 0 of a single step.
    """

    launches: float
    quick_ns: float
    least_ns: float

    def beyond_quick_ns(self, idle_ns: float) -> float:
        """What goes of so much idle time of a step where every launch takes as long as the quickest quarter does, ns."""
        return max(idle_ns - self.launches * self.quick_ns, 0.0)


def late_gaps(traces: Sequence[Trace], *, synchronizing: bool = False) -> pl.DataFrame:
    """The stretches of the usual steps in which the device idled since its next task had not been launched.

    See ``idle.late_intervals``: no waits for data and for the device are among them.

    Args:
        traces: of one run.
        synchronizing: instead those in which the host waited for the device.

    Returns:
        before, after: the task whose end, and whose start, a stretch lies between; of nested calls of a CPU the outermost; null
        at the borders of the recording. step: of the task that ends it, null behind the last one. is_inside: whether the task
        before it is of the same step. idle_ns; start_ns, end_ns; trace: number of the trace; gap: number of the gap between
        two tasks, of which a wait in the middle leaves two stretches.

    Source: ``kernels``, ``communication``.
    """
    frames = [gaps for number, trace in enumerate(traces) if (gaps := _late_gaps_of(trace, number, synchronizing)).height]
    return pl.concat(frames) if frames else pl.DataFrame(schema=_GAPS)


def idle_places(traces: Sequence[Trace], gaps: pl.DataFrame, idle_ns: float) -> pl.DataFrame:
    """The pairs of tasks between which the device idled for the host, longest first; what lies between two steps is one place.

    As with other parts of a step each has its share of the usual steps (``idle.idle_of_step``): together they are what
    ``late_intervals`` have of the idle time of a step.

    Args:
        traces: of one run.
        gaps: ``late_gaps`` of them.
        idle_ns: idle time of a step over the chosen steps of these traces (``StepSummary.device``).

    Returns:
        before, after, both null of what lies between two steps; is_inside: whether it does not; count: gaps of a step; idle_ns:
        of a step; trace, start_ns, end_ns, step: of the longest stretch.
    """
    usual = [usual_device_steps(trace) for trace in traces]
    all_idle_ns = sum(
        int(idle_causes(trace).join(steps, on="step", how="semi")["idle_ns"].sum())
        for trace, steps in zip(traces, usual, strict=True)
    )
    step_count = sum(steps.height for steps in usual)
    longest = [pl.col(name).sort_by("idle_ns", descending=True).first() for name in ("trace", "start_ns", "end_ns", "step")]
    sides = [pl.when("is_inside").then(pl.col(side)).alias(side) for side in ("before", "after")]
    places = (
        gaps.with_columns(sides)
        .group_by("before", "after", "is_inside")
        .agg(
            *longest,
            count=pl.struct("trace", "gap").n_unique() / max(step_count, 1),
            idle_ns=pl.col("idle_ns").sum() * (idle_ns / max(all_idle_ns, 1)),
        )
    )
    return places.sort("idle_ns", "before", "after", descending=[True, False, False])


def idle_in_each_step(traces: Sequence[Trace], gaps: pl.DataFrame, place: dict[str, object]) -> list[int]:
    """What the device idled for the host at one place in each of the usual steps, ns; 0 where it did not.

    Args:
        traces: of one run.
        gaps: ``late_gaps`` of them.
        place: a row of ``idle_places`` that lies inside of steps.
    """
    of_place = gaps.filter("is_inside", *(pl.col(side).eq_missing(place[side]) for side in ("before", "after")))
    by_step: dict[tuple[int, int], int] = {}
    for number, step, length in of_place.select("trace", "step", "idle_ns").iter_rows():
        by_step[number, step] = by_step.get((number, step), 0) + length
    return [by_step.get((number, step), 0) for number, trace in enumerate(traces) for step in usual_device_steps(trace)["step"]]


def launch_gaps(traces: Sequence[Trace], gaps: pl.DataFrame) -> LaunchGaps | None:
    """What launching takes between the tasks of a step; None where no task waited for its launch.

    Args:
        traces: of one run.
        gaps: ``late_gaps`` of them.
    """
    in_step = gaps.filter("is_inside")
    step_count = sum(usual_device_steps(trace).height for trace in traces)
    if not in_step.height or not step_count:
        return None
    sums = in_step.group_by("before", "after", "trace", "step").agg(pl.col("idle_ns").sum())
    by_place = sums.group_by("before", "after").agg("idle_ns")["idle_ns"].to_list()
    # where a step does not idle at a place, not every step does
    by_place = [lengths for lengths in by_place if len(lengths) == step_count]
    return LaunchGaps(
        launches=in_step.select("trace", "gap").n_unique() / step_count,
        quick_ns=float(np.quantile(in_step["idle_ns"].to_numpy(), _QUICK)),
        least_ns=float(sum(map(min, by_place))) if step_count > 1 else 0.0,
    )


def _late_gaps_of(trace: Trace, number: int, synchronizing: bool) -> pl.DataFrame:
    late = late_intervals(trace, synchronizing=synchronizing)
    columns = (pl.col("name").cast(pl.String), "start_ns", "end_ns", "step")
    tasks = trace.required("kernels").filter(pl.col("kind").cast(pl.String).is_in(BUSY_KINDS)).select(columns)
    work = pl.concat([tasks, trace.required("communication").select(columns)]).drop_nulls(["start_ns", "end_ns"])
    # of calls that begin at once the longest is around the others
    ordered = work.sort("start_ns", "end_ns", descending=[False, True]).collect()
    if not len(late.start) or not ordered.height:
        return pl.DataFrame(schema=_GAPS)
    start, end = ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy()
    latest = np.maximum.accumulate(end)
    ends_last = np.maximum.accumulate(np.where(end > np.r_[np.iinfo(np.int64).min, latest[:-1]], np.arange(len(end)), 0))
    after = np.searchsorted(start, late.end, side="left")
    before = np.where(after > 0, ends_last[np.maximum(after - 1, 0)], -1)
    is_first = pl.Series(before < 0)
    names, steps = ordered["name"].str.replace(_OF_A_GRAPH, ""), ordered["step"].cast(pl.Int64)
    sides = {
        "before": names.gather(pl.Series(before).set(is_first, None)),
        "after": names.gather(_or_none(after, len(start))),
        "step": steps.gather(_or_none(after, len(start))),
        "step_before": steps.gather(pl.Series(before).set(is_first, None)),
    }
    frame = pl.DataFrame(sides).with_columns(
        is_inside=(pl.col("step") == pl.col("step_before")).fill_null(False),
        idle_ns=pl.Series(late.end - late.start),
        start_ns=pl.Series(late.start),
        end_ns=pl.Series(late.end),
        trace=pl.lit(number, dtype=pl.Int64),
        gap=pl.Series(after, dtype=pl.Int64),
    )
    return frame.select(list(_GAPS))


def _or_none(rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]], count: int) -> pl.Series:
    """Row numbers, null where there are no so many rows."""
    numbers = pl.Series(rows)
    return numbers.set(numbers >= count, None)
