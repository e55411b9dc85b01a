"""The numbers by which a file of Kineto ties a call, its launch and its device task together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

import polars as pl

from steplens.trace.building.devices import device_kind
from steplens.trace.schema import KIND_COMMUNICATION, KIND_OTHER
from steplens.trace.trace import Trace
from steplens.writers.common.json_events import write_calls
from steplens.writers.common.output import main_pid, time_base_ns
from steplens.writers.common.rows import Cell, Member
from steplens.writers.common.text import json_string, microseconds, render_distinct
from steplens.writers.device_tasks import device_tasks

_PLACE = ["device", "stream", "start_ns", "end_ns", "name"]


@dataclass(frozen=True)
class Twin:
    """One file of Kineto being written.

    Attributes:
        trace: its tables.
        handle: open binary file.
        base_ns: Unix ns that its times count from.
        pid: the recorded process.
        device_kind: "CPU", "CUDA", "ROCM" or "NPU".
        external_ids: number of each row of ``ops``.
        tasks: device tasks without those that only wait, and without what ``collectives`` has: columns of ``kernels``, device
            and stream filled, and ``link``, the correlation in the file.
        collectives: rows of ``communication`` in the same way, with ``kernel``, the id of the device task that each one is
            (null where the source has none), and ``context_id``.
        launching_calls: correlation of the rows of ``ops`` that launched tasks without a recorded runtime call; else null.
    """

    trace: Trace
    handle: IO[bytes]
    base_ns: int
    pid: int
    device_kind: str
    external_ids: pl.Series
    tasks: pl.DataFrame
    collectives: pl.DataFrame
    launching_calls: pl.Series

    def ts(self, column: str) -> pl.Expr:
        """A column of times as µs after the base time."""
        return microseconds(pl.col(column) - self.base_ns)

    def calls(self, frame: pl.DataFrame, head: Cell, pid: Cell, tid: Cell, *arguments: Member) -> None:
        """One complete event per row of ``frame``; see ``json_events.write_calls``."""
        write_calls(self.handle, frame, self.base_ns, head, pid, tid, *arguments)


def event_start(category: str, name: str) -> str:
    """Start of a complete event up to its pid."""
    return f',\n{{"ph":"X","cat":{json_string(category)},"name":{json_string(name)},"pid":'


def event_heads(names: pl.Series, category: str) -> pl.Series:
    """``event_start`` of events of one category; one text per distinct name."""
    return render_distinct(names, lambda name: event_start(category, name), event_start(category, ""))


def twin_of(trace: Trace, handle: IO[bytes]) -> Twin:
    """Number everything that the file links.

    Tasks keep the correlation of the runtime call that launched them. Where no such call was recorded (the CPU as a device, an
    NPU below Level1) the operator call itself stands for the launch: it gets a correlation, and so do its tasks.
    """
    ops = trace.required("ops").select("external_id").collect()
    numbers = ops["external_id"]
    if numbers.null_count() or numbers.n_unique() < len(numbers):
        # of several processes, or of a source without such numbers
        numbers = pl.int_range(1, ops.height + 1, dtype=pl.Int64, eager=True)
    place = (pl.col("device").fill_null(0), pl.col("stream").fill_null(0))
    tasks = device_tasks(trace).filter(pl.col("kind").cast(pl.String).ne_missing(KIND_OTHER)).with_columns(place).collect()
    calls = trace.required("communication").with_columns(place).collect().with_row_index("_row")
    is_collective = pl.col("kind").cast(pl.String).eq_missing(KIND_COMMUNICATION)
    collective_kernels = tasks.filter(is_collective).select(
        *_PLACE, kernel="id", context_id="context_id", kernel_correlation="correlation"
    )
    collective_kernels = collective_kernels.unique(_PLACE, keep="first", maintain_order=True)
    calls = calls.join(collective_kernels, on=_PLACE, how="left", maintain_order="left")
    calls = calls.with_columns(correlation=pl.coalesce("correlation", "kernel_correlation")).drop("kernel_correlation", "_row")
    tasks = tasks.filter(~(is_collective & pl.col("id").is_in(calls["kernel"].drop_nulls().implode())))
    launched = trace.required("api").select("correlation").drop_nulls().unique().collect()["correlation"]
    # an operator's number behind every correlation that the source has
    largest = max((int(column.max() or 0) for column in (launched, tasks["correlation"], calls["correlation"])), default=0)  # type: ignore[arg-type]
    recorded = pl.col("correlation").is_in(launched.implode())
    of_call = pl.when((pl.col("op") >= 0) & (pl.col("op") < ops.height)).then(pl.col("op").cast(pl.Int64) + largest + 1)
    link = pl.when(recorded).then("correlation").otherwise(pl.coalesce(of_call, "correlation"))
    tasks, calls = tasks.with_columns(link=link), calls.with_columns(link=link)
    launching = pl.concat([frame.select("link").filter(pl.col("link") > largest) for frame in (tasks, calls)])["link"].unique()
    rows = (launching - largest - 1).cast(pl.Int64)
    by_call = pl.Series([None], dtype=pl.Int64).new_from_index(0, ops.height).scatter(rows, launching)
    return Twin(
        trace=trace,
        handle=handle,
        base_ns=time_base_ns(trace),
        pid=main_pid(trace),
        device_kind=device_kind(trace),
        external_ids=numbers,
        tasks=tasks,
        collectives=calls,
        launching_calls=by_call,
    )
