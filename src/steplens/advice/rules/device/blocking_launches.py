"""The host waits for the device after most launches: launches were made blocking, or the program keeps synchronizing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import EVERY_ACCELERATOR, Rule
from steplens.advice.rules.tools.common import matching, steps_of, top
from steplens.analysis.tools.overlap import Intervals
from steplens.trace.health import HOST_AGAINST_DEVICE, RUNTIME_CALLS

_LAUNCH = r"(?i)^(cuda|cu|hip)(ext|module)*launch(kernel|cooperative)|^(Node@)?launch$|^hipExtModuleLaunch"
_WAIT = r"(?i)^(cuda|hip)(stream|device)synchronize|^cu(stream|ctx)synchronize|^(AscendCL@)?aclrtSynchronize(Stream|Device)"
_LEAST_SHARE = 0.5
_LEAST_LAUNCHES = 20
#: of its gaps a device keeps some when launches no longer wait
_REMAINING = 0.2


def judge(facts: Facts) -> Iterator[Finding]:
    """Where more than half of the launches are followed by a wait for the device on the same thread.

    A launch that waits leaves the device idle from the end of the task until the next launch: the price is the gaps that
    begin while the host waits like that.
    """
    waits = matching(facts.runtime, _WAIT).with_columns(launch=False, wait=True)
    if waits.is_empty():
        return
    calls = pl.concat([matching(facts.runtime, _LAUNCH).with_columns(launch=True, wait=False), waits])
    calls = calls.sort("pid", "tid", "start_ns").with_columns(
        blocking=pl.col("wait") & pl.col("launch").shift(1, fill_value=False).over("pid", "tid")
    )
    launches, blocking = int(calls["launch"].sum()), calls.filter("blocking")
    if launches < _LEAST_LAUNCHES or blocking.height <= _LEAST_SHARE * launches:
        return
    idle = _idle_behind(facts, blocking)
    yield Finding(
        rule=RULE.name,
        confidence=0.9,
        evidence=(
            Evidence("launches_followed_by_waits", 100 * blocking.height / launches, "%", steps_of(blocking), per_step=False),
            Evidence("waits_after_launches", blocking.height / facts.steps.height, "count", places=top(blocking, "name")),
            Evidence("idle_behind_waits", idle, "ns"),
        ),
        saving=Saving(idle / 2, (1 - _REMAINING) * idle, idle),
        step_ns=facts.step_ns,
        part="idle_ns",
    )


def _idle_behind(facts: Facts, waits: pl.DataFrame) -> float:
    """Length of the gaps of the device that begin inside one of ``waits``, per step; waits of several threads may overlap."""
    ordered = waits.sort("start_ns")
    begins, ends = ordered["start_ns"].to_numpy(), np.maximum.accumulate(ordered["end_ns"].to_numpy())
    last = np.searchsorted(begins, facts.gaps.start, side="right") - 1
    behind = (last >= 0) & (facts.gaps.start < ends[np.maximum(last, 0)])
    return facts.typical_length_ns(Intervals(facts.gaps.start[behind], facts.gaps.end[behind]))


RULE = Rule(
    "blocking_launches",
    judge,
    (RUNTIME_CALLS, HOST_AGAINST_DEVICE),
    devices=EVERY_ACCELERATOR,
    explains=("device_waits_for_host", "scalar_reads"),
)
