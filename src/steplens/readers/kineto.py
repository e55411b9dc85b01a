"""Reads Kineto and Chrome trace JSON (.json, .json.gz) into a ``Trace``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from steplens.errors import InputError
from steplens.readers.json_events import JsonEventFile
from steplens.readers.kineto_events import EventColumns
from steplens.readers.parallel import read_columns
from steplens.trace.build import build_trace
from steplens.trace.checks import unmatched_flows
from steplens.trace.health import (
    ERROR,
    EVERYTHING,
    INFO,
    KERNEL_CALLS,
    OPERATOR_CALLS,
    RANK_COMPARISON,
    RUN_OPTIONS,
    RUNTIME_CALLS,
    WARNING,
    HealthLog,
)
from steplens.trace.schema import NAME, SCOPE_BACKWARD, SCOPE_FUNCTION, SCOPE_USER
from steplens.trace.trace import Trace

SUFFIXES = (".json", ".json.gz", ".trace.json", ".pt.trace.json")

_USER_CATEGORY = "user_annotation"
_PYTHON_CATEGORY = "python_function"
_KERNEL_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
_API_CATEGORIES = ("cuda_runtime", "cuda_driver", "hip_runtime", "runtime", "driver", "Runtime")
_BACKWARD_PREFIX = "autograd::engine::evaluate_function"
_DEVICE_TYPES = {0: "CPU", 1: "CUDA", 20: "NPU"}


def detect(path: Path) -> bool:
    """Whether ``path`` may be a Kineto trace: a file whose name ends as one."""
    return path.is_file() and path.name.endswith(SUFFIXES)


def read(path: Path, *, extra: dict[str, pl.DataFrame] | None = None, health: HealthLog | None = None) -> Trace:
    """Read one trace file.

    Args:
        path: .json or .json.gz.
        extra: further raw tables of the same run (``gc``, ``meta``) that the file does not hold.
        health: findings so far; a new log when absent.

    Raises:
        InputError: the file is missing, empty or no trace at all. A damaged or truncated trace gives what can be read,
            and health findings.
    """
    log = health or HealthLog()
    columns, file = read_columns(path)
    if columns.count == 0:
        raise InputError(path, "holds no events", "Record at least one step, then open it again")
    _report(columns, file, log)
    # other tools may write the members of the top object in another order
    base_ns = {**file.header, **file.footer}.get("baseTimeNanoseconds", 0)
    base_ns = base_ns if isinstance(base_ns, int) else 0
    raw = _tables(columns, base_ns, log)
    raw["meta"] = _meta({**file.header, **file.footer}, base_ns)
    for name, frame in (extra or {}).items():
        raw[name] = pl.concat([raw[name], frame]).unique("key", keep="last", maintain_order=True) if name == "meta" else frame
    return build_trace(path, raw, log)


def _report(columns: EventColumns, file: JsonEventFile, log: HealthLog) -> None:
    if file.truncated:
        message = (
            f"the file breaks off inside its events; {columns.count} events before the cut were read, "
            f"{file.lost_bytes} bytes behind them were not"
        )
        log.add("truncated_file", ERROR, 1, message, EVERYTHING)
    if file.footer_cut:
        message = "the file breaks off behind its events, where it says when its clock starts and how it was recorded"
        log.add("truncated_file", ERROR, 1, message, [RUN_OPTIONS, RANK_COMPARISON])
    if file.header_damaged:
        message = "what the file says in front of its events is damaged: how it was recorded, and of which rank, is unknown"
        log.add("damaged_header", WARNING, 1, message, [RUN_OPTIONS, RANK_COMPARISON])
    if columns.damaged:
        message = "events are not valid JSON and were left out"
        log.add("damaged_events", ERROR, columns.damaged, message, [OPERATOR_CALLS, KERNEL_CALLS, RUNTIME_CALLS])
    if columns.skipped:
        log.add("skipped_events", INFO, columns.skipped, "events are of a kind that a profile does not use")


def _tables(columns: EventColumns, base_ns: int, log: HealthLog) -> dict[str, pl.DataFrame]:
    raw: dict[str, pl.DataFrame] = {}
    operators = _with_times(columns.frame("operators"), base_ns)
    if operators.height:
        raw["ops"] = _operators(operators)
    others = _with_times(columns.frame("others"), base_ns)
    if others.height:
        category = others["cat"].cast(pl.String)
        raw["python"] = _python(others.filter(category == _PYTHON_CATEGORY))
        raw["api"] = _rename(others.filter(category.is_in(_API_CATEGORIES)), layer="cat")
        raw["kernels"] = _kernels(others.filter(category.is_in(_KERNEL_CATEGORIES)))
    memory = columns.frame("memory")
    if memory.height:
        raw["memory"] = _memory(memory, base_ns)
    raw["flows"] = _flows(columns, base_ns, raw.get("kernels"), log)
    raw["threads"] = pl.DataFrame(
        [(pid, tid, name) for (pid, tid), name in sorted(columns.thread_names.items())],
        schema={"pid": pl.Int64, "tid": pl.Int64, "name": pl.String},
        orient="row",
    )
    return raw


def _with_times(frame: pl.DataFrame, base_ns: int) -> pl.DataFrame:
    """Add start_ns and end_ns. Lanes named with text instead of a number are no threads and hold no calls."""
    if not frame.height:
        return frame
    return (
        frame.lazy()
        .drop_nulls(["pid", "tid"])
        .with_columns(start_ns=_nanoseconds("ts", base_ns))
        .with_columns(end_ns=pl.col("start_ns") + _nanoseconds("dur", 0))
        .drop("ts", "dur")
        .collect()
    )


def _nanoseconds(column: str, base_ns: int) -> pl.Expr:
    """Microseconds with three decimals as exact integer ns.

    Whole microseconds and the fraction are converted apart: a double near 4e15 ns has no room for both, and the error
    of the product would reach half a nanosecond.
    """
    whole = pl.col(column).floor()
    fraction = ((pl.col(column) - whole) * 1000).round().cast(pl.Int64)
    return (whole.cast(pl.Int64, strict=False).fill_null(0) * 1000 + fraction.fill_null(0) + base_ns).alias(column)


def _rename(frame: pl.DataFrame, **names: str) -> pl.DataFrame:
    return frame.rename({old: new for new, old in names.items() if old in frame.columns})


def _operators(frame: pl.DataFrame) -> pl.DataFrame:
    is_user = pl.col("cat").cast(pl.String) == _USER_CATEGORY
    backward = pl.col("name").cast(pl.String).str.starts_with(_BACKWARD_PREFIX)
    if "forward_tid" in frame.columns:
        backward |= pl.col("forward_tid").fill_null(0) > 0
    frame = frame.with_columns(
        scope=pl.when(is_user).then(SCOPE_USER).when(backward).then(SCOPE_BACKWARD).otherwise(SCOPE_FUNCTION).cast(pl.UInt8)
    )
    for column, convert in (("input_shapes", shapes_text), ("input_types", types_text)):
        if column in frame.columns:
            frame = frame.with_columns(_convert_unique(frame[column], convert))
    return frame


def _convert_unique(column: pl.Series, convert: Any) -> pl.Series:
    """Apply ``convert`` to each distinct text once; a trace has few distinct shapes and many calls."""
    unique = column.unique().cast(pl.String)
    texts = [None if text is None else convert(text) for text in unique.to_list()]
    converted: pl.Series = (
        column.cast(pl.String).replace_strict(unique, pl.Series(texts, dtype=pl.String), return_dtype=pl.String).cast(NAME)
    )
    return converted


def shapes_text(raw: str) -> str | None:
    """Kineto's ``Input Dims`` (``[[2, 3], []]``) as ``2,3;``: dimensions by comma, inputs by semicolon; null if empty."""
    value = _decode(raw)
    if not value:
        return None
    return ";".join(_dimensions(item) for item in value)


