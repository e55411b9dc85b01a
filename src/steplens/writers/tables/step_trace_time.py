"""step_trace_time.csv: where the device time of each step went."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from steplens.analysis.steps.ascend_step_times import ascend_step_times
from steplens.formats.ascend_results import DEVICE, STEP, STEP_PARTS
from steplens.writers.common.output import NothingToWriteError, Output, used_devices
from steplens.writers.common.text import microseconds, write_csv

#: titles of the parts of a step, and their columns of ``ascend_step_times``
COLUMNS = {title: f"{part}_ns" for part, (title, _) in STEP_PARTS.items()}


def write(output: Output, path: Path) -> None:
    """Write step_trace_time.csv (µs); a run without steps has one row with an empty step.

    What the columns mean is defined by ``analysis.steps.ascend_step_times.ascend_step_times``.
    """
    rows = step_rows(output)
    table = rows.select(
        pl.col("device").alias(DEVICE),
        pl.col("step").alias(STEP),
        **{title: microseconds(pl.col(column)) for title, column in COLUMNS.items()},
    )
    write_csv(table, path)


def step_rows(output: Output) -> pl.DataFrame:
    """The rows of step_trace_time.csv, in ns: ``analysis.steps.ascend_step_times.ascend_step_times`` in order of step, with the
    device.

    Raises:
        NothingToWriteError: there is no device work, or nothing to set it against.
    """
    devices = used_devices(output.trace)
    if not devices:
        raise NothingToWriteError("no device tasks and no communication were recorded")
    rows = ascend_step_times(output.trace, whole_trace_without_steps=True).sort("step", nulls_last=True)
    if rows.is_empty():
        raise NothingToWriteError("neither steps nor operator calls were recorded")
    # the device of the rank is the lowest that ran a task or communicated
    return rows.with_columns(device=pl.lit(devices[0]))
