"""Reads the device tasks of a flat ``profiler/`` directory: of AI Cores and of the AI CPU, described by the framework."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from steplens.common.errors import InputError
from steplens.readers.common.ascend_csv_file import complete_rows, has_required_columns, read_table
from steplens.readers.common.microseconds import ms_text_ns
from steplens.readers.mindspore.device_logs import legacy_hwts
from steplens.readers.mindspore.device_logs.legacy_device import core_kernels
from steplens.readers.mindspore.device_logs.legacy_framework import kernel_columns
from steplens.trace.building.communication_marks import is_collective, is_part
from steplens.trace.health import ERROR, INFO, KERNEL_CALLS, KERNEL_DETAILS, WARNING, HealthLog
from steplens.trace.schema import KIND_COMMUNICATION, KIND_COMPUTE, KIND_OTHER

#: what stands before the last part of the full name of an operator
_PATH = r"^.*/"
_LIMIT_NS = 1 << 61


def read_timeline_data(path: Path, rank: int, health: HealthLog, *, micro: bool = False) -> pl.DataFrame:
    """``output_timeline_data_<rank>.txt``: one row per execution of an operator on an AI Core; rows of ``kernels``.

    Args:
        path: the file.
        rank: becomes the device.
        health: gets what is wrong.
        micro: whether starts under the header ``start_time(us)`` really are us. Of MindSpore they are ms.
    """
    table = read_table([path], health, (KERNEL_CALLS))
    name, start = ("kernel_name", "op_name"), ("start_time(us)", "start_time(ms)")
    if not has_required_columns(table, path.name, health, KERNEL_CALLS, name, start, ("duration(ms)",)):
        return pl.DataFrame()
    in_us = micro and table.find("start_time(us)") is not None
    starts = table.text(*start).cast(pl.String)
    if table.find("start_time(us)") is not None and not micro:
        health.add("mislabelled_unit", INFO, 1, f"starts in {path.name} are milliseconds under a header that says us", "")
    rows = pl.DataFrame(
        {
            "name": table.text(*name).cast(pl.String),
            "stream": table.integer("stream_id"),
            "start_ns": table.ns(*start) if in_us else ms_text_ns(starts),
            "length": ms_text_ns(table.text("duration(ms)").cast(pl.String)),
        }
    )
    complete = complete_rows(rows, ["name", "start_ns", "length"], path.name, health, KERNEL_CALLS)
    return complete.select(
        "name",
        "stream",
        "start_ns",
        end_ns=pl.col("start_ns") + pl.col("length"),
        kind=pl.lit(KIND_COMPUTE),
        core=pl.lit("AI_CORE"),
        device=pl.lit(rank, dtype=pl.Int32),
    )


def describe_kernels(kernels: pl.DataFrame, framework: pl.DataFrame, health: HealthLog) -> pl.DataFrame:
    """Kernels with the types, blocks, shapes and formats that the framework's table has of their names."""
    if not kernels.height or not framework.height or "kernel_type" not in framework.columns:
        return kernels
    operators = framework.unique("full_kernel_name", keep="first", maintain_order=True)
    operators = kernel_columns(operators) if "op_info" in operators.columns else operators
    columns = [name for name in operators.columns if name.startswith(("input_", "output_"))]
    numbers = {new: old for new, old in (("task_id", "task_id"), ("blocks", "block_dim")) if old in operators.columns}
    if "task_type" in operators.columns:
        kernels = kernels.drop("core")
        columns.append("core")
        operators = operators.with_columns(core=pl.col("task_type").fill_null("AI_CORE"))
    right = operators.select(
        "full_kernel_name",
        *columns,
        type="kernel_type",
        **{new: pl.col(old).cast(pl.Int64, strict=False) for new, old in numbers.items()},
    )
    joined = kernels.join(right, left_on="name", right_on="full_kernel_name", how="left", maintain_order="left")
    core, name = pl.col("core").cast(pl.String), pl.col("name").str.replace(_PATH, "")
    kind = pl.when(is_collective(core, name, pl.col("type"))).then(pl.lit(KIND_COMMUNICATION)).when(is_part(core, name))
    joined = joined.with_columns(kind=kind.then(pl.lit(KIND_OTHER)).otherwise("kind"))
    if unknown := int(joined["type"].null_count()):
        message = "operators of the timeline are not in the framework's table, so their types and shapes are unknown"
        health.add("unnamed_tasks", WARNING, unknown, message, KERNEL_DETAILS)
    return joined


