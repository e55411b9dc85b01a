"""The steps of a trace, and which step a time belongs to."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from steplens.trace.building.nesting import Int64Array
from steplens.trace.health import STEP_AVERAGES, STEP_TIMES, WARNING, HealthLog
from steplens.trace.schema import NAME, STEP_PREFIX


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
    index = np.searchsorted(start, time_ns, side="right") - 1
    row = np.maximum(index, 0)
    is_outside = (index < 0) | (time_ns >= end[row])
    found: pl.Series = pl.Series("step", ids[row]).set(pl.Series(is_outside), None)
    return found
