"""The framework's tables of a profiler database: calls, their connections and stacks, steps, collections, memory."""

from __future__ import annotations

import polars as pl

from steplens.formats.ascend_database import ALLOCATION_TOTALS, API_TYPES, THREAD_BITS
from steplens.formats.ascend_terms import APP, CANN_PREFIX, DEQUEUE, ENQUEUE, GE, NO_NUMBER, NOT_AVAILABLE
from steplens.trace.schema import SCOPE_MODULE
from steplens.writers.common.links import Connections, forward_backward, launched_by, queue_half, usable_connection
from steplens.writers.common.output import NothingToWriteError, Output, main_pid
from steplens.writers.common.text import distinct_texts, lay_out_list
from steplens.writers.database.database_file import FRAMEWORK_TEXTS, MEMORY_TEXTS, DatabaseFile
from steplens.writers.tables.memory_record import memory_record
from steplens.writers.tables.operator_memory import operator_allocations

#: operators that record marks of the user
_MARK_PREFIX = "mstx_"


def global_tid(pid: int) -> pl.Expr:
    """Process id in the upper 32 bits, thread id in the lower; ``pid`` is the process of rows that do not say theirs."""
    process = pl.col("pid").fill_null(pid)
    return process * (1 << THREAD_BITS) + pl.col("tid").fill_null(0) % (1 << THREAD_BITS)


def write_calls(file: DatabaseFile, output: Output, pid: int, found: Connections) -> None:
    """PYTORCH_API with CONNECTION_IDS and PYTORCH_CALLCHAINS: Python calls, both halves of the task queue, operator calls.

    Rows come in this order; operator calls by start. A row's connectionId leads to CONNECTION_IDS, where every connection
    of the row is a row: those of the device tasks that the call launched, the one of a task of the queue (its two halves
    share it), and one per pair of forward and backward calls.
    """
    number, connections = 0, []
    for frame in _python_call_rows(file, output, pid):
        file.frame("PYTORCH_API", frame)
    queue_ids = 0
    queue = output.trace.table("task_queue")
    if queue is not None:
        for side in (ENQUEUE, DEQUEUE):
            rows = _queue_side(file, queue, side, pid)
            numbered = rows.with_columns(connectionId=pl.int_range(number, number + rows.height))
            file.frame("PYTORCH_API", numbered)
            number += rows.height
            connections.append(
                numbered.drop_nulls("correlation").select(id="connectionId", connectionId=found.framework + pl.col("correlation"))
            )
        queue_ids = int(queue.select(usable_connection().max()).item() or 0) + 1
    ops = output.trace.ops
    if ops is not None:
        links = _operator_connections(output, found, found.framework + queue_ids)
        linked = links.select(op=pl.col("op").unique(maintain_order=True)).with_columns(
            id=pl.int_range(number, number + pl.col("op").n_unique())
        )
        connections.append(links.join(linked, on="op", maintain_order="left").select("id", connectionId="connection"))
        for frame in _operator_call_rows(file, ops, pid, linked):
            file.frame("PYTORCH_API", frame)
    file.create("PYTORCH_API")
    if connections:
        file.frame(
            "CONNECTION_IDS", pl.concat([part.select("id", pl.col("connectionId").cast(pl.Int64)) for part in connections])
        )


def _python_call_rows(file: DatabaseFile, output: Output, pid: int) -> list[pl.DataFrame]:
    """Python calls, and module calls that hooks have recorded."""
    modules = output.trace.required("ops").filter(pl.col("scope") == SCOPE_MODULE)
    columns = ("name", "start_ns", "end_ns", "pid", "tid")
    frames = [frame.select(columns).collect() for frame in (output.trace.required("python"), modules)]
    return [_call_rows(file, frame, frame["name"], pid, "trace") for frame in frames]


def _call_rows(file: DatabaseFile, frame: pl.DataFrame, names: pl.Series, pid: int, kind: str, *more: pl.Expr) -> pl.DataFrame:
    return frame.select(
        *more,
        startNs="start_ns",
        endNs="end_ns",
        globalTid=global_tid(pid),
        name=pl.lit(file.text_ids(names, FRAMEWORK_TEXTS, missing="")),
        type=pl.lit(API_TYPES[kind], dtype=pl.Int64),
    )


