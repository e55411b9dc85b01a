"""Reads what the AI CPU logs: its kernels (AICPU), what it takes from the data queue (AICPUMI) and what comes in (TDT)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from steplens.readers.mindspore.legacy_files import LATEST_TICK, LATEST_US, TICK_NS, text_records
from steplens.trace.health import KERNEL_CALLS, STEP_PHASES, WARNING, HealthLog
from steplens.trace.schema import SCHEMA

_KERNEL_FIELDS = 3
#: a kernel of another framework also logs its compute and copy times
_OTHER_FIELDS = 6
_THREAD_FIELDS = 7
_GET_NEXT = re.compile(r"Node:([^,]+),\s*Run st?art:\s*(\d{1,18}),\s*Run end:\s*(\d{1,18}),\s*queue size:\s*(\d{1,18})")
_ENQUEUE = re.compile(r"^\[(\d{1,18})\]\s*Enqueue data to dp,\s*source:([^,]*),\s*index:\s*(\d{1,18}),\s*size:\s*(\d{1,18})")
_NUMBER = re.compile(r"(\d{1,18})(?:\s*us)?\.?\s*$")

_KERNELS = {
    "serial_num": pl.Int64,
    "kernel_type": pl.String,
    **dict.fromkeys(("total_us", "dispatch_us", "run_start", "run_end", "start_tick", "end_tick"), pl.Int64),
}


def read_kernels(slices: Sequence[Path], health: HealthLog) -> pl.DataFrame:
    """The kernels of an AI CPU, in order.

    Returns:
        serial_num, kernel_type, total_us and dispatch_us, run_start and run_end (us of the AI CPU's own clock), start_tick and
        end_tick (10 ns of the clock that the AI Cores have, too; null where the log lacks them).
    """
    rows: list[tuple[str | int | None, ...]] = []
    node: tuple[str, int, int] | None = None
    lost = 0
    for record in text_records(slices, health, KERNEL_CALLS):
        if record.startswith("Thread"):
            thread = _parse_thread(record) if node is not None else None
            if node is not None and thread is not None:
                rows.append((len(rows) + 1, node[0], thread[0], thread[1], node[1], node[2], thread[2], thread[3]))
            else:
                lost += 1
            node = None
        else:
            lost += node is not None
            node = _parse_node(record)
            lost += node is None
    lost += node is not None
    if lost:
        message = "records of the AI CPU's log are damaged or lack their other half"
        health.add("damaged_records", WARNING, lost, message, KERNEL_CALLS)
    return pl.DataFrame(rows, schema=_KERNELS, orient="row")


def _parse_node(record: str) -> tuple[str, int, int] | None:
    """Type, run start and run end. Labels are misspelt in the logs of some versions, so fields count by place."""
    fields = record.split(",")
    if len(fields) not in (_KERNEL_FIELDS, _OTHER_FIELDS) or "Node:" not in fields[0]:
        return None
    name = fields[0].partition("Node:")[2].strip()
    if len(fields) == _OTHER_FIELDS:
        name = name.rsplit("/", 1)[-1].split("-", 1)[0]
    start, end = (_parse_number(field.rpartition(":")[2], LATEST_US) for field in (fields[1], fields[-1]))
    return (name, start, end) if name and start is not None and end is not None else None


def _parse_thread(record: str) -> tuple[int, int, int | None, int | None] | None:
    """Total and dispatch time, tick before and tick after the run."""
    fields = record.split(",")
    if len(fields) != _THREAD_FIELDS:
        return None
    values = [field.rpartition("=")[2] for field in fields]
    dispatch, total = _parse_number(values[5], LATEST_US), _parse_number(values[6], LATEST_US)
    if dispatch is None or total is None:
        return None
    before, after = _parse_number(values[3], LATEST_TICK), _parse_number(values[4], LATEST_TICK)
    return (total, dispatch, before, after) if before is not None and after is not None else (total, dispatch, None, None)


def _parse_number(text: str, limit: int) -> int | None:
    number = _NUMBER.search(text)
    value = int(number[1]) if number else limit
    return value if value < limit else None


def kernel_rows(rows: pl.DataFrame, device: int) -> pl.DataFrame:
    """Rows of ``read_kernels`` as rows of ``kernels``; the run by ticks, else by the AI CPU's own clock."""
    run_times = pl.col("run_start") * 1000, pl.col("run_end") * 1000
    start = pl.coalesce(pl.col("start_tick") * TICK_NS, run_times[0])
    return rows.select(
        name="kernel_type",
        type="kernel_type",
        core=pl.lit("AI_CPU"),
        device=pl.lit(device, dtype=pl.Int32),
        stream=pl.lit(None, dtype=pl.Int64),
        start_ns=start,
        end_ns=pl.max_horizontal(start, pl.coalesce(pl.col("end_tick") * TICK_NS, run_times[1])),
        wait_ns=pl.col("dispatch_us") * 1000,
    )


def intermediate_table(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of ``read_kernels`` under the columns of ``aicpu_intermediate_<rank>.csv``, times in ms."""
    run = (pl.col("end_tick") - pl.col("start_tick")) * TICK_NS / 1e6

    def us_to_ms(us: pl.Expr) -> pl.Expr:
        # a division by a constant is not exact to the last digit
        return (us / 1000).round(6)

    return rows.select(
        "serial_num",
        "kernel_type",
        total_time=us_to_ms(pl.col("total_us")),
        dispatch_time=us_to_ms(pl.col("dispatch_us")),
        execution_time=pl.coalesce(run.round(6), us_to_ms(pl.col("total_us") - pl.col("dispatch_us"))),
        run_start="run_start",
        run_end="run_end",
    )


def read_get_next(slices: Sequence[Path], health: HealthLog) -> pl.DataFrame:
    """What the device takes from its data queue: rows of ``pipeline_batches`` of kind "receive"."""
    return receive_rows([_GET_NEXT.search(record) for record in text_records(slices, health, STEP_PHASES)], health)


def receive_rows(found: Sequence[re.Match[str] | None], health: HealthLog) -> pl.DataFrame:
    """Rows of ``pipeline_batches`` of kind "receive" from matches of node, start, end (us) and queue size."""
    rows: list[tuple[str | int, ...]] = []
    for match in found:
        if match and int(match[2]) <= int(match[3]) < LATEST_US:
            start, end = int(match[2]), int(match[3])
            rows.append(("receive", match[1].strip(), len(rows) + 1, start * 1000, (end - start) * 1000, int(match[4])))
    if lost := len(found) - len(rows):
        health.add("damaged_records", WARNING, lost, "records of the device's data queue are damaged", STEP_PHASES)
    columns = ("kind", "name", "batch", "time_ns", "wait_ns", "queue_size")
    return pl.DataFrame(rows, schema={name: SCHEMA["pipeline_batches"][name] for name in columns}, orient="row")


def read_enqueued(slices: Sequence[Path], health: HealthLog) -> pl.DataFrame:
    """What the host puts into the device's data queue: rows of ``pipeline_batches`` of kind "send"."""
    matches = [_ENQUEUE.match(record) for record in text_records(slices, health, STEP_PHASES)]
    rows = [("send", m[2].strip(), int(m[3]), int(m[1]) * 1000, int(m[4])) for m in matches if m and int(m[1]) < LATEST_US]
    if lost := len(matches) - len(rows):
        health.add("damaged_records", WARNING, lost, "records of the host's data queue are damaged", STEP_PHASES)
    columns = ("kind", "name", "batch", "time_ns", "queue_size")
    return pl.DataFrame(rows, schema={name: SCHEMA["pipeline_batches"][name] for name in columns}, orient="row")
