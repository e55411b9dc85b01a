"""Reads ``host_info_<rank>.csv`` of MindSpore r2.2: what the framework itself did on the host, and the memory of its process.

A row is a begin, an end or a moment of one thread, in the order in which they happened there; MindSpore pairs nothing. Times are
Unix us. A job that recorded only memory has rows without time, one that recorded only times has rows without memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from steplens.common.storage.files import open_file
from steplens.formats.mindspore import HOST_COLUMNS
from steplens.readers.common.ascend_csv_file import has_required_columns, read_table
from steplens.trace.health import COUNTERS, HOST_AGAINST_DEVICE, INFO, USER_MARKS, WARNING, HealthLog
from steplens.trace.schema import MARKER, PUSH_POP

_BEGIN, _END, _INSTANT = 0, 1, 2
_NUMBERS = {"tid": "tid", "pid": "pid", "parent_pid": "parent_pid", "level": "level", "point": "start_end",
            "memory_kb": "memory_usage(kB)", "time_us": "time_stamp(us)"}  # fmt: skip
_TEXTS = {"module": "module_name", "event": "event", "stage": "stage", "custom_info": "custom_info"}
#: what a begin shares with its end
_KEY = ["module", "event", "stage", "tid", "pid"]
_UNSAFE = f"{USER_MARKS}, {COUNTERS}"
_LATEST_US = (1 << 62) // 1000
_LARGEST_KB = 1 << 52
_TEXT_LIMIT = 10_000
#: 2001: a clock that starts with the machine never shows it
_UNIX_FROM_NS = 1_000_000_000_000_000_000
_HEAD_BYTES = 4096
#: tables of a trace with times on the clock of its tasks; the data pipeline's is another one, which its reader reports
_TIMED = {"ops": "start_ns", "kernels": "start_ns", "steps": "start_ns", "step_points": "start_ns", "communication": "start_ns",
          "memory": "time_ns"}  # fmt: skip

_RECORD = {
    **dict.fromkeys(("module", "event", "stage", "custom_info"), pl.String()),
    **dict.fromkeys(("level", "tid", "pid", "parent_pid", "start_us", "end_us"), pl.Int64()),
}


def _empty_records() -> pl.DataFrame:
    return pl.DataFrame(schema=_RECORD)


@dataclass(frozen=True)
class HostRecords:
    """What one file tells.

    ``ranges``, ``instants`` and ``unfinished`` have module, event, stage, custom_info, level (0 for MindSpore's developers, 1 for
    its users), tid (MindSpore's handle of the thread, which is not the system's number), pid, parent_pid, start_us and end_us
    (Unix us; of ``unfinished`` null).

    Attributes:
        rows: the file as it is, texts under ``HOST_COLUMNS``.
        ranges: begins with their ends, in order of the ends.
        instants: moments.
        unfinished: begins without an end.
        memory: rows of the file with a size of the process, as they are.
        samples: the same where a time is known: time_us (Unix), memory_kb (kB of 1024 bytes).
    """

    rows: pl.DataFrame = field(default_factory=pl.DataFrame)
    ranges: pl.DataFrame = field(default_factory=_empty_records)
    instants: pl.DataFrame = field(default_factory=_empty_records)
    unfinished: pl.DataFrame = field(default_factory=_empty_records)
    memory: pl.DataFrame = field(default_factory=pl.DataFrame)
    samples: pl.DataFrame = field(default_factory=pl.DataFrame)

    def __bool__(self) -> bool:
        """Whether anything could be read."""
        return any(frame.height for frame in (self.ranges, self.instants, self.unfinished, self.memory))

    def tables(self) -> dict[str, pl.DataFrame]:
        """Ranges and instants as ``marks``, one domain per module; sizes of the process as ``counters``."""
        host_tables: dict[str, pl.DataFrame] = {}
        marks = [_mark_rows(self.ranges, PUSH_POP), _mark_rows(self.instants, MARKER)]
        if any(frame.height for frame in marks):
            host_tables["marks"] = pl.concat(marks).sort("start_ns", maintain_order=True)
        if self.samples.height:
            host_tables["counters"] = self.samples.select(
                group=pl.lit("Memory Usage"),
                name=pl.lit("Memory/Resident"),
                unit=pl.lit("KB"),
                time_ns=pl.col("time_us") * 1000,
                value=pl.col("memory_kb").cast(pl.Float64),
            ).sort("time_ns", maintain_order=True)
        return host_tables


def is_host_file(path: Path) -> bool:
    """Whether a file begins with MindSpore's titles; others may have its name."""
    try:
        with open_file(path) as handle:
            head = handle.read(_HEAD_BYTES).decode(errors="replace")
    except OSError:
        return False
    titles = {title.strip() for title in head.lstrip("\ufeff").partition("\n")[0].split(",")}
    return titles >= set(HOST_COLUMNS)


