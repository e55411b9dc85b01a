"""Long stretches in which neither device nor host does anything that was recorded: probably Python's garbage collector."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import EVERY_ACCELERATOR, Rule
from steplens.analysis.tools.overlap import Intervals, length_inside, merge_intervals
from steplens.trace.health import GARBAGE_COLLECTION, HOST_AGAINST_DEVICE, OPERATOR_CALLS, RUNTIME_CALLS
from steplens.trace.schema import DATALOADER_PREFIX, SCOPE_FUNCTION

_LEAST_NS = 200_000_000
#: share of such a stretch that calls may take, and calls per ns in it
_BUSY_SHARE, _CALLS_PER_NS = 0.01, 1e-7


def judge(facts: Facts) -> Iterator[Finding]:
    """Gaps of the device of 200 ms and more in which calls of framework and runtime take less than 1 %, one per 10 ms at most.

    Only where no collections were recorded, which would tell. Anything else that Python does alone looks the same.
    """
    if facts.trace.required("gc").select(pl.len()).collect().item():
        return
    gaps = facts.gaps
    long = gaps.end - gaps.start >= _LEAST_NS
    if not long.any():
        return
    long_gaps = Intervals(gaps.start[long], gaps.end[long])
    ops = facts.trace.required("ops").filter(
        (pl.col("scope") == SCOPE_FUNCTION) | pl.col("name").cast(pl.String).str.starts_with(DATALOADER_PREFIX)
    )
    times = pl.concat([table.select("start_ns", "end_ns") for table in (ops, facts.trace.required("api"))]).drop_nulls().collect()
    starts, ends = times["start_ns"].to_numpy(), times["end_ns"].to_numpy()
    covered = length_inside(merge_intervals(starts, ends), long_gaps.start, long_gaps.end)
    ordered = np.sort(starts)
    calls = np.searchsorted(ordered, long_gaps.end) - np.searchsorted(ordered, long_gaps.start)
    length = long_gaps.end - long_gaps.start
    quiet = (covered < _BUSY_SHARE * length) & (calls <= _CALLS_PER_NS * length)
    if not quiet.any():
        return
    total = float(length[quiet].sum()) / facts.steps.height
    begins = facts.steps["start_ns"].to_numpy()
    numbers = {facts.numbers[index] for index in np.searchsorted(np.sort(begins), long_gaps.start[quiet], side="right") - 1}
    yield Finding(
        rule=RULE.name,
        confidence=0.4,
        evidence=(
            Evidence("quiet_stretches", total, "ns", tuple(sorted(numbers))),
            Evidence("number_of_stretches", int(quiet.sum()), "count", per_step=False),
        ),
        saving=Saving.up_to(total),
        step_ns=facts.step_ns,
    )


RULE = Rule(
    "suspected_collections",
    judge,
    (GARBAGE_COLLECTION, OPERATOR_CALLS, RUNTIME_CALLS, HOST_AGAINST_DEVICE),
    devices=EVERY_ACCELERATOR,
    explains=("device_waits_for_host",),
)
