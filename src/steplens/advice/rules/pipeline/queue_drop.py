"""A queue is clearly emptier than the one before it: a weak sign that the operation between them is slow."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, Evidence, Finding
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.pressure import mindspore_operations, names_of
from steplens.analysis.data_loading.data_pipeline import bottlenecks
from steplens.analysis.data_loading.pipeline_queues import DROP, queue_drops
from steplens.analysis.data_loading.pipeline_verdict import keeps_up
from steplens.trace.health import STEP_PHASES


def judge(facts: Facts, *, least: float = DROP) -> Iterator[Finding]:
    """More than 10 points of usage between input and output queue, of operations that the strict rules do not name.

    Of a pipeline that keeps up no drop matters.

    Args:
        facts: one trace.
        least: share of the capacity above which to speak.
    """
    if keeps_up(facts.trace):
        return
    table = mindspore_operations(facts)
    if not table.height:
        return
    dropped = queue_drops(table, least=least).filter(~pl.col("id").is_in(bottlenecks(table)))
    if not dropped.height:
        return
    names = names_of(table, dropped["id"].to_list())
    evidence = [
        Evidence("usage_drop", 100 * drop, "%", places=(name,), per_step=False)
        for name, drop in zip(names, dropped["drop"].to_list(), strict=True)
    ]
    yield Finding(
        rule=RULE.name,
        subject="/".join(names),
        confidence=0.3,
        evidence=tuple(evidence),
        step_ns=facts.step_ns,
        values={"operations": ", ".join(names)},
        urgency=LOW,
    )


RULE = Rule("queue_drop", judge, (STEP_PHASES,))
