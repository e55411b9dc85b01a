"""The texts that the numbers of Ascend databases stand for, and what a file has instead of the current layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import polars as pl

from steplens.formats.ascend_database import ENUM_PREFIX, ENUMS, PROFILER_TABLES, THREAD_BITS, columns
from steplens.formats.ascend_terms import NO_NUMBER, NOT_AVAILABLE
from steplens.readers.common.sqlite_file import SqliteFile
from steplens.trace.health import ERROR, EVERYTHING, INFO, KERNEL_DETAILS, WARNING, HealthLog
from steplens.trace.schema import NAME

#: later than any event: sums of two times stay in 64 bits
_LATEST_NS = 1 << 62

#: results of other programs' computations, which steplens makes itself
_DERIVED_TABLES = {"OVERLAP_ANALYSIS"}
#: table -> number -> name: what an enum table means where the file has none, or lacks a row
_ENUM_NAMES = {table: {number: name for name, number in numbers.items()} for table, numbers in ENUMS.items()}
#: other modules go by their number in a file that does not name them
_NAMED_MODULES = ("HCCL", "RUNTIME", "APP", "AICPU", "GE", "ASCENDCL")
_ENUM_NAMES["ENUM_MODULE"] = {ENUMS["ENUM_MODULE"][name]: name for name in _NAMED_MODULES}


class Texts:
    """The texts of STRING_IDS, and what the ids of other tables stand for.

    Ids may be any numbers, 0 included; one text may have several. A text that says "not available" is none.

    Attributes:
        unknown: how many ids had no text so far.
    """

    def __init__(self, database: SqliteFile) -> None:
        frame = database.read("STRING_IDS", {"id": pl.Int64(), "value": pl.String()})
        if frame.width < 2:
            frame = pl.DataFrame(schema={"id": pl.Int64, "value": pl.String})
        frame = frame.drop_nulls("id").unique("id", keep="first", maintain_order=True).sort("id")
        unavailable = (frame["value"] == NOT_AVAILABLE).fill_null(True)
        self._ids = frame["id"].to_numpy()
        self._texts = frame["value"].set(unavailable, None)
        self._unavailable = pl.Series([*frame["id"].filter(unavailable).to_list(), NO_NUMBER], dtype=pl.Int64)
        self._names = self._texts.cast(NAME)
        self._shapes: pl.Series | None = None
        self._lists: pl.Series | None = None
        self.unknown = 0

    def of(self, column: pl.Series) -> pl.Series:
        """The texts of a column of ids, as a Categorical; null for null, for what is not available and for an unknown id."""
        return self._gather_texts(self._names, column)

    def shapes(self, column: pl.Series) -> pl.Series:
        """Like ``of``, without the quotes that CANN puts around lists of dimensions."""
        if self._shapes is None:
            self._shapes = self._texts.str.strip_chars('"').cast(NAME)
        return self._gather_texts(self._shapes, column)

    def lists(self, column: pl.Series) -> pl.Series:
        """Like ``of``, for the framework's lists: what parts their elements, ";" and a line break, becomes ";"."""
        if self._lists is None:
            self._lists = self._texts.str.replace_all(r";\r?\n", ";").cast(NAME)
        return self._gather_texts(self._lists, column)

    def ids_of(self, *texts: str) -> list[int]:
        """Every id of these texts."""
        return [int(number) for number in self._ids[self._texts.is_in(texts).fill_null(False).to_numpy()]]

    def ids_matching(self, pattern: str) -> list[int]:
        """Every id of the texts that a regular expression finds something in."""
        return [int(number) for number in self._ids[self._texts.str.contains(pattern).fill_null(False).to_numpy()]]

    def available(self, column: str) -> pl.Expr:
        """A column of ids with null for ids whose text is not available."""
        return pl.when(~pl.col(column).is_in(self._unavailable.implode())).then(pl.col(column))

    def _gather_texts(self, texts: pl.Series, column: pl.Series) -> pl.Series:
        ids = column.fill_null(NO_NUMBER)
        if not len(self._ids):
            self.unknown += int((ids != NO_NUMBER).sum())
            return null_names(column.name, len(column))
        places = np.minimum(np.searchsorted(self._ids, ids.to_numpy()), len(self._ids) - 1)
        unknown = self._ids[places] != ids.to_numpy()
        self.unknown += int((pl.Series(unknown) & (ids != NO_NUMBER)).sum())
        result: pl.Series = texts.gather(pl.Series(places, dtype=pl.Int64).set(pl.Series(unknown), None)).alias(column.name)
        return result

    def names_of(self, column: pl.Series) -> pl.Series:
        """Like ``of``, with "N/A" for what has no text."""
        names: pl.Series = self.of(column).cast(pl.String).fill_null(NOT_AVAILABLE).cast(NAME)
        return names

    def report(self, health: HealthLog) -> None:
        """Report ids without a text."""
        if self.unknown:
            severity = WARNING if len(self._ids) else ERROR
            health.add("missing_names", severity, self.unknown, "names are missing in STRING_IDS", EVERYTHING)


