"""More about the queues of a data pipeline: one of them with what adjoins it, where they drop, and which operation is slow.

``data_pipeline.bottlenecks`` has the strict rules; what is here is weaker, and looks at processors too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from steplens.analysis.data_loading.data_pipeline import COUNTS_EPOCHS, operation_name, operations
from steplens.analysis.data_loading.pipeline_cpu import operation_load
from steplens.trace.trace import Trace

#: by how much of its capacity an output queue is emptier than an input queue
DROP = 0.10

#: percent of a core per worker above which an operation lacks workers, and below which they bring little
BUSY_PERCENT, IDLE_PERCENT = 75.0, 20.0
#: usage of a source's queue below which it cannot deliver
SOURCE_USAGE = 0.5
#: share of samples at which the queue in front of the device may be empty
EMPTY_SHARE = 0.6
#: input usage minus output usage
USAGE_GAP = 0.5
#: usage of the input queues below which an operation that rests waits for others
STARVED_USAGE = 0.10

MORE_WORKERS = "more_workers"
FEWER_WORKERS = "fewer_workers"
SLOW_SOURCE = "slow_source"
HOST_TOO_SLOW = "host_too_slow"
SLOWER_THAN_INPUT = "slower_than_input"

#: operations that one thread runs, or none of their own
_SINGLE = ("barrier", "concat", "concatenate", "epochctrl", "rename", "repeat", "shuffle", "skip", "take", "zip")
_TO_DEVICE = ("devicequeue", "dataqueue", "transfer")


@dataclass(frozen=True)
class PipelineOperation:
    """One operation with its output queue.

    Attributes:
        id, type, workers: of the operation.
        sizes: samples of its output queue, elements; empty where it has none.
        capacity: of that queue; None where it has none.
        usage: mean size / capacity.
        interval_ms: time between two samples; None where unknown.
        parent: the operation that takes what it puts out: id, type, workers; None for the last one.
        children: ids of the operations that it takes from.
    """

    id: int
    type: str
    workers: int | None
    sizes: tuple[float, ...]
    capacity: int | None
    usage: float | None
    interval_ms: float | None
    parent: tuple[int, str, int | None] | None
    children: tuple[int, ...]

    @property
    def name_with_number(self) -> str:
        """Its name; see ``data_pipeline.operation_name``."""
        return operation_name(self.type, self.id)


def pipeline_operation(trace: Trace, number: int) -> PipelineOperation:
    """One operation of a data pipeline, with its queue and what adjoins it.

    Raises:
        ValueError: the pipeline has no such operation.
    """
    rows: dict[int, dict[str, Any]] = {row["id"]: row for row in operations(trace).iter_rows(named=True)}
    if number not in rows:
        raise ValueError(f"the data pipeline has no operation {number}; it has {', '.join(map(str, sorted(rows))) or 'none'}")
    row = rows[number]
    parent_row = rows.get(row["parent"]) if row["parent"] is not None else None
    interval = trace.meta_value("pipeline_sampling_interval_ms")
    return PipelineOperation(
        number,
        row["type"],
        row["workers"],
        tuple(row["queue_sizes"] or ()),
        row["queue_capacity"],
        row["usage"],
        float(interval) if isinstance(interval, (int, float)) else None,
        (parent_row["id"], parent_row["type"], parent_row["workers"]) if parent_row is not None else None,
        tuple(row["children"] or ()),
    )


def queue_drops(table: pl.DataFrame, *, least: float = DROP) -> pl.DataFrame:
    """Operations whose output queue is emptier than an input queue by more than ``least`` of its capacity, largest first.

    A weak sign: neither queue need be full or empty.

    Args:
        table: of ``data_pipeline.operations``.
        least: the least difference of usage.

    Returns:
        id, type, usage, input_usage (of the fullest input queue), drop.
    """
    usages = table.drop_nulls("usage").select("id", "usage")
    inputs = table.select("id", child=pl.col("children")).explode("child", empty_as_null=True).drop_nulls()
    fullest = inputs.join(usages.rename({"id": "child", "usage": "input_usage"}), on="child")
    fullest = fullest.group_by("id").agg(pl.col("input_usage").max())
    joined = table.drop_nulls("usage").select("id", "type", "usage").join(fullest, on="id")
    dropped = joined.with_columns(drop=(pl.col("input_usage") - pl.col("usage")).round(9))
    is_drop = (pl.col("drop") > least) & ~pl.col("type").is_in(COUNTS_EPOCHS)
    return dropped.filter(is_drop).sort("drop", "id", descending=[True, False])


@dataclass(frozen=True)
class PipelineFinding:
    """What processors and queues together say of one operation.

    Attributes:
        kind: ``MORE_WORKERS``, ``FEWER_WORKERS``, ``SLOW_SOURCE``, ``HOST_TOO_SLOW`` or ``SLOWER_THAN_INPUT``.
        id, type: of the operation.
        value: percent of a core per worker; of queues a share from 0 to 1.
    """

    kind: str
    id: int
    type: str
    value: float

    @property
    def name_with_number(self) -> str:
        """Its name; see ``data_pipeline.operation_name``."""
        return operation_name(self.type, self.id)


def analyse_operations(trace: Trace) -> tuple[list[PipelineFinding], int | None]:
    """The rules of MindSpore's own analyser of data pipelines: what they find, and the id of the operation that is the slowest.

    1. More than 75 % of a core per worker: it needs more workers. Less than 20 % with several workers: they bring little.
    2. A source whose queue is less than half full cannot deliver.
    3. The queue in front of the device empty in more than 60 % of the samples: the host cannot keep up.
    4. An output queue emptier than the input queue by more than half of the capacity: slower than its input.
    5. The slowest, from the sources to the last operation, the last one that fits counts: above 75 %, or below 20 % and either
       its input queues less than 10 % full or rule 4.

    Operations that one thread runs are left out. Rules 1 and 5 need samples of the processors; the others speak without.
    """
    table = operations(trace)
    usage = dict(table.select("id", "usage").iter_rows())
    empty = dict(table.select("id", "empty_share").iter_rows())
    load = dict(operation_load(trace).select("id", "cpu_percent").iter_rows())
    findings: list[PipelineFinding] = []
    slowest: int | None = None
    # from the sources to the last one
    for row in reversed(table.to_dicts()):
        number, type_, output, cpu = row["id"], row["type"], row["usage"], load.get(row["id"])
        plain = type_.removesuffix("Op").removesuffix("Dataset").lower()
        inputs = [child for child in row["children"] or [] if usage.get(child) is not None]
        if plain.startswith(_TO_DEVICE):
            empty_share = max((empty[child] for child in inputs if empty[child] is not None), default=None)
            if empty_share is not None and empty_share > EMPTY_SHARE:
                findings.append(PipelineFinding(HOST_TOO_SLOW, number, type_, empty_share))
            continue
        if plain in _SINGLE:
            continue
        input_usage = sum(usage[child] for child in inputs) / len(inputs) if inputs else None
        gap = input_usage - output if input_usage is not None and output is not None else None
        behind = gap is not None and gap > USAGE_GAP
        if cpu is not None and cpu > BUSY_PERCENT:
            findings.append(PipelineFinding(MORE_WORKERS, number, type_, cpu))
            slowest = number
        elif cpu is not None and cpu < IDLE_PERCENT:
            if (row["workers"] or 1) > 1:
                findings.append(PipelineFinding(FEWER_WORKERS, number, type_, cpu))
            if behind or (input_usage is not None and input_usage < STARVED_USAGE):
                slowest = number
        if not row["children"] and output is not None and output < SOURCE_USAGE:
            findings.append(PipelineFinding(SLOW_SOURCE, number, type_, output))
        if behind and gap is not None:
            findings.append(PipelineFinding(SLOWER_THAN_INPUT, number, type_, gap))
    return sorted(findings, key=lambda finding: finding.id), slowest
