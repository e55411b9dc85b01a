"""CSV files of CANN and of the Ascend PyTorch Profiler as frames of text: slices, old and new headers, damage."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from steplens.common.storage.files import open_file
from steplens.readers.common.microseconds import after_base, text_ns
from steplens.trace.health import ERROR, WARNING, HealthLog
from steplens.trace.schema import NAME

UNKNOWN = ("N/A", "", "NA")
_KILO, _MEGA = 1 << 10, 1 << 20
_UNIT_BYTES = {"(b)": 1, "(byte)": 1, "(kb)": _KILO, "(mb)": _MEGA}
#: what a spreadsheet takes for a formula carries a quote in front, and so does what looks like that
#: (``writers.common.text.guard``)
_GUARDED = r"^'('*[=+\-@\t\r])"
#: a cell larger than this is none
_CELL_LIMIT = 64 << 20


class TextTable:
    """Rows of text under the file's own headers, and columns of them by any of the names they have had.

    Attributes:
        frame: String columns, in the order in which the files name them.
        damaged: of every column that was asked for as numbers, the cells that say something and are none.
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame
        self.damaged: dict[str, int] = {}
        self._columns = {_normalize_header(column): column for column in reversed(frame.columns)}

    def find(self, *names: str) -> str | None:
        """The file's name of the first of the columns that it has; case, blanks and underscores do not matter."""
        return next((self._columns[_normalize_header(name)] for name in names if _normalize_header(name) in self._columns), None)

    def text(self, *names: str) -> pl.Series:
        """Names and kinds; null where the file says ``N/A`` or nothing, or lacks the column."""
        names_: pl.Series = self._text_cells(names).cast(NAME)
        return names_

    def name(self, *names: str) -> pl.Series:
        """Names that a program chose: blanks around them belong to them, the quote of a guarded cell does not."""
        column = self.find(*names)
        cells = self._null_column(pl.String()) if column is None else self.frame[column]
        known_cells: pl.Series = cells.set(cells.is_in(UNKNOWN), None).str.replace(_GUARDED, "$1").cast(NAME)
        return known_cells

    def integer(self, *names: str) -> pl.Series:
        """Whole numbers, also written as ``2.0``; null where there is none."""
        cells = self._text_cells(names)
        numbers: pl.Series = cells.cast(pl.Int64, strict=False)
        if numbers.null_count() > cells.null_count():
            as_float = cells.cast(pl.Float64, strict=False)
            integers = as_float.set(~((as_float.abs() < 2.0**53) & (as_float == as_float.floor())), None)
            numbers = pl.select(pl.coalesce(numbers, integers.cast(pl.Int64, strict=False))).to_series()
        return self._count_damaged(names, cells, numbers)

    def number(self, *names: str) -> pl.Series:
        """Decimal numbers; null where there is none."""
        cells = self._text_cells(names)
        numbers: pl.Series = cells.cast(pl.Float64, strict=False)
        return self._count_damaged(names, cells, numbers.set(~numbers.is_finite(), None))

    def ns(self, *names: str) -> pl.Series:
        """Durations in ns of a column in us."""
        cells = self._text_cells(names)
        return self._count_damaged(names, cells, text_ns(cells))

    def time_ns(self, base_ns: int, *names: str) -> pl.Series:
        """Unix ns of a column in us, which may count from ``base_ns``."""
        return pl.select(after_base(pl.lit(self.ns(*names)), base_ns)).to_series()

    def bytes(self, *names: str) -> pl.Series:
        """Sizes in bytes of a column whose header ends in its unit, ``(KB)`` or ``(MB)``."""
        for name in names:
            for unit, factor in _UNIT_BYTES.items():
                if self.find(name + unit) is not None:
                    size = self.number(name + unit) * factor
                    whole_bytes: pl.Series = size.set(~(size.abs() < 2.0**62), None).round().cast(pl.Int64)
                    return self._count_damaged((name + unit,), self._text_cells((name + unit,)), whole_bytes)
        return self._null_column(pl.Int64())

    def report(
        self, source: str, health: HealthLog, unsafe: Mapping[str, str], other: str, *, needed: Sequence[str] = ()
    ) -> None:
        """Report cells that are no numbers and count as missing, one finding for all columns that make the same unsafe.

        Args:
            source: what the table is called.
            health: gets the findings.
            unsafe: what a column of these names makes unsafe.
            other: what every other column makes unsafe.
            needed: columns without which a row is left out, as ``complete_rows`` reports.
        """
        conclusions = {column: conclusion for name, conclusion in unsafe.items() if (column := self.find(name)) is not None}
        reported = {self.find(name) for name in needed}
        by_conclusion: dict[str, list[str]] = {}
        for column, count in self.damaged.items():
            if count and column not in reported:
                by_conclusion.setdefault(conclusions.get(column, other), []).append(column)
        for conclusion, columns in by_conclusion.items():
            report_no_numbers(source, {column: self.damaged[column] for column in columns}, health, conclusion)

    def _count_damaged(self, names: Sequence[str], cells: pl.Series, numbers: pl.Series) -> pl.Series:
        column = self.find(*names)
        if column is not None:
            self.damaged[column] = numbers.null_count() - cells.null_count()
        return numbers

    def _text_cells(self, names: Sequence[str]) -> pl.Series:
        column = self.find(*names)
        if column is None:
            return self._null_column(pl.String())
        cells = self.frame[column].str.strip_chars()
        known_cells: pl.Series = cells.set(cells.is_in(UNKNOWN), None)
        return known_cells

    def _null_column(self, dtype: pl.DataType) -> pl.Series:
        nulls: pl.Series = pl.Series([None], dtype=dtype).new_from_index(0, self.frame.height)
        return nulls


