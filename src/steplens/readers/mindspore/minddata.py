"""Reads what MindSpore's data pipeline records of itself: operations, queues, batches and CPU use.

Host times of these files are milliseconds of a steady clock, those of ``minddata_aicpu`` microseconds of the device's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from steplens.common import json_text
from steplens.common.storage.files import open_file
from steplens.formats.mindspore import PIPELINE_FILES, pattern
from steplens.readers.common.side_files import as_list, as_object
from steplens.readers.common.trace_rows import meta_rows
from steplens.readers.mindspore.folders import list_children
from steplens.readers.mindspore.legacy_aicpu import receive_rows
from steplens.readers.mindspore.legacy_files import read_up_to
from steplens.readers.mindspore.minddata_cpu import cpu_samples, json_object, number_column, sample_rows
from steplens.trace.health import ERROR, HOST_AGAINST_DEVICE, INFO, STEP_PHASES, WARNING, HealthLog
from steplens.trace.schema import SCHEMA

_NAMES = {family: pattern(name) for family, name in PIPELINE_FILES.items()}

_TEXT_LIMIT_BYTES = 1 << 30
_OPERATION_LIMIT = 100_000
_ID_LIMIT = 1 << 31

_BATCH_ROW = r"^\s*(\d{1,9})\s+(\d{1,18})\s+(\d{1,18})\s+(-?\d{1,15}(?:\.\d+)?)(?:\s+(\d{1,15}))?\s*$"
_PIPELINE, _PUSH, _TOTAL = 0, 1, 2
_RECEIVE_ROW = re.compile(r"^\s*(\S+)\s+(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s*$")

_OPS = {**SCHEMA["pipeline_ops"], "sampling_ms": pl.Float64()}


def find_files(path: Path) -> dict[tuple[str, int], Path]:
    """The data pipeline's files of a folder: (family, rank) -> file."""
    file_of: dict[tuple[str, int], Path] = {}
    for file in list_children(path):
        for family, expression in _NAMES.items():
            name = expression.match(file.name)
            if name and file.is_file():
                file_of[family, int(name[1])] = file
    return file_of


def detect(path: Path) -> bool:
    """Whether ``path`` is a folder that holds files of a data pipeline."""
    return path.is_dir() and bool(find_files(path))


def ranks(path: Path) -> list[int]:
    """The ranks whose pipelines a folder holds."""
    return sorted({rank for _, rank in find_files(path)})


def sources(path: Path, rank: int | None = None) -> list[Path]:
    """The files that decide what is read of a rank (of all ranks when None)."""
    return [file for (_, number), file in find_files(path).items() if rank in (None, number)]


def tables(path: Path, rank: int, health: HealthLog, *, clock_offset_ns: int | None = None) -> dict[str, pl.DataFrame]:
    """The raw tables of one rank's pipeline.

    Args:
        path: folder of its files.
        rank: the rank.
        health: gets what is wrong.
        clock_offset_ns: Unix time minus the steady clock of the host; None where nothing tells, then times are steady.

    Returns:
        Those of ``pipeline_ops``, ``pipeline_samples``, ``pipeline_batches``, ``source_tables`` (the summary of MindSpore's own
        analyser) and ``meta`` (``pipeline_sampling_interval_ms``, ``cpu_processor_num``) that have rows.
    """
    files = {family: file for (family, number), file in find_files(path).items() if number == rank}
    operations = sample_rows([])
    meta: dict[str, Any] = {}
    result: dict[str, pl.DataFrame] = {}
    parts: list[pl.DataFrame] = []
    time_ns = pl.Series(dtype=pl.Int64)
    if "cpu" in files:
        cpu, time_ns, processors = cpu_samples(files["cpu"], health, clock_offset_ns or 0)
        parts.append(cpu)
        if processors is not None:
            meta["cpu_processor_num"] = processors
    if "pipeline" in files:
        operations, sizes = read_pipeline(files["pipeline"], health)
    if "raw" in files and not operations.height:
        operations, sizes = read_pipeline_raw(files["raw"], health)
    if operations.height:
        parts.append(_join_sample_times(sizes, time_ns))
        interval = operations["sampling_ms"][0]
        if interval is not None:
            meta["pipeline_sampling_interval_ms"] = interval
        result["pipeline_ops"] = operations.drop("sampling_ms")
    result["pipeline_samples"] = pl.concat(parts) if parts else pl.DataFrame()
    batches = [read_batches(files[kind], kind, health, clock_offset_ns or 0) for kind in ("iterate", "send") if kind in files]
    if "receive" in files or "receive_ns" in files:
        batches.append(_read_receive(files, health))
    result["pipeline_batches"] = pl.concat(batches, how="diagonal_relaxed") if batches else pl.DataFrame()
    if "summary" in files and (summary := json_object(files["summary"], health)):
        record = json.dumps(summary, ensure_ascii=False)
        result["source_tables"] = pl.DataFrame(
            {"table": ["minddata_pipeline_summary"], "row": [0], "record": [record]}, schema=SCHEMA["source_tables"]
        )
    result["meta"] = meta_rows(meta)
    result = {name: frame for name, frame in result.items() if frame.height}
    timed = [result[name]["time_ns"] for name in ("pipeline_samples", "pipeline_batches") if name in result]
    if clock_offset_ns is None and any(times.null_count() < len(times) for times in timed):
        message = "times of the data pipeline are of clocks that nothing ties to Unix time"
        health.add("pipeline_clock", INFO, 1, message, HOST_AGAINST_DEVICE)
    return result