def _dimensions(item: Any) -> str:
    if not isinstance(item, list):
        return ""
    if item and isinstance(item[0], list):
        return "[" + ";".join(_dimensions(inner) for inner in item) + "]"
    return ",".join(str(number) for number in item)


def types_text(raw: str) -> str | None:
    """Kineto's ``Input type`` (``["float", ""]``) as ``float;``; null if empty."""
    value = _decode(raw)
    if not value:
        return None
    return ";".join(_type_name(item) for item in value)


def _type_name(item: Any) -> str:
    if isinstance(item, list):
        return "[" + ";".join(_type_name(inner) for inner in item) + "]"
    return str(item)


def _decode(raw: str) -> list[Any]:
    if not raw:
        return []
    try:
        value = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return []
    return value if isinstance(value, list) else []


def _python(frame: pl.DataFrame) -> pl.DataFrame:
    return _rename(frame, id="python_id", parent="python_parent", module_id="python_module")


def _kernels(frame: pl.DataFrame) -> pl.DataFrame:
    if not frame.height:
        return frame
    missing = [pl.lit(0, dtype=pl.Int64).alias(name) for name in ("device", "stream") if name not in frame.columns]
    return frame.with_columns(*missing).with_columns(
        type="cat", core=pl.lit("CUDA", dtype=NAME), device=pl.col("device").cast(pl.Int32)
    )