def report_no_numbers(source: str, damaged: Mapping[str, int], health: HealthLog, unsafe: str) -> None:
    """Report values that say something, should be numbers and are none.

    Args:
        source: the file or table they are of.
        damaged: how many of each column, or member, that has any.
        health: gets the finding.
        unsafe: what the lack of them makes unsafe.
    """
    if damaged:
        message = f"values of {source} are no numbers and count as missing ({', '.join(damaged)})"
        health.add("damaged_values", WARNING, sum(damaged.values()), message, unsafe)


def _normalize_header(header: str) -> str:
    return header.lower().replace("_", "").replace(" ", "")


def read_table(paths: Sequence[Path], health: HealthLog, unsafe: str, *, open_end: bool = False) -> TextTable:
    """All rows of some files, slices in the given order, with the union of their columns.

    A file that cannot be read, and rows that a damaged file has lost, are findings.

    Args:
        paths: the files.
        health: gets what is wrong.
        unsafe: what their loss makes unsafe.
        open_end: whoever writes such files may leave out the end of the last line, which then says nothing.
    """
    frames = []
    for path in paths:
        try:
            frame = _read_csv(path)
        except OSError as error:
            health.add("unreadable_file", ERROR, 1, f"{path.name} cannot be read ({error.strerror or error})", unsafe)
            continue
        except (ValueError, csv.Error, pl.exceptions.PolarsError) as error:
            health.add("unreadable_file", ERROR, 1, f"{path.name} is no table ({error})", unsafe)
            continue
        if frame.height and _breaks_off(path):
            if frame[frame.columns[-1]][-1] is None:
                message = f"{path.name} breaks off inside its last row, which was left out"
                frame = frame.head(-1)
                health.add("truncated_file", ERROR, 1, message, unsafe)
            elif not open_end:
                message = f"{path.name} may break off inside its last cell: its last row is whole, and no line end follows"
                health.add("truncated_file", WARNING, 1, message, unsafe)
        frames.append(frame)
    return TextTable(pl.concat(frames, how="diagonal") if frames else pl.DataFrame())


def has_required_columns(table: TextTable, path: str, health: HealthLog, unsafe: str, *alternatives: tuple[str, ...]) -> bool:
    """Whether the table has rows and one of each of the alternatives; reports what is missing."""
    if not table.frame.height:
        return False
    missing = [names[0] for names in alternatives if table.find(*names) is None]
    if missing:
        health.add(
            "unknown_layout", WARNING, table.frame.height, f"{path} has no column {', '.join(missing)}; it was not used", unsafe
        )
    return not missing


def complete_rows(frame: pl.DataFrame, needed: Sequence[str], path: str, health: HealthLog, unsafe: str) -> pl.DataFrame:
    """The rows that have all of the needed values; the others are reported."""
    complete = frame.drop_nulls(needed)
    if complete.height < frame.height:
        lost = frame.height - complete.height
        health.add("damaged_rows", ERROR, lost, f"rows of {path} have no time and were left out", unsafe)
    return complete


def _read_csv(path: Path) -> pl.DataFrame:
    try:
        # not by its name, which may be none that polars takes: that of a folder may be in another encoding
        with open_file(path) as file:
            frame = pl.read_csv(file, infer_schema=False, encoding="utf8-lossy", truncate_ragged_lines=True, raise_if_empty=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        frame = _read_slowly(path)
    names = [column.lstrip("\ufeff").strip() for column in frame.columns]
    if len(set(names)) < len(names):
        raise ValueError("it has two columns of one name")
    return frame.rename(dict(zip(frame.columns, names, strict=True)))


def _read_slowly(path: Path) -> pl.DataFrame:
    """Row by row, which gives what stands before and behind a damaged place."""
    limit = csv.field_size_limit(_CELL_LIMIT)
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8", errors="replace", newline="") as handle:
            rows = _readable_rows(csv.reader(line.replace("\0", " ") for line in handle))
            header = [name or "" for name in next(rows, [])]
            width = len(header)
            body = [row[:width] + [None] * (width - len(row)) for row in rows if row]
    finally:
        csv.field_size_limit(limit)
    return pl.DataFrame(body, schema=dict.fromkeys(header, pl.String), orient="row")


def _readable_rows(reader: Iterator[list[str]]) -> Iterator[list[str | None]]:
    while True:
        try:
            yield list(next(reader))
        except StopIteration:
            return
        except csv.Error:
            continue


def _breaks_off(path: Path) -> bool:
    """Whether the last line has no end."""
    with open_file(path) as handle:
        handle.seek(0, 2)
        size = handle.tell()
        handle.seek(max(size - 1, 0))
        return handle.read(1) not in (b"\n", b"\r", b"")
