"""The device's half of a recording: what Kineto saw of a GPU while the recorder saw the host.

Kineto records device tasks and the runtime calls that launched them there, and no operator calls. Both halves have the same
clock and the same threads, so that a task belongs to the innermost operator around the call that launched it: what PyTorch's own
numbers of operators would say, which Kineto does not have here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from steplens.common.errors import InputError
from steplens.readers.kineto.kineto import TraceEvents, linked_correlations, read_events
from steplens.readers.kineto.kineto_collectives import rows_around
from steplens.readers.kineto.kineto_device import accelerator_meta, device_tables
from steplens.readers.kineto.kineto_frames import collective_frame, decode_collectives
from steplens.readers.kineto.kineto_tables import flow_arrows, host_tables
from steplens.readers.recorder.recorder_blocks import Blocks
from steplens.readers.recorder.recorder_signatures import Signatures
from steplens.readers.recorder.recorder_tables import Calls, Threads
from steplens.trace.building.nesting import Int64Array
from steplens.trace.health import ERROR, KERNEL_TIMES, OPERATOR_DEVICE_TIMES, OVERLAP, STEP_DEVICE_TIMES, HealthLog
from steplens.trace.schema import SCOPE_USER

#: kinds of events that lie on threads of the host, which CUPTI names by their handles
_ON_THREADS = ("calls", "memory", "operators")
#: a range of the user begins in both halves within this
_MOST_APART_NS = 1_000_000


def add_device(
    path: Path,
    raw: dict[str, pl.DataFrame],
    *,
    blocks: Blocks,
    calls: Calls,
    threads: Threads,
    signatures: Signatures,
    log: HealthLog,
) -> dict[str, Any]:
    """Add the tables of the device to those of the host.

    Args:
        path: Kineto's file.
        raw: tables of the recorder's file, in which ``flows``, ``threads`` and ``memory`` get more rows.
        blocks: of the recorder's file.
        calls: likewise; those of ``raw["ops"]`` in the same order.
        threads: likewise.
        signatures: likewise.
        log: takes findings.

    Returns:
        what the file says of itself and the devices, for ``meta``.
    """
    try:
        events = read_events(path, log)
    except InputError as error:
        message = f"the device's half of the recording cannot be read: {error.problem}; what is shown is the host alone"
        log.add("device_not_recorded", ERROR, 1, message, (STEP_DEVICE_TIMES, OPERATOR_DEVICE_TIMES, KERNEL_TIMES, OVERLAP))
        return {}
    columns, members, base_ns = events.columns, events.members, events.base_ns
    _name_threads(events, blocks, calls, threads)
    _number_operators(events, raw["ops"])
    columns.replace_events("collectives", _collective_calls(raw["ops"], calls, signatures, base_ns))
    host_half = host_tables(columns, base_ns)
    raw.update(device_tables(columns, raw, members, base_ns, log))
    arrows = flow_arrows(columns, base_ns, linked_correlations(raw), log)
    raw["flows"] = pl.concat([frame for frame in (raw["flows"], arrows) if frame.height] or [arrows], how="diagonal_relaxed")
    if "memory" in host_half and not raw["memory"].height:
        raw["memory"] = host_half["memory"]
    raw["threads"] = pl.concat([raw["threads"], host_half["threads"].join(raw["threads"], on=["pid", "tid"], how="anti")])
    return {**members, **accelerator_meta(raw, members)}


def _name_threads(events: TraceEvents, blocks: Blocks, calls: Calls, threads: Threads) -> None:
    """Give the events of the host the threads that the recorder has them on, where Kineto knows no more than CUPTI does.

    A thread may get the handle of one that has ended: an event belongs to the last of them that had begun to call operators.
    """
    native_ids = set(threads.native_id.tolist())
    by_handle = _threads_by_handle(blocks, calls, threads)
    for kind in _ON_THREADS:
        frame = events.columns.frame(kind)
        if not frame.height:
            continue
        tid = frame["tid"].to_numpy().copy()
        time = frame["time_ns" if "time_ns" in frame.columns else "start_ns"].to_numpy() + events.base_ns
        unnamed = [number for number in frame["tid"].unique().to_list() if number not in native_ids and number in by_handle]
        for number in unnamed:
            rows = np.flatnonzero(tid == number)
            first_ns, native_id = by_handle[number]
            tid[rows] = native_id[np.maximum(np.searchsorted(first_ns, time[rows], side="right") - 1, 0)]
        if unnamed:
            events.columns.replace_events(kind, frame.with_columns(tid=pl.Series(tid)))


def _threads_by_handle(blocks: Blocks, calls: Calls, threads: Threads) -> dict[int, tuple[Int64Array, Int64Array]]:
    """When the first call of each thread began, in that order, and its id of the system, by what Kineto makes of its handle."""
    numbers, first = np.unique(calls.thread, return_index=True)
    rows = threads.rows_of(numbers)
    begins: dict[int, list[tuple[int, int]]] = {}
    for number, row, call in zip(numbers.tolist(), rows.tolist(), first.tolist(), strict=True):
        handle = blocks.thread_handles.get(number)
        if handle is not None and row >= 0:
            begin = (int(calls.start_ns[call]), int(threads.native_id[row]))
            begins.setdefault(_kineto_number(handle), []).append(begin)
    return {handle: _columns_of(sorted(pairs)) for handle, pairs in begins.items()}


def _columns_of(pairs: list[tuple[int, int]]) -> tuple[Int64Array, Int64Array]:
    first, second = np.array(pairs, dtype=np.int64).T
    return first, second


def _kineto_number(handle: int) -> int:
    """The number by which Kineto calls a thread of which it knows the handle alone: without the sign, as a number of 32 bits."""
    return abs(handle - (1 << 32) if handle >= 1 << 31 else handle)


def _number_operators(events: TraceEvents, ops: pl.DataFrame) -> None:
    """Replace Kineto's numbers of operators by the recorder's.

    Calls of the runtime get that of the innermost operator around their start, and their tasks through them: it is whose number
    Kineto would give, not that of a range of the user in between. Ranges on the device get that of their range on the host.
    """
    columns = events.columns
    number_of_range = _numbers_of_ranges(columns.frame("operators"), ops, events.base_ns)
    columns.replace_events("operators", pl.DataFrame())
    calls, tasks, ranges = (columns.frame(kind) for kind in ("calls", "tasks", "device_ranges"))
    if calls.height:
        columns.replace_events("calls", calls.with_columns(external_id=_numbers_around(calls, ops, events.base_ns)))
    if tasks.height:
        columns.replace_events("tasks", tasks.with_columns(external_id=pl.lit(None, pl.Int64)))
    if ranges.height:
        number = pl.col("external_id").replace_strict(number_of_range, default=None, return_dtype=pl.Int64)
        columns.replace_events("device_ranges", ranges.with_columns(external_id=number))


def _numbers_around(calls: pl.DataFrame, ops: pl.DataFrame, base_ns: int) -> pl.Series:
    """The number of the innermost operator around the start of each call, null where there is none."""
    operators = ops.filter(pl.col("scope") != SCOPE_USER)
    if not operators.height:
        return pl.Series([None] * calls.height, dtype=pl.Int64)
    row: pl.Series = rows_around(calls.select(time=pl.col("start_ns") + base_ns, pid="pid", tid="tid"), operators)
    numbers: pl.Series = operators["external_id"].gather(row)
    return numbers


def _numbers_of_ranges(ranges: pl.DataFrame, ops: pl.DataFrame, base_ns: int) -> dict[int, int]:
    """The recorder's number of each range of the user that Kineto saw, by Kineto's."""
    if not ranges.height or "external_id" not in ranges.columns:
        return {}
    user_ranges = ops.filter(pl.col("scope") == SCOPE_USER)
    recorder_ranges = user_ranges.select("tid", "start_ns", name=pl.col("name").cast(pl.String), own="external_id")
    theirs = ranges.select(
        "tid", "external_id", name=pl.col("name").cast(pl.String), start_ns=pl.col("start_ns") + base_ns
    ).drop_nulls()
    joined = theirs.sort("start_ns").join_asof(
        recorder_ranges.sort("start_ns"),
        on="start_ns",
        by=["name", "tid"],
        strategy="nearest",
        tolerance=_MOST_APART_NS,
        check_sortedness=False,
    )
    matched = joined.drop_nulls("own")
    return dict(zip(matched["external_id"].to_list(), matched["own"].to_list(), strict=True))


def _collective_calls(ops: pl.DataFrame, calls: Calls, signatures: Signatures, base_ns: int) -> pl.DataFrame:
    """The calls of ``ops`` that say what a communication operation does, as ``collective_frame`` has them."""
    described = signatures.collectives
    if not described:
        return pl.DataFrame()
    is_described = pl.Series(calls.signature).is_in(list(described))
    rows = is_described.arg_true()
    texts = [described[number] for number in calls.signature[rows.to_numpy()].tolist()]
    frame = ops[rows].with_columns(pl.col("start_ns", "end_ns") - base_ns)
    return collective_frame(decode_collectives(texts), frame)