def thread_of(column: str) -> dict[str, pl.Expr]:
    """``pid`` and ``tid`` of a globalTid: process id in the upper 32 bits, thread id in the lower."""
    return {"pid": pl.col(column) // (1 << THREAD_BITS), "tid": pl.col(column) % (1 << THREAD_BITS)}


def null_names(name: str, count: int) -> pl.Series:
    """A column of names without any."""
    column: pl.Series = pl.Series(name, [None], dtype=NAME).new_from_index(0, count)
    return column


class Enums:
    """The enum tables of a file, completed by the ones of the current layout."""

    def __init__(self, database: SqliteFile) -> None:
        self._database = database
        self._known: dict[str, dict[int, str]] = {}
        self._incomplete: set[str] = set()
        self._unknown: set[str] = set()

    def of(self, table: str, column: pl.Series) -> pl.Series:
        """The names of a column of numbers, as a Categorical; a number that nobody names is its own name."""
        if table not in self._known:
            rows = self._database.read(table, {"id": pl.Int64(), "name": pl.String()})
            complete = {"id", "name"} <= set(rows.columns)
            self._known[table] = dict(rows.drop_nulls().iter_rows()) if complete else {}
        recorded = self._known[table]
        names = {}
        for number in column.drop_nulls().unique().to_list():
            if number not in recorded:
                (self._incomplete if number in _ENUM_NAMES[table] else self._unknown).add(table)
            names[number] = recorded.get(number, _ENUM_NAMES[table].get(number, str(number)))
        if not names:
            return null_names(column.name, len(column))
        translated: pl.Series = column.replace_strict(names, default=None, return_dtype=pl.String).cast(NAME)
        return translated

    def report(self, health: HealthLog) -> None:
        """Report the tables that had to be completed and the numbers that nobody names."""
        if self._incomplete:
            message = (
                f"numbers are named as in the current layout, because the file does not ({', '.join(sorted(self._incomplete))})"
            )
            health.add("missing_enums", INFO, len(self._incomplete), message)
        if self._unknown:
            message = f"numbers have no name, neither in the file nor in the current layout ({', '.join(sorted(self._unknown))})"
            health.add("unknown_enum_values", WARNING, len(self._unknown), message, KERNEL_DETAILS)


class ProfilerDatabase(SqliteFile):
    """A database of CANN, or of a profiler, with what its numbers stand for.

    Attributes:
        texts: its names.
        enums: its enum tables.
    """

    def __init__(self, path: Path, health: HealthLog) -> None:
        super().__init__(path, health)
        self.enums = Enums(self)

    def load_names(self, layout: Mapping[str, str], expected: Iterable[str], read: Iterable[str] = ()) -> None:
        """Read the names, and report everything in which the file differs from the current layout, and what is not read.

        Args:
            layout: table -> columns, see ``formats.ascend_database``.
            expected: tables that every such file has; others are absent where nothing was recorded for them.
            read: further tables that are read.
        """
        missing = [table for table in expected if table not in self]
        differences = [f"there is no {', '.join(missing)}"] if missing else []
        for table in layout:
            if table in self:
                differences += _of_table(self, table, layout[table])
        if differences:
            message = f"the database differs from the current layout: {'; '.join(differences)}"
            self.health.add("schema_differences", INFO, len(differences) + max(len(missing) - 1, 0), message)
        report_unread(self, [*layout, *read])
        self.texts = Texts(self)

    def report_names(self) -> None:
        """Report what had no name, once all is read."""
        self.texts.report(self.health)
        self.enums.report(self.health)

    def whole_table(self, table: str) -> pl.DataFrame:
        """A table with the columns of the current layout, integers and texts; a column that it lacks is null."""
        layout = PROFILER_TABLES[table]
        texts = {word[:-1]: pl.String() for word in layout.split() if word.endswith("*")}
        return self.complete(table, columns(layout), **texts)

    def in_time(self, frame: pl.DataFrame, columns: list[str], table: str, unsafe: str) -> pl.DataFrame:
        """The rows whose times a clock can show; health counts the others.

        Args:
            frame: rows of a table.
            columns: its columns of Unix ns that every row needs.
            table: its name.
            unsafe: what the rows left out make unsafe.
        """
        possible = frame.filter(pl.all_horizontal(pl.col(columns).is_between(0, _LATEST_NS)))
        if possible.height < frame.height:
            message = f"rows of {table} have no time, or one that no clock can show, and were left out"
            self.health.add("impossible_times", ERROR, frame.height - possible.height, message, unsafe)
        return possible

    def valid_ranges(self, table: str, unsafe: str, frame: pl.DataFrame | None = None) -> pl.DataFrame:
        """The rows of a table with a start and an end, the end not before the start; health counts the others."""
        rows = self.whole_table(table) if frame is None else frame
        possible = self.in_time(rows, ["startNs", "endNs"], table, unsafe)
        backward = int((possible["endNs"] < possible["startNs"]).sum())
        if backward:
            message = f"rows of {table} end before they start; their length counts as zero"
            self.health.add("negative_duration", ERROR, backward, message, unsafe)
        return possible.with_columns(endNs=pl.max_horizontal("startNs", "endNs"))


def _of_table(database: SqliteFile, table: str, layout: str) -> list[str]:
    current = columns(layout)
    numbers = set(columns(" ".join(word for word in layout.split() if not word.endswith("*"))))
    present = database.column_names(table)
    lacks = [column for column in current if column not in present]
    besides = [column for column in present if column not in current]
    as_text = [column.name for column in database.tables[table] if column.name in numbers and column.declared == "TEXT"]
    parts = (("lacks", lacks, ""), ("has also", besides[:20], ""), ("has", as_text, " as text"))
    return [f"{table} {verb} {', '.join(names)}{end}" for verb, names, end in parts if names]


def report_unread(database: SqliteFile, read: Iterable[str]) -> None:
    """Report the tables with rows that are not read."""
    passed_over = {*read, *_DERIVED_TABLES}
    unread = [
        table
        for table in database.tables
        if table not in passed_over and not table.startswith(ENUM_PREFIX) and database.has_rows(table)
    ]
    if unread:
        names = ", ".join(unread[:20]) + (" ..." if len(unread) > 20 else "")
        database.health.add("tables_not_read", INFO, len(unread), f"tables of the database are not used ({names})")
