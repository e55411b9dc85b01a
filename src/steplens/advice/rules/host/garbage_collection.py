"""Python's garbage collector stops the training loop."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.trace.health import GARBAGE_COLLECTION

_LEAST_SHARE = 0.01


def judge(facts: Facts) -> Iterator[Finding]:
    """The whole length of a collection is saved: objects that are dropped go when nobody refers to them, without it.

    Only reference cycles need the collector; a little of it stays, for collecting them now and then.
    """
    collections = facts.trace.required("gc").select("start_ns", "end_ns", "generation").collect()
    if collections.is_empty() or not facts.step_ns:
        return
    pauses = []
    for step, start, length in facts.steps.select("step", "start_ns", "duration_ns").iter_rows():
        inside = collections.filter(pl.col("start_ns").is_between(start, start + length, closed="left"))
        pauses.append((step, inside.height, int((inside["end_ns"] - inside["start_ns"]).sum())))
    total = sum(pause for _, _, pause in pauses) / len(pauses)
    if total < _LEAST_SHARE * facts.step_ns:
        return
    count = sum(number for _, number, _ in pauses) / len(pauses)
    evidence = Evidence("collecting", total, "ns", tuple(step for step, number, _ in pauses if number))
    yield Finding(
        rule=RULE.name,
        confidence=0.95,
        evidence=(evidence, Evidence("collections", count, "count")),
        saving=Saving(0.7 * total, 0.95 * total, total),
        step_ns=facts.step_ns,
    )


RULE = Rule("garbage_collection", judge, (GARBAGE_COLLECTION,))
