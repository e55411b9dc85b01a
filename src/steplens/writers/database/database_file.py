"""Writing an SQLite file fast: whole tables at a time, one transaction, indices at the end."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import polars as pl

from steplens.formats.ascend_database import INDICES, columns, definition, holds_integers, key_of
from steplens.writers.common.text import distinct_texts
from steplens.writers.sqlite_pages import PAGE_BYTES, TablePages, has_expected_pages

#: rows that are turned into Python objects at a time
_PIECE_ROWS = 20_000
#: values per statement: what every build of SQLite takes
_STATEMENT_VALUES = 900

_UNSAFE_AND_FAST = ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE", "cache_size = -65536")

#: first ids of the texts of the device side, of the framework, and of its memory
CANN_TEXTS = 0
FRAMEWORK_TEXTS = 1 << 28
MEMORY_TEXTS = 2 << 28


class DatabaseFile:
    """A new SQLite file, for the time of a ``with`` block; its rows are there once the block has ended without an error.

    Args:
        path: the file; what an interrupted process left there is removed. It needs no journal: whoever writes it renames it
            when it is complete.
        layout: table -> columns, as in ``formats.ascend_database``.
    """

    def __init__(self, path: Path, layout: Mapping[str, str]) -> None:
        self._layout = layout
        path.unlink(missing_ok=True)
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._path = path
        self._pages: dict[str, TablePages] = {}
        self._keyed: dict[str, list[pl.DataFrame]] = {}
        self._tables: set[str] = set()
        self._texts: dict[str, int] = {}
        self._next_text = {CANN_TEXTS: CANN_TEXTS, FRAMEWORK_TEXTS: FRAMEWORK_TEXTS, MEMORY_TEXTS: MEMORY_TEXTS}
        self._begin(f"page_size = {PAGE_BYTES}", "auto_vacuum = NONE")

    def _begin(self, *settings: str) -> None:
        for setting in (*settings, *_UNSAFE_AND_FAST):
            self._connection.execute(f"PRAGMA {setting}").fetchall()
        self._connection.execute("BEGIN")

    def __enter__(self) -> DatabaseFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._finish_file()
        finally:
            for pages in self._pages.values():
                pages.close()
            self._connection.close()

    def _finish_file(self) -> None:
        """Bring everything into the file: what SQLite wrote, the pages made here, the indices over both."""
        for table, frames in self._keyed.items():
            key = key_of(self._layout[table])
            self._add_pages(table, pl.concat(frames).sort(key), columns(self._layout[table]).index(key))
        roots = dict(self._connection.execute("SELECT name, rootpage FROM sqlite_master WHERE type = 'table'"))
        self._connection.execute("COMMIT")
        self._connection.close()
        with self._path.open("r+b") as file:
            if self._pages and not has_expected_pages(file):
                raise sqlite3.NotSupportedError("this build of SQLite lays out its pages in a way of its own")
            for table, pages in self._pages.items():
                pages.append_to(file, roots[table])
        self._connection = sqlite3.connect(self._path, isolation_level=None)
        self._begin()
        for name, (table, indexed) in INDICES.items():
            if table in self._tables:
                self._connection.execute(f"CREATE INDEX {name} ON {table} ({indexed})")
        self._connection.execute("COMMIT")

    def create(self, table: str, layout: str | None = None) -> None:
        """Create a table without rows, unless it is there."""
        if table not in self._tables:
            self._connection.execute(f"CREATE TABLE {table} ({definition(layout or self._layout[table])})")
            self._tables.add(table)

    def rows(self, table: str, rows: Iterable[tuple[Any, ...]], layout: str | None = None) -> None:
        """Add a few rows to a table, one value per column; not to one that also gets frames."""
        self.create(table, layout)
        width = len(columns(layout or self._layout[table]))
        self._connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * width)})", rows)

    def frame(self, table: str, frame: pl.DataFrame) -> None:
        """Add the rows of ``frame`` to a table, which is not created for none; columns of the table that it lacks are NULL."""
        if frame.is_empty():
            return
        self.create(table)
        if holds_integers(self._layout[table]):
            self._add_integers(table, frame)
            return
        names = [name for name in columns(self._layout[table]) if name in frame.columns]
        width = len(names)
        per_statement = max(_STATEMENT_VALUES // width, 1)
        step = per_statement * width
        head = f"INSERT INTO {table} ({', '.join(names)}) VALUES "
        row = f"({', '.join('?' * width)})"
        for piece in frame.select(names).iter_slices(_PIECE_ROWS):
            values = _row_by_row(piece)
            whole_blocks = len(values) // step * step
            self._connection.executemany(head + ", ".join([row] * per_statement), _value_batches(values, 0, whole_blocks, step))
            self._connection.executemany(head + row, _value_batches(values, whole_blocks, len(values), width))

    def _add_integers(self, table: str, frame: pl.DataFrame) -> None:
        """Add rows of a table that holds nothing but integers: they become pages of the file without SQLite."""
        names = columns(self._layout[table])
        frame = frame.select(
            pl.col(name).cast(pl.Int64) if name in frame.columns else pl.lit(None, dtype=pl.Int64).alias(name) for name in names
        )
        if key_of(self._layout[table]):
            # rows lie in the order of their keys, which those of several frames together may not have
            self._keyed.setdefault(table, []).append(frame)
        else:
            self._add_pages(table, frame)

    def _add_pages(self, table: str, frame: pl.DataFrame, key: int | None = None) -> None:
        if table not in self._pages:
            self._pages[table] = TablePages(self._path.parent, key)
        self._pages[table].add(frame.get_columns())

    def text_ids(
        self,
        values: pl.Series,
        block: int = CANN_TEXTS,
        *,
        missing: str | int | None = None,
        render: Callable[[str], str | None] = lambda text: text,
    ) -> pl.Series:
        """Ids of texts in STRING_IDS, in the order of ``values``; a text gets its id when it is first asked for.

        Args:
            values: a Categorical or String column.
            block: where the ids of new texts begin; a text that already has an id keeps it.
            missing: what null stands for: another text, an id, or None for NULL.
            render: a value to its text; None stands for null.
        """
        # null comes behind all values, so that its text gets the last new id
        distinct, index = distinct_texts(values)
        ids = [None if (text := render(value)) is None else self.text_id(text, block) for value in distinct]
        missing_id = self.text_id(missing, block) if isinstance(missing, str) else missing
        ids = [*(missing_id if number is None else number for number in ids), missing_id]
        return pl.Series(values.name, ids, dtype=pl.Int64).gather(pl.Series(index, dtype=pl.UInt32))

    def text_id(self, text: str, block: int = CANN_TEXTS) -> int:
        """Id of one text; see ``text_ids``."""
        number = self._texts.get(text)
        if number is None:
            number = self._texts[text] = self._next_text[block]
            self._next_text[block] += 1
        return number

    def write_texts(self) -> None:
        """Write STRING_IDS; every text must have been asked for."""
        ids = pl.DataFrame(
            {"id": list(self._texts.values()), "value": list(self._texts)}, schema={"id": pl.Int64, "value": pl.String}
        )
        self.create("STRING_IDS")
        self.frame("STRING_IDS", ids.sort("id"))


def _row_by_row(frame: pl.DataFrame) -> list[Any]:
    """The cells of a frame in reading order."""
    cells: list[Any] = [None] * (frame.height * frame.width)
    for number, column in enumerate(frame.get_columns()):
        cells[number :: frame.width] = column.to_list()
    return cells


def _value_batches(values: list[Any], start: int, stop: int, step: int) -> Iterator[list[Any]]:
    return (values[at : at + step] for at in range(start, stop, step))
