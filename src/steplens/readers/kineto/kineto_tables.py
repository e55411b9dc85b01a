"""Raw tables of the host from the columns of a Kineto trace: operator calls, Python frames, memory, arrows, threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from steplens.formats.kineto import DEVICE_TYPES
from steplens.readers.common import json_decoder
from steplens.readers.kineto.kineto_events import EventColumns
from steplens.readers.kineto.kineto_mapped_memory import with_mapped_memory
from steplens.trace.building.checks import unmatched_flows
from steplens.trace.building.distinct import convert_distinct
from steplens.trace.building.lookup import first_rows
from steplens.trace.health import HealthLog
from steplens.trace.schema import NAME, SCOPE_BACKWARD, SCOPE_FUNCTION, SCOPE_USER

#: of the ranges that autograd's engine leaves around each call of the backward pass
BACKWARD_PREFIX = "autograd::engine::evaluate_function"
_OTHER_END = {"time_ns": "time_ns_to", "pid": "pid_to", "tid": "tid_to"}


def host_tables(columns: EventColumns, base_ns: int) -> dict[str, pl.DataFrame]:
    """``ops``, ``python``, ``memory`` and ``threads``; the columns they are made of are forgotten in ``columns``."""
    raw: dict[str, pl.DataFrame] = {}
    operators = to_absolute_times(columns.take("operators"), base_ns)
    if operators.height:
        raw["ops"] = _operator_calls(operators)
    python = to_absolute_times(columns.take("python"), base_ns)
    if python.height:
        raw["python"] = python
    memory = to_absolute_times(columns.take("memory"), base_ns)
    if memory.height:
        raw["memory"] = _memory_events(memory)
    raw["threads"] = pl.DataFrame(
        [(pid, tid, name) for (pid, tid), name in sorted({**columns.lane_names, **columns.thread_names}.items())],
        schema={"pid": pl.Int64, "tid": pl.Int64, "name": pl.String},
        orient="row",
    )
    return raw


def to_absolute_times(frame: pl.DataFrame, base_ns: int) -> pl.DataFrame:
    """Times since the Unix epoch.

    Args:
        frame: any of start_ns, end_ns, time_ns, relative to ``base_ns``.
        base_ns: base time of the file.
    """
    if not frame.height:
        return frame
    times = [name for name in ("start_ns", "end_ns", "time_ns") if name in frame.columns]
    return frame.with_columns(pl.col(times) + base_ns) if base_ns else frame


def _operator_calls(frame: pl.DataFrame) -> pl.DataFrame:
    backward = pl.col("name").cat.starts_with(BACKWARD_PREFIX)
    if "forward_tid" in frame.columns:
        backward |= pl.col("forward_tid").fill_null(0) > 0
    scope = pl.when("annotation").then(SCOPE_USER).when(backward).then(SCOPE_BACKWARD).otherwise(SCOPE_FUNCTION)
    frame = frame.with_columns(scope=scope.cast(pl.UInt8)).drop("annotation")
    for column, convert in (
        ("input_shapes", shapes_text),
        ("input_types", types_text),
        ("arguments", _nonempty_text),
        ("stack", _nonempty_text),
    ):
        if column in frame.columns:
            frame = frame.with_columns(convert_distinct(frame[column], convert))
    return frame


def shapes_text(raw: str) -> str | None:
    """Kineto's ``Input Dims`` (``[[2, 3], []]``) as ``2,3;``: dimensions by comma, inputs by semicolon; null if empty."""
    return _joined_text(raw, _dimensions_text)


def _dimensions_text(item: Any) -> str:
    if not isinstance(item, list):
        return ""
    if item and isinstance(item[0], list):
        return "[" + ";".join(_dimensions_text(inner) for inner in item) + "]"
    return ",".join(str(number) for number in item)


def types_text(raw: str) -> str | None:
    """Kineto's ``Input type`` (``["float", ""]``) as ``float;``; null if empty."""
    return _joined_text(raw, _type_name)


