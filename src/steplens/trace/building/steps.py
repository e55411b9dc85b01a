"""The steps of a trace, and which step a time belongs to."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import polars as pl

from steplens.trace.building.nesting import Int64Array
from steplens.trace.health import STEP_AVERAGES, STEP_TIMES, WARNING, HealthLog
from steplens.trace.schema import NAME, STEP_PREFIX

#: times of a thread rise: with so many for each step and thread it is the steps that are looked for among the times
_RARE = 8


def find_steps(tables: Mapping[str, pl.DataFrame], health: HealthLog) -> pl.DataFrame | None:
    """The steps, from the ranges named ``ProfilerStep#<id>``; a thread of its own (or a device copy) counts once."""
    if "steps" in tables:
        return tables["steps"]
    if "ops" not in tables:
        return None
    ops = tables["ops"].select("name", "start_ns", "end_ns", "pid", "tid")
    ranges = ops.filter(ops["name"].cast(NAME).cat.starts_with(STEP_PREFIX).fill_null(False)).sort("start_ns")
    number = ranges["name"].cast(pl.String).str.slice(len(STEP_PREFIX)).cast(pl.Int64, strict=False)
    step_ranges = ranges.select(number.alias("id"), "start_ns", "end_ns", "pid", "tid")
    if nameless := step_ranges["id"].null_count():
        message = f"ranges are named {STEP_PREFIX} without a number of 64 bits behind it; they are no steps here"
        health.add("unnumbered_steps", WARNING, nameless, message, (STEP_TIMES, STEP_AVERAGES))
        step_ranges = step_ranges.drop_nulls("id")
    if not step_ranges.height:
        return None
    unique = step_ranges.unique("id", keep="first", maintain_order=True)
    if unique.height < step_ranges.height:
        message = "step numbers occur more than once; the first range of each is used"
        health.add("repeated_steps", WARNING, step_ranges.height - unique.height, message, STEP_TIMES)
    return unique


def step_of(time_ns: Int64Array, steps: pl.DataFrame | None) -> pl.Series:
    """Id of the step whose range ``[start, end)`` holds each time; null outside all steps."""
    if steps is None:
        no_steps: pl.Series = pl.Series("step", [None], dtype=pl.Int64).new_from_index(0, len(time_ns))
        return no_steps
    start, end, ids = (steps[column].to_numpy() for column in ("start_ns", "end_ns", "id"))
    if start.dtype == end.dtype == np.int64 and len(time_ns) and bool((start[1:] >= start[:-1]).all()):
        bounds = np.r_[0, np.flatnonzero(time_ns[1:] < time_ns[:-1]) + 1, len(time_ns)]
        if (len(bounds) - 1) * len(start) * _RARE <= len(time_ns):
            return _steps_of_runs(time_ns, bounds, start, end, ids)
    index = np.searchsorted(start, time_ns, side="right") - 1
    row = np.maximum(index, 0)
    is_outside = (index < 0) | (time_ns >= end[row])
    found: pl.Series = pl.Series("step", ids[row]).set(pl.Series(is_outside), None)
    return found


def _steps_of_runs(time_ns: Int64Array, bounds: Int64Array, start: Int64Array, end: Int64Array, ids: Int64Array) -> pl.Series:
    """``step_of`` of few runs of rising times.

    Args:
        time_ns: times.
        bounds: first time of each run, and how many times there are behind the last.
        start: of the steps, which do not fall.
        end: of the steps.
        ids: of the steps.
    """
    # of each run: the times before all steps, then those of each step, of which the last ones lie behind its end
    lengths, values = [], np.concatenate([[0], np.column_stack((ids, ids)).ravel()])
    for low, high in itertools.pairwise(bounds.tolist()):
        times = time_ns[low:high]
        first = np.searchsorted(times, start)
        behind = np.append(first[1:], len(times))
        last = np.clip(np.searchsorted(times, end), first, behind)
        lengths += [first[:1], np.column_stack((last - first, behind - last)).ravel()]
    is_inside = np.concatenate([[False], np.tile([True, False], len(ids))])
    runs = len(bounds) - 1
    count = np.concatenate([np.zeros(0, dtype=np.int64), *lengths])
    steps_of_times: pl.Series = pl.Series("step", np.repeat(np.tile(values, runs), count))
    if not count[~np.tile(is_inside, runs)].any():
        return steps_of_times
    return steps_of_times.set(pl.Series(np.repeat(~np.tile(is_inside, runs), count)), None)
