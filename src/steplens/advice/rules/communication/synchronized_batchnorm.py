"""SyncBatchNorm: every such layer exchanges its statistics with all ranks, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.common import communicates, matching, per_step, steps_of
from steplens.trace.health import COMMUNICATION_TIMES, OPERATOR_CALLS

_NAME = "SyncBatchNorm"
_LEAST_CALLS = 20
_LEAST_SHARE = 0.01


def judge(facts: Facts) -> Iterator[Finding]:
    """From 20 calls on in the recorded steps. At most the collectives go that were launched inside them.

    Backward calls are on autograd's thread; a name within one of the same name is the same call.
    """
    ops = facts.trace.required("ops").filter(pl.col("step").is_in(list(facts.numbers)))
    calls = matching(ops.select("id", "name", "parent", "start_ns", "end_ns", "step").collect(), _NAME)
    calls = calls.filter(~pl.col("parent").is_in(calls["id"].implode()).fill_null(False)).sort("start_ns")
    if calls.height < _LEAST_CALLS:
        return
    operations = facts.trace.required("communication").filter(pl.col("step").is_in(list(facts.numbers)))
    inside = operations.with_columns(
        at=pl.coalesce("launch_ns", "start_ns"), length=pl.col("end_ns") - pl.col("start_ns")
    ).collect()
    begins, ends = calls["start_ns"].to_numpy(), np.maximum.accumulate(calls["end_ns"].to_numpy())
    last = np.searchsorted(begins, inside["at"].to_numpy(), side="right") - 1
    within = (last >= 0) & (inside["at"].to_numpy() < ends[np.maximum(last, 0)])
    total = per_step(facts, inside.filter(pl.Series(within)), "length")
    priced = total >= _LEAST_SHARE * facts.step_ns > 0
    yield Finding(
        rule=RULE.name,
        confidence=0.8,
        evidence=(
            Evidence("batchnorm_calls", calls.height / facts.steps.height, "count", steps_of(calls)),
            Evidence("batchnorm_collectives", total, "ns"),
        ),
        saving=Saving.up_to(total) if priced else None,
        step_ns=facts.step_ns,
        part="exposed_communication_ns",
        urgency=LOW,
    )


RULE = Rule("synchronized_batchnorm", judge, (OPERATOR_CALLS, COMMUNICATION_TIMES), applies=communicates)
