"""The device is idle while the host asks the driver for device memory inside the step."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import EVERY_ACCELERATOR, Rule
from steplens.advice.rules.tools.common import growing_segments
from steplens.analysis.device import idle
from steplens.trace.health import HOST_AGAINST_DEVICE, KERNEL_TIMES, RUNTIME_CALLS, STEP_DEVICE_TIMES

_LEAST_SHARE = 0.01


def judge(facts: Facts) -> Iterator[Finding]:
    """Steps that use the allocator's own memory again call no ``cudaMalloc``: all of this idle time can go."""
    causes = facts.idle.filter(pl.col("cause") == idle.ALLOCATION)
    if causes.is_empty() or not facts.step_ns:
        return
    total = facts.typical_ns(causes, "idle_ns", on_device=True)
    if total < _LEAST_SHARE * facts.step_ns:
        return
    yield Finding(
        rule=RULE.name,
        confidence=0.8,
        evidence=(Evidence("idle_allocation", total, "ns", tuple(causes["step"].to_list())),),
        saving=Saving(0.7 * total, total, total),
        step_ns=facts.step_ns,
        part="idle_ns",
        values={"change": growing_segments(facts.device)},
    )


RULE = Rule(
    "allocation_stalls", judge, (HOST_AGAINST_DEVICE, KERNEL_TIMES, STEP_DEVICE_TIMES, RUNTIME_CALLS), devices=EVERY_ACCELERATOR
)
