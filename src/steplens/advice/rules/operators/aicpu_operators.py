"""Operators that run on the AI CPU, the slow general processor of an Ascend device, and not on its AI cores."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.common import SHORT_NS, per_step, source_lines, steps_of, top
from steplens.analysis.tools.overlap import merged, subtract
from steplens.trace.building.devices import NPU
from steplens.trace.health import KERNEL_DETAILS, KERNEL_TIMES

_AI_CPU = ("AI_CPU", "AICPU", "KERNEL_AICPU")
_WIDE_TYPES = r"(?i)double|int64|complex"


def judge(facts: Facts) -> Iterator[Finding]:
    """At most the time goes in which the AI CPU works and nothing else does; the AI cores need some of it for the same work.

    Said where the longest such task takes 20 us or more.
    """
    tasks = facts.computing
    slow = tasks.filter(pl.col("core").is_in(_AI_CPU))
    if not (slow["duration_ns"] >= SHORT_NS).any():
        return
    others = tasks.filter(~pl.col("core").is_in(_AI_CPU))
    alone = subtract(merged(slow), merged(others))
    steps = max(facts.steps.height, 1)
    lines = source_lines(facts, slow)
    evidence = [
        Evidence("on_aicpu", per_step(facts, slow), "ns", steps_of(slow), top(slow, "type")),
        Evidence("aicpu_tasks", slow.height / steps, "count", places=lines),
    ]
    wide = slow.filter(pl.col("input_types").cast(pl.String).str.contains(_WIDE_TYPES))
    if wide.height:
        share = 100 * float(wide["duration_ns"].sum()) / max(float(slow["duration_ns"].sum()), 1)
        evidence.append(Evidence("aicpu_wide_types", share, "%", places=top(wide, "input_types"), per_step=False))
    yield Finding(
        rule=RULE.name,
        confidence=0.9,
        evidence=tuple(evidence),
        saving=Saving.up_to(facts.typical_length_ns(alone)),
        step_ns=facts.step_ns,
        part="computing_ns",
        values={"operators": ", ".join(top(slow, "type"))},
    )


RULE = Rule("aicpu_operators", judge, (KERNEL_DETAILS, KERNEL_TIMES), devices=(NPU,))
