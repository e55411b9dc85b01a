"""The data pipeline: its operations and queues, which of them holds up the others, and how often its queues ran empty."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import polars as pl

from steplens.analysis.tools.schemas import cast_columns
from steplens.trace.trace import Trace

#: usage of a queue from which on it counts as full, and below which it counts as empty
HIGH_USAGE, LOW_USAGE = 0.8, 0.6

OPERATIONS: dict[str, pl.DataType] = {
    "operation": pl.String(),
    "id": pl.Int32(),
    "type": pl.String(),
    "workers": pl.Int32(),
    "parent": pl.Int32(),
    "children": pl.List(pl.Int32()),
    "queue_capacity": pl.Int64(),
    "queue_sizes": pl.List(pl.Float64()),
    "mean_size": pl.Float64(),
    "usage": pl.Float64(),
    "empty_share": pl.Float64(),
}
_OWN = ("id", "type", "workers", "queue_capacity")
#: counts epochs in the thread of whoever takes the batches; it has no workers and does no work
COUNTS_EPOCHS = ("EpochCtrl", "EpochCtrlOp")


@dataclass(frozen=True)
class QueueSummary:
    """How often a queue was empty or full when a batch passed.

    Attributes:
        kind: "send" (host queue of sunk data), "iterate" (host queue) or "receive" (the device's queue).
        batches: batches with a known queue size.
        empty: batches at which it was empty.
        full: batches at which it was as full as its capacity; None where the capacity is unknown.
    """

    kind: str
    batches: int
    empty: int
    full: int | None


def operation_name(type_: str | None, number: int) -> str:
    """The one name of an operation, as MindInsight has it: its type, which others may have, and its number (``MapOp_2``)."""
    return f"{type_ or 'Operation'}_{number}"


def operations(trace: Trace) -> pl.DataFrame:
    """The operations that have an output queue, breadth first from the last one; columns as in ``OPERATIONS``.

    ``operation`` is the ``operation_name`` of type and id.

    Operation 0 (where there is none: the one without a parent) is always the first row, with or without a queue; so is the
    last operation of each DataLoader of PyTorch, which are trees of their own. An operation without a queue runs in the
    threads of its parent; it is left out, and its children become its parent's.
    ``usage`` = mean size / capacity, ``empty_share`` = share of the samples at which the queue was empty.

    Source: the ``pipeline_ops`` and ``pipeline_samples`` tables.
    """
    pipeline_ops = trace.pipeline_ops
    if pipeline_ops is None:
        return pl.DataFrame(schema=OPERATIONS)
    rows = {row["id"]: row for row in pipeline_ops.with_columns(pl.col("type").cast(pl.String)).iter_rows(named=True)}
    children_of: dict[int | None, list[int]] = {}
    for number, row in rows.items():
        children_of.setdefault(row["parent"], []).append(number)
    roots = children_of.get(None, list(rows))
    if trace.lazy("pipeline_loaders") is None:
        roots = [0 if 0 in rows else roots[0]]
    ordered: list[dict[str, object]] = []
    pending: deque[tuple[int, int | None]] = deque((root, None) for root in roots)
    numbered = set(roots)
    while pending:
        number, parent_number = pending.popleft()
        children = _with_queue(number, rows, children_of, numbered)
        name = operation_name(rows[number]["type"], number)
        own_values = {key: rows[number][key] for key in _OWN}
        ordered.append({"operation": name, **own_values, "parent": parent_number, "children": children})
        pending.extend((child, number) for child in children)
    sizes = (
        trace.required("pipeline_samples")
        .filter(pl.col("name").cast(pl.String) == "queue_size")
        .sort("sample")
        .group_by("op")
        .agg(queue_sizes=pl.col("value"), mean_size=pl.col("value").mean(), empty_share=(pl.col("value") == 0).mean())
        .collect()
    )
    table = pl.DataFrame(ordered, schema={name: OPERATIONS[name] for name in ("operation", *_OWN, "parent", "children")})
    table = table.join(sizes, left_on="id", right_on="op", how="left", maintain_order="left")
    capacity = pl.when(pl.col("queue_capacity") > 0).then("queue_capacity")
    return table.with_columns(usage=pl.col("mean_size") / capacity).select(cast_columns(OPERATIONS))


def _with_queue(number: int, rows: dict[int, dict[str, object]], below: dict[int | None, list[int]], seen: set[int]) -> list[int]:
    """The nearest operations below one that have a queue, in order."""
    queue_rows = []
    pending = list(reversed(below.get(number, [])))
    while pending:
        child = pending.pop()
        if child in seen:
            continue
        seen.add(child)
        if rows[child]["queue_capacity"] is not None:
            queue_rows.append(child)
        else:
            pending.extend(reversed(below.get(child, [])))
    return sorted(queue_rows)


def bottlenecks(table: pl.DataFrame, *, high: float = HIGH_USAGE, low: float = LOW_USAGE) -> list[int]:
    """The operations that hold up the pipeline, by the usage of the queues on both sides.

    1. An operation whose input queues are all highly used and whose output queue is little used.
    2. The sources, when every queue is little used.
    3. The last operation, when every queue is highly used.

    What only counts epochs is none of them: when every queue before it is highly used, whoever takes the batches is slow.

    Args:
        table: of ``operations``.
        high: usage from which on a queue is highly used.
        low: usage below which a queue is little used.

    Returns:
        their ids, in the order of the table; of one tree more than one kind never speaks.
    """
    if not table.height:
        return []
    roots = table.filter(pl.col("parent").is_null())["id"].to_list()
    if len(roots) > 1:
        trees = _tree_roots(table)
        bottleneck_numbers = [number for root in roots for number in bottlenecks(table.filter(trees == root), high=high, low=low)]
        return [number for number in table["id"].to_list() if number in set(bottleneck_numbers)]
    usage = dict(table.drop_nulls("usage").select("id", "usage").iter_rows())
    if not usage:
        return []
    counters = table.filter(pl.col("type").is_in(COUNTS_EPOCHS))["id"].to_list() if "type" in table.columns else []
    if all(value >= high for value in usage.values()):
        return [number for number in table["id"].head(1).to_list() if number not in counters]
    if all(value < low for value in usage.values()):
        leaves = table.filter((pl.col("children").list.len() == 0) & pl.col("usage").is_not_null())
        return leaves["id"].to_list()
    bottleneck_numbers = []
    for number, children in table.select("id", "children").iter_rows():
        inputs = [usage[child] for child in children or [] if child in usage]
        if inputs and number not in counters and number in usage and min(inputs) >= high and usage[number] < low:
            bottleneck_numbers.append(number)
    return bottleneck_numbers


def _tree_roots(table: pl.DataFrame) -> pl.Series:
    """The last operation of the tree that each row belongs to."""
    root: dict[int, int] = {}
    for number, parent in table.select("id", "parent").iter_rows():
        root[number] = number if parent is None else root[parent]
    return pl.Series([root[number] for number in table["id"]])


def queue_summary(trace: Trace, kind: str) -> QueueSummary | None:
    """How often the queue of one kind of batch was empty and full; None where it was not recorded."""
    if "pipeline_batches" not in trace:
        return None
    rows = trace.required("pipeline_batches").filter(pl.col("kind").cast(pl.String) == kind).drop_nulls("queue_size").collect()
    if not rows.height:
        return None
    capacity = rows.drop_nulls("queue_capacity")
    full = int((capacity["queue_size"] >= capacity["queue_capacity"]).sum()) if capacity.height else None
    return QueueSummary(kind, rows.height, int((rows["queue_size"] == 0).sum()), full)


def host_queue(trace: Trace) -> QueueSummary | None:
    """The queue on the host: that of sunk data, else that of the iterator."""
    return queue_summary(trace, "send") or queue_summary(trace, "iterate")
