"""kernel_details.csv: one row per device task, in start order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl

from steplens.trace.schema import CORE_CPU
from steplens.writers.output import LEVEL0, NothingToWriteError, Output, step_exists
from steplens.writers.text import NOT_AVAILABLE, guard, microseconds, microseconds_text, render_distinct, write_csv

_CUDA = "CUDA"


def write(output: Output, path: Path) -> None:
    """Write kernel_details.csv: at Level0 the short layout, at Level1 and above that of op_summary.

    Start times are µs after the time base, durations µs; a value that the source does not know is ``N/A``.
    """
    kernels = output.trace.kernels
    if kernels is None or kernels.is_empty():
        raise NothingToWriteError("no device tasks were recorded")
    kernels = kernels.sort("start_ns", "device", "stream", maintain_order=True)
    columns = _short_layout(kernels, output.base_ns) if output.level == LEVEL0 else _full_layout(kernels, output.base_ns)
    if step_exists(output.trace):
        columns = {"Step Id": pl.col("step"), **columns}
    write_csv(kernels.select(**columns), path)


def _short_layout(kernels: pl.DataFrame, base_ns: int) -> dict[str, pl.Expr]:
    columns = {
        "Device_id": _device(),
        "Name": _cell(kernels["name"], guard),
        "Type": _cell(kernels["type"], guard),
        "Accelerator Core": _cell(kernels["core"], guard),
        **_times(kernels, base_ns),
        "Block Num": _unknown(),
    }
    if kernels["input_shapes"].is_not_null().any():
        columns["Input Shapes"] = _cell(kernels["input_shapes"], _quoted)
    if kernels["input_types"].is_not_null().any():
        columns["Input Data Types"] = _cell(kernels["input_types"], guard)
    return columns


def _full_layout(kernels: pl.DataFrame, base_ns: int) -> dict[str, pl.Expr]:
    return {
        "Device_id": _device(),
        "Model ID": _unknown(),
        "Task ID": _number(kernels["correlation"]),
        "Stream ID": _number(kernels["stream"]),
        "Name": _cell(kernels["name"], guard),
        "Type": _cell(kernels["type"], guard),
        "OP State": _cell(kernels["core"], _op_state),
        "Accelerator Core": _cell(kernels["core"], guard),
        **_times(kernels, base_ns),
        "Block Num": _unknown(),
        "Mix Block Num": _unknown(),
        "HF32 Eligible": _unknown(),
        "Input Shapes": _cell(kernels["input_shapes"], _quoted),
        "Input Data Types": _cell(kernels["input_types"], guard),
        "Input Formats": _unknown(),
        "Output Shapes": _unknown(),
        "Output Data Types": _unknown(),
        "Output Formats": _unknown(),
        "Context ID": _unknown(),
    }


def _times(kernels: pl.DataFrame, base_ns: int) -> dict[str, pl.Expr]:
    return {
        "Start Time(us)": microseconds_text(pl.col("start_ns") - base_ns),
        "Duration(us)": microseconds(pl.col("end_ns") - pl.col("start_ns")),
        "Wait Time(us)": _wait(kernels),
    }


def _wait(kernels: pl.DataFrame) -> pl.Expr:
    """Wait times; a task of the CPU is its own launch and waits for nothing, elsewhere an unknown wait is N/A."""
    if kernels["wait_ns"].null_count() == 0:
        return microseconds(pl.col("wait_ns"))
    if (kernels["core"] == CORE_CPU).all():
        return microseconds(pl.col("wait_ns").fill_null(0))
    return microseconds(pl.col("wait_ns")).cast(pl.String).fill_null(NOT_AVAILABLE)


def _device() -> pl.Expr:
    return pl.col("device").fill_null(0)


def _unknown() -> pl.Expr:
    return pl.lit(NOT_AVAILABLE)


def _cell(values: pl.Series, render: Callable[[str], str | None]) -> pl.Expr:
    return pl.lit(render_distinct(values, render, missing=NOT_AVAILABLE))


def _number(values: pl.Series) -> pl.Expr:
    """Integers where known; the column stays numeric, hence cheap to print, unless something is missing."""
    if values.null_count() == 0:
        return pl.lit(values)
    if values.null_count() == len(values):
        return _unknown()
    return pl.lit(values.cast(pl.String).fill_null(NOT_AVAILABLE))


def _quoted(text: str) -> str | None:
    """A list of shapes keeps literal quotes inside the cell, as in op_summary."""
    return f'"{text}"' if text else None


def _op_state(core: str) -> str | None:
    """Eager kernels of CPU and CUDA are compiled before they see a shape, which the clients call static."""
    return "static" if core == CORE_CPU or core.startswith(_CUDA) else None
