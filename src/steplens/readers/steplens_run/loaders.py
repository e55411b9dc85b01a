"""Reads what steplens records of data loaders: the batches of each, who made them and how the loop got them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.common import rundir
from steplens.common.storage.files import read_bytes
from steplens.readers.common.side_files import as_list, read_json, report_left_out
from steplens.readers.steplens_run.run_files import loader_files
from steplens.trace.health import DATA_LOADING, INFO, WARNING, HealthLog
from steplens.trace.schema import NAME, SCHEMA

Rows = npt.NDArray[np.int64]

#: what the rows of both kinds hold, in order
STAGE_COLUMNS = [
    "loader", "epoch", "batch", "worker", "start_ns", "collate_ns", "end_ns", "transform_ns", "transforms", "failed", "cpu_ns",
    "pickle_start_ns", "pickle_end_ns", "pid",
]  # fmt: skip
BATCH_COLUMNS = [
    "loader", "epoch", "batch", "next_start_ns", "next_end_ns", "waited_ns", "ready", "receive_start_ns", "receive_end_ns",
    "pin_end_ns",
]  # fmt: skip
_KEY = ["loader", "epoch", "batch"]
#: operations of a loader's tree: its numbers are these beyond ``_OPERATIONS`` times that of the loader
ITERATOR, PIN, TRANSFER, COLLATE, TRANSFORM, FETCH = range(6)
_OPERATIONS = 8
_TYPES = ("Iterator", "Pin", "Transfer", "Collate", "Transform", "Fetch")

_ROWS_LIMIT = 512 << 20
#: more than a program has
_MOST_LOADERS, _MOST_WORKERS = 1 << 16, 1 << 16
#: later than any time that is written in ns
_FOREVER = 1 << 62


def tables(raw: Path, health: HealthLog) -> dict[str, pl.DataFrame]:
    """The raw tables ``pipeline_loaders``, ``_epochs``, ``_tasks``, ``_ops``, ``_samples`` and ``_batches``, if there are any.

    Args:
        raw: the folder of the raw data.
        health: gets what is damaged or missing.
    """
    if not loader_files(raw):
        return {}
    described = read_json(raw / rundir.LOADERS, health)
    stages, batches = _read_rows(raw / rundir.LOADER_ROWS, described, health)
    loaders = _loader_rows(described, health)
    loader_numbers = loaders["loader"].to_numpy()
    made = _made_batches(stages, loader_numbers, health)
    got = _received_batches(batches, loader_numbers, health)
    if not made.height and not got.height:
        return {}
    tasks = got.join(made, on=_KEY, how="full", coalesce=True).sort(*_KEY)
    _report_missing(tasks, loaders, health)
    transformed = pl.lit(tasks.filter(pl.col("transforms") > 0)["loader"].unique()).implode()
    loaders = loaders.with_columns(transform=pl.col("transform") | pl.col("loader").is_in(transformed))
    loader_tables = {
        "pipeline_loaders": loaders,
        "pipeline_epochs": _epoch_rows(described, loader_numbers, health),
        "pipeline_tasks": tasks,
        "pipeline_ops": _loader_operations(loaders),
        "pipeline_samples": _queue_samples(got),
        "pipeline_batches": _batch_rows(got, loaders),
    }
    return {name: frame for name, frame in loader_tables.items() if frame.height}


def _read_rows(path: Path, described: Mapping[str, Any], health: HealthLog) -> tuple[Rows, Rows]:
    """The rows of both kinds; none where the file and its description do not fit together."""
    empty = np.empty((0, len(STAGE_COLUMNS)), np.int64), np.empty((0, len(BATCH_COLUMNS)), np.int64)
    counts = [_to_number(described.get(name)) for name in ("stages", "batches")]
    try:
        size = path.stat().st_size
        if size > _ROWS_LIMIT:
            raise ValueError("larger than a file of its kind can be")
        if described.get("stage_columns") != STAGE_COLUMNS or described.get("batch_columns") != BATCH_COLUMNS:
            raise ValueError(f"{rundir.LOADERS} says that its rows hold something else")
        made, got = (_ROWS_LIMIT if count is None else count for count in counts)
        if made >= _ROWS_LIMIT or got >= _ROWS_LIMIT:
            raise ValueError(f"{rundir.LOADERS} does not say how many rows it has")
        widths = (len(STAGE_COLUMNS), len(BATCH_COLUMNS))
        numbers = np.frombuffer(read_bytes(path)[: size // 8 * 8] or bytes(8), dtype="<i8").astype(np.int64)[: size // 8]
        lost = made * widths[0] + got * widths[1] - size / 8
        if lost > 0:
            message = f"{path.name} is cut off, so that batches are missing"
            health.add("truncated_side_file", WARNING, max(1, int(lost // widths[1])), message, DATA_LOADING)
        border = made * widths[0]
        parts = numbers[:border], numbers[border : border + got * widths[1]]
        first, second = (part[: len(part) // width * width].reshape(-1, width) for part, width in zip(parts, widths, strict=True))
        return first, second
    except (OSError, ValueError) as error:
        health.add("damaged_side_file", WARNING, 1, f"{path.name} cannot be used ({error})", DATA_LOADING)
        return empty


def _made_batches(rows: Rows, known: Rows, health: HealthLog) -> pl.DataFrame:
    """Batches as workers, or the loop itself, made them; ``cpu_ns`` per batch."""
    frame = pl.DataFrame(rows, schema=dict.fromkeys(STAGE_COLUMNS, pl.Int64), orient="row")
    # a batch whose samples could not be read was never collated
    collate = pl.when(pl.col("collate_ns") == 0).then("start_ns").otherwise("collate_ns")
    good = _is_key(known) & _are_times("start_ns", "end_ns") & collate.is_between("start_ns", "end_ns")
    good &= pl.col("worker").is_between(-1, _MOST_WORKERS) & pl.col("failed").is_between(0, 1)
    good &= pl.col("transform_ns").is_between(0, pl.col("end_ns") - pl.col("start_ns"))
    good &= pl.all_horizontal(pl.col("cpu_ns", "pid").is_between(0, _FOREVER)) & pl.col("transforms").is_between(-1, _FOREVER)
    frame = _valid_batches(frame, good, health)
    pickled = _are_times("pickle_start_ns", "pickle_end_ns")
    used = pl.col("cpu_ns").diff().over("loader", "worker", "pid", order_by="end_ns")
    return frame.with_columns(
        pl.when(pl.col("collate_ns") > 0).then("collate_ns"),
        # short transforms are not timed in every batch
        pl.when(pl.col("transforms") >= 0).then("transform_ns"),
        pl.when(pl.col("transforms") >= 0).then("transforms"),
        pl.when(pl.col("worker") >= 0).then("worker"),
        pl.col("failed").cast(pl.Boolean),
        pl.when(pickled).then("pickle_start_ns"),
        pl.when(pickled).then("pickle_end_ns"),
        # 0 of a loop that makes its batches: recorded before that was
        cpu_ns=pl.when((pl.col("worker") >= 0) | (pl.col("cpu_ns") > 0)).then(pl.when(used >= 0).then(used)),
    )


def _received_batches(rows: Rows, known: Rows, health: HealthLog) -> pl.DataFrame:
    """Batches as the loop got them."""
    frame = pl.DataFrame(rows, schema=dict.fromkeys(BATCH_COLUMNS, pl.Int64), orient="row")
    length = pl.col("next_end_ns") - pl.col("next_start_ns")
    good = _is_key(known) & _are_times("next_start_ns", "next_end_ns") & pl.col("waited_ns").is_between(0, length)
    good &= pl.col("ready") <= _FOREVER
    frame = _valid_batches(frame, good, health)
    received = _are_times("receive_start_ns", "receive_end_ns")
    return frame.with_columns(
        pl.when(pl.col("ready") >= 0).then("ready"),
        pl.when(received).then("receive_start_ns"),
        pl.when(received).then("receive_end_ns"),
        pl.when(pl.col("pin_end_ns").is_between(1, _FOREVER)).then("pin_end_ns"),
    ).rename({"waited_ns": "wait_ns"})


def _is_key(known: Rows) -> pl.Expr:
    listed = pl.lit(pl.Series(known, dtype=pl.Int64)).implode()
    return pl.col("loader").is_in(listed) & pl.col("epoch").is_between(0, _FOREVER) & pl.col("batch").is_between(0, _FOREVER)


def _are_times(start: str, end: str) -> pl.Expr:
    return (pl.col(start) > 0) & (pl.col(start) <= pl.col(end)) & (pl.col(end) < _FOREVER)


def _valid_batches(frame: pl.DataFrame, good: pl.Expr, health: HealthLog) -> pl.DataFrame:
    """The rows that make sense, each batch once."""
    valid = frame.filter(good).unique(_KEY, keep="first", maintain_order=True)
    report_left_out(frame.height - valid.height, f"batches in {rundir.LOADER_ROWS}", health, DATA_LOADING)
    return valid


def _report_missing(tasks: pl.DataFrame, loaders: pl.DataFrame, health: HealthLog) -> None:
    """Say of which batches that the loop got nobody knows how they were made."""
    with_workers = loaders.filter(pl.col("workers") > 0)["loader"].implode()
    got = tasks.filter(pl.col("loader").is_in(with_workers) & pl.col("next_start_ns").is_not_null())
    first = pl.col("next_start_ns").filter(pl.col("start_ns").is_not_null()).min().over("loader")
    ahead = loaders.select(pl.col("loader").cast(pl.Int64), ahead=pl.col("queue_capacity").fill_null(0))
    missing = got.with_columns(first=first).filter(pl.col("start_ns").is_null()).join(ahead, on="loader")
    # in a short window there may be none but those that workers had made ahead
    short = pl.col("first").is_null() & (pl.len().over("loader") <= pl.col("ahead"))
    early = missing.filter((pl.col("next_start_ns") < pl.col("first")) | short).height
    if early:
        message = "batches were made before their workers could be told to record; how is not known"
        health.add("loader_reached_late", INFO, early, message)
    if missing.height > early:
        message = "batches have no record of the worker that made them, so times of its stages are incomplete"
        health.add("loader_records_missing", WARNING, missing.height - early, message, DATA_LOADING)


# --- what there is


def _loader_rows(described: Mapping[str, Any], health: HealthLog) -> pl.DataFrame:
    listed = as_list(described.get("loaders"))
    rows: dict[int, dict[str, Any]] = {}
    for item in listed:
        number = item.get("loader") if isinstance(item, dict) else None
        workers = item.get("workers") if isinstance(item, dict) else None
        if not _is_number(number, _MOST_LOADERS) or not _is_number(workers, _MOST_WORKERS) or number in rows:
            continue
        rows[number] = {
            "loader": number,
            "workers": workers,
            "queue_capacity": _to_number(item.get("capacity")),
            **{name: _to_number(item.get(name)) for name in ("batch_size", "prefetch_factor")},
            **{name: _to_text(item.get(name)) for name in ("dataset", "collate", "start_method")},
            **{name: _to_boolean(item.get(name)) for name in ("iterable", "persistent_workers", "pin_memory", "in_order")},
            "transform": item.get("transform") is True,
        }
    report_left_out(len(listed) - len(rows), f"data loaders in {rundir.LOADERS}", health, DATA_LOADING)
    return pl.DataFrame([rows[number] for number in sorted(rows)], schema=SCHEMA["pipeline_loaders"])


def _epoch_rows(described: Mapping[str, Any], known: Rows, health: HealthLog) -> pl.DataFrame:
    listed, numbers = as_list(described.get("epochs")), set(known.tolist())
    rows = [row for row in listed if isinstance(row, list) and len(row) == 5 and all(_is_number(cell, _FOREVER) for cell in row)]
    rows = [row for row in rows if row[0] in numbers]
    report_left_out(len(listed) - len(rows), f"epochs in {rundir.LOADERS}", health, DATA_LOADING)
    frame = pl.DataFrame(rows, schema=dict.fromkeys(SCHEMA["pipeline_epochs"], pl.Int64), orient="row")
    times = ("start_ns", "workers_ns", "first_batch_ns")
    return frame.with_columns(pl.when(pl.col(name) > 0).then(name) for name in times).unique(
        ["loader", "epoch"], keep="first", maintain_order=True
    )


def _loader_operations(loaders: pl.DataFrame) -> pl.DataFrame:
    """Each loader as operations, from the iterator back to reading samples; see ``pipeline_ops``."""
    rows: list[dict[str, Any]] = []
    for loader in loaders.iter_rows(named=True):
        workers = loader["workers"]
        parts = [ITERATOR]
        parts += [PIN] if loader["pin_memory"] else []
        parts += [TRANSFER] if workers else []
        parts += [COLLATE, *([TRANSFORM] if loader["transform"] else []), FETCH]
        first = _OPERATIONS * loader["loader"]
        for parent_part, part in zip([None, *parts], parts, strict=False):
            rows.append(
                {
                    "id": first + part,
                    "type": _TYPES[part],
                    "workers": workers if workers and part in (COLLATE, TRANSFORM, FETCH) else 1,
                    "parent": None if parent_part is None else first + parent_part,
                    "queue_capacity": loader["queue_capacity"] if part == COLLATE else None,
                }
            )
    return pl.DataFrame(rows, schema=SCHEMA["pipeline_ops"])


def _queue_samples(got: pl.DataFrame) -> pl.DataFrame:
    """How many batches were ready whenever a loop asked for one."""
    return (
        got.drop_nulls("ready")
        .sort("next_start_ns")
        .select(
            scope=pl.lit("op", dtype=NAME),
            op=(pl.col("loader") * _OPERATIONS + COLLATE).cast(pl.Int32),
            name=pl.lit("queue_size", dtype=NAME),
            unit=pl.lit("batches", dtype=NAME),
            sample=pl.int_range(pl.len(), dtype=pl.Int32).over("loader"),
            time_ns="next_start_ns",
            value=pl.col("ready").cast(pl.Float64),
        )
    )


def _batch_rows(got: pl.DataFrame, loaders: pl.DataFrame) -> pl.DataFrame:
    length = pl.col("next_end_ns") - pl.col("next_start_ns")
    loader_names = loaders.select(pl.col("loader").cast(pl.Int64), "dataset", "queue_capacity")
    return (
        got.join(loader_names, on="loader", how="left")
        .sort("next_start_ns")
        .select(
            kind=pl.lit("iterate", dtype=NAME),
            name="dataset",
            batch="batch",
            time_ns="next_end_ns",
            get_ns=length,
            total_ns=length,
            wait_ns="wait_ns",
            queue_size="ready",
            queue_capacity="queue_capacity",
        )
    )


def _is_number(value: Any, limit: int) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < limit


def _to_number(value: Any) -> int | None:
    return value if _is_number(value, _FOREVER) else None


def _to_text(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) and value else None


def _to_boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None
