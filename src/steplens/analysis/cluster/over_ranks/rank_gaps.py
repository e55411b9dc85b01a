"""The largest idle gaps of each step of one rank, each with what held the next task back: small enough to keep of every rank."""

from __future__ import annotations

import numpy as np
import polars as pl

from steplens.analysis.device.breakdown import BUSY_KINDS
from steplens.analysis.device.idle import (
    ALLOCATION,
    ALLOCATION_NAME,
    CALLS,
    CAUSES,
    DATA,
    PYTHON,
    SYNCHRONIZATION,
    StepGaps,
    step_gaps,
)
from steplens.analysis.device.idle_activity import longest_name, names_before, operator_calls, python_calls, self_inside
from steplens.analysis.steps.host_calls import SYNCHRONIZATION_NAME
from steplens.analysis.tools import names
from steplens.analysis.tools.once import once_if_small
from steplens.analysis.tools.overlap import Int64Array, Intervals, length_inside, merge_intervals
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.schema import DATALOADER_PREFIX
from steplens.trace.trace import Trace

RANK_GAPS = table_schema("step, start_ns, idle_ns, cause: String, cause_ns, name: String, before: String, after: String, number")
#: so many of each step are kept
MOST_GAPS = 8
#: a name of which more is kept than this is none that anybody reads
_LONGEST_NAME = 80
_OF_A_GRAPH = r"^Default/(?:.*/)?"
#: of which the calls of the host are looked at
_NAMED_CAUSES = (DATA, SYNCHRONIZATION, ALLOCATION, CALLS, PYTHON)
_LANE = ["step", "before", "after"]


@once_if_small
def rank_gaps(trace: Trace) -> pl.DataFrame:
    """The ``MOST_GAPS`` longest gaps of every step in order of time; columns as in ``RANK_GAPS``.

    ``idle_ns``: the part of a gap that lies in the device period of the step, ``start_ns`` its begin on the clock of the rank.
    ``cause``: of the causes that ``device.idle`` finds in the gap the longest, and ``cause_ns`` how long. ``name``: what the host
    was doing for most of that: the runtime call that waits or allocates, the loader, the operator or, where Python was
    recorded, the function that itself ran longest; without Python's calls the operator that ended last before. ``before`` and
    ``after``: the tasks around it, null at the borders of the recording; ``number``: from 0, of the gaps of the step between two
    tasks of these names.
    """
    gaps = step_gaps(trace)
    if gaps is None or not len(gaps.step):
        return pl.DataFrame(schema=RANK_GAPS)
    causes = np.stack([gaps.length_by_cause[cause] for cause in CAUSES if cause in gaps.length_by_cause])
    present = [cause for cause in CAUSES if cause in gaps.length_by_cause]
    longest = causes.argmax(axis=0)
    before, after = _tasks_around(trace, gaps.begins_ns, gaps.ends_ns)
    rows = pl.DataFrame(
        {
            "gap": np.arange(len(gaps.step)),
            "step": gaps.step,
            "start_ns": gaps.start_ns,
            "idle_ns": gaps.end_ns - gaps.start_ns,
            "cause": pl.Series(present).gather(pl.Series(longest)),
            "cause_ns": causes.max(axis=0),
            "before": before.str.slice(0, _LONGEST_NAME),
            "after": after.str.slice(0, _LONGEST_NAME),
        }
    )
    # counted by the names as they are kept
    rows = rows.with_columns(number=pl.int_range(pl.len()).over(_LANE))
    rows = rows.sort("idle_ns", "start_ns", descending=[True, False]).group_by("step", maintain_order=True).head(MOST_GAPS)
    rows = rows.sort("step", "start_ns")
    rows = rows.with_columns(name=_host_activities(trace, gaps, rows).str.slice(0, _LONGEST_NAME))
    return rows.select(cast_columns(RANK_GAPS))


