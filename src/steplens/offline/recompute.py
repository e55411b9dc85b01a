"""Recomputed results beside those that a capture brought along: the same files, cell by cell."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from steplens.analysis.stored_figures import is_contradiction
from steplens.common import json_text, rundir
from steplens.common.storage.files import read_bytes
from steplens.formats import ascend_results as results
from steplens.formats.ascend_database import ANALYSIS_DATABASE, STEP_TABLE
from steplens.readers.contents import Contents
from steplens.readers.reader import AnyCapture
from steplens.trace.trace import Trace

#: renamed over the years
_RENAMED = {old: titles[0] for key in ("blocks", "mix_blocks") for titles in [results.KERNEL_TITLES[key]] for old in titles[1:]}

_FILES = (
    results.STEP_TRACE, results.OP_STATISTIC, results.KERNEL_DETAILS, results.OPERATOR_DETAILS,
    results.OPERATOR_MEMORY, results.MEMORY_RECORD, results.API_STATISTIC, results.MODULE_MEMORY_FILE,
)  # fmt: skip
_OF_DATABASE = f"{ANALYSIS_DATABASE}: {STEP_TABLE}"

#: what an entry of a JSON file is called: the keys that lead to it
_ENTRY = "Entry"
_BETWEEN_KEYS = " / "
_PACKETS = ("Count", "Duration(ms)")

#: columns that measure something; other numbers are names of things
_MEASURES = r"(?i)(\(.*\)|count|ratio|cycles)$"
_STEP_MEASURES = tuple(title for title, _ in results.STEP_PARTS.values())
#: figures that the format's own tool is known to get wrong over several steps, so that a difference says nothing
_DOUBTFUL = {
    results.STEP_TRACE: tuple(results.STEP_PARTS[part][0] for part in ("free", "stage")),
    _OF_DATABASE: tuple(results.STEP_PARTS[part][0] for part in ("bubble", "exclude_receive")),
}
#: us since 1970 were doubles on their way, a quarter of a us each
_ROUNDING_US = 0.5


@dataclass(frozen=True)
class Comparison:
    """One result of a capture beside the recomputed one.

    Attributes:
        name: file, or database table.
        rows: rows of the capture's own and of the recomputed result; of a JSON file its entries.
        cells: how many cells both have.
        equal: how many of them are equal; numbers when they differ by less than half of the last digit of either.
        largest: the largest difference of a number, in the unit of its column; 0 where all are equal.
        column: where that is.
        problem: why the two cannot be compared cell by cell; empty when they can.
        matters: whether a measured figure differs by more than 1 % and more than rounding, or the numbers of rows do.
    """

    name: str
    rows: tuple[int, int]
    cells: int = 0
    equal: int = 0
    largest: float = 0.0
    column: str = ""
    problem: str = ""
    matters: bool = False


def compare_results(capture: AnyCapture, trace: Trace, target: Path) -> tuple[Comparison, ...]:
    """Compare the results in the run directory ``target`` with those of the capture that they were made from."""
    if not isinstance(capture.where, Contents) or capture.where.output is None:
        return ()
    bases = _base_us(capture.path), _base_us(target)
    return tuple(_compare_all(capture.where.output, target / rundir.OUTPUT_DIRECTORY, trace, bases))


def _compare_all(own: Path, recomputed: Path, trace: Trace, bases: tuple[Decimal, Decimal]) -> Iterator[Comparison]:
    for name in _FILES:
        if (own / name).is_file() and (recomputed / name).is_file():
            yield _compare_frames(name, _read_csv(own / name), _read_csv(recomputed / name), bases)
    for name in (results.COMMUNICATION, results.COMMUNICATION_MATRIX):
        if (own / name).is_file() and (recomputed / name).is_file():
            yield _compare_json(name, own / name, recomputed / name, bases)
    steps = trace.source_table(STEP_TABLE)
    if steps is not None and (recomputed / results.STEP_TRACE).is_file():
        renamed = {column: title for title, column in results.STEP_COLUMNS.items() if column in steps.columns}
        yield _compare_frames(_OF_DATABASE, steps.rename(renamed), _read_csv(recomputed / results.STEP_TRACE), bases)


def _base_us(run_directory: Path) -> Decimal:
    """What the times of a run directory's text files count from, us since 1970: 0 but for results of steplens."""
    try:
        base = json_text.loads(read_bytes(run_directory / rundir.METADATA_FILE))[results.TIME_BASE_KEY]
    except (OSError, ValueError, KeyError, TypeError):
        return Decimal(0)
    return Decimal(base) / 1000 if type(base) is int else Decimal(0)


def _read_csv(path: Path) -> pl.DataFrame:
    """Every cell as text, without the tabs that keep times text in spreadsheets."""
    text = read_bytes(path)
    frame = pl.read_csv(io.BytesIO(text), infer_schema=False) if text.strip() else pl.DataFrame()
    return frame.with_columns(pl.all().str.replace_all("\r", "").str.strip_chars(" \t'")).rename(
        {old: new for old, new in _RENAMED.items() if old in frame.columns}
    )


