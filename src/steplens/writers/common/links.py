"""Which events belong together: forward and backward calls, and the numbers by which a database links calls and tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.formats.ascend_database import INNER_TASKS
from steplens.formats.ascend_terms import NO_NUMBER, NODE
from steplens.trace.schema import KIND_COMMUNICATION, MARK_KINDS, MARKER, START_END
from steplens.trace.trace import Trace
from steplens.writers.common.output import NPU, device_kind

#: connection ids of the framework's own events begin here, behind those of device tasks
_FRAMEWORK_CONNECTIONS = 5 << 28
#: larger ones come from damaged data; sums with them would not fit into a column
_LARGEST_CONNECTION = 1 << 40


def forward_backward(trace: Trace) -> pl.DataFrame:
    """A pair for each backward call on another thread: the latest forward call of its sequence number before it.

    Returns:
        op and pid, tid, start_ns of the backward call, from_op, from_tid and from_ns of the forward call, in order of the
        backward call's start.
    """
    calls = (
        trace.required("ops")
        .with_row_index("row")
        .filter(pl.col("sequence") >= 0)
        .select("row", "start_ns", "pid", "tid", "sequence", backward=pl.col("forward_tid").fill_null(0) > 0)
        .sort("start_ns", maintain_order=True)
    )
    forward = calls.filter(~pl.col("backward")).select("pid", "sequence", from_op="row", from_ns="start_ns", from_tid="tid")
    return (
        calls.filter("backward")
        .join_asof(
            forward,
            left_on="start_ns",
            right_on="from_ns",
            by=["pid", "sequence"],
            strategy="backward",
            allow_exact_matches=False,
            coalesce=False,
            check_sortedness=False,
        )
        .filter(pl.col("from_ns").is_not_null() & (pl.col("from_tid") != pl.col("tid")))
        .select("pid", "tid", "start_ns", "from_tid", "from_ns", op="row", from_op="from_op")
        .collect()
    )


@dataclass(frozen=True)
class Connections:
    """Connection ids: equal ones tie a runtime call, the device tasks it launched and the framework's call together.

    Attributes:
        kernels: id of each row of ``kernels``; likewise ``communication``.
        api: id of each row of ``api``, unique.
        framework: where the ids begin that tie framework calls to each other.
    """

    kernels: pl.Series
    communication: pl.Series
    api: pl.Series
    framework: int


def assign_connection_ids(trace: Trace) -> Connections:
    """The connection id of every call and task: what the source calls its correlation, and new ids for those without.

    A runtime call needs an id of its own: of several with one correlation the launch itself ("node" level) keeps it, or
    else the first.
    """
    tables = ("kernels", "communication", "api")
    correlations = {table: trace.required(table).select(usable_connection()).collect().to_series() for table in tables}
    next_id = max((int(column.max() or 0) for column in correlations.values() if len(column)), default=0) + 1  # type: ignore[arg-type]
    kernels, next_id = _fill_connection_ids(correlations["kernels"], next_id)
    communication, next_id = _fill_connection_ids(correlations["communication"], next_id)
    calls = trace.required("api").select(row=pl.int_range(pl.len()), node=pl.col("layer").cast(pl.String) == NODE).collect()
    calls = calls.with_columns(correlation=correlations["api"])
    keepers = (
        calls.drop_nulls("correlation")
        .sort(~pl.col("node").fill_null(False), "row")
        .unique("correlation", keep="first", maintain_order=True)["row"]
    )
    is_linked = np.zeros(calls.height, dtype=bool)
    is_linked[keepers.to_numpy()] = True
    api, next_id = _fill_connection_ids(correlations["api"].set(pl.Series(~is_linked, dtype=pl.Boolean), None), next_id)
    return Connections(kernels, communication, api, max(next_id, _FRAMEWORK_CONNECTIONS))


def launched_by(trace: Trace, found: Connections) -> pl.DataFrame:
    """``op`` (row of ``ops``) and ``connection`` of everything that operator calls launched, without repetitions."""
    parts = []
    for table, ids in (("kernels", found.kernels), ("communication", found.communication)):
        tasks = trace.required(table).select(pl.col("op").cast(pl.Int64)).collect()
        parts.append(tasks.with_columns(connection=ids))
    count = trace.required("ops").select(pl.len()).collect().item()
    pairs = pl.concat(parts).filter(pl.col("op").is_between(0, count - 1))
    return pairs.unique(maintain_order=True)


def hardware_tasks(trace: Trace) -> pl.Expr:
    """Whether a row of ``kernels`` is a task of the hardware: on an NPU the row of a whole collective is not."""
    if device_kind(trace) != NPU:
        return pl.lit(True)
    return ~pl.col("kind").cast(pl.String).eq_missing(KIND_COMMUNICATION)


def inner_tasks(trace: Trace) -> pl.DataFrame | None:
    """What a source has kept of the tasks that collectives consist of: text columns, and ``kernel``, the task's id."""
    details = trace.source_table(INNER_TASKS)
    if details is None or "kernel" not in details.columns:
        return None
    details = details.with_columns(pl.col("kernel").cast(pl.Int32, strict=False)).drop_nulls("kernel")
    return details.unique("kernel", keep="first", maintain_order=True) if details.height else None


def queue_half(tasks: pl.DataFrame, side: str) -> pl.DataFrame:
    """The tasks of the queue of which one side was recorded, with its start_ns, end_ns and tid."""
    columns = {f"{side.lower()}_{column}": column for column in ("start_ns", "end_ns", "tid")}
    return tasks.drop_nulls(list(columns)).rename(columns)


def mark_kind() -> pl.Expr:
    """How a mark was recorded, or what its length says where the source does not know."""
    by_length = pl.when(pl.col("end_ns") > pl.col("start_ns")).then(pl.lit(START_END)).otherwise(pl.lit(MARKER))
    kind_text = pl.col("kind").cast(pl.String)
    return pl.when(kind_text.is_in(MARK_KINDS)).then(kind_text).otherwise(by_length)


def usable_connection() -> pl.Expr:
    """The column ``correlation``, null where it stands for nothing or can be no number of a connection."""
    correlation = pl.col("correlation")
    return pl.when((correlation != NO_NUMBER) & correlation.is_between(0, _LARGEST_CONNECTION)).then(correlation)


def _fill_connection_ids(ids: pl.Series, next_id: int) -> tuple[pl.Series, int]:
    """``ids`` with numbers from ``next_id`` on in place of nulls, and the next free number."""
    missing = ids.is_null()
    count = int(missing.sum())
    if not count:
        return ids, next_id
    fresh = missing.cast(pl.Int64).cum_sum() - 1 + next_id
    filled: pl.Series = pl.select(pl.coalesce(ids, fresh).cast(pl.Int64)).to_series()
    return filled, next_id + count
