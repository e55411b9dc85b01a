"""Tables written as pages: SQLite finds every row where it belongs, and nothing wrong with the file."""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steplens.writers import sqlite_pages
from steplens.writers.database.database_file import DatabaseFile
from steplens.writers.sqlite_pages import PAGE_BYTES, TablePages

LAYOUT = {"PLAIN": "a b c", "KEYED": "a id! b", "NAMES": "id! value*"}


def read(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def frame(rows: list[tuple[int | None, ...]], names: str) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=dict.fromkeys(names.split(), pl.Int64), orient="row")


integers = st.one_of(st.none(), st.integers(-3, 300), st.integers(-(1 << 63), (1 << 63) - 1), st.just(1 << 40))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.lists(st.tuples(integers, integers, integers), max_size=300), min_size=1, max_size=3))
def test_any_rows_come_back(tmp_path: Path, pieces: list[list[tuple[int | None, ...]]]) -> None:
    with DatabaseFile(tmp_path / "any.db", LAYOUT) as file:
        file.create("PLAIN")
        for rows in pieces:
            file.frame("PLAIN", frame(rows, "a b c"))
    assert read(tmp_path / "any.db", "SELECT * FROM PLAIN") == [row for rows in pieces for row in rows]


@pytest.mark.parametrize("count", [1, 2, 100, 372, 373, 5_000, 100_000, 250_001])
def test_tables_of_every_depth(tmp_path: Path, count: int) -> None:
    rows = [(number, None if number % 3 else number * 7, 1 << (number % 62)) for number in range(count)]
    with DatabaseFile(tmp_path / "deep.db", LAYOUT) as file:
        file.frame("PLAIN", frame(rows, "a b c"))
        file.frame("KEYED", pl.DataFrame({"id": [number * 1000 for number in range(count)], "a": range(count)}))
        file.frame("NAMES", pl.DataFrame({"id": [1], "value": ["a text"]}))
    assert read(tmp_path / "deep.db", "SELECT * FROM PLAIN") == rows
    last = (count - 1) * 1000
    assert read(tmp_path / "deep.db", f"SELECT a, id, b FROM KEYED WHERE id = {last}") == [(count - 1, last, None)]
    assert read(tmp_path / "deep.db", "SELECT * FROM NAMES") == [(1, "a text")]


def test_keys_of_several_frames_are_sorted_and_may_not_repeat(tmp_path: Path) -> None:
    with DatabaseFile(tmp_path / "keys.db", LAYOUT) as file:
        file.frame("KEYED", frame([(1, 50, 2), (3, 7, 4)], "a id b"))
        file.frame("KEYED", frame([(5, 20, 6)], "a id b"))
    assert read(tmp_path / "keys.db", "SELECT id, a, b FROM KEYED") == [(7, 3, 4), (20, 5, 6), (50, 1, 2)]
    with pytest.raises(ValueError, match="not ascending"), DatabaseFile(tmp_path / "twice.db", LAYOUT) as file:
        file.frame("KEYED", frame([(1, 7, 2), (3, 7, 4)], "a id b"))


def test_the_page_that_sqlite_locks_stays_unused(tmp_path: Path) -> None:
    path = tmp_path / "large.db"
    connection = sqlite3.connect(path)
    connection.executescript(f"PRAGMA page_size = {PAGE_BYTES}; CREATE TABLE PLAIN (a INTEGER, b INTEGER)")
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master").fetchone()
    connection.close()
    pages = TablePages(tmp_path)
    count = 20_000
    pages.add([pl.Series(range(count)), pl.Series(range(count, 0, -1))])
    with path.open("r+b") as file:
        # a hole in place of 2**30 bytes of other tables
        before = sqlite_pages._LOCK_PAGE - 5
        file.truncate(before * PAGE_BYTES)
        file.seek(28)
        file.write(struct.pack(">I", before))
        pages.append_to(file, root)
        file.seek((sqlite_pages._LOCK_PAGE - 1) * PAGE_BYTES)
        assert not any(file.read(PAGE_BYTES))
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT * FROM PLAIN").fetchall() == [(number, count - number) for number in range(count)]
    # the hole itself is told as pages that nothing uses
    problems = [text for (text,) in connection.execute("PRAGMA integrity_check(200)") if "never used" not in text]
    assert not problems or problems == ["ok"], problems
    connection.close()
