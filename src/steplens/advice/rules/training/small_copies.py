"""The input goes to the device in many small copies, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import EVERY_ACCELERATOR, Rule
from steplens.advice.rules.device.exposed_copies import FROM_HOST
from steplens.analysis.steps.work import computing_tasks
from steplens.analysis.tools.names import containing, distinct
from steplens.analysis.tools.overlap import merged, subtract
from steplens.trace.health import KERNEL_TIMES, STEP_DEVICE_TIMES
from steplens.trace.schema import KIND_COPY

_LEAST_COPIES = 16
#: a copy of this size takes hardly longer than an empty one
_SMALL = 64 << 10
#: copies of one series are no further apart
_APART_NS = 200_000
_LEAST_SHARE = 0.01


def judge(facts: Facts) -> Iterator[Finding]:
    """What series of small copies take while the device does nothing else; one copy of all takes one n-th of it."""
    copying = facts.tasks.filter(pl.col("kind") == KIND_COPY)
    copies = copying.filter(pl.col("name").is_in(containing(distinct(copying["name"]), FROM_HOST)))
    small = copies.filter(pl.col("bytes") <= _SMALL).sort("start_ns")
    if small.is_empty() or small.height < _LEAST_COPIES * facts.steps.height or not facts.step_ns:
        return
    start, end = small["start_ns"].to_numpy(), small["end_ns"].to_numpy()
    first = np.r_[
        True, (start[1:] - np.maximum.accumulate(end)[:-1] > _APART_NS) | np.diff(small["step"].to_numpy()).astype(bool)
    ]
    series = small.with_columns(series=pl.Series(np.cumsum(first)))
    spans = series.group_by("series").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    tasks = computing_tasks(facts.trace).select("start_ns", "end_ns").collect()
    alone = subtract(merged(spans), merged(tasks))
    total = facts.typical_length_ns(alone)
    if total < _LEAST_SHARE * facts.step_ns:
        return
    likely = total * (1 - spans.height / small.height)
    yield Finding(
        rule=RULE.name,
        confidence=0.7,
        evidence=(
            Evidence("copying_alone", total, "ns", tuple(sorted(set(small["step"].to_list())))),
            Evidence("copies", small.height / facts.steps.height, "count"),
            Evidence("bytes_of_a_copy", float(small["bytes"].median() or 0), "bytes", per_step=False),  # type: ignore[arg-type]
        ),
        saving=Saving(likely / 2, likely, total),
        step_ns=facts.step_ns,
    )


RULE = Rule(
    "small_copies",
    judge,
    (KERNEL_TIMES, STEP_DEVICE_TIMES),
    devices=EVERY_ACCELERATOR,
    explains=("device_waits_for_host", "pageable_copies"),
)