def _memory(frame: pl.DataFrame, base_ns: int) -> pl.DataFrame:
    device_type = pl.col("device_type").replace_strict(_DEVICE_TYPES, default="unknown", return_dtype=pl.String).cast(NAME)
    return frame.with_columns(
        _nanoseconds("ts", base_ns).alias("time_ns"),
        device_type.alias("device_type"),
        pl.col("device").cast(pl.Int32, strict=False),
        pl.lit(0, dtype=pl.Int64).alias("stream"),
        pl.lit("PTA", dtype=NAME).alias("component"),
    )


def _flows(columns: EventColumns, base_ns: int, tasks: pl.DataFrame | None, log: HealthLog) -> pl.DataFrame:
    starts, ends = columns.frame("flow_starts"), columns.frame("flow_ends")
    if not starts.height and not ends.height:
        return pl.DataFrame()
    starts, ends = _flow_halves(starts, "from", base_ns), _flow_halves(ends, "to", base_ns)
    launched = tasks["correlation"] if tasks is not None and "correlation" in tasks.columns else pl.Series(dtype=pl.Int64)
    log.extend(unmatched_flows(starts, ends, launched))
    keys = ["kind", "flow_id"]
    joined = starts.unique(keys, keep="first").join(ends.unique(keys, keep="first"), on=keys, how="inner")
    return joined.select(
        kind="kind",
        flow_id="flow_id",
        from_ns="from_ns",
        from_pid="from_pid",
        from_tid="from_tid",
        to_ns="to_ns",
        to_pid="to_pid",
        to_tid="to_tid",
    ).sort("from_ns", "flow_id")


def _flow_halves(frame: pl.DataFrame, end: str, base_ns: int) -> pl.DataFrame:
    """One end of each arrow: kind, flow_id, time and thread, in order of time."""
    number = pl.Int64()
    if not frame.height:
        columns = {f"{end}_{column}": number for column in ("pid", "tid", "ns")}
        return pl.DataFrame(schema={"kind": NAME, "flow_id": number, **columns})
    half = frame.select(
        pl.col("cat").cast(NAME).alias("kind"),
        pl.col("id").alias("flow_id"),
        pl.col("pid").alias(f"{end}_pid"),
        pl.col("tid").alias(f"{end}_tid"),
        _nanoseconds("ts", base_ns).alias(f"{end}_ns"),
    )
    return half.sort(f"{end}_ns", f"{end}_pid", f"{end}_tid")


def _meta(members: dict[str, Any], base_ns: int) -> pl.DataFrame:
    values = {key: value for key, value in members.items() if key != "traceEvents"}
    values["base_time_ns"] = base_ns
    distributed = members.get("distributedInfo")
    if isinstance(distributed, dict) and isinstance(distributed.get("rank"), int):
        values["rank"] = distributed["rank"]
        values["world_size"] = distributed.get("world_size")
    return meta_frame(values)


def meta_frame(values: dict[str, Any]) -> pl.DataFrame:
    """A dictionary as ``meta`` rows."""
    rows = [(key, json.dumps(value, ensure_ascii=False)) for key, value in values.items()]
    return pl.DataFrame(rows, schema={"key": pl.String, "value": pl.String}, orient="row")