def _compare_json(name: str, own: Path, again: Path, bases: tuple[Decimal, Decimal]) -> Comparison:
    try:
        frames = [_flatten_document(json_text.loads(read_bytes(path), parse_float=str, parse_int=str)) for path in (own, again)]
    except ValueError:
        return Comparison(name, (0, 0), problem="one of them is no JSON")
    theirs, ours = frames
    if theirs.height == ours.height and theirs.height and set(theirs[_ENTRY]) != set(ours[_ENTRY]):
        return Comparison(name, (theirs.height, ours.height), problem="the entries differ", matters=True)
    return _compare_frames(name, theirs, ours, bases)


def _flatten_document(document: Any) -> pl.DataFrame:
    """A row for every object of a JSON document that holds values: the keys that lead to it, and its values as text.

    What moved in packets of one size is a list of their number and their time: a row, too.
    """
    rows: list[dict[str, str | None]] = []
    pending: list[tuple[tuple[str, ...], Any]] = [((), document)]
    while pending:
        keys, value = pending.pop()
        if isinstance(value, list):
            value = dict(zip(_PACKETS, value, strict=False))
        if not isinstance(value, dict):
            continue
        values = {key: None if item is None else str(item) for key, item in value.items() if not isinstance(item, (dict, list))}
        if values:
            rows.append({_ENTRY: _BETWEEN_KEYS.join(keys), **values})
        pending += [((*keys, key), item) for key, item in value.items() if isinstance(item, (dict, list))]
    columns = dict.fromkeys([_ENTRY, *(key for row in rows for key in row)], pl.String)
    return pl.DataFrame(rows, schema=columns)


def _compare_frames(
    name: str, own: pl.DataFrame, again: pl.DataFrame, bases: tuple[Decimal, Decimal] = (Decimal(0), Decimal(0))
) -> Comparison:
    rows = (own.height, again.height)
    if own.height != again.height:
        return Comparison(name, rows, problem="the numbers of rows differ", matters=True)
    own, again = _in_order(own), _in_order(again)
    cells = equal = 0
    largest, where, wrong = 0.0, "", False
    for column in own.columns:
        if column == _ENTRY or column not in again.columns:
            continue
        a, b = own[column].cast(pl.String), again[column].cast(pl.String)
        if _ENTRY in own.columns:
            # an entry holds what was measured of it, not the same everywhere
            both = a.is_not_null() & b.is_not_null()
            a, b = a.filter(both), b.filter(both)
        cells += len(a)
        numbers = pl.DataFrame([side.cast(pl.Decimal(38, 9), strict=False).alias(key) for key, side in (("a", a), ("b", b))])
        rounding, tolerance = 10.0 ** -min(_count_decimals(a), _count_decimals(b)), 0.0
        is_time = column in results.TIME_COLUMNS and numbers["a"].null_count() < len(a)
        if is_time:
            numbers = numbers.with_columns(pl.col("a") + bases[0], pl.col("b") + bases[1])
            # a JSON file has no texts with all digits, but doubles
            tolerance = _double_spacing(numbers["a"]) if _ENTRY in own.columns else 0.0
        difference = (numbers["a"] - numbers["b"]).cast(pl.Float64).abs()
        same = (a == b).fill_null(False) & (not is_time) | ((a.fill_null("") == "") & (b.fill_null("") == ""))
        if difference.null_count() < len(a):
            same = same | (difference <= max(0.5 * rounding, tolerance)).fill_null(False)
        equal += int(same.sum())
        worst = difference.filter(~same).max()
        if isinstance(worst, float) and worst > largest:
            largest, where = worst, column
        elif not same.all() and not where:
            where = column
        if not same.all() and _is_judged(name, column):
            unequal = numbers.cast(pl.Float64).filter(~same)
            # of points in time it is their distances that count
            differences = unequal.select(pl.col("a", "b") - unequal["a"].min()) if is_time else unequal
            least = max(rounding, _ROUNDING_US if column.endswith("(us)") or column in _STEP_MEASURES else 0.0)
            wrong |= bool(differences.select(is_contradiction(pl.col("a"), pl.col("b"), pl.lit(least)).any()).item())
    return Comparison(name, rows, cells, equal, largest, where, matters=wrong)


def _is_judged(name: str, column: str) -> bool:
    """Whether a difference in a column can matter."""
    measured = column in _STEP_MEASURES or bool(pl.select(pl.lit(column).str.contains(_MEASURES)).item())
    return measured and column not in _DOUBTFUL.get(name, ())


def _double_spacing(times: pl.Series) -> float:
    """The distance of neighbouring doubles as large as these us."""
    largest = times.cast(pl.Float64).abs().max()
    return float(np.spacing(largest)) if isinstance(largest, float) else 0.0


def _in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows in order of their first time column, equal times in order of name: results may list their rows differently."""
    if _ENTRY in frame.columns:
        return frame.sort(_ENTRY, maintain_order=True)
    times = [column for column in results.TIME_COLUMNS if column in frame.columns]
    if not times:
        return frame
    names = [pl.col("Name")] if "Name" in frame.columns else []
    return frame.sort(pl.col(times[0]).cast(pl.Decimal(38, 9), strict=False), *names, maintain_order=True)


def _count_decimals(texts: pl.Series) -> int:
    """Digits after the point that the column is written with, at most three: more are the noise of doubles."""
    longest = texts.str.extract(r"\.(\d+)$").str.len_chars().max()
    return min(int(longest), 3) if isinstance(longest, int) else 3
