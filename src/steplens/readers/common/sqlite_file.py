"""Strictly read-only, bounded access to SQLite files that somebody else wrote.

The file is opened as immutable: SQLite neither locks it nor makes a journal, a write-ahead log or shared memory beside it,
and its time of modification stays. Only the columns of plain tables are read, each by one scan of its table. Views,
triggers, virtual tables and generated columns, through which a file could make its reader work, are never touched.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import polars as pl

from steplens.common.errors import InputError
from steplens.common.storage.files import local_file, open_file
from steplens.formats.ascend_database import SQLITE_START
from steplens.trace.health import ERROR, EVERYTHING, INFO, WARNING, HealthLog

_DAMAGED = "damaged_database"
#: where the header has the size of a page, and what it can be; 1 stands for the largest
_PAGE_SIZE_START, _PAGE_SIZE_END = 16, 18
_LARGEST_PAGE = 1 << 16
_PAGE_SIZES = [1 << power for power in range(9, 17)]

#: rows per call: few enough to stay in the processor's cache, which reads a third faster than 100,000
_BATCH_ROWS = 2048
#: longest text that is kept; the longest honest ones (an operator's shapes, metadata) are far below
TEXT_LIMIT = 1 << 20
#: longest number as text
_NUMBER_LIMIT = 40
#: longest record of a table that holds numbers only
_NUMBERS_RECORD_LIMIT = 1 << 16
#: a row takes at least four bytes of a page, so a file whose pages are linked only once cannot hold more rows
_BYTES_PER_ROW = 4
_OBJECT_LIMIT = 20_000
_SQL_LIMIT = 1 << 16
#: patience: a base, and the slowest disk that is worth waiting for
_BASE_SECONDS = 60.0
_BYTES_PER_SECOND = 1 << 20
_INSTRUCTIONS_PER_CHECK = 200_000
_MESSAGE_LIMIT = 200

#: SQLite's own number of the limit on texts and records
_LIMIT_LENGTH = 0

_PLAIN_TABLE = re.compile(r"(?is)^create\s+table\s")
_INTEGER = re.compile(r"^\s*[+-]?\d{1,19}\s*$")


File = TypeVar("File", bound="SqliteFile")


class Column(NamedTuple):
    """One column of a table: its name and its declared type in capitals."""

    name: str
    declared: str


class SqliteFile:
    """One SQLite file, opened for reading; a context manager.

    What a damaged file still gives is given, and health says what is missing.

    Args:
        path: the file.
        health: gets what is damaged or refused.

    Attributes:
        tables: the plain tables and their columns, in the file's order.

    Raises:
        InputError: the file is missing, empty, no SQLite file, or too damaged for its list of tables to be read.
    """

    def __init__(self, path: Path, health: HealthLog) -> None:
        self.path = path
        self.health = health
        self._size = self._check()
        self._deadline = 0.0
        self._copies: tempfile.TemporaryDirectory[str] | None = None
        self._connection = self._connect(self._whole_pages())
        try:
            self.tables = self._list_tables()
        except BaseException:  # goes on: the file is closed first
            self.close()
            raise
        self._check_companions()

    def __enter__(self: File) -> File:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
        if self._copies is not None:
            self._copies.cleanup()

    def __contains__(self, table: str) -> bool:
        return table in self.tables

    def column_names(self, table: str) -> list[str]:
        """Names of the columns of a table; none where the file has no such table."""
        return [column.name for column in self.tables.get(table, ())]

    def has_rows(self, table: str) -> bool:
        """Whether a table holds at least one row that can be read."""
        if table not in self.tables:
            return False
        with contextlib.suppress(sqlite3.Error):
            return next(self._rows(f"SELECT 1 FROM {_quote_identifier(table)} NOT INDEXED LIMIT 1"), None) is not None
        return False

    def read(self, table: str, wanted: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """The wanted columns of a table that it has, in the order asked for, rows in the order of the file.

        SQLite lets any cell hold any type. Numbers written as text are numbers here; what does not fit the wanted type is
        null, and health counts it.

        Args:
            table: name; a table that the file lacks has no columns.
            wanted: column -> Int64, Float64 or String.
        """
        present = {name: wanted[name] for name in wanted if name in self.column_names(table)}
        if not present:
            return pl.DataFrame()
        guard = pl.String() in present.values()
        try:
            try:
                return self._read(table, present, guard=guard, text_factory=str)
            except _OversizedError:
                return self._read(table, present, guard=True, text_factory=str)
        except _UndecodableError:
            self.health.add("undecodable_texts", WARNING, 1, f"{table} holds texts that are not UTF-8; they are replaced in part")
            return self._read(table, present, guard=True, text_factory=_decode_text)

    def complete(self, table: str, columns: Iterable[str], **types: pl.DataType) -> pl.DataFrame:
        """Like ``read``, with null for a column or table that the file lacks.

        Args:
            table: name.
            columns: names, of integers unless ``types`` says otherwise.
            types: types of some of the columns.
        """
        column_types = {column: types.get(column, pl.Int64()) for column in columns}
        frame = self.read(table, column_types)
        if not frame.width:
            return pl.DataFrame(schema=column_types)
        return frame.select(
            pl.col(name) if name in frame.columns else pl.lit(None, dtype=dtype).alias(name)
            for name, dtype in column_types.items()
        )

    def _read(self, table: str, wanted: Mapping[str, pl.DataType], *, guard: bool, text_factory: Any) -> pl.DataFrame:
        builders = [_ColumnBuilder(name, dtype) for name, dtype in wanted.items()]
        selected = ", ".join(self._column_expression(name, dtype, guard=guard) for name, dtype in wanted.items())
        # numbers need no more than this; a record with text may be as large as the file
        self._limit_record(max(self._size, _NUMBERS_RECORD_LIMIT) if guard else _NUMBERS_RECORD_LIMIT)
        self._connection.text_factory = text_factory
        query = f"SELECT {selected} FROM {_quote_identifier(table)} NOT INDEXED"
        problem = ""
        rows = 0
        text_bytes = 0
        try:
            for batch in self._batches(query):
                text_bytes += _add_rows(builders, batch)
                rows += len(batch)
                # text in UTF-8 can be half as long again as in the file's UTF-16
                if rows * _BYTES_PER_ROW > self._size or text_bytes > 2 * self._size + TEXT_LIMIT:
                    problem = "it holds more than the file has room for"
                    break
        except sqlite3.Error as error:
            if "decode" in str(error) and text_factory is str:
                raise _UndecodableError from error
            if "too big" in str(error) and not guard:
                raise _OversizedError from error
            problem = str(error)
            last = self._rows_before_damage(f"{query} LIMIT {_BATCH_ROWS} OFFSET {rows}")
            _add_rows(builders, last)
            rows += len(last)
        if problem:
            message = f"{table} is damaged ({problem}): {rows} of its rows could be read"
            self.health.add("damaged_table", ERROR, 1, message, EVERYTHING)
        frame = pl.DataFrame([builder.series() for builder in builders])
        refused = sum(builder.refused for builder in builders)
        if refused:
            names = ", ".join(builder.name for builder in builders if builder.refused)
            self.health.add(
                "damaged_values", WARNING, refused, f"values of {table} are of the wrong type and count as missing ({names})"
            )
        cut = sum(builder.cut for builder in builders)
        if cut:
            message = f"texts of {table} are longer than {TEXT_LIMIT} characters and were cut"
            self.health.add("long_texts", WARNING, cut, message, EVERYTHING)
        return frame

    def _column_expression(self, name: str, dtype: pl.DataType, *, guard: bool) -> str:
        """A column in SQL, so that no cell reaches Python longer than it may be."""
        quoted = _quote_identifier(name)
        is_text = dtype == pl.String()
        if not is_text and not guard and hasattr(self._connection, "setlimit"):
            return quoted
        limit = TEXT_LIMIT if is_text else _NUMBER_LIMIT
        # SQLite prints 15 digits of a number, so numbers leave it as numbers
        return f"CASE WHEN typeof({quoted}) IN ('text', 'blob') THEN substr({quoted}, 1, {limit}) ELSE {quoted} END"

    def _check(self) -> int:
        try:
            if not self.path.is_file():
                raise InputError(self.path, "is no file", "Give the database itself")
            size = self.path.stat().st_size
            with open_file(self.path) as handle:
                start = handle.read(len(SQLITE_START))
        except OSError as error:
            raise InputError(self.path, f"cannot be read ({error.strerror})", "Check its permissions") from error
        if not size:
            raise InputError(self.path, "is empty", "The program that wrote it did not finish; export it again")
        if start != SQLITE_START:
            raise InputError(self.path, "is no SQLite database", "It is damaged or something else; export it again")
        return size

    def _whole_pages(self) -> Path:
        """The file to open: a file that breaks off inside a page is copied without that page.

        SQLite reads what is missing of the page as zeros, so that its rows would hold numbers that nobody wrote.
        """
        with open_file(self.path) as handle:
            page = int.from_bytes(handle.read(_PAGE_SIZE_END)[_PAGE_SIZE_START:], "big")
            page = _LARGEST_PAGE if page == 1 else page
            if page not in _PAGE_SIZES or self._size % page == 0:
                return self.path
            if self._size < page:
                raise InputError(self.path, "breaks off in its first page", "Copy it again or export it again")
            handle.seek(0)
            self._copies = tempfile.TemporaryDirectory(prefix="steplens-")
            copy = Path(self._copies.name) / self.path.name
            try:
                with copy.open("wb") as target:
                    for _ in range(self._size // page):
                        target.write(handle.read(page))
            except OSError as error:
                self._copies.cleanup()
                problem = f"breaks off, and what is there of it cannot be copied ({error.strerror})"
                raise InputError(self.path, problem, "Copy it again or export it again") from error
        self._report_damage("it breaks off")
        return copy

    def _report_damage(self, problem: str) -> None:
        message = f"the database is damaged ({problem}): what can still be read is shown"
        self.health.add(_DAMAGED, ERROR, 1, message, EVERYTHING)

    def _connect(self, path: Path) -> sqlite3.Connection:
        try:
            # as_uri quotes every character that has a meaning in a URI
            uri = f"{local_file(path).resolve().as_uri()}?mode=ro&immutable=1"
            connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        except (sqlite3.Error, ValueError) as error:
            raise InputError(self.path, f"cannot be opened ({error})", "Check its permissions") from error
        except OSError as error:
            raise InputError(self.path, f"cannot be fetched ({error.strerror or error})") from error
        connection.set_progress_handler(self._is_overdue, _INSTRUCTIONS_PER_CHECK)
        for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0", "temp_store=MEMORY"):
            # a damaged header shows up in the first of them, and is reported with the list of tables
            with contextlib.suppress(sqlite3.Error), _readable_errors():
                connection.execute(f"PRAGMA {pragma}")
        return connection

    def _list_tables(self) -> dict[str, tuple[Column, ...]]:
        try:
            return self._read_schema()
        except sqlite3.Error as first:
            # SQLite refuses a file that is shorter than its header says; with this it shows what there is of it
            with contextlib.suppress(sqlite3.Error), _readable_errors():
                self._connection.execute("PRAGMA writable_schema=ON")
                tables = self._read_schema()
                if tables:
                    if self._copies is None:
                        self._report_damage(str(first))
                    return tables
            raise InputError(self.path, f"is damaged ({first})", "Copy it again or export it again") from first

    def _read_schema(self) -> dict[str, tuple[Column, ...]]:
        self._limit_record(max(self._size, _SQL_LIMIT))
        query = f"SELECT type, name, substr(sql, 1, {_SQL_LIMIT}) FROM sqlite_master LIMIT {_OBJECT_LIMIT}"
        objects = [tuple(str(value or "") for value in row) for row in self._rows(query)]
        tables: dict[str, tuple[Column, ...]] = {}
        refused = []
        for kind, name, sql in objects:
            if kind == "table" and not name.startswith("sqlite_"):
                columns = self._plain_columns(name) if _PLAIN_TABLE.match(sql) else ()
                if columns:
                    tables[name] = columns
                else:
                    refused.append(name)
            elif kind in ("view", "trigger"):
                refused.append(name)
        if refused:
            names = ", ".join(refused[:10]) + (" ..." if len(refused) > 10 else "")
            message = f"the database holds objects that are no plain tables and are not read ({names})"
            self.health.add("refused_database_objects", INFO, len(refused), message)
        return tables

    def _plain_columns(self, table: str) -> tuple[Column, ...]:
        """The columns of a table that are stored, not computed."""
        rows = self._rows(f"PRAGMA table_xinfo({_quote_identifier(table)})")
        return tuple(Column(str(row[1]), str(row[2] or "").upper()) for row in rows if row[6] == 0)

    def _check_companions(self) -> None:
        for suffix, what in (("-wal", "a write-ahead log"), ("-journal", "a journal")):
            companion = self.path.with_name(self.path.name + suffix)
            with contextlib.suppress(OSError):
                if companion.is_file() and companion.stat().st_size:
                    message = f"{companion.name}, {what}, lies beside the database, so its last changes are missing"
                    self.health.add("unfinished_database", WARNING, 1, message, EVERYTHING)

    def _rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        for batch in self._batches(query):
            yield from batch

    def _batches(self, query: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        self._deadline = time.monotonic() + _BASE_SECONDS + self._size / _BYTES_PER_SECOND
        with _readable_errors():
            cursor = self._connection.execute(query)
        try:
            while batch := _fetch_batch(cursor):
                yield batch
        finally:
            cursor.close()

    def _rows_before_damage(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a batch that break off, one by one."""
        rows: list[tuple[Any, ...]] = []
        with contextlib.suppress(sqlite3.Error), _readable_errors():
            for row in self._connection.execute(query):
                rows.append(row)
        return rows

    def _is_overdue(self) -> bool:
        return time.monotonic() > self._deadline > 0

    def _limit_record(self, limit: int) -> None:
        # Python 3.11 and later; without it every cell is cut in SQL
        if hasattr(self._connection, "setlimit"):
            self._connection.setlimit(_LIMIT_LENGTH, min(limit, 1_000_000_000))


