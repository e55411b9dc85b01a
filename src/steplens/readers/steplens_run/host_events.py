"""Reads what steplens records beside Kineto: marks of the user, samples of the host, calls to the operating system, loaders."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import polars as pl

from steplens.common import rundir
from steplens.common.storage.files import read_bytes
from steplens.formats.ascend_terms import OS_LAYER
from steplens.readers.common.side_files import as_list, read_json, report_left_out
from steplens.readers.common.trace_rows import meta_rows
from steplens.readers.steplens_run import loaders
from steplens.trace.health import COUNTERS, INFO, RUNTIME_CALLS, USER_MARKS, WARNING, HealthLog
from steplens.trace.schema import CHECKPOINT_BYTES, MARK_KINDS, NAME

#: what each row of the marks holds, in order
_COLUMNS = ["text", "kind", "start_ns", "end_ns", "tid", "stream"]
_MARKS_LIMIT = 64 << 20
_CALLS_LIMIT = 256 << 20

#: later than any time that is written in ns
_FOREVER = 1 << 62

#: samples that begin so much later than the window are worth a word
_LATE_NS = 100_000_000

#: a line of strace: thread, time, and a call that has ended; or the end of one that was begun in an earlier line
_CALL = (
    r"^(?<tid>\d{1,10}) +(?<s>\d{1,10})\.(?<ns>\d{9}) "
    r"(?:(?<name>\w+)\(|<\.\.\. (?<resumed>\w+) resumed>).*<(?<ds>\d{1,8})\.(?<dns>\d{9})>$"
)
#: the begin of a call, or one that never ended; or that a thread or process has ended
_OTHER = r"(?:<unfinished \.\.\.>|<detached \.\.\.>|\?)$|^\d+ +\d+\.\d+ (?:\+\+\+|---)"


def tables(raw: Path, host: dict[str, Any], pid: int | None, health: HealthLog) -> dict[str, pl.DataFrame]:
    """The raw tables ``marks``, ``counters``, ``api`` and ``pipeline_*``, as far as they were recorded.

    And ``meta`` with ``host_sampler_cost`` and ``checkpoint_bytes``.

    Args:
        raw: the folder of the raw data.
        host: what ``host_events.json`` holds.
        pid: the process that was recorded.
        health: gets what is damaged.
    """
    host_tables: dict[str, pl.DataFrame] = {}
    for name, frame in (
        *_read_marks(raw, pid, health).items(),
        *_read_samples(raw, host.get("collection"), health).items(),
        ("api", _system_calls(raw / rundir.SYSTEM_CALLS, pid, health)),
        *loaders.tables(raw, health).items(),
    ):
        if frame is not None and frame.height:
            host_tables[name] = pl.concat([host_tables[name], frame]) if name in host_tables else frame
    return host_tables


def _read_marks(raw: Path, pid: int | None, health: HealthLog) -> dict[str, pl.DataFrame]:
    """``marks``, and ``meta`` with the size of checkpoints where it is known."""
    path = raw / rundir.MARKS
    data = _read_file(path, _MARKS_LIMIT, health, USER_MARKS)
    if data is None:
        return {}
    rows = np.frombuffer(data, dtype="<i8", count=len(data) // 8 // len(_COLUMNS) * len(_COLUMNS)).reshape(-1, len(_COLUMNS))
    described = read_json(raw / rundir.MARK_TEXTS, health)
    texts = [_text_pair(item) for item in as_list(described.get("texts"))]
    domains = pl.Series([domain for domain, _ in texts], dtype=NAME)
    messages = pl.Series([message for _, message in texts], dtype=NAME)
    text, _, start, end, tid, stream = rows.T
    good = (text >= 0) & (text < len(texts)) & (start > 0) & (start <= end) & (end < _FOREVER)
    damaged = int((~good).sum()) + (len(data) % (8 * len(_COLUMNS)) > 0)
    report_left_out(damaged, f"marks in {path.name}", health, USER_MARKS)
    rows = rows[good]
    text, kind, start, end, tid, stream = rows.T
    kinds = pl.Series([*MARK_KINDS, None], dtype=NAME)
    number = pl.Series(text.astype(np.uint32))
    recorded, size = described.get("pid"), described.get(CHECKPOINT_BYTES)
    marks = pl.DataFrame(
        {
            "domain": domains.gather(number),
            "message": messages.gather(number),
            "start_ns": start,
            "end_ns": end,
            "tid": tid,
            "stream": pl.Series(stream).set(pl.Series(stream < 0), None),
            "kind": kinds.gather(pl.Series(np.where((kind >= 0) & (kind < len(MARK_KINDS)), kind, len(MARK_KINDS)))),
        }
    ).with_columns(pid=pl.lit(recorded if _is_number(recorded) else pid, dtype=pl.Int64))
    meta = {CHECKPOINT_BYTES: size} if _is_number(size) and size > 0 else {}
    return {"marks": marks, "meta": meta_rows(meta)}


def _text_pair(item: Any) -> tuple[str, str]:
    if isinstance(item, list) and len(item) == 2 and all(isinstance(part, str) for part in item):
        return item[0], item[1]
    return "", ""


def _read_samples(raw: Path, collection: Any, health: HealthLog) -> dict[str, pl.DataFrame]:
    """``counters``, and ``meta`` with what sampling has cost."""
    path = raw / rundir.HOST_SAMPLES
    if not path.is_file():
        return {}
    content = read_json(path, health)
    series = [_counter_rows(item) for item in as_list(content.get("series"))]
    frames = [frame for frame in series if frame is not None]
    report_left_out(len(series) - len(frames), f"counters in {path.name}", health, COUNTERS)
    dropped, late = content.get("dropped"), content.get("late_ns")
    if _is_number(dropped) and dropped > 0:
        message = "samples of the host are missing at the end, because there were too many"
        health.add("samples_dropped", WARNING, dropped, message, COUNTERS)
    if _is_number(late) and late >= _LATE_NS:
        message = f"samples of the host begin {late // 1_000_000} ms after the window; with warmup steps they begin with it"
        health.add("samples_late", INFO, 1, message, COUNTERS)
    cost = content.get("cost")
    sample_tables = {}
    if frames:
        sample_tables["counters"] = pl.concat(frames)
    if isinstance(cost, dict):
        if isinstance(collection, dict):
            cost = {**cost, "training_ns": collection.get("host_sampler_ns")}
        sample_tables["meta"] = meta_rows({"host_sampler_cost": cost})
    return sample_tables


def _counter_rows(series: Any) -> pl.DataFrame | None:
    """One counter; None when it is damaged."""
    if not isinstance(series, dict):
        return None
    times, values = as_list(series.get("time_ns")), as_list(series.get("value"))
    words = [series.get(key) for key in ("group", "name", "unit")]
    if len(times) != len(values) or not all(isinstance(word, str) and word for word in words):
        return None
    if not all(_is_number(time) and 0 < time < _FOREVER for time in times):
        return None
    if not all(type(value) in (int, float) and abs(value) < 1e300 for value in values):
        return None
    group, name, unit = (pl.lit(word, dtype=NAME) for word in words)
    columns = {"time_ns": pl.Series(times, dtype=pl.Int64), "value": pl.Series(values, dtype=pl.Float64)}
    return pl.DataFrame(columns).select("time_ns", "value", group=group, name=name, unit=unit)


def _system_calls(path: Path, pid: int | None, health: HealthLog) -> pl.DataFrame | None:
    """Calls that ended while they were recorded, from the file of strace."""
    data = _read_file(path, _CALLS_LIMIT, health, RUNTIME_CALLS)
    if data is None:
        return None
    lines = pl.DataFrame({"line": data.decode(errors="replace").splitlines()}, schema={"line": pl.String})
    parts = lines.select(pl.col("line").str.extract_groups(_CALL).alias("part"), pl.col("line")).unnest("part")
    possible = pl.col("s").cast(pl.Int64).is_between(pl.col("ds").cast(pl.Int64) + 1, _FOREVER // 1_000_000_000)
    strange = parts.filter(~pl.coalesce(possible, pl.col("line").str.contains(_OTHER))).height
    if strange:
        message = f"lines of {path.name} make no sense and were left out"
        health.add("damaged_side_file", WARNING, strange, message, RUNTIME_CALLS)

    def to_nanoseconds(seconds: str, fraction: str) -> pl.Expr:
        return pl.col(seconds).cast(pl.Int64) * 1_000_000_000 + pl.col(fraction).cast(pl.Int64)

    # A line that ends a call has the time of its end, and how long it took.
    ended = pl.col("name").is_null()
    return (
        parts.filter(possible)
        .with_columns(time=to_nanoseconds("s", "ns"), length=to_nanoseconds("ds", "dns"))
        .select(
            name=pl.coalesce("name", "resumed").cast(NAME),
            layer=pl.lit(OS_LAYER, dtype=NAME),
            start_ns=pl.when(ended).then(pl.col("time") - pl.col("length")).otherwise("time"),
            end_ns=pl.when(ended).then("time").otherwise(pl.col("time") + pl.col("length")),
            pid=pl.lit(pid, dtype=pl.Int64),
            tid=pl.col("tid").cast(pl.Int64),
        )
        .sort("start_ns")
    )


def _read_file(path: Path, limit: int, health: HealthLog, unsafe: str) -> bytes | None:
    """A whole file; None when there is none, and a finding when it cannot be used."""
    try:
        if path.stat().st_size > limit:
            raise ValueError("larger than a file of its kind can be")
        return read_bytes(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        health.add("damaged_side_file", WARNING, 1, f"{path.name} cannot be used ({error})", unsafe)
        return None


def _is_number(value: Any) -> TypeGuard[int]:
    return type(value) is int and abs(value) < _FOREVER