def _tasks_around(trace: Trace, begins: Int64Array, ends: Int64Array) -> tuple[pl.Series, pl.Series]:
    """Names of the tasks that end at ``begins`` and that start at ``ends``; of several the longest."""
    columns = (pl.col("name").cast(pl.String), "start_ns", "end_ns")
    tasks = trace.required("kernels").filter(pl.col("kind").cast(pl.String).is_in(BUSY_KINDS)).select(columns)
    work = pl.concat([tasks, trace.required("communication").select(columns)]).drop_nulls(["start_ns", "end_ns"]).collect()
    work = work.sort(pl.col("end_ns") - pl.col("start_ns"), "name", descending=[True, False])
    sides = []
    for column, moments in (("end_ns", begins), ("start_ns", ends)):
        of_moment = work.unique(column, keep="first").select(moment=column, side="name")
        joined = pl.DataFrame({"moment": moments}).join(of_moment, on="moment", how="left", maintain_order="left")
        sides.append(joined["side"].str.replace(_OF_A_GRAPH, ""))
    return sides[0], sides[1]


def _host_activities(trace: Trace, gaps: StepGaps, rows: pl.DataFrame) -> pl.Series:
    """What the host was doing for most of the time of the cause of each of some gaps; null where nothing tells."""
    gap_numbers = rows["gap"].to_numpy()
    start, end = gaps.start_ns[gap_numbers], gaps.launched_ns[gap_numbers]
    touched = merge_intervals(start, end)
    # of long recordings only what touches the gaps is looked at again and again
    calls = {cause: _touching_calls(touched, _calls_of_cause(trace, cause)) for cause in _NAMED_CAUSES if cause in rows["cause"]}
    runtime = _touching_calls(touched, trace.required("api")) if CALLS in calls else None
    behind = names_before(trace, start) if PYTHON in calls else None
    activities: list[str | None] = []
    for place, cause in enumerate(rows["cause"]):
        late = Intervals(start[place : place + 1], end[place : place + 1])
        name = ""
        if cause in calls and late.length_ns > 0:
            name = _longest_inside(late, calls[cause], itself=cause in (CALLS, PYTHON))
            if not name and cause == CALLS and runtime is not None:
                name = _longest_inside(late, runtime)
            if not name and cause == PYTHON and behind is not None:
                name = behind[place] or ""
        activities.append(name or None)
    return pl.Series("name", activities, dtype=pl.String)


def _calls_of_cause(trace: Trace, cause: str) -> pl.LazyFrame:
    """The calls that a cause is about."""
    if cause == CALLS:
        return operator_calls(trace).lazy()
    if cause == PYTHON:
        return python_calls(trace).lazy()
    if cause == DATA:
        ranges = names.with_prefix(names.of_calls(trace), DATALOADER_PREFIX)
        return trace.required("ops").filter(pl.col("name").is_in(ranges))
    calls = names.containing(names.of_runtime(trace), SYNCHRONIZATION_NAME if cause == SYNCHRONIZATION else ALLOCATION_NAME)
    return trace.required("api").filter(pl.col("name").is_in(calls))


def _touching_calls(intervals: Intervals, rows: pl.LazyFrame) -> pl.DataFrame:
    """Of calls those that touch any of some intervals, as ``self_inside`` takes them."""
    columns = rows.collect_schema().names()
    ids = [pl.col(name) if name in columns else pl.lit(None, dtype=pl.Int64).alias(name) for name in ("id", "parent")]
    calls = rows.select(*ids, "name", "start_ns", "end_ns").drop_nulls(["start_ns", "end_ns"]).collect()
    inside_ns = length_inside(intervals, calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy())
    return calls[np.flatnonzero(inside_ns > 0)]


def _longest_inside(late: Intervals, calls: pl.DataFrame, *, itself: bool = False) -> str:
    """The name of the calls that cover most of an interval, with or without the calls inside of them; empty where none does."""
    if itself:
        return longest_name([self_inside(late, calls)])[0]
    lengths = length_inside(late, calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy())
    lengths_by_call = calls.select(pl.col("name").cast(pl.String), self_ns=pl.Series(lengths))
    return longest_name([lengths_by_call.filter(pl.col("self_ns") > 0)])[0]
