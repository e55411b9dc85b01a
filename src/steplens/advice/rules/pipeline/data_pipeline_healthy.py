"""The queues of the data pipeline were filled: it keeps up with the training. Nothing to change, said with its figures."""

from __future__ import annotations

from collections.abc import Iterator

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, Evidence, Finding
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.pressure import mindspore_operations
from steplens.analysis.data_loading.data_pipeline import host_queue, queue_summary
from steplens.analysis.data_loading.data_wait import loads_with_pytorch
from steplens.analysis.data_loading.pipeline_verdict import MOST_EMPTY, keeps_up


def judge(facts: Facts, *, most_empty: float = MOST_EMPTY) -> Iterator[Finding]:
    """The host's queue was empty for at most 30 % of the batches, and the device's queue, where it was recorded, never."""
    queue, received = host_queue(facts.trace), queue_summary(facts.trace, "receive")
    if queue is None or not keeps_up(facts.trace, most_empty=most_empty):
        return
    if loads_with_pytorch(facts.trace):
        return
    evidence = [
        Evidence("queue_empty", queue.empty, "count", per_step=False),
        Evidence("queue_batches", queue.batches, "count", per_step=False),
    ]
    if received is None:
        evidence.append(Evidence("no_device_queue", 0, ""))
    else:
        evidence.append(Evidence("device_queue_empty", received.empty, "count", per_step=False))
    usage = mindspore_operations(facts).drop_nulls("usage")
    if usage.height:
        evidence.append(Evidence("last_queue_usage", 100 * usage["usage"][0], "%", per_step=False))
    yield Finding(RULE.name, 0.9, tuple(evidence), step_ns=facts.step_ns, urgency=LOW)


RULE = Rule("data_pipeline_healthy", judge)
