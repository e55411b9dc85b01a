"""Reads the summary tables of a flat ``profiler/`` directory: operators, AI CPU, FLOPs, memory; every generation.

Column names and scales have changed several times without a version on any file, so headers and sums decide. What comes
out has the newest names and one unit: times in ms, shares in percent.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from steplens.common.storage.files import read_bytes
from steplens.formats import mindspore as files
from steplens.readers.common.ascend_csv_file import TextTable, has_required_columns, read_table
from steplens.readers.mindspore.minddata_cpu import json_object
from steplens.trace.health import INFO, KERNEL_DETAILS, KERNEL_TIMES, MEMORY, WARNING, HealthLog

#: a share column that sums to less than this holds fractions; truncated files of percents sum to far more
_FRACTION_BELOW = 2.0
#: doubles near 1.7e12 ms resolve 0.0003 ms
_ROUNDING_MS = 0.001
_LARGEST = 2.0**62


def read_renamed_columns(
    path: Path,
    columns: Mapping[str, tuple[str, ...]],
    needed: tuple[str, ...],
    health: HealthLog,
    unsafe: str,
    *,
    open_end: bool = False,
) -> pl.DataFrame:
    """A CSV file of text under the newest names of its columns; those that it lacks are left out.

    Args:
        path: the file.
        columns: name -> the names it had before.
        needed: new names without which the file says nothing.
        health: gets what is wrong.
        unsafe: what the loss of the file makes unsafe.
        open_end: see ``read_table``.
    """
    table = read_table([path], health, unsafe, open_end=open_end)
    if not has_required_columns(table, path.name, health, unsafe, *((name, *columns[name]) for name in needed)):
        return pl.DataFrame()
    name_of = {new: _exact_column(table, (new, *names)) for new, names in columns.items()}
    # FLOPs and FLOPS differ by the case of one letter only
    cells = {new: table.frame[name].str.strip_chars() for new, name in name_of.items() if name is not None}
    frame = pl.DataFrame({new: cell.set(cell.is_in(("", "N/A")), None) for new, cell in cells.items()})
    complete = frame.drop_nulls(list(needed))
    if lost := frame.height - complete.height:
        health.add("damaged_rows", WARNING, lost, f"rows of {path.name} are incomplete and were left out", unsafe)
    return complete


def _exact_column(table: TextTable, names: tuple[str, ...]) -> str | None:
    """The file's name of a column: literally one of the names, else one that differs by case and blanks only."""
    literal = next((name for name in names if name in table.frame.columns), None)
    return literal or table.find(*names)


def operator_types(path: Path, health: HealthLog) -> pl.DataFrame:
    """``aicore_intermediate_<rank>_type.csv``: kernel_type, task_time (ms), execution_frequency, percent (0 to 100)."""
    frame = read_renamed_columns(path, files.OPERATOR_TYPE_COLUMNS, ("kernel_type", "task_time"), health, KERNEL_TIMES)
    if not frame.height:
        return frame
    frame = frame.with_columns(_float_column(name) for name in ("task_time", "percent") if name in frame.columns)
    if "execution_frequency" in frame.columns:
        frame = frame.with_columns(pl.col("execution_frequency").cast(pl.Int64, strict=False))
    frame = frame.drop_nulls("task_time")
    if not frame.height:
        return frame
    share = pl.col("task_time") / pl.col("task_time").sum() * 100
    if "percent" not in frame.columns:
        return frame.with_columns(percent=share)
    total = frame["percent"].sum()
    if total < _FRACTION_BELOW:
        return frame.with_columns(pl.col("percent") * 100)
    if not 99 < total < 101:
        message = f"the shares in {path.name} sum to {total:.2f} %: it holds a part of the operator types only"
        health.add("incomplete_shares", INFO, 1, message, KERNEL_TIMES)
    return frame


def operator_details(path: Path, health: HealthLog) -> pl.DataFrame:
    """``aicore_intermediate_<rank>_detail.csv``: full_kernel_name, task_duration (ms), execution_frequency, task_type."""
    frame = read_renamed_columns(path, files.OPERATOR_DETAIL_COLUMNS, ("full_kernel_name", "task_duration"), health, KERNEL_TIMES)
    return frame.with_columns(_float_column("task_duration")).drop_nulls("task_duration") if frame.height else frame


def aicpu_intermediate(path: Path, health: HealthLog) -> pl.DataFrame:
    """``aicpu_intermediate_<rank>.csv``: one row per run of a kernel, times in ms, run_start and run_end as stored text."""
    frame = read_renamed_columns(path, files.AICPU_COLUMNS, ("kernel_type", "total_time"), health, KERNEL_TIMES)
    if not frame.height:
        return frame
    times = [name for name in ("total_time", "dispatch_time", "execution_time") if name in frame.columns]
    frame = frame.with_columns(_float_column(name) for name in times).drop_nulls("total_time")
    if {"run_start", "run_end", "dispatch_time"} <= set(frame.columns):
        is_whole = (_bounded_number("run_end") - _bounded_number("run_start") - pl.col("total_time")).abs() < _ROUNDING_MS
        counted = frame.filter(is_whole & (pl.col("dispatch_time") > 0))
        if counted.height:
            message = f"run_end in {path.name} counts the wait before run_start a second time"
            health.add("wait_counted_twice", WARNING, counted.height, message, KERNEL_TIMES)
    return frame


