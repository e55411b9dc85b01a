"""Large blocks of the CPU's memory are taken from the operating system and given back in every step."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, MEDIUM, Evidence, Finding
from steplens.advice.rule import Rule
from steplens.analysis.memory.memory import operator_memory
from steplens.trace.health import MEMORY, OPERATOR_TIMES

#: glibc never keeps a block of this size: each one is mapped, touched page by page for the first time, and unmapped
_NEVER_KEPT = 32 << 20
_LEAST_SHARE = 0.1
_LARGE_SHARE = 0.3


def judge(facts: Facts) -> Iterator[Finding]:
    """Operators that allocate blocks above 32 MiB, which end within the window, in every other step or more.

    How much of their time is the system's, handing out pages, a trace does not tell: no time is promised.
    """
    large = facts.trace.required("memory").select((pl.col("bytes") > _NEVER_KEPT).any()).collect().item()
    if not large or _keeps_blocks(facts):
        return
    blocks = operator_memory(facts.trace, ["CPU"]).filter((pl.col("bytes") > _NEVER_KEPT) & pl.col("release_ns").is_not_null())
    if blocks.is_empty() or not facts.step_ns:
        return
    ops = facts.named_calls.select(op="id", step="step", duration_ns="duration_ns", called=pl.col("name"))
    inside = blocks.select("op", "bytes").join(ops, on="op")
    steps = tuple(sorted(set(inside["step"].to_list())))
    time = facts.typical_ns(inside.unique("op"))
    if 2 * len(steps) < facts.steps.height or time < _LEAST_SHARE * facts.step_ns:
        return
    by_size = (
        inside.group_by(pl.col("called").cast(pl.String))
        .agg(pl.col("bytes").sum())
        .sort("bytes", "called", descending=[True, False])
    )
    places = tuple(by_size["called"].head(3).to_list())
    yield Finding(
        rule=RULE.name,
        confidence=0.6,
        evidence=(
            Evidence("large_blocks", inside.height / facts.steps.height, "count", steps, places),
            Evidence("bytes_of_large_blocks", float(inside["bytes"].sum()) / facts.steps.height, "bytes"),
            Evidence("operators_of_large_blocks", time, "ns"),
        ),
        step_ns=facts.step_ns,
        urgency=MEDIUM if time >= _LARGE_SHARE * facts.step_ns else LOW,
    )


def _keeps_blocks(facts: Facts) -> bool:
    """Whether the program was told to keep large blocks, or runs with an allocator that does."""
    allocator = facts.trace.meta_values().get("allocator")
    if not isinstance(allocator, dict):
        return False
    threshold = str(allocator.get("mmap_threshold", ""))
    return bool(allocator.get("preloaded")) or (threshold.isdecimal() and int(threshold) > _NEVER_KEPT)


RULE = Rule("large_blocks", judge, (MEMORY, OPERATOR_TIMES), devices=("CPU",))