class _UndecodableError(Exception):
    """A text is not valid in the file's encoding."""


class _OversizedError(Exception):
    """A record of numbers is larger than numbers are."""


@contextlib.contextmanager
def _readable_errors() -> Iterator[None]:
    """SQLite's errors as such: of one that quotes a name that is no UTF-8, Python shows only that it cannot decode it."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise sqlite3.DatabaseError(bytes(error.object).decode("utf-8", "replace")[:_MESSAGE_LIMIT]) from error


def _fetch_batch(cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
    with _readable_errors():
        return cursor.fetchmany(_BATCH_ROWS)


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _add_rows(builders: Sequence[_ColumnBuilder], rows: Sequence[tuple[Any, ...]]) -> int:
    """Add rows to their columns; the bytes of text they hold."""
    if not rows:
        return 0
    return sum(builder.add(values) for builder, values in zip(builders, zip(*rows, strict=True), strict=True))


class _ColumnBuilder:
    """Collects one column batch by batch; counts the values that do not fit its type and the texts of full length."""

    def __init__(self, name: str, dtype: pl.DataType) -> None:
        self.name = name
        self.dtype = dtype
        self.refused = 0
        self.cut = 0
        self._parts: list[pl.Series] = []
        self._from_text = False

    def add(self, values: tuple[Any, ...]) -> int:
        """Add the cells of one batch; the bytes of text they hold."""
        if self.dtype == pl.String():
            part = self._texts(values)
            lengths = part.str.len_bytes()
            self.cut += int((lengths >= TEXT_LIMIT).sum())
            self._parts.append(part)
            return int(lengths.sum())
        self._parts.append(self._numbers(values))
        return 0

    def series(self) -> pl.Series:
        """The whole column."""
        return pl.concat(self._parts).alias(self.name) if self._parts else pl.Series(self.name, [], dtype=self.dtype)

    def _texts(self, values: tuple[Any, ...]) -> pl.Series:
        try:
            return pl.Series(values, dtype=pl.String)
        except (TypeError, ValueError):
            texts = [
                _decode_text(value) if isinstance(value, bytes) else value if value is None else str(value) for value in values
            ]
            return pl.Series(texts, dtype=pl.String)

    def _numbers(self, values: tuple[Any, ...]) -> pl.Series:
        if not self._from_text:
            try:
                return pl.Series(values, dtype=self.dtype)
            except (TypeError, ValueError, OverflowError):
                self._from_text = True
        try:
            numbers: pl.Series = pl.Series(values, dtype=pl.String).cast(self.dtype, strict=False)
            if numbers.null_count() == values.count(None):
                return numbers
        except (TypeError, ValueError):
            self._from_text = False
        convert = _to_integer if self.dtype == pl.Int64() else _to_float
        converted = [convert(value) for value in values]
        self.refused += converted.count(None) - values.count(None)
        return pl.Series(converted, dtype=self.dtype)


def _to_integer(value: Any) -> int | None:
    if isinstance(value, str) and _INTEGER.match(value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else None


def _to_float(value: Any) -> float | None:
    if isinstance(value, (int, float)):
        return float(value)
    with contextlib.suppress(TypeError, ValueError):
        return float(value)
    return None
