"""Reads the timelines that MindSpore draws from its own tables: ``ascend_timeline_display``, ``gpu_timeline_display``.

They are the only times of a run whose tables are gone. Processes are numbers: below 9000 a device, from there on a meaning.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from steplens.common.errors import InputError
from steplens.readers.common.event_decoder import EventDecoder
from steplens.readers.common.json_events import JsonEventFile
from steplens.readers.common.microseconds import float_ns
from steplens.trace.building.communication_marks import COMMUNICATION_CORE, LIBRARY_KERNEL
from steplens.trace.health import ERROR, EVERYTHING, INFO, KERNEL_CALLS, WARNING, HealthLog
from steplens.trace.schema import CORE_CUDA, KIND_COMMUNICATION, KIND_COMPUTE, NAME, SCOPE_FUNCTION

_AI_CPU, _COMMUNICATION, _HOST_CPU = 9000, 10_000, 11_000
_STEPS = 100_000
_GPU_OPERATORS = "Ops"
_TEXT_LIMIT = 10_000


class _Args(msgspec.Struct):
    type: Any = None
    fullname: Any = None
    op_full_name: Any = None


class _Event(msgspec.Struct):
    name: Any = None
    ph: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    pid: Any = None
    args: _Args | None = None


_COLUMNS = {
    **dict.fromkeys(("name", "full_name", "type", "lane"), pl.String),
    "pid": pl.Int64,
    "ts": pl.Float64,
    "dur": pl.Float64,
}


def read_events(path: Path, health: HealthLog) -> pl.DataFrame:
    """Events with a duration: name, full_name, type, lane (the ``tid`` as text), pid, start_ns, end_ns.

    A trailing comma, which the oldest files have, does not matter.

    Raises:
        InputError: the file is missing, empty or no list of events.
    """
    file = JsonEventFile(path)
    rows: list[tuple[Any, ...]] = []
    decoder = EventDecoder[_Event](_Event)
    for piece in file:
        for event in decoder.events(piece):
            if event.ph == "X":
                rows.append(_event_row(event))
    frame = pl.DataFrame([row for row in rows if row], schema=_COLUMNS, orient="row")
    if file.stopped:
        health.extend([file.stopped])
    elif file.truncated:
        message = f"{path.name} breaks off inside its events; {file.lost_bytes} bytes were not read"
        health.add("truncated_file", ERROR, 1, message, EVERYTHING)
    frame = frame.with_columns(start_ns=float_ns(frame["ts"]), length=float_ns(frame["dur"].fill_null(0)))
    complete = frame.drop_nulls(["start_ns", "length"]).filter(pl.col("length") >= 0)
    if lost := decoder.damaged + len(rows) - complete.height:
        health.add("damaged_events", ERROR, lost, f"events of {path.name} are damaged and were left out", KERNEL_CALLS)
    return complete.with_columns(end_ns=pl.col("start_ns") + pl.col("length"))


def _event_row(event: _Event) -> tuple[Any, ...]:
    args = event.args or _Args()
    full = args.fullname if args.fullname is not None else args.op_full_name
    ts, dur = (_to_number(value) for value in (event.ts, event.dur))
    if not isinstance(event.name, str) or ts is None or type(event.pid) is not int or abs(event.pid) >= 1 << 31:
        return ()
    return (event.name[:_TEXT_LIMIT], _to_text(full), _to_text(args.type), _to_text(event.tid), event.pid, ts, dur)


def _to_number(value: Any) -> float | None:
    try:
        number = float(value) if type(value) in (int, float, str) else None
    except (ValueError, OverflowError):
        return None
    return number


def _to_text(value: Any) -> str | None:
    return None if value is None else str(value)[:_TEXT_LIMIT]


def ascend_tables(path: Path, rank: int, health: HealthLog) -> dict[str, pl.DataFrame]:
    """``ascend_timeline_display_<rank>.json`` as ``kernels`` and ``steps``. Its times count from the first task."""
    events = read_events(path, health)
    pid, stream = pl.col("pid"), pl.col("lane").cast(pl.Int64, strict=False)
    # from this number on, a lane shows steps or the scopes of names
    device = events.filter((pid < _HOST_CPU) & (stream < _STEPS).fill_null(True))
    core = (
        pl.when(pid == _AI_CPU)
        .then(pl.lit("AI_CPU"))
        .when(pid == _COMMUNICATION)
        .then(pl.lit(COMMUNICATION_CORE))
        .otherwise(pl.lit("AI_CORE"))
    )
    kernels = device.select(
        name=pl.coalesce("full_name", "name"),
        type=pl.coalesce("type", pl.when(pid == _AI_CPU).then("name")),
        stream=stream,
        start_ns="start_ns",
        end_ns="end_ns",
        core=core,
        kind=pl.when(pid == _COMMUNICATION).then(pl.lit(KIND_COMMUNICATION)).otherwise(pl.lit(KIND_COMPUTE)).cast(NAME),
        device=pl.lit(rank, dtype=pl.Int32),
    )
    message = f"times are those of {path.name}, which count from its first task"
    health.add("relative_times", INFO, 1, message)
    return {"kernels": kernels, "steps": _numbered_steps(events)}


def cpu_steps(path: Path, rank: int, health: HealthLog) -> dict[str, pl.DataFrame]:
    """The steps that ``cpu_timeline_display_<rank>.json`` draws; its operators are those of ``cpu_op_execute_timestamp``."""
    return {"steps": _numbered_steps(read_events(path, health))}


def _numbered_steps(events: pl.DataFrame) -> pl.DataFrame:
    lane = pl.col("lane").cast(pl.Int64, strict=False)
    steps = events.filter(lane.eq_missing(_STEPS) | (pl.col("pid") == _STEPS))
    numbered = steps.select(id=pl.col("name").str.extract(r"(\d{1,9})$").cast(pl.Int64), start_ns="start_ns", end_ns="end_ns")
    return numbered.drop_nulls("id").sort("start_ns").unique("id", keep="first", maintain_order=True)


def gpu_tables(path: Path, rank: int, health: HealthLog) -> dict[str, pl.DataFrame]:
    """``gpu_timeline_display_<rank>.json`` as ``ops`` (lane "Ops") and ``kernels`` (lanes of streams)."""
    events = read_events(path, health).filter(pl.col("pid") < _AI_CPU)
    is_call = pl.col("lane") == _GPU_OPERATORS
    calls = events.filter(is_call).select(
        "name",
        "start_ns",
        "end_ns",
        "pid",
        tid=pl.lit(0, dtype=pl.Int64),
        scope=pl.lit(SCOPE_FUNCTION, dtype=pl.UInt8),
        module="name",
    )
    calls = calls.with_columns(module=pl.when(pl.col("name").str.contains("/")).then(pl.col("name").str.replace(r"/[^/]*$", "")))
    stream = pl.col("lane").cast(pl.Int64, strict=False)
    kernels = events.filter(~is_call & stream.is_not_null()).select(
        "name",
        "start_ns",
        "end_ns",
        stream=stream,
        core=pl.lit(CORE_CUDA),
        kind=pl.when(pl.col("name").str.contains(LIBRARY_KERNEL))
        .then(pl.lit(KIND_COMMUNICATION))
        .otherwise(pl.lit(KIND_COMPUTE)),
        device=pl.lit(rank, dtype=pl.Int32),
    )
    other_count = events.height - calls.height - kernels.height
    if other_count:
        health.add("skipped_events", WARNING, other_count, f"events of {path.name} are on lanes of no meaning", KERNEL_CALLS)
    return {"ops": calls, "kernels": kernels}


def try_read(tables: Any, path: Path, rank: int, health: HealthLog) -> dict[str, pl.DataFrame]:
    """``ascend_tables`` or ``gpu_tables``, with a file that cannot be read as a finding."""
    try:
        timeline_tables: dict[str, pl.DataFrame] = tables(path, rank, health)
    except InputError as error:
        health.add("unreadable_file", ERROR, 1, f"{path.name} {error.problem}", EVERYTHING)
        return {}
    return timeline_tables