def _type_name(item: Any) -> str:
    if isinstance(item, list):
        return "[" + ";".join(_type_name(inner) for inner in item) + "]"
    return str(item)


def _joined_text(raw: str, convert: Callable[[Any], str]) -> str | None:
    try:
        value = json_decoder.decode(raw) if raw else None
    except ValueError:
        return None
    return ";".join(map(convert, value)) if isinstance(value, list) and value else None


def _nonempty_text(raw: str) -> str | None:
    return raw or None


def _memory_events(frame: pl.DataFrame) -> pl.DataFrame:
    device_type = pl.col("device_type").replace_strict(
        [*DEVICE_TYPES],
        pl.Series([*DEVICE_TYPES.values()], dtype=NAME),
        default=pl.lit("unknown", dtype=NAME),
        return_dtype=NAME,
    )
    labelled = frame.with_columns(
        device_type.alias("device_type"),
        pl.col("device").cast(pl.Int32, strict=False),
        pl.lit(0, dtype=pl.Int64).alias("stream"),
        pl.lit("PTA", dtype=NAME).alias("component"),
    )
    return with_mapped_memory(labelled)


def flow_arrows(columns: EventColumns, base_ns: int, launched: pl.Series, log: HealthLog) -> pl.DataFrame:
    """Arrows that have both ends; of several with the same id the first.

    Args:
        columns: the columns of the arrows are forgotten there.
        base_ns: base time of the file.
        launched: correlations of the device tasks, which are the ids of the arrows to them.
        log: takes what has one end only.
    """
    starts, ends = columns.take("flow_starts"), columns.take("flow_ends")
    pairs, lone_starts, lone_ends = [], [], []
    for category in sorted({text for half in (starts, ends) if half.height for text in half["category"].unique()}):
        first, last = (_arrow_ends(half, category) for half in (starts, ends))
        row = first_rows(last["flow_id"], first["flow_id"])
        matched = row.is_not_null().to_numpy()
        place = row.drop_nulls().to_numpy()
        starting, ending = first[np.flatnonzero(matched)], last[place]
        # rows and columns by number and name: a query takes longer than the few arrows of a small trace
        pairs.append(pl.DataFrame([*starting.get_columns(), *(ending[name].alias(to) for name, to in _OTHER_END.items())]))
        lone_starts.append(first[np.flatnonzero(~matched)][["kind", "flow_id"]])
        lone = np.ones(last.height, dtype=bool)
        lone[place] = False
        lone_ends.append(last[np.flatnonzero(lone)][["kind", "flow_id"]])
    if not pairs:
        return pl.DataFrame()
    log.extend(unmatched_flows(pl.concat(lone_starts), pl.concat(lone_ends), launched))
    both = pl.concat(pairs)
    # each category is nearly in order, which a stable sort makes use of
    both = both[np.lexsort((both["flow_id"].to_numpy(), both["time_ns"].to_numpy()))]
    return both.select(
        "kind",
        "flow_id",
        from_ns=both["time_ns"] + base_ns,
        from_pid="pid",
        from_tid="tid",
        to_ns=both["time_ns_to"] + base_ns,
        to_pid="pid_to",
        to_tid="tid_to",
    )


def _arrow_ends(frame: pl.DataFrame, category: str) -> pl.DataFrame:
    """The starts or the ends of the arrows of one category; of several with the same id the earliest."""
    if not frame.height:
        number = pl.Int64()
        return pl.DataFrame(schema={"kind": NAME, "flow_id": number, "pid": number, "tid": number, "time_ns": number})
    half = frame.select("pid", "tid", "time_ns", kind="category", flow_id="id")
    is_half = ((half["kind"] == category) & half["flow_id"].is_not_null()).fill_null(False)
    if not is_half.all():
        half = half.filter(is_half)
    if half["flow_id"].n_unique() < half.height:
        half = half.sort("time_ns", "pid", "tid").unique("flow_id", keep="first", maintain_order=True)
    return half