def aicpu_text(path: Path, health: HealthLog) -> pl.DataFrame:
    """``output_data_preprocess_aicpu_<rank>.txt``, the older form of the same rows, without execution_time."""
    try:
        lines = read_bytes(path).decode("utf-8", "replace").splitlines()
    except OSError as error:
        health.add("unreadable_file", WARNING, 1, f"{path.name} cannot be read ({error.strerror or error})", KERNEL_TIMES)
        return pl.DataFrame()
    rows = [fields for line in lines if len(fields := line.split()) == 6 and fields[0].isdigit()]
    names = [name for name in files.AICPU_COLUMNS if name != "execution_time"]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    return frame.with_columns(_float_column(name) for name in names[2:4]).drop_nulls("total_time")


def framework_raw(path: Path, health: HealthLog) -> pl.DataFrame:
    """``framework_raw_<rank>.csv`` of 8, 9, 10 or 11 columns, as text; op_name and kernel_name filled from the full name."""
    frame = read_renamed_columns(path, files.FRAMEWORK_COLUMNS, ("full_kernel_name",), health, KERNEL_DETAILS)
    if not frame.height:
        return frame
    last = pl.col("full_kernel_name").str.split("/").list.last()
    if "kernel_name" not in frame.columns:
        # the oldest form calls the last part op_name
        frame = frame.with_columns(kernel_name=last, op_name=pl.col("full_kernel_name"))
    return frame.select([name for name in files.FRAMEWORK_COLUMNS if name in frame.columns])


def flops(path: Path, health: HealthLog) -> pl.DataFrame:
    """``flops_<rank>.txt`` of 4, 5 or 7 columns, by their names; numbers. MindSpore ends its last line or does not."""
    frame = read_renamed_columns(path, files.FLOPS_COLUMNS, ("full_kernel_name",), health, KERNEL_DETAILS, open_end=True)
    return frame.with_columns(_float_column(name) for name in frame.columns[1:]) if frame.height else frame


def flops_summary(path: Path, health: HealthLog) -> pl.DataFrame:
    """``flops_summary_<rank>.json``: one row of its numbers."""
    members = json_object(path, health)
    numbers = {key: float(value) for key, value in members.items() if type(value) in (int, float) and abs(value) < _LARGEST}
    return pl.DataFrame([numbers]) if numbers else pl.DataFrame()


def operator_memory(path: Path, health: HealthLog) -> pl.DataFrame:
    """``operator_memory_<rank>.csv`` as rows of ``allocations``; the header and the rows of some versions end in a comma."""
    table = read_table([path], health, MEMORY)
    if not has_required_columns(table, path.name, health, MEMORY, ("Allocation Time(us)",), ("Size(KB)",)):
        return pl.DataFrame()
    allocation = table.time_ns(0, "Allocation Time(us)")
    duration = table.ns("Duration(us)")
    device = table.text("Device", "Device Type").cast(pl.String)
    frame = pl.DataFrame(
        {
            "name": table.name("Name"),
            "bytes": table.bytes("Size"),
            "allocation_ns": allocation,
            # not freed: no duration
            "release_ns": allocation + duration,
            "allocation_allocated": table.bytes("Allocation Total Allocated"),
            "allocation_reserved": table.bytes("Allocation Total Reserved"),
            "release_allocated": table.bytes("Release Total Allocated"),
            "release_reserved": table.bytes("Release Total Reserved"),
            "device_type": device.str.split(":").list.first(),
            "device": device.str.extract(r":(\d{1,6})$").cast(pl.Int32),
        }
    )
    freed = pl.col("release_ns").is_not_null()
    frame = frame.with_columns(pl.when(freed).then(pl.col("release_allocated", "release_reserved")))
    table.report(path.name, health, {}, MEMORY, needed=("Allocation Time(us)", "Size(KB)"))
    complete = frame.drop_nulls(["allocation_ns", "bytes"])
    if lost := frame.height - complete.height:
        health.add("damaged_rows", WARNING, lost, f"rows of {path.name} have no time or size and were left out", MEMORY)
    return complete


def _float_column(name: str) -> pl.Expr:
    return _bounded_number(name).alias(name)


def _bounded_number(name: str) -> pl.Expr:
    number = pl.col(name).cast(pl.Float64, strict=False)
    return pl.when(number.abs() < _LARGEST).then(number)
