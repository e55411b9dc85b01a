"""What MindSpore r2.2 makes of its records of the host: a timeline, the memory of the process, sums of the data pipeline.

The frames are those of ``steplens.readers.mindspore.mindspore_host.HostRecords``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

import polars as pl

from steplens.formats.ascend_results import TIME_BASE_KEY
from steplens.writers.common.json_events import metadata_event
from steplens.writers.common.output import TIME_BASE_UNIT_NS, NothingToWriteError
from steplens.writers.common.rows import shared_texts, write_rows
from steplens.writers.common.text import json_string, microseconds, names, write_csv

#: the module whose ranges ``dataset_<rank>.csv`` adds up
_DATASET = "Dataset"
_PROCESS = "MindSpore"


def write_timeline(ranges: pl.DataFrame, instants: pl.DataFrame, unfinished: pl.DataFrame, path: Path) -> None:
    """Write timeline_<rank>.json: Chrome trace events by start, each called event::stage, with the module as category.

    Times are us behind the time base of all of steplens' results, which the first event holds.

    Ranges are events "X", instants "i", and "B" the unfinished ones, which have no end.

    Raises:
        NothingToWriteError: there is none of them.
    """
    kinds = (("X", ranges), ("i", instants), ("B", unfinished))
    events = pl.concat([frame.with_columns(kind=pl.lit(kind)) for kind, frame in kinds])
    if events.is_empty():
        raise NothingToWriteError("no time on the host was recorded")
    events = events.sort("start_us", maintain_order=True)
    base_ns = int(events["start_us"][0]) * 1000 // TIME_BASE_UNIT_NS * TIME_BASE_UNIT_NS
    with path.open("wb") as handle:
        handle.write(b"[" + ",".join(_metadata_events(events, base_ns)).encode())
        _write_events(handle, events, base_ns)
        handle.write(b"]")


def _metadata_events(events: pl.DataFrame, base_ns: int) -> list[str]:
    rows: list[dict[str, Any]] = []
    for pid in events["pid"].unique(maintain_order=True):
        base = {} if rows else {TIME_BASE_KEY: base_ns}
        rows.append(metadata_event("process_name", pid, 0, name=_PROCESS, **base))
    for pid, tid in events.select("pid", "tid").unique(maintain_order=True).iter_rows():
        rows.append(metadata_event("thread_name", pid, tid, name=f"Thread {tid}"))
    return [json.dumps(row) for row in rows]


def _write_events(handle: IO[bytes], events: pl.DataFrame, base_ns: int) -> None:
    length = pl.format(',"dur":{}', (pl.col("end_us") - pl.col("start_us")))
    lengths = (
        pl.when(pl.col("kind") == "X").then(length).when(pl.col("kind") == "i").then(pl.lit(',"s":"t"')).otherwise(pl.lit(""))
    )
    event_names = events.select(pl.format("{}::{}", "event", "stage"))["event"]
    write_rows(
        handle,
        events,
        ',{"ph":',
        pl.format('"{}"', "kind"),
        ("name", shared_texts(event_names, json_string)),
        ("cat", shared_texts(events["module"], json_string)),
        ("pid", pl.col("pid")),
        ("tid", pl.col("tid")),
        ("ts", microseconds(pl.col("start_us") * 1000 - base_ns)),
        lengths,
        ',"args":{"level":',
        pl.col("level"),
        ("parent_pid", pl.col("parent_pid")),
        ("custom_info", shared_texts(events["custom_info"], json_string)),
        "}}",
    )


def write_memory(memory: pl.DataFrame, path: Path) -> None:
    """Write host_memory_<rank>.csv: the rows of host_info_<rank>.csv that have a size of the process, as they are.

    Raises:
        NothingToWriteError: there is none.
    """
    if memory.is_empty():
        raise NothingToWriteError("no memory of the host's process was recorded")
    write_csv(memory.select(names(memory[column]).alias(column) for column in memory.columns), path)


def write_dataset(ranges: pl.DataFrame, path: Path) -> None:
    """Write dataset_<rank>.csv: ranges of the data pipeline by operation, stage and what is told of them.

    Occurrences counts the ranges that ended, Avg. time is the mean of their lengths, us; in order of the first end.

    Raises:
        NothingToWriteError: the data pipeline recorded none.
    """
    dataset_ranges = ranges.filter(pl.col("module") == _DATASET)
    if dataset_ranges.is_empty():
        raise NothingToWriteError("the data pipeline recorded no range on the host")
    length = pl.col("end_us") - pl.col("start_us")
    summed = dataset_ranges.group_by("event", "stage", "custom_info", maintain_order=True).agg(count=pl.len(), mean=length.mean())
    table = summed.select(
        names(summed["event"]).alias("Operation"),
        names(summed["stage"]).alias("Stage"),
        pl.col("count").alias("Occurrences"),
        pl.col("mean").alias("Avg. time (us)"),
        names(summed["custom_info"]).alias("Custom Info"),
    )
    write_csv(table, path)
