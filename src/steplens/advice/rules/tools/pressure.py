"""How much a training suffers from its data pipeline: the level of findings about single operations, whose price is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import HIGH, LOW, MEDIUM, Evidence
from steplens.analysis.data_loading.data_pipeline import OPERATIONS, host_queue, operations, queue_summary
from steplens.analysis.data_loading.data_wait import data_wait, loads_with_pytorch
from steplens.analysis.data_loading.pipeline_queues import operation_name
from steplens.analysis.data_loading.pipeline_verdict import MOST_EMPTY

#: share of a step, or of the batches, that makes waiting matter, and matter much
MATTERS, MATTERS_MUCH = 0.03, 0.10
_NO_OPERATIONS = pl.DataFrame(schema=OPERATIONS)


def pipeline_pressure(facts: Facts) -> str:
    """Level of what slows down the pipeline: how long steps wait for data, else how often the queues were empty.

    What fills a queue in front of which nobody waits matters little. Where nothing tells whether anybody waits, it may.
    """
    waited = data_wait(facts.trace)
    if waited is not None:
        return HIGH if waited.share >= MATTERS_MUCH else MEDIUM if waited.share >= MATTERS else LOW
    received = queue_summary(facts.trace, "receive")
    if received is not None:
        share = received.empty / received.batches
        return HIGH if share >= MATTERS_MUCH else MEDIUM if share >= MATTERS else LOW
    queue = host_queue(facts.trace)
    return LOW if queue is not None and queue.empty <= MOST_EMPTY * queue.batches else MEDIUM


def at_most(level: str, limit: str) -> str:
    """A level, or the limit where that is lower."""
    levels = (LOW, MEDIUM, HIGH)
    return min(level, limit, key=levels.index)


def mindspore_operations(facts: Facts) -> pl.DataFrame:
    """``data_pipeline.operations`` of MindSpore's pipelines; PyTorch's loaders have rules in PyTorch's words."""
    # a look at every call is worth its time only where there is a pipeline
    if "pipeline_ops" not in facts.trace or loads_with_pytorch(facts.trace):
        return _NO_OPERATIONS
    return operations(facts.trace)


def wait_evidence(facts: Facts) -> Iterable[Evidence]:
    """What tells that the training waits, where it is known."""
    waited = data_wait(facts.trace)
    if waited is not None:
        steps = tuple(waited.steps.filter(pl.col("wait_ns") >= MATTERS * pl.col("total_ns"))["step"].to_list())
        yield Evidence("wait_for_data", waited.wait_ns, "ns", steps)


def names_of(table: pl.DataFrame, numbers: Sequence[int]) -> tuple[str, ...]:
    """The names of some operations, such as ``TFReader_3``."""
    types = dict(table.select("id", "type").iter_rows())
    return tuple(operation_name(types[number], number) for number in numbers)