def read_pipeline(path: Path, health: HealthLog) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Operations and queue samples of ``pipeline_profiling_<rank>.json``.

    Returns:
        rows of ``pipeline_ops`` by id, with sampling_ms; and rows of ``pipeline_samples``.
    """
    pipeline_object = json_object(path, health)
    described = as_list(pipeline_object.get("op_info"))
    rows: dict[int, dict[str, Any]] = {}
    children: list[tuple[int, Any]] = []
    parts = []
    damaged = 0
    for operation in described[:_OPERATION_LIMIT]:
        number = operation.get("op_id") if isinstance(operation, dict) else None
        if type(number) is not int or not 0 <= number < _ID_LIMIT or number in rows:
            damaged += 1
            continue
        queue = as_object(as_object(operation.get("metrics")).get("output_queue"))
        rows[number] = {
            "id": number,
            "type": str(operation.get("op_type", "")),
            "workers": _to_small_integer(operation.get("num_workers")),
            "queue_capacity": _to_small_integer(queue.get("length")),
        }
        children.append((number, operation.get("children")))
        if queue:
            parts.append(sample_rows([("op", number, "queue_size", "batches", number_column(queue.get("size")))]))
    interval = pipeline_object.get("sampling_interval")
    if damaged or not rows:
        message = f"operations in {path.name} are damaged or there are none"
        health.add("damaged_records", WARNING, max(damaged, 1), message, STEP_PHASES)
    frame = _operation_rows(rows, children, interval)
    return frame, pl.concat([sample_rows([]), *parts])


def _to_small_integer(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < _ID_LIMIT else None


def _operation_rows(rows: Mapping[int, dict[str, Any]], children: list[tuple[int, Any]], interval: Any) -> pl.DataFrame:
    for parent, children_of in children:
        for child in as_list(children_of):
            if type(child) is int and child in rows and child != parent:
                rows[child].setdefault("parent", parent)
    sampling = float(interval) if type(interval) in (int, float) and 0 <= interval < _ID_LIMIT else None
    complete = [{**row, "parent": row.get("parent"), "sampling_ms": sampling} for _, row in sorted(rows.items())]
    return pl.DataFrame(complete, schema=_OPS)


def read_pipeline_raw(path: Path, health: HealthLog) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Operations and queue samples of ``minddata_pipeline_raw_<rank>.csv``, which leaves out operations without a queue."""
    from steplens.readers.common.ascend_csv_file import has_required_columns, read_table

    table = read_table([path], health, STEP_PHASES)
    if not has_required_columns(table, path.name, health, STEP_PHASES, ("op_id",), ("op_type",)):
        return pl.DataFrame(schema=_OPS), sample_rows([])
    rows: dict[int, dict[str, Any]] = {}
    parts = []
    columns = [table.integer(name).to_list() for name in ("op_id", "num_workers", "output_queue_length", "parent_id")]
    sizes, intervals = table.text("output_queue_size"), table.number("sample_interval")
    types = table.text("op_type").to_list()
    for place, (number, workers, length, parent) in enumerate(zip(*columns, strict=True)):
        if number is None or not 0 <= number < _ID_LIMIT or number in rows or len(rows) >= _OPERATION_LIMIT:
            continue
        rows[number] = {
            "id": number,
            "type": types[place],
            "workers": _to_small_integer(workers),
            "queue_capacity": _to_small_integer(length),
        }
        if _to_small_integer(parent) is not None:
            rows[number]["parent"] = parent
        if sizes[place] is not None:
            try:
                listed = json_text.loads(sizes[place])
            except ValueError:
                listed = None
                health.add("damaged_records", WARNING, 1, f"queue sizes in {path.name} are damaged", STEP_PHASES)
            parts.append(sample_rows([("op", number, "queue_size", "batches", number_column(listed))]))
    interval = intervals.drop_nulls()
    return _operation_rows(rows, [], interval[0] if len(interval) else None), pl.concat([sample_rows([]), *parts])


