"""Whether the result files beside a trace's source say the same: counts and sums, not cell by cell."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from steplens.common.storage.files import open_file
from steplens.formats import ascend_results as results
from steplens.trace.health import RESULT_FILES, WARNING, HealthLog
from steplens.trace.schema import KIND_COMMUNICATION, KIND_COMPUTE
from steplens.trace.trace import Trace

#: result files print durations with three decimals of a µs at most, some with two: half of the last digit each
_ROUNDING_NS = 5

_BYTES = 5 << 30


def with_findings(trace: Trace, output: Path) -> Trace:
    """``trace`` with a health finding for each result file in ``output`` that contradicts its tables.

    Compared are the numbers of kernels and operators, the total duration of the kernels, and the steps.
    """
    log = HealthLog()
    for check in (_kernel_conflict, _operator_conflict, _step_conflict):
        problem = check(trace, output)
        if problem:
            message = f"{problem}; the text files were made from other data, or were changed"
            log.add("conflicting_results", WARNING, 1, message, RESULT_FILES)
    if not log.findings:
        return trace
    tables = {name: frame for name in trace if name != "health" and (frame := trace.lazy(name)) is not None}
    health = trace.required("health").collect()
    return Trace(trace.source, {**tables, "health": pl.concat([health, log.frame()])})


def _kernel_conflict(trace: Trace, output: Path) -> str:
    rows = _read_result_column(output / results.KERNEL_DETAILS, results.KERNEL_COLUMNS["duration"])
    if rows is None or "kernels" not in trace:
        return ""
    kinds = pl.col("kind").cast(pl.String).is_in([KIND_COMPUTE, KIND_COMMUNICATION])
    mine = trace.required("kernels").filter(kinds).select(pl.len(), total=pl.col("self_ns").sum()).collect()
    count, total = mine.row(0)
    if count != len(rows):
        return f"{results.KERNEL_DETAILS} lists {len(rows)} kernels, the data that was read holds {count}"
    written = rows.cast(pl.Decimal(38, 6), strict=False).sum()
    if written is not None and abs(float(written) * 1000 - total) > _ROUNDING_NS * max(count, 1):
        return f"{results.KERNEL_DETAILS} adds up to {float(written):.3f} us, the data that was read to {total / 1000:.3f} us"
    return ""


def _operator_conflict(trace: Trace, output: Path) -> str:
    rows = _read_result_column(output / results.OPERATOR_DETAILS, "Name")
    if rows is None or "ops" not in trace:
        return ""
    steps = pl.col("name").cast(pl.String).str.starts_with("ProfilerStep")
    count = trace.required("ops").filter(~steps).select(pl.len()).collect().item()
    if count != len(rows):
        return f"{results.OPERATOR_DETAILS} lists {len(rows)} operators, the data that was read holds {count}"
    return ""


def _step_conflict(trace: Trace, output: Path) -> str:
    rows = _read_result_column(output / results.STEP_TRACE, results.STEP)
    if rows is None or trace.steps is None:
        return ""
    written = set(rows.cast(pl.Int64, strict=False).drop_nulls().to_list())
    unknown = written - set(trace.steps["id"].to_list())
    if unknown:
        return f"{results.STEP_TRACE} has steps {sorted(unknown)[:5]} that the data that was read lacks"
    return ""


def _read_result_column(path: Path, name: str) -> pl.Series | None:
    """One column of a result file as text; None where the file is missing, damaged or has no such column."""
    try:
        if not path.is_file() or path.stat().st_size > _BYTES:
            return None
        with open_file(path) as file:
            frame = pl.read_csv(file, infer_schema=False, columns=[name])
    except (OSError, pl.exceptions.PolarsError):
        return None
    return frame[name]
