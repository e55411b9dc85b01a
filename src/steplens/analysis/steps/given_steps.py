"""Step times that a source has computed itself, for traces that hold them and not the work that they were computed from."""

from __future__ import annotations

import polars as pl

from steplens.analysis.steps.ascend_step_times import COLUMNS
from steplens.analysis.tools.once import once_per_trace
from steplens.formats.ascend_database import STEP_TABLE
from steplens.formats.ascend_results import STEP, STEP_COLUMNS, STEP_PARTS, STEP_TRACE_TABLE
from steplens.trace.trace import Trace

_STEP = (STEP, STEP_COLUMNS[STEP])
_TABLES = (STEP_TRACE_TABLE, STEP_TABLE)


@once_per_trace
def given_steps(trace: Trace) -> pl.DataFrame:
    """The steps of ``step_trace_time.csv`` or of ``StepTraceTime`` in ``analysis.db``, columns as in ``ascend_step_times``, ns.

    They are the source's own figures. ``duration_ns`` is what they add up to: preparing, stage and bubble, from the start of
    the step to the end of its last device work. When a step began nothing tells: null. Several
    devices of a process add rows of the same step, of which the first counts. No rows where the source has no such table.
    """
    for name, column in zip(_TABLES, range(2), strict=True):
        table = trace.source_table(name)
        if table is None or _STEP[column] not in table.columns:
            continue
        parts = {
            f"{part}_ns": _microseconds_to_ns(names[column]) if names[column] in table.columns else pl.lit(None, dtype=pl.Int64)
            for part, names in STEP_PARTS.items()
        }
        number = pl.col(_STEP[column]).cast(pl.String).str.extract(r"(\d{1,18})").cast(pl.Int64, strict=False)
        steps = table.select(step=number, **parts).drop_nulls("step").unique("step", keep="first", maintain_order=True)
        steps = steps.with_columns(duration_ns=pl.sum_horizontal("preparing_ns", "stage_ns", "bubble_ns", ignore_nulls=False))
        missing = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in COLUMNS.items() if name not in steps.columns]
        return steps.with_columns(missing).select(list(COLUMNS)).sort("step")
    return pl.DataFrame(schema=COLUMNS)


def _microseconds_to_ns(column: str) -> pl.Expr:
    microseconds = pl.col(column).cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)
    return (microseconds * 1000).round().cast(pl.Int64, strict=False)