def read_host_records(path: Path, health: HealthLog) -> HostRecords:
    """The records of a file, paired.

    Of begins of one module, event and stage on one thread, the latest that is open belongs to the next end.

    Args:
        path: ``host_info_<rank>.csv``.
        health: gets what is damaged, begins without end and ends without begin.
    """
    table = read_table([path], health, _UNSAFE)
    if not has_required_columns(table, path.name, health, _UNSAFE, *((name,) for name in HOST_COLUMNS)):
        return HostRecords()
    text = table.frame.select(pl.col(table.find(name) or name).fill_null("").alias(name) for name in HOST_COLUMNS)
    numbers = text.select(
        *(pl.col(name).str.strip_chars().cast(pl.Int64, strict=False).alias(new) for new, name in _NUMBERS.items()),
        *(pl.col(name).str.slice(0, _TEXT_LIMIT).alias(new) for new, name in _TEXTS.items()),
        row=pl.int_range(pl.len()),
    )
    good = numbers.filter(
        pl.all_horizontal(pl.col(list(_NUMBERS)).is_not_null()),
        pl.col("point").is_in([_BEGIN, _END, _INSTANT]),
        pl.min_horizontal("tid", "pid", "time_us") >= 0,
        pl.col("time_us") <= _LATEST_US,
        pl.col("memory_kb").abs() <= _LARGEST_KB,
    )
    if lost := text.height - good.height:
        message = f"rows of {path.name} are damaged and were left out, with the begins and ends that they tell"
        health.add("damaged_rows", WARNING, lost, message, _UNSAFE)
    sized = good.filter(pl.col("memory_kb") > 0)
    timed = good.filter(pl.col("time_us") > 0)
    ranges, unfinished = _pair_ranges(timed.filter(pl.col("point") != _INSTANT), path.name, health)
    instants = timed.filter(pl.col("point") == _INSTANT).with_columns(start_us="time_us", end_us="time_us")
    samples = sized.filter(pl.col("time_us") > 0)
    if without := sized.height - samples.height:
        message = f"sizes of the process in {path.name} have no time: only memory was recorded, and they are no counter"
        health.add("untimed_samples", INFO, without, message, COUNTERS)
    return HostRecords(
        text, ranges, instants.select(list(_RECORD)), unfinished, text[sized["row"]], samples.select("time_us", "memory_kb")
    )


def _pair_ranges(points: pl.DataFrame, name: str, health: HealthLog) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Ranges in order of their ends, and begins without an end."""
    depth = (1 - 2 * pl.col("point")).cum_sum().over(_KEY)
    points = points.with_columns(depth=depth)
    # an end that nothing was open for takes the depth below all that were before it
    points = points.with_columns(least=pl.min_horizontal(pl.col("depth").cum_min().over(_KEY), pl.lit(0)))
    stray = (pl.col("point") == _END) & (pl.col("depth") < pl.col("least").shift(1).over(_KEY).fill_null(0))
    paired_points = points.filter(~stray)
    if strays := points.height - paired_points.height:
        message = f"ends in {name} have no begin before them and were left out"
        health.add("unmatched_ends", WARNING, strays, message, USER_MARKS)
    # begins and ends of one depth take turns
    turn = [*_KEY, "open"]
    paired_points = paired_points.with_columns(open=depth + (pl.col("point") == _END))
    paired_points = paired_points.with_columns(
        end_us=pl.col("time_us").shift(-1).over(turn),
        end_row=pl.col("row").shift(-1).over(turn),
        end_info=pl.col("custom_info").shift(-1).over(turn),
        start_us="time_us",
    ).filter(pl.col("point") == _BEGIN)
    unfinished = paired_points.filter(pl.col("end_us").is_null())
    if unfinished.height:
        message = f"ranges of {name} begin and do not end: the process ended inside them, or the file breaks off"
        health.add("unfinished_ranges", WARNING, unfinished.height, message, USER_MARKS)
    ended = paired_points.filter(pl.col("end_us").is_not_null())
    ranges = ended.filter(pl.col("end_us") >= pl.col("start_us"))
    if backwards := ended.height - ranges.height:
        message = f"ranges of {name} end before they begin and were left out: the host's clock was set back"
        health.add("impossible_times", WARNING, backwards, message, USER_MARKS)
    # what is told of a range may be told at its end
    info = pl.when(pl.col("end_info") != "").then("end_info").otherwise("custom_info")
    return ranges.sort("end_row").with_columns(custom_info=info).select(list(_RECORD)), unfinished.select(list(_RECORD))


def _mark_rows(records: pl.DataFrame, kind: str) -> pl.DataFrame:
    return records.select(
        domain="module",
        message=pl.format("{}::{}", "event", "stage"),
        start_ns=pl.col("start_us") * 1000,
        end_ns=pl.col("end_us") * 1000,
        pid="pid",
        tid="tid",
        kind=pl.lit(kind),
    )


def tables_on_same_clock(
    host: Mapping[str, pl.DataFrame], others: Mapping[str, pl.DataFrame], name: str, health: HealthLog
) -> dict[str, pl.DataFrame]:
    """The tables of the host, where their times can be laid beside those of the others; else nothing and a finding.

    Args:
        host: what ``HostRecords.tables`` gives.
        others: tables of the same rank.
        name: of the file.
        health: gets that the clocks differ.
    """
    own_middles = [_median_time(frame["time_ns" if table == "counters" else "start_ns"]) for table, frame in host.items()]
    other_middles = [_median_time(others[table][column]) for table, column in _TIMED.items() if table in others]
    if all(time is None or time >= _UNIX_FROM_NS for time in [*own_middles, *other_middles]) or not any(
        time is not None for time in other_middles
    ):
        return dict(host)
    message = (
        f"times of {name} and those of the device are on different clocks, so what the host did is in no table; "
        "steplens analyse writes it to a timeline of its own"
    )
    health.add("host_clock", WARNING, sum(frame.height for frame in host.values()), message, (USER_MARKS, HOST_AGAINST_DEVICE))
    return {}


def _median_time(times: pl.Series) -> float | None:
    middle = times.cast(pl.Float64).median()
    return middle if isinstance(middle, float) else None
