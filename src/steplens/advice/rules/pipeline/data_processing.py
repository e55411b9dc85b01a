"""The queue on the host runs empty: batches are used faster than the data pipeline makes them."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, MEDIUM, Evidence, Finding
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.pressure import at_most, pressure, wait_evidence
from steplens.analysis.data_loading.data_pipeline import host_queue, queue_summary
from steplens.analysis.data_loading.pipeline_verdict import MOST_EMPTY
from steplens.trace.trace import Trace

#: of fewer batches a share says little
_SURE_FROM = 10


def judge(facts: Facts, *, most_empty: float = MOST_EMPTY) -> Iterator[Finding]:
    """More than 30 % of the batches found the queue empty. What it costs is the interval's to say (``iteration_interval``).

    A queue on the device that was never empty hid all of it: nobody waited.

    Args:
        facts: one trace.
        most_empty: share of the batches above which to speak.
    """
    if facts.trace.lazy("pipeline_loaders") is not None:
        # of PyTorch the rules about loaders say it, with the stage that is slow
        return
    queue = host_queue(facts.trace)
    if queue is None or queue.empty <= most_empty * queue.batches:
        return
    received = queue_summary(facts.trace, "receive")
    evidence = [
        Evidence("queue_empty", queue.empty, "count", empty_batches(facts.trace, queue.kind), per_step=False),
        Evidence("queue_batches", queue.batches, "count", per_step=False),
        Evidence("queue_empty_share", 100 * queue.empty / queue.batches, "%", per_step=False),
        *([Evidence("queue_full", queue.full, "count", per_step=False)] if queue.full is not None else []),
        *wait_evidence(facts),
    ]
    if received is None:
        evidence.append(Evidence("no_device_queue", 0, ""))
    else:
        evidence.append(Evidence("device_queue_empty", received.empty, "count", per_step=False))
    hidden = received is not None and not received.empty
    level = pressure(facts)
    yield Finding(
        rule=RULE.name,
        confidence=0.9 if queue.batches >= _SURE_FROM else 0.6,
        evidence=tuple(evidence),
        step_ns=facts.step_ns,
        urgency=LOW if hidden else level if queue.batches >= _SURE_FROM else at_most(level, MEDIUM),
    )


def empty_batches(trace: Trace, kind: str) -> tuple[int, ...]:
    """The batches that found the queue of one kind empty."""
    rows = trace.required("pipeline_batches").filter(
        (pl.col("kind").cast(pl.String) == kind) & (pl.col("queue_size") == 0) & pl.col("batch").is_not_null()
    )
    return tuple(rows.select("batch").unique().sort("batch").collect()["batch"].to_list())


RULE = Rule("data_processing", judge)
