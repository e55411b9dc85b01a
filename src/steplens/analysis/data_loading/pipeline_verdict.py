"""One verdict about MindSpore's data pipeline: whether it keeps up with the training, and which operation holds it up."""

from __future__ import annotations

import polars as pl

from steplens.analysis.data_loading.data_pipeline import COUNTS_EPOCHS, bottlenecks, host_queue, operations, queue_summary
from steplens.analysis.data_loading.pipeline_queues import USAGE_GAP
from steplens.trace.trace import Trace

#: share of the batches that find the host's queue empty, above which loading is too slow
MOST_EMPTY = 0.30


def keeps_up(trace: Trace, *, most_empty: float = MOST_EMPTY) -> bool:
    """Whether the training found batches waiting for it: then no operation of the pipeline holds up anything.

    The host's queue was empty for at most ``most_empty`` of the batches, and the device's queue, where it was recorded, never.
    False where no queue of batches was recorded, too.
    """
    queue, received = host_queue(trace), queue_summary(trace, "receive")
    return queue is not None and queue.empty <= most_empty * queue.batches and not (received is not None and received.empty)


def held_up_by(trace: Trace) -> list[int]:
    """The ids of the operations that hold up the pipeline; none where it keeps up.

    They are those of ``data_pipeline.bottlenecks``; where it names none, the one operation whose input queue is fuller than its
    output queue by the most, from half of the capacity on.
    """
    if keeps_up(trace):
        return []
    table = operations(trace)
    return bottlenecks(table) or _largest_gap(table)


def _largest_gap(table: pl.DataFrame) -> list[int]:
    usage = dict(table.drop_nulls("usage").select("id", "usage").iter_rows())
    gaps = {
        number: min(usage[child] for child in children) - usage[number]
        for number, children in table.filter(~pl.col("type").is_in(COUNTS_EPOCHS)).select("id", "children").iter_rows()
        if number in usage and children and all(child in usage for child in children)
    }
    worst = max(gaps, key=lambda number: gaps[number], default=None)
    return [worst] if worst is not None and gaps[worst] > USAGE_GAP else []