def read_scheduler_text(path: Path, framework: pl.DataFrame, rank: int, health: HealthLog) -> pl.DataFrame:
    """The task scheduler's log in text form, with the framework's table; rows of ``kernels``."""
    try:
        records = legacy_hwts.read_text(path, health)
    except InputError as error:
        health.add("unreadable_file", ERROR, 1, f"{path.name} {error.problem}", KERNEL_CALLS)
        return pl.DataFrame()
    needed = ("task_id", "stream_id", "op_info", "kernel_type", "block_dim")
    if not framework.height or not set(needed) <= set(framework.columns):
        message = f"{path.name} cannot be used without framework_raw_{rank}.csv, which names its tasks"
        health.add("missing_file", ERROR, 1, message, KERNEL_CALLS)
        return pl.DataFrame()
    numbered = framework.with_columns(pl.col("task_id", "stream_id", "block_dim").cast(pl.Int64, strict=False))
    numbered = numbered.drop_nulls(["task_id", "stream_id"])
    keyed = numbered.with_columns(key=legacy_hwts.task_key(pl.col("task_id"), pl.col("stream_id")))
    return core_kernels(records, keyed, rank, health)


def aicpu_kernels(path: Path, table: pl.DataFrame, rank: int, health: HealthLog) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Runs on the AI CPU as rows of ``kernels``, and their stored times as rows of ``kernel_metrics`` by row number.

    A run lasts from run_start to run_end: us of the device's clock in old files, ms in newer ones. Total Time, which also
    counts dispatch, is a metric; in old files it is not the sum of the other columns.

    Args:
        path: of ``aicpu_intermediate``.
        table: of ``mindspore_tables.aicpu_intermediate``.
        rank: becomes the device.
        health: gets what is wrong.
    """
    if not table.height or not {"run_start", "run_end"} <= set(table.columns):
        return pl.DataFrame(), pl.DataFrame()
    in_ms = table["run_start"].str.contains(".", literal=True).any()
    times = [
        ms_text_ns(table[name]) if in_ms else table[name].cast(pl.Int64, strict=False) * 1000 for name in ("run_start", "run_end")
    ]
    rows = table.with_row_index("id").with_columns(times[0].alias("start_ns"), times[1].alias("end_ns"))
    is_possible = (pl.col("end_ns") >= pl.col("start_ns")) & pl.col("start_ns").is_between(0, _LIMIT_NS)
    rows = rows.with_columns(pl.when(is_possible).then("start_ns"))
    complete = complete_rows(rows, ["start_ns", "end_ns"], path.name, health, KERNEL_CALLS)
    wait = (pl.col("dispatch_time") * 1_000_000).round().cast(pl.Int64, strict=False)
    kernels = complete.select(
        pl.col("id").cast(pl.Int32),
        "start_ns",
        "end_ns",
        name="kernel_type",
        type="kernel_type",
        wait_ns=wait if "dispatch_time" in complete.columns else pl.lit(None, dtype=pl.Int64),
        kind=pl.lit(KIND_COMPUTE),
        core=pl.lit("AI_CPU"),
        device=pl.lit(rank, dtype=pl.Int32),
        stream=pl.lit(None, dtype=pl.Int64),
    )
    stored = [name for name in ("total_time", "dispatch_time", "execution_time") if name in complete.columns]
    metrics = complete.select(pl.col("id").cast(pl.Int32), *stored).unpivot(stored, index="id").drop_nulls("value")
    names = {name: f"{name.replace('_', ' ').title()}(ms)" for name in stored}
    return kernels, metrics.select(kernel="id", name=pl.col("variable").replace_strict(names), value="value")
