"""The device's half of a recording: what Kineto saw of a GPU while the recorder saw the host.

Kineto records device tasks and the runtime calls that launched them there, and no operator calls. Both halves have the same
clock and the same threads, so that a task belongs to the innermost operator around the call that launched it: what PyTorch's own
numbers of operators would say, which Kineto does not have here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from steplens.common.errors import InputError
from steplens.readers.kineto.kineto import TraceEvents, linked_correlations, read_events
from steplens.readers.kineto.kineto_collectives import rows_around
from steplens.readers.kineto.kineto_device import accelerator_meta, device_tables
from steplens.readers.kineto.kineto_frames import collective_frame, decode_collectives
from steplens.readers.kineto.kineto_tables import flow_arrows, host_tables
from steplens.readers.steplens_run.recorder_blocks import Blocks
from steplens.readers.steplens_run.recorder_signatures import Signatures
from steplens.readers.steplens_run.recorder_tables import Calls, Threads
from steplens.trace.health import ERROR, KERNEL_TIMES, OPERATOR_DEVICE_TIMES, OVERLAP, STEP_DEVICE_TIMES, HealthLog
from steplens.trace.schema import SCOPE_USER

#: kinds of events that lie on threads of the host, which CUPTI names by their handles
_ON_THREADS = ("calls", "memory", "operators")
#: bits of a handle that CUPTI keeps
_HANDLE_BITS = (1 << 32) - 1
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
    _name_threads(events, blocks, threads)
    _number_operators(events, raw["ops"])
    columns.replace("collectives", _collective_calls(raw["ops"], calls, signatures, base_ns))
    seen = host_tables(columns, base_ns)
    raw.update(device_tables(columns, raw, members, base_ns, log))
    arrows = flow_arrows(columns, base_ns, linked_correlations(raw), log)
    raw["flows"] = pl.concat([frame for frame in (raw["flows"], arrows) if frame.height] or [arrows], how="diagonal_relaxed")
    if "memory" in seen and not raw["memory"].height:
        raw["memory"] = seen["memory"]
    raw["threads"] = pl.concat([raw["threads"], seen["threads"].join(raw["threads"], on=["pid", "tid"], how="anti")])
    return {**members, **accelerator_meta(raw, members)}


def _name_threads(events: TraceEvents, blocks: Blocks, threads: Threads) -> None:
    """Give the events of the host the threads that the recorder has them on, where Kineto knows no more than CUPTI does."""
    numbers = dict(zip(threads.number.tolist(), threads.native_id.tolist(), strict=True))
    native_of_handle = {handle: numbers[number] for number, handle in blocks.thread_handles.items() if number in numbers}
    known = set(numbers.values())
    for kind in _ON_THREADS:
        frame = events.columns.frame(kind)
        if not frame.height:
            continue
        unnamed = [tid for tid in frame["tid"].unique().to_list() if tid not in known and tid & _HANDLE_BITS in native_of_handle]
        named = {tid: native_of_handle[tid & _HANDLE_BITS] for tid in unnamed}
        if named:
            events.columns.replace(kind, frame.with_columns(pl.col("tid").replace(named)))


def _number_operators(events: TraceEvents, ops: pl.DataFrame) -> None:
    """Replace Kineto's numbers of operators by the recorder's.

    Calls of the runtime get that of the innermost operator around their start, and their tasks through them: it is whose number
    Kineto would give, not that of a range of the user in between. Ranges on the device get that of their range on the host.
    """
    columns = events.columns
    number_of_range = _numbers_of_ranges(columns.frame("operators"), ops, events.base_ns)
    columns.replace("operators", pl.DataFrame())
    calls, tasks, ranges = (columns.frame(kind) for kind in ("calls", "tasks", "device_ranges"))
    if calls.height:
        operators = ops.filter(pl.col("scope") != SCOPE_USER)
        row = rows_around(calls.select(time=pl.col("start_ns") + events.base_ns, pid="pid", tid="tid"), operators)
        columns.replace("calls", calls.with_columns(external_id=operators["external_id"].gather(row)))
    if tasks.height:
        columns.replace("tasks", tasks.with_columns(external_id=pl.lit(None, pl.Int64)))
    if ranges.height:
        number = pl.col("external_id").replace_strict(number_of_range, default=None, return_dtype=pl.Int64)
        columns.replace("device_ranges", ranges.with_columns(external_id=number))


def _numbers_of_ranges(ranges: pl.DataFrame, ops: pl.DataFrame, base_ns: int) -> dict[int, int]:
    """The recorder's number of each range of the user that Kineto saw, by Kineto's."""
    if not ranges.height or "external_id" not in ranges.columns:
        return {}
    user_ranges = ops.filter(pl.col("scope") == SCOPE_USER)
    own = user_ranges.select("tid", "start_ns", name=pl.col("name").cast(pl.String), own="external_id")
    theirs = ranges.select(
        "tid", "external_id", name=pl.col("name").cast(pl.String), start_ns=pl.col("start_ns") + base_ns
    ).drop_nulls()
    joined = theirs.sort("start_ns").join_asof(
        own.sort("start_ns"),
        on="start_ns",
        by=["name", "tid"],
        strategy="nearest",
        tolerance=_MOST_APART_NS,
        check_sortedness=False,
    )
    found = joined.drop_nulls("own")
    return dict(zip(found["external_id"].to_list(), found["own"].to_list(), strict=True))


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