def _queue_side(file: DatabaseFile, queue: pl.DataFrame, side: str, pid: int) -> pl.DataFrame:
    rows = queue_half(queue, side)
    name = pl.col("name").cast(pl.String)
    names = rows.select(pl.when(name.fill_null("") == "").then(pl.lit(side)).otherwise(pl.concat_str(pl.lit(f"{side}@"), name)))
    return _call_rows(file, rows, names.to_series(), pid, "queue", usable_connection().alias("correlation"))


def _operator_connections(output: Output, found: Connections, pairs_from: int) -> pl.DataFrame:
    """``op`` (row of ops) and ``connection``: tasks first, then pairs of forward and backward calls."""
    pairs = forward_backward(output.trace).with_columns(connection=pairs_from + pl.int_range(pl.len(), dtype=pl.Int64))
    ends = [pairs.select(pl.col(side).cast(pl.Int64).alias("op"), "connection") for side in ("from_op", "op")]
    return pl.concat([launched_by(output.trace, found), *ends]).sort("op", maintain_order=True)


def _operator_call_rows(file: DatabaseFile, ops: pl.DataFrame, pid: int, linked: pl.DataFrame) -> list[pl.DataFrame]:
    """Operator calls by start, those that record marks last."""
    calls = ops.with_row_index("row").with_columns(row=pl.col("row").cast(pl.Int64), chain=_write_stacks(file, ops["stack"]))
    calls = calls.filter(pl.col("scope").fill_null(0) != SCOPE_MODULE).sort("start_ns", maintain_order=True)
    calls = calls.join(linked, left_on="row", right_on="op", how="left", maintain_order="left", coalesce=True, suffix="_link")
    names = calls["name"].unique().cast(pl.String)
    mark_names = names.filter(names.str.starts_with(_MARK_PREFIX).fill_null(False))
    is_mark = pl.col("name").cast(pl.String).is_in(mark_names.implode()).fill_null(False)
    parts = [(calls, "op")] if mark_names.is_empty() else [(calls.filter(~is_mark), "op"), (calls.filter(is_mark), "mstx")]
    return [
        _call_rows(
            file,
            part,
            part["name"],
            pid,
            kind,
            pl.col("id_link").alias("connectionId"),
            pl.col("sequence").fill_null(-1).alias("sequenceNumber"),
            pl.col("forward_tid").fill_null(0).alias("fwdThreadId"),
            pl.lit(_list_ids(file, part["input_types"])).alias("inputDtypes"),
            pl.lit(_list_ids(file, part["input_shapes"])).alias("inputShapes"),
            pl.col("chain").alias("callchainId"),
        )
        for part, kind in parts
    ]


def _list_ids(file: DatabaseFile, values: pl.Series) -> pl.Series:
    """Ids of lists, laid out as in the text files; NULL for empty and unknown ones."""
    return file.text_ids(values, FRAMEWORK_TEXTS, render=lambda text: lay_out_list(text) if text else None)


def _write_stacks(file: DatabaseFile, stacks: pl.Series) -> pl.Series:
    """Write every distinct call stack once; returns the id of each row's stack, null where it has none."""
    distinct, index = distinct_texts(stacks)
    stack_texts = [text for text in distinct if text]
    chain = {text: number for number, text in enumerate(stack_texts)}
    frames = (
        pl.DataFrame({"id": range(len(stack_texts)), "stack": stack_texts}, schema={"id": pl.Int64, "stack": pl.String})
        .with_columns(pl.col("stack").str.split(";"))
        .explode("stack")
        .with_columns(stackDepth=pl.int_range(pl.len()).over("id"))
    )
    file.frame("PYTORCH_CALLCHAINS", frames.with_columns(stack=file.text_ids(frames["stack"], FRAMEWORK_TEXTS)))
    ids = pl.Series([*(chain.get(text) for text in distinct), None], dtype=pl.Int64)
    return ids.gather(pl.Series(index, dtype=pl.UInt32))


