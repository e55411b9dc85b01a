"""Recomputed results beside those that a capture brought along: the same files, cell by cell."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from steplens import rundir
from steplens.readers.contents import Contents
from steplens.readers.detect import Found
from steplens.trace.trace import Trace

#: columns that hold points in time: results may count from a base of their own
_TIME_COLUMNS = ("Start Time(us)", "Allocation Time(us)", "Release Time(us)", "Active Release Time(us)", "Timestamp(us)")

#: renamed over the years, see section 12.3 of the contract on the Ascend profiler's files
_RENAMED = {"Block Dim": "Block Num", "Mix Block Dim": "Mix Block Num"}

_FILES = (
    "step_trace_time.csv",
    "op_statistic.csv",
    "kernel_details.csv",
    "operator_details.csv",
    "operator_memory.csv",
    "memory_record.csv",
    "api_statistic.csv",
    "npu_module_mem.csv",
)


@dataclass(frozen=True)
class Comparison:
    """One result of a capture beside the recomputed one.

    Attributes:
        name: file, or database table.
        rows: rows of the capture's own and of the recomputed result.
        cells: how many cells both have.
        equal: how many of them are equal; numbers when they differ by less than half of the last digit of either.
        largest: the largest difference of a number, in the unit of its column; 0 where all are equal.
        column: where that is.
        problem: why the two cannot be compared cell by cell; empty when they can.
    """

    name: str
    rows: tuple[int, int]
    cells: int = 0
    equal: int = 0
    largest: float = 0.0
    column: str = ""
    problem: str = ""


def compare(found: Found, trace: Trace, target: Path) -> tuple[Comparison, ...]:
    """Compare the results in the run directory ``target`` with those of the capture that they were made from.

    Args:
        found: the capture.
        trace: its tables.
        target: run directory with the recomputed results.
    """
    if not isinstance(found.where, Contents) or found.where.output is None:
        return ()
    own, recomputed = found.where.output, target / rundir.OUTPUT_DIRECTORY
    return tuple(_compare_all(own, recomputed, trace))


def _compare_all(own: Path, recomputed: Path, trace: Trace) -> Iterator[Comparison]:
    for name in _FILES:
        if (own / name).is_file() and (recomputed / name).is_file():
            yield _compare_frames(name, _read_csv(own / name), _read_csv(recomputed / name))
    steps = trace.source_table(STEP_TRACE_TABLE)
    if steps is not None and (recomputed / "step_trace_time.csv").is_file():
        renamed = {column: title for title, column in _STEP_TRACE_COLUMNS.items() if column in steps.columns}
        yield _compare_frames(
            f"analysis.db: {STEP_TRACE_TABLE}", steps.rename(renamed), _read_csv(recomputed / "step_trace_time.csv")
        )


STEP_TRACE_TABLE = "StepTraceTime"

_STEP_TRACE_COLUMNS = {
    "Step": "step",
    "Computing": "computing",
    "Communication(Not Overlapped)": "communication_not_overlapped",
    "Overlapped": "overlapped",
    "Communication": "communication",
    "Free": "free",
    "Stage": "stage",
    "Bubble": "bubble",
    "Communication(Not Overlapped and Exclude Receive)": "communication_not_overlapped_and_exclude_receive",
    "Preparing": "preparing",
}


def _read_csv(path: Path) -> pl.DataFrame:
    """Every cell as text, without the tabs that keep times text in spreadsheets."""
    text = path.read_bytes()
    frame = pl.read_csv(io.BytesIO(text), infer_schema=False) if text.strip() else pl.DataFrame()
    return frame.with_columns(pl.all().str.replace_all("\r", "").str.strip_chars(" \t'")).rename(
        {old: new for old, new in _RENAMED.items() if old in frame.columns}
    )


def _compare_frames(name: str, own: pl.DataFrame, again: pl.DataFrame) -> Comparison:
    rows = (own.height, again.height)
    if own.height != again.height:
        return Comparison(name, rows, problem="the numbers of rows differ")
    own, again = _in_order(own), _in_order(again)
    cells = equal = 0
    largest, where = 0.0, ""
    for column in own.columns:
        if column not in again.columns:
            continue
        a, b = own[column].cast(pl.String), again[column].cast(pl.String)
        cells += len(a)
        numbers_a, numbers_b = (side.cast(pl.Decimal(38, 9), strict=False) for side in (a, b))
        if column in _TIME_COLUMNS and numbers_a.drop_nulls().len() and numbers_b.drop_nulls().len():
            # only distances between times can be equal: the two files may count from different bases
            numbers_a, numbers_b = numbers_a - numbers_a.drop_nulls()[0], numbers_b - numbers_b.drop_nulls()[0]
        difference = (numbers_a - numbers_b).cast(pl.Float64).abs()
        close = difference <= 0.5 * 10.0 ** -min(_decimals(a), _decimals(b)) if difference.null_count() < len(a) else None
        same = (a == b).fill_null(False) | ((a.fill_null("") == "") & (b.fill_null("") == ""))
        if close is not None:
            same = same | close.fill_null(False)
        equal += int(same.sum())
        worst = difference.filter(~same).max()
        if isinstance(worst, float) and worst > largest:
            largest, where = worst, column
        elif not same.all() and not where:
            where = column
    return Comparison(name, rows, cells, equal, largest, where)


def _in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows in order of their first time column, equal times in order of name: results may list their rows differently."""
    times = [column for column in _TIME_COLUMNS if column in frame.columns]
    if not times:
        return frame
    keys = [
        pl.col(times[0]).cast(pl.Decimal(38, 9), strict=False),
        *(pl.col(name) for name in ("Name",) if name in frame.columns),
    ]
    return frame.sort(keys, maintain_order=True)


def _decimals(texts: pl.Series) -> int:
    """Digits after the point that the column is written with, at most three: more are the noise of doubles."""
    longest = texts.str.extract(r"\.(\d+)$").str.len_chars().max()
    return min(int(longest), 3) if isinstance(longest, int) else 3
