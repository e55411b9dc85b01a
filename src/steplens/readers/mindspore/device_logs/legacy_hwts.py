"""Reads the log of the hardware task scheduler (HWTS): when every task of an AI Core started and ended.

The binary log has records of 64 bytes; the text form (``output_format_data_hwts_<device>.txt``) is what the first
parsers made of it. A task is known by a key, from which the framework's list of tasks tells its operator.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.common.errors import InputError
from steplens.common.storage.files import open_file
from steplens.readers.mindspore.legacy_files import LATEST_TICK, TICK_NS, read_up_to
from steplens.trace.health import ERROR, INFO, KERNEL_CALLS, KERNEL_TIMES, WARNING, HealthLog

_RECORD = np.dtype(
    {
        "names": ["head", "core", "block", "task", "count", "stream", "pmu_count"],
        "formats": ["u1", "u1", "<u2", "<u2", "<u8", "<u4", "<u8"],
        "offsets": [0, 1, 4, 6, 8, 16, 24],
        "itemsize": 64,
    }
)
_IS_BLANK = np.isin(np.arange(256), list(b"\0 \t\n\r\x0b\x0c"))
TASK_START, TASK_END = 0, 1
_PMU = 4
#: tasks with a number from here on are numbered across streams
_OWN_KEY = 25_000

_TEXT_KINDS = {"Start of task": TASK_START, "End of task": TASK_END, "Start of block": 2, "End of block": 3, "Block PMU": _PMU}
_TEXT_ROW = re.compile(r"^(\D+?)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(\d+)\s+(\d+)\s*$")
_TEXT_LIMIT_BYTES = 2 << 30

_SCHEMA = {"kind": pl.Int64, "core": pl.Int64, "block": pl.Int64, "key": pl.String, "tick": pl.Int64, "stream": pl.Int64}


def task_key(task: pl.Expr, stream: pl.Expr) -> pl.Expr:
    """The key of a task: its number where numbers count across streams, else ``<stream>_<task>``."""
    return pl.when(task >= _OWN_KEY).then(task.cast(pl.String)).otherwise(pl.format("{}_{}", stream, task))


def decode_log(data: bytes, health: HealthLog) -> pl.DataFrame:
    """The records of a binary log, in order.

    Returns:
        kind (0 task start, 1 task end, 2 block start, 3 block end, 4 performance counters), core, block, key, tick (10 ns
        of the device's clock) and stream. Blank records, and those of kinds that do not exist, are left out.
    """
    record_count = len(data) // _RECORD.itemsize
    if len(data) % _RECORD.itemsize:
        message = "the task scheduler's log breaks off inside a record, which was left out"
        health.add("truncated_file", ERROR, 1, message, (KERNEL_CALLS, KERNEL_TIMES))
    records = np.frombuffer(data, dtype=_RECORD, count=record_count)[~_is_blank_record(data, record_count)]
    kind = records["head"] & 7
    tick = np.where(kind == _PMU, records["pmu_count"], records["count"])
    valid = (kind <= _PMU) & (tick < LATEST_TICK)
    if lost := int((~valid).sum()):
        message = "records of the task scheduler are of no known kind or have an impossible time"
        health.add("damaged_records", WARNING, lost, message, (KERNEL_CALLS, KERNEL_TIMES))
    if overflow := int(((records["head"] >> 3) & 1)[valid].sum()):
        message = "records of the task scheduler say that its buffer overflowed: tasks before them were not recorded"
        health.add("lost_events", ERROR, overflow, message, KERNEL_CALLS)
    records = records[valid]
    frame = pl.DataFrame(
        {
            "kind": kind[valid].astype(np.int64),
            "tick": tick[valid].astype(np.int64),
            **{name: records[name].astype(np.int64) for name in ("core", "block", "task", "stream")},
        }
    )
    return frame.with_columns(key=task_key(pl.col("task"), pl.col("stream"))).select(list(_SCHEMA))


def _is_blank_record(data: bytes, count: int) -> npt.NDArray[np.bool_]:
    """Which records are nothing but NUL or white space: they mark unused room."""
    raw = np.frombuffer(data, dtype=np.uint8, count=count * _RECORD.itemsize).reshape(count, _RECORD.itemsize)
    # few real records have a blank at both of these places, so few are looked at as a whole
    suspects = np.flatnonzero(_IS_BLANK[raw[:, 0]] & _IS_BLANK[raw[:, 2]])
    blank = np.zeros(count, dtype=np.bool_)
    blank[suspects] = _IS_BLANK[raw[suspects]].all(axis=1)
    return blank


def read_text(path: Path, health: HealthLog) -> pl.DataFrame:
    """The records of the text form; columns as of ``decode``.

    Raises:
        InputError: the file cannot be read or holds no record.
    """
    try:
        with open_file(path) as handle:
            lines = read_up_to(handle, _TEXT_LIMIT_BYTES).decode("utf-8", errors="replace").split("\n")
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror or error})") from error
    columns = _parse_text_rows(lines)
    possible = columns.drop_nulls("kind").filter(pl.col("tick").is_between(0, LATEST_TICK - 1))
    # title and header are no records
    lost = sum(1 for line in lines if line.strip()) - possible.height - 2
    if not possible.height:
        raise InputError(path, "holds no record of the task scheduler", "Give output_format_data_hwts_<device>.txt")
    if lost > 0:
        health.add("damaged_records", WARNING, lost, f"lines of {path.name} are no records", (KERNEL_CALLS, KERNEL_TIMES))
    return possible


def _parse_text_rows(lines: list[str]) -> pl.DataFrame:
    fields = pl.Series("line", lines, dtype=pl.String).str.extract_groups(_TEXT_ROW.pattern).struct.unnest()
    names = ["kind", "counter", "core", "block", "key", "tick", "stream"]
    frame = fields.rename(dict(zip(fields.columns, names, strict=True))).drop_nulls("key")
    return frame.select(
        kind=pl.col("kind").str.strip_chars().replace_strict(_TEXT_KINDS, default=None, return_dtype=pl.Int64),
        core=pl.col("core").cast(pl.Int64, strict=False),
        block=pl.col("block").cast(pl.Int64, strict=False),
        key="key",
        tick=pl.col("tick").cast(pl.Int64, strict=False),
        stream=pl.col("stream").cast(pl.Int64, strict=False),
    )


def pair_executions(records: pl.DataFrame, tasks: pl.DataFrame, health: HealthLog) -> pl.DataFrame:
    """The executions of operators: a start that the end of the same operator follows directly.

    Args:
        records: of ``decode`` or ``read_text``.
        tasks: key and name of every task; of several names of a key the first counts.
        health: gets what is wrong.

    Returns:
        name, key, stream, start_ns, end_ns (ns of the device's clock), in order.
    """
    task_names = tasks.select("key", "name").unique("key", keep="first", maintain_order=True)
    marks = records.filter(pl.col("kind").is_in([TASK_START, TASK_END])).join(
        task_names, on="key", how="left", maintain_order="left"
    )
    unknown = int(marks["name"].null_count())
    if unknown:
        message = "marks of the task scheduler are of tasks that the framework's list does not name; they were left out"
        health.add("unnamed_tasks", INFO, unknown, message, KERNEL_CALLS)
    named_marks = marks.drop_nulls("name")
    following = named_marks.select(pl.all().shift(-1).name.suffix("_next"))
    both = pl.concat([named_marks, following], how="horizontal")
    pairs = both.filter(
        (pl.col("kind") == TASK_START) & (pl.col("kind_next") == TASK_END) & (pl.col("name") == pl.col("name_next"))
    )
    if lost := named_marks.height - 2 * pairs.height:
        message = "starts or ends of tasks have no counterpart directly beside them; they were left out"
        health.add("unpaired_tasks", WARNING, lost, message, KERNEL_CALLS)
    backwards = int((pairs["tick_next"] < pairs["tick"]).sum())
    if backwards:
        health.add("negative_duration", ERROR, backwards, "tasks end before they start; they were left out", KERNEL_TIMES)
    return pairs.filter(pl.col("tick_next") >= pl.col("tick")).select(
        "name", "key", "stream", start_ns=pl.col("tick") * TICK_NS, end_ns=pl.col("tick_next") * TICK_NS
    )
