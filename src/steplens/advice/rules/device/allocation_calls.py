"""Calls that ask the driver for device memory, or give it back, inside the steps."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, Evidence, Finding, Saving
from steplens.advice.rule import EVERY_ACCELERATOR, Rule
from steplens.advice.rules.tools.common import growing_segments, matching, per_step, steps_of, top
from steplens.trace.health import HOST_AGAINST_DEVICE, RUNTIME_CALLS

_CALLS = (
    r"(?i)^(AscendCL@)?aclMallocMemInner|^(AscendCL@)?aclrt(free|malloc|map|unmap|reserve)(physical|mem|$)"
    r"|^(cuda|hip)(malloc|free)(managed|pitch|host|async)?$|^cumem(alloc|free|create|release|map|unmap|setaccess)"
)
_LEAST_NS = 10_000_000
_LEAST_SHARE = 0.01


def judge(facts: Facts) -> Iterator[Finding]:
    """Where one such call takes 10 ms in the recorded steps together, or 1 % of them.

    The price is the device's idle time meanwhile.
    """
    calls = matching(facts.runtime, _CALLS)
    by_name = calls.group_by("name").agg(pl.col("duration_ns").sum())
    if calls.is_empty() or not facts.step_ns:
        return
    most = int(by_name["duration_ns"].max())  # type: ignore[arg-type]
    if most < min(_LEAST_NS, _LEAST_SHARE * facts.step_ns * facts.steps.height):
        return
    idle = facts.idle_during(calls)
    priced = idle >= _LEAST_SHARE * facts.step_ns
    yield Finding(
        rule=RULE.name,
        confidence=0.8,
        evidence=(
            Evidence("in_allocation_calls", per_step(facts, calls), "ns", steps_of(calls), top(calls, "name")),
            Evidence("allocation_calls", calls.height / facts.steps.height, "count"),
            Evidence("idle_while_allocating", idle, "ns"),
        ),
        saving=Saving(idle / 2, idle, idle) if priced else None,
        step_ns=facts.step_ns,
        part="idle_ns",
        values={"change": growing_segments(facts.device)},
        urgency=LOW,
    )


RULE = Rule(
    "allocation_calls",
    judge,
    (RUNTIME_CALLS, HOST_AGAINST_DEVICE),
    devices=EVERY_ACCELERATOR,
    explains=("allocation_stalls", "device_waits_for_host"),
)