def _join_sample_times(sizes: pl.DataFrame, time_ns: pl.Series) -> pl.DataFrame:
    """Queue samples with the times of the CPU's samples, which one thread takes together; only where their counts agree."""
    counts = sizes.group_by("op").len()["len"].unique().to_list()
    if counts != [len(time_ns)]:
        return sizes
    return sizes.with_columns(time_ns=time_ns.gather(sizes["sample"]))


def read_batches(path: Path, kind: str, health: HealthLog, clock_offset_ns: int = 0) -> pl.DataFrame:
    """Batches of ``dataset_iterator_profiling`` ("iterate") or ``device_queue_profiling`` ("send"); rows of ``pipeline_batches``.

    Lines are ``type extra batch value time``: type 0 is a time in ms (extra 0 to get the batch out of the pipeline, 1 to hand
    it on, 2 of the whole batch), type 1 the number of elements in the queue (extra: its capacity). The oldest files have no
    time.
    """
    fields = _read_lines(path, health).str.extract_groups(_BATCH_ROW).struct.unnest()
    names = dict(zip(fields.columns, ("type", "extra", "batch", "value", "time"), strict=True))
    lines = fields.rename(names)
    batch_lines = lines.drop_nulls("batch")
    if lost := lines.height - batch_lines.height:
        health.add("damaged_records", WARNING, lost, f"lines of {path.name} are damaged", STEP_PHASES)
    batch_lines = batch_lines.select(
        pl.col("type", "extra", "batch").cast(pl.Int64),
        value=pl.col("value").cast(pl.Float64),
        time=pl.col("time").cast(pl.Int64) * 1_000_000 + clock_offset_ns,
    )
    is_time, is_queue = pl.col("type") == 0, pl.col("type") == 1

    def batch_duration(extra: int) -> pl.Expr:
        return (pl.col("value").filter(is_time & (pl.col("extra") == extra)).first() * 1e6).cast(pl.Int64, strict=False)

    repeated = batch_lines.group_by("type", pl.when(is_time).then("extra").otherwise(0), "batch").len().filter(pl.col("len") > 1)
    if repeated.height:
        message = f"batches occur more than once in {path.name}; the first of each is used"
        health.add("repeated_batches", WARNING, repeated.height, message, STEP_PHASES)
    grouped = batch_lines.group_by("batch").agg(
        time_ns=pl.col("time").max(),
        get_ns=batch_duration(_PIPELINE),
        push_ns=batch_duration(_PUSH),
        total_ns=batch_duration(_TOTAL),
        queue_size=pl.col("value").filter(is_queue).first().cast(pl.Int64, strict=False),
        queue_capacity=pl.col("extra").filter(is_queue).first(),
    )
    return grouped.sort("batch").with_columns(kind=pl.lit(kind))


def _read_receive(files: Mapping[str, Path], health: HealthLog) -> pl.DataFrame:
    path = files.get("receive") or files["receive_ns"]
    matches = [_RECEIVE_ROW.match(line) for line in _read_lines(path, health).to_list()]
    rows = receive_rows(matches, health)
    if "receive" in files:
        return rows
    return rows.with_columns(pl.col("time_ns", "wait_ns") // 1000)


def _read_lines(path: Path, health: HealthLog) -> pl.Series:
    """The lines of a text file that are not blank."""
    try:
        with open_file(path) as handle:
            text = read_up_to(handle, _TEXT_LIMIT_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        health.add("unreadable_file", ERROR, 1, f"{path.name} cannot be read ({error.strerror or error})", STEP_PHASES)
        text = ""
    return pl.Series("line", [line for line in text.split("\n") if line.strip()], dtype=pl.String)
