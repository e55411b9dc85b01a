"""kernel_details.csv: one row per device task that computes or communicates (on a GPU also: copies), in start order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl

from steplens.formats.ascend_results import KERNEL_COLUMNS
from steplens.formats.ascend_terms import NOT_AVAILABLE
from steplens.trace.schema import CORE_CPU
from steplens.writers.common.metrics import metric_columns
from steplens.writers.common.output import LEVEL0, NPU, NothingToWriteError, Output, device_kind, listed_tasks, step_exists
from steplens.writers.common.text import guard_formula, microseconds, microseconds_text, render_distinct, write_csv

_LISTS = ("input_shapes", "input_types", "input_formats", "output_shapes", "output_types", "output_formats")


def write(output: Output, path: Path) -> None:
    """Write kernel_details.csv: at Level0 the short layout, at Level1 and above that of op_summary.

    Start times are µs after the time base, durations µs; tasks of the CPU stand one after the other (``device_tasks``). A value
    that the source does not know is ``N/A``. The columns of the long layout are followed by one per performance counter, as
    the source measured and ordered them.
    """
    kernels = listed_tasks(output.trace).collect()
    if kernels.is_empty():
        raise NothingToWriteError("no device tasks were recorded")
    kernels = kernels.sort("start_ns", "device", "stream", maintain_order=True)
    npu = device_kind(output.trace) == NPU
    if output.level == LEVEL0:
        columns = _title_columns(_short_layout(kernels, output.base_ns, npu))
    else:
        metrics = metric_columns(output.trace)
        kernels = kernels.join(metrics, on="id", how="left", maintain_order="left")
        columns = _title_columns(_full_layout(kernels, output.base_ns, npu))
        columns |= {guard_formula(name) or name: _number_cells(kernels[name]) for name in metrics.columns[1:]}
    if step_exists(output.trace):
        columns = {**_title_columns({"step": pl.col("step")}), **columns}
    write_csv(kernels.select(**columns), path)


def _title_columns(cells: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
    return {KERNEL_COLUMNS[key]: cell for key, cell in cells.items()}


def _short_layout(kernels: pl.DataFrame, base_ns: int, npu: bool) -> dict[str, pl.Expr]:
    lists = {column: _list_cell(kernels, column, npu) for column in _LISTS if kernels[column].is_not_null().any()}
    return {
        "device": pl.col("device").fill_null(0),
        **{column: _text_cells(kernels[column], guard_formula) for column in ("name", "type", "core")},
        **_time_cells(kernels, base_ns),
        "blocks": _number_cells(kernels["blocks"]),
        **lists,
    }


def _full_layout(kernels: pl.DataFrame, base_ns: int, npu: bool) -> dict[str, pl.Expr]:
    return {
        "device": pl.col("device").fill_null(0),
        "model_id": _number_cells(kernels["model_id"]),
        # a GPU numbers its tasks only by the call that launched them
        "task_id": _number_cells(kernels["task_id"] if npu else kernels["correlation"]),
        "stream": _number_cells(kernels["stream"]),
        **{column: _text_cells(kernels[column], guard_formula) for column in ("name", "type")},
        # the code of a CPU or GPU is compiled before it sees a shape, which the clients call static
        "state": _text_cells(kernels["state"], guard_formula) if npu else _text_cells(kernels["core"], lambda core: "static"),
        "core": _text_cells(kernels["core"], guard_formula),
        **_time_cells(kernels, base_ns),
        **{column: _number_cells(kernels[column]) for column in ("blocks", "mix_blocks")},
        "hf32": _text_cells(kernels["hf32"], guard_formula),
        **{column: _list_cell(kernels, column, npu) for column in _LISTS},
        "context_id": _number_cells(kernels["context_id"]),
    }


def _time_cells(kernels: pl.DataFrame, base_ns: int) -> dict[str, pl.Expr]:
    return {
        "start": microseconds_text(pl.col("start_ns") - base_ns),
        "duration": microseconds(pl.col("end_ns") - pl.col("start_ns")),
        "wait": _wait_times(kernels),
    }


def _wait_times(kernels: pl.DataFrame) -> pl.Expr:
    """Wait times; a task of the CPU is its own launch and waits for nothing, elsewhere an unknown wait is N/A."""
    if kernels["wait_ns"].null_count() == 0:
        return microseconds(pl.col("wait_ns"))
    if (kernels["core"] == CORE_CPU).all():
        return microseconds(pl.col("wait_ns").fill_null(0))
    return microseconds(pl.col("wait_ns")).cast(pl.String).fill_null(NOT_AVAILABLE)


def _text_cells(values: pl.Series, render: Callable[[str], str | None]) -> pl.Expr:
    return pl.lit(render_distinct(values, render, missing=NOT_AVAILABLE))


def _number_cells(values: pl.Series) -> pl.Expr:
    """Numbers where known; the column stays numeric, hence cheap to print, unless something is missing."""
    if values.null_count() == 0:
        return pl.lit(values)
    if values.null_count() == len(values):
        return pl.lit(NOT_AVAILABLE)
    return pl.lit(values.cast(pl.String).fill_null(NOT_AVAILABLE))


def _list_cell(kernels: pl.DataFrame, column: str, npu: bool) -> pl.Expr:
    """Shapes carry literal quotes inside the cell, as in op_summary; an NPU's task may be known to have none (``""``)."""
    if not column.endswith("shapes"):
        return _text_cells(kernels[column], guard_formula)
    return _text_cells(kernels[column], lambda text: f'"{text}"' if text or npu else None)
