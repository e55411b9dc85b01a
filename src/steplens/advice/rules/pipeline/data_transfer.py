"""The queue on the device runs empty although the one on the host does not: the transfer between them is slow."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import HIGH, LOW, MEDIUM, Evidence, Finding
from steplens.advice.rule import Rule
from steplens.advice.rules.pipeline.data_processing import empty_batches
from steplens.advice.rules.tools.pressure import MATTERS_MUCH
from steplens.analysis.data_loading.data_pipeline import host_queue, queue_summary
from steplens.analysis.data_loading.pipeline_verdict import MOST_EMPTY

_SURE_FROM = 10


def judge(facts: Facts, *, most_empty: float = MOST_EMPTY) -> Iterator[Finding]:
    """The device found its queue empty at least once, and the host's queue was empty for at most 30 % of the batches.

    It matters the more, the more batches found it empty; the first ones always do.
    """
    queue, received = host_queue(facts.trace), queue_summary(facts.trace, "receive")
    if queue is None or received is None or not received.empty or queue.empty > most_empty * queue.batches:
        return
    share = received.empty / received.batches
    moved = (
        facts.trace.required("pipeline_batches")
        .filter(pl.col("kind").cast(pl.String).is_in(["send", "receive"]))
        .select(push=pl.col("push_ns").mean(), wait=pl.col("wait_ns").mean())
        .collect()
        .row(0, named=True)
    )
    evidence = [
        Evidence("device_queue_empty", received.empty, "count", empty_batches(facts.trace, "receive"), per_step=False),
        Evidence("device_batches", received.batches, "count", per_step=False),
        Evidence("queue_empty_share", 100 * queue.empty / queue.batches, "%", per_step=False),
    ]
    if moved["push"] is not None:
        evidence.append(Evidence("transfer", float(moved["push"]), "ns"))
    if moved["wait"] is not None:
        evidence.append(Evidence("device_waits_for_batch", float(moved["wait"]), "ns"))
    enough = received.batches >= _SURE_FROM
    yield Finding(
        rule=RULE.name,
        confidence=0.7 if enough else 0.4,
        evidence=tuple(evidence),
        step_ns=facts.step_ns,
        urgency=LOW if share < MATTERS_MUCH or not enough else HIGH if share > most_empty else MEDIUM,
    )


RULE = Rule("data_transfer", judge)