def write_steps(file: DatabaseFile, output: Output) -> None:
    """STEP_TIME: the host's range of every step."""
    file.frame("STEP_TIME", output.trace.required("steps").select("id", startNs="start_ns", endNs="end_ns").collect())


def write_collections(file: DatabaseFile, output: Output, pid: int) -> None:
    """GC_RECORD: garbage collections; process and thread are both the process, as in the text file."""
    rows = output.trace.required("gc").with_columns(tid=pl.col("pid").fill_null(pid))
    file.frame("GC_RECORD", rows.select(startNs="start_ns", endNs="end_ns", globalTid=global_tid(pid)).collect())


def write_memory(file: DatabaseFile, output: Output) -> None:
    """MEMORY_RECORD and OP_MEMORY: the rows of memory_record.csv (without the process's own samples) and operator_memory.csv.

    NPU_OP_MEM: the events of the graph engine's allocator, of a source that has their addresses.
    """
    _write_engine_events(file, output)
    try:
        record, pairs = memory_record(output), operator_allocations(output)
    except NothingToWriteError:
        return
    record = record.filter(pl.col("component") != APP)
    rows = record.select(
        component=pl.lit(file.text_ids(record["component"], MEMORY_TEXTS)),
        timestamp="time_ns",
        totalAllocated="allocated",
        totalReserved="reserved",
        totalActive="active",
        streamPtr="stream",
        deviceId=_memory_device(),
    )
    file.frame("MEMORY_RECORD", rows)
    names = pairs["name"].cast(pl.String).str.strip_prefix(CANN_PREFIX)
    rows = pairs.select(
        name=pl.lit(file.text_ids(names, MEMORY_TEXTS, missing=NO_NUMBER)),
        size="bytes",
        allocationTime="allocation_ns",
        releaseTime="release_ns",
        activeReleaseTime="active_release_ns",
        duration=pl.col("release_ns") - pl.col("allocation_ns"),
        activeDuration=pl.col("active_release_ns") - pl.col("allocation_ns"),
        **ALLOCATION_TOTALS,
        streamPtr="stream",
        deviceId=_memory_device(),
    )
    file.frame("OP_MEMORY", rows)


def _write_engine_events(file: DatabaseFile, output: Output) -> None:
    trace = output.trace
    events = (
        trace.required("memory")
        .filter((pl.col("component").cast(pl.String) == GE) & pl.col("address").is_not_null() & (pl.col("bytes") != 0))
        .sort("time_ns", maintain_order=True)
        .collect()
    )
    if events.is_empty():
        return
    # the operator's name is known with the allocation that an event begins or ends
    pairs = trace.required("allocations").filter(pl.col("component").cast(pl.String) == GE).collect()
    ends = [
        pairs.select("device", size="bytes", time_ns=time, operator=pl.col("name").cast(pl.String).str.strip_prefix(CANN_PREFIX))
        for time in ("allocation_ns", "release_ns")
    ]
    keys = ["device", "size", "time_ns"]
    named_threads = pl.concat(ends).drop_nulls("time_ns").unique(keys, keep="first", maintain_order=True)
    events = events.with_columns(size=pl.col("bytes").abs()).join(
        named_threads, on=keys, how="left", maintain_order="left", nulls_equal=True
    )
    types = events.select(pl.when(pl.col("bytes") > 0).then(pl.lit("allocate")).otherwise(pl.lit("release"))).to_series()
    rows = events.select(
        operatorName=pl.lit(file.text_ids(events["operator"], missing=NOT_AVAILABLE)),
        addr="address",
        type=pl.lit(file.text_ids(types)),
        size="size",
        timestampNs="time_ns",
        globalTid=global_tid(main_pid(trace)),
        totalAllocate="allocated",
        totalReserve="reserved",
        component=pl.lit(file.text_ids(events["component"])),
        deviceId=_memory_device(),
    )
    file.frame("NPU_OP_MEM", rows)


def _memory_device() -> pl.Expr:
    """The device of a row of memory; the CPU, which allocators number -1, is device 0 as in the other tables."""
    return pl.col("device").fill_null(0).clip(lower_bound=0)
