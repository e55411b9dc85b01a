"""Copies to the device out of ordinary memory, which the driver first copies into pinned memory while the host waits."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.common import exposed, per_step, source_lines, steps_of
from steplens.trace.health import KERNEL_TIMES
from steplens.trace.schema import CORE_CUDA, CORE_ROCM, KIND_COPY

_PAGEABLE = "HtoD (Pageable"
_PINNED = "HtoD (Pinned"
_LEAST_SHARE = 0.01


def judge(facts: Facts) -> Iterator[Finding]:
    """The copies' time in which the device computes and communicates nothing: out of pinned memory, they run beside its work."""
    copies = facts.tasks.filter(pl.col("kind") == KIND_COPY).with_columns(pl.col("name").cast(pl.String))
    pageable = copies.filter(pl.col("name").str.contains(_PAGEABLE, literal=True))
    if pageable.is_empty():
        return
    alone = exposed(facts, pageable)
    if alone < _LEAST_SHARE * facts.step_ns:
        return
    evidence = [
        Evidence("pageable_copies", per_step(facts, pageable), "ns", steps_of(pageable), source_lines(facts, pageable)),
        Evidence("copied_bytes", per_step(facts, pageable, "bytes"), "bytes"),
    ]
    for what, rows in (
        ("pageable_bandwidth", pageable),
        ("pinned_bandwidth", copies.filter(pl.col("name").str.contains(_PINNED, literal=True))),
    ):
        length = int(rows["duration_ns"].sum())
        if length:
            evidence.append(Evidence(what, int(rows["bytes"].sum()) / length, "GB/s", per_step=False))
    yield Finding(
        rule=RULE.name,
        confidence=0.85,
        evidence=tuple(evidence),
        saving=Saving.up_to(alone),
        step_ns=facts.step_ns,
        part="exposed_copy_ns",
    )


RULE = Rule("pageable_copies", judge, (KERNEL_TIMES,), devices=(CORE_CUDA, CORE_ROCM))
