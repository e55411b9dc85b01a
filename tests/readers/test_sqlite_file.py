"""Read-only access to SQLite files: exact values, no trace left behind, and files that are damaged or mean harm."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import sqlite3
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.common.errors import InputError
from steplens.readers.common import sqlite_file
from steplens.readers.common.sqlite_file import TEXT_LIMIT, SqliteFile
from steplens.trace.health import HealthLog

INTEGER, REAL, TEXT = pl.Int64(), pl.Float64(), pl.String()


def make(path: Path, *statements: str, rows: dict[str, Sequence[Sequence[Any]]] | None = None) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
        for table, values in (rows or {}).items():
            connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values[0]))})", values)
    return path


def read(path: Path, table: str, **wanted: pl.DataType) -> tuple[pl.DataFrame, HealthLog]:
    health = HealthLog()
    with SqliteFile(path, health) as database:
        return database.read(table, wanted), health


def checks(health: HealthLog) -> dict[str, int]:
    return {finding.check: finding.count for finding in health.findings}


def state(path: Path) -> tuple[str, int, int, list[str]]:
    """What reading must not change: content, times and the files beside it."""
    info = path.stat()
    return hashlib.sha256(path.read_bytes()).hexdigest(), info.st_mtime_ns, info.st_ctime_ns, sorted(os.listdir(path.parent))


def test_cells_of_every_type(tmp_path: Path) -> None:
    big = 1736407067946125104
    path = make(
        tmp_path / "a.db",
        "CREATE TABLE T (number INTEGER, text TEXT, real NUMERIC, loose)",
        rows={
            "T": [
                (big, "plain", 0.1, 1),
                (str(big + 1), "", 1, "12"),
                (None, None, None, None),
                (-5, "ü\n\t;", 1e300, 3.0),
                (2.5, 7, "0.25", b"\x00\xff"),
                ("no number", "x", "none", "9" * 30),
            ]
        },
    )
    frame, health = read(path, "T", number=INTEGER, text=TEXT, real=REAL, loose=INTEGER, absent=INTEGER)
    assert frame.columns == ["number", "text", "real", "loose"]
    assert frame["number"].to_list() == [big, big + 1, None, -5, None, None]
    assert frame["text"].to_list() == ["plain", "", None, "ü\n\t;", "7", "x"]
    assert frame["real"].to_list() == [0.1, 1.0, None, 1e300, 0.25, None]
    assert frame["loose"].to_list() == [1, 12, None, 3, None, None]
    assert checks(health) == {"damaged_values": 5}
    assert "number, real, loose" in health.findings[0].message


def test_numbers_are_exact_in_text_columns(tmp_path: Path) -> None:
    values = [1736414119758670.8, 0.1 + 0.2, 12345678901234567, -0.0]
    path = make(tmp_path / "a.db", "CREATE TABLE T (x NUMERIC)", rows={"T": [(value,) for value in values]})
    frame, _ = read(path, "T", x=TEXT)
    assert [float(text) for text in frame["x"]] == [float(value) for value in values]
    assert frame["x"][2] == "12345678901234567"


@pytest.mark.parametrize("count", [0, 1, 2047, 2048, 2049, 10_001])
def test_batches_join(tmp_path: Path, count: int) -> None:
    rows = [(index * 3, f"text {index}") for index in range(count)]
    path = make(tmp_path / "a.db", "CREATE TABLE T (a INTEGER, b TEXT)", rows={"T": rows} if rows else None)
    frame, health = read(path, "T", b=TEXT, a=INTEGER)
    assert frame.columns == ["b", "a"]
    assert list(zip(frame["a"], frame["b"], strict=True)) == rows
    assert not health.findings


def test_types_that_change_in_the_middle(tmp_path: Path) -> None:
    rows = [(index if index % 5000 < 2500 else str(index),) for index in range(20_000)]
    path = make(tmp_path / "a.db", "CREATE TABLE T (a)", rows={"T": rows})
    frame, health = read(path, "T", a=INTEGER)
    assert frame["a"].to_list() == list(range(20_000))
    assert not health.findings


def test_complete_fills_what_is_absent(tmp_path: Path) -> None:
    path = make(tmp_path / "a.db", "CREATE TABLE T (a INTEGER)", rows={"T": [(1,), (2,)]})
    with SqliteFile(path, HealthLog()) as database:
        frame = database.complete("T", ("b", "a"), b=TEXT)
        nothing = database.complete("U", ("b", "a"), b=TEXT)
    assert frame.schema == nothing.schema == {"b": pl.String, "a": pl.Int64}
    assert frame.rows() == [(None, 1), (None, 2)]
    assert nothing.height == 0


@pytest.mark.parametrize("name", ["a b.db", "a?mode=rwc.db", "a#b.db", "100%25.db", "ü&=.db", "file:x.db"])
def test_names_with_a_meaning_in_uris(tmp_path: Path, name: str) -> None:
    path = make(tmp_path / "plain.db", "CREATE TABLE T (a INTEGER)", rows={"T": [(4,)]}).rename(tmp_path / name)
    before = state(path)
    frame, _ = read(path, "T", a=INTEGER)
    assert frame["a"].to_list() == [4]
    assert state(path) == before


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_nothing_is_written(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode={mode}")
        with connection:
            connection.execute("CREATE TABLE T (a INTEGER)")
            connection.executemany("INSERT INTO T VALUES (?)", [(index,) for index in range(5000)])
    before = state(path)
    frame, health = read(path, "T", a=INTEGER)
    assert frame["a"].sum() == sum(range(5000))
    assert state(path) == before
    assert not health.findings


def test_unfinished_files_beside_it_are_reported_and_kept(tmp_path: Path) -> None:
    path = make(tmp_path / "a.db", "CREATE TABLE T (a INTEGER)", rows={"T": [(1,)]})
    (tmp_path / "a.db-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))
    (tmp_path / "a.db-wal").write_bytes(bytes(100))
    before = state(path)
    frame, health = read(path, "T", a=INTEGER)
    assert frame["a"].to_list() == [1]
    assert checks(health) == {"unfinished_database": 1}
    assert [finding.message.split(",")[0] for finding in health.findings] == ["a.db-wal", "a.db-journal"]
    assert state(path) == before


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "is no file"), (b"", "is empty"), (b"no database", "is no SQLite database"), (bytes(5000), "is no SQLite database")],
)
def test_what_is_no_database(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "a.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=problem) as caught:
        SqliteFile(path, HealthLog())
    assert caught.value.path == path


def test_header_without_a_database(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"SQLite format 3\0" + random.Random(1).randbytes(8176))
    with pytest.raises(InputError, match="is damaged"):
        SqliteFile(path, HealthLog())


def test_a_schema_that_is_no_text(tmp_path: Path) -> None:
    """SQLite quotes it in its message, which Python then cannot decode."""
    path = make(tmp_path / "a.db", "CREATE TABLE T (a INTEGER)")
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE T", b"CREA\xff\xff TABLE T"))
    # the UnicodeDecodeError of Python 3.10 has nothing of the message
    words = "malformed database schema" if sys.version_info >= (3, 11) else ""
    with pytest.raises(InputError, match=rf"is damaged .*{words}"):
        SqliteFile(path, HealthLog())


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no file"):
        SqliteFile(tmp_path, HealthLog())


def test_views_triggers_and_computed_columns_do_not_run(tmp_path: Path, million_steps_s: float) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, 'x' AS value FROM n"
    path = make(
        tmp_path / "a.db",
        "CREATE TABLE Real (a INTEGER, b INTEGER GENERATED ALWAYS AS (length(zeroblob(100000000))) VIRTUAL, c INTEGER)",
        f"CREATE VIEW STRING_IDS AS {endless}",
        "CREATE TRIGGER Bomb AFTER INSERT ON Real BEGIN DELETE FROM Real; END",
        "INSERT INTO Real (a, c) SELECT 1, 2 WHERE 0",
    )
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TRIGGER Bomb")
        connection.execute("INSERT INTO Real (a, c) VALUES (1, 2)")
        connection.execute("CREATE TRIGGER Bomb AFTER INSERT ON Real BEGIN DELETE FROM Real; END")
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("CREATE VIRTUAL TABLE Virtual USING fts5(body)")
    health = HealthLog()
    begin = time.process_time()
    with SqliteFile(path, health) as database:
        assert "STRING_IDS" not in database
        assert "Virtual" not in database
        assert database.column_names("Real") == ["a", "c"]
        assert database.read("STRING_IDS", {"id": INTEGER}).width == 0
        assert not database.has_rows("STRING_IDS")
        assert database.read("Real", {"a": INTEGER, "b": INTEGER, "c": INTEGER}).rows() == [(1, 2)]
    assert time.process_time() - begin < 250 * million_steps_s
    (finding,) = (finding for finding in health.findings if finding.check == "refused_database_objects")
    assert "STRING_IDS" in finding.message
    assert "Bomb" in finding.message


def test_a_view_in_the_place_of_a_table(tmp_path: Path) -> None:
    """A row of the schema that says "table" and holds a view's text, as only an edited file can have it."""
    path = make(tmp_path / "a.db", "CREATE TABLE Inner (a INTEGER)", "CREATE VIEW Outer AS SELECT a FROM Inner")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_master SET type = 'table' WHERE name = 'Outer'")
    with SqliteFile(path, HealthLog()) as database:
        assert "Outer" not in database
        assert list(database.tables) == ["Inner"]


def test_names_with_quotes(tmp_path: Path) -> None:
    path = make(tmp_path / "a.db", 'CREATE TABLE "a""; DROP TABLE b; --" ("c""d" INTEGER)')
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('INSERT INTO "a""; DROP TABLE b; --" VALUES (8)')
    frame, _ = read(path, 'a"; DROP TABLE b; --', **{'c"d': INTEGER})
    assert frame.item() == 8


def test_long_texts_are_cut(tmp_path: Path) -> None:
    rows = [(1, "short"), (2, "x" * (3 * TEXT_LIMIT)), (3, "after")]
    path = make(tmp_path / "a.db", "CREATE TABLE T (id INTEGER, value TEXT)", rows={"T": rows})
    frame, health = read(path, "T", id=INTEGER, value=TEXT)
    assert frame["id"].to_list() == [1, 2, 3]
    assert frame["value"].str.len_bytes().to_list() == [5, TEXT_LIMIT, 5]
    assert checks(health) == {"long_texts": 1}


def test_long_texts_in_columns_of_numbers(tmp_path: Path) -> None:
    rows: list[tuple[Any, ...]] = [(index,) for index in range(3000)]
    rows[1500] = ("9" * 5_000_000,)
    rows[1501] = (bytes(5_000_000),)
    path = make(tmp_path / "a.db", "CREATE TABLE T (a INTEGER)", rows={"T": rows})
    frame, health = read(path, "T", a=INTEGER)
    assert frame["a"].to_list() == [*range(1500), None, None, *range(1502, 3000)]
    assert checks(health) == {"damaged_values": 2}


def test_texts_that_are_not_utf8(tmp_path: Path) -> None:
    path = make(
        tmp_path / "a.db",
        "CREATE TABLE T (id INTEGER, value TEXT)",
        "INSERT INTO T VALUES (1, 'good'), (2, CAST(x'6162ff63' AS TEXT)), (3, x'64ff')",
    )
    frame, health = read(path, "T", id=INTEGER, value=TEXT)
    assert frame["value"].to_list() == ["good", "ab�c", "d�"]
    assert checks(health) == {"undecodable_texts": 1}


def test_utf16(tmp_path: Path) -> None:
    rows = [(index, f"名前 {index}") for index in range(3000)]
    path = make(tmp_path / "a.db", "PRAGMA encoding='UTF-16le'", "CREATE TABLE T (a INTEGER, b TEXT)", rows={"T": rows})
    frame, health = read(path, "T", a=INTEGER, b=TEXT)
    assert frame.rows() == rows
    assert not health.findings


def _two_tables(path: Path) -> Path:
    return make(
        path,
        "CREATE TABLE A (id INTEGER PRIMARY KEY, value TEXT)",
        "CREATE TABLE B (x INTEGER, y INTEGER)",
        rows={"A": [(index, f"text number {index}") for index in range(4000)], "B": [(index, -index) for index in range(4000)]},
    )


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
@pytest.mark.parametrize("whole_pages", [True, False])
def test_truncated_files(tmp_path: Path, share: float, whole_pages: bool) -> None:
    path = _two_tables(tmp_path / "a.db")
    data = path.read_bytes()
    size = int(len(data) * share)
    path.write_bytes(data[: size // 4096 * 4096 if whole_pages else size])
    before = state(path)
    health = HealthLog()
    with SqliteFile(path, health) as database:
        texts = database.read("A", {"id": INTEGER, "value": TEXT})
        numbers = database.read("B", {"x": INTEGER, "y": INTEGER})
    assert checks(health)["damaged_database"] == 1
    assert health.findings[0].severity == "error"
    # what could be read is what was written, in order; A lies in the first part and B behind it
    assert texts.rows() == [(index, f"text number {index}") for index in range(texts.height)]
    assert numbers.rows() == [(index, -index) for index in range(numbers.height)]
    assert texts.height >= {0.3: 1400, 0.5: 2700, 0.7: 4000, 0.9: 4000, 0.99: 4000}.get(share, 0)
    assert numbers.height < 4000
    lost = [finding.message.split()[0] for finding in health.findings if finding.check == "damaged_table"]
    assert lost == [name for name, frame in (("A", texts), ("B", numbers)) if frame.height < 4000]
    assert state(path) == before


def test_broken_off_in_the_first_page(tmp_path: Path) -> None:
    path = _two_tables(tmp_path / "a.db")
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(InputError, match="first page"):
        SqliteFile(path, HealthLog())


def test_random_damage_neither_crashes_nor_hangs(tmp_path: Path, million_steps_s: float) -> None:
    whole = _two_tables(tmp_path / "whole.db").read_bytes()
    generator = random.Random(20250109)
    path = tmp_path / "a.db"
    begin = time.process_time()
    outcomes = {"refused": 0, "reported": 0, "unnoticed": 0}
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(generator.choice([1, 5, 50, 500])):
            # the first pages hold the header and the schema
            limit = generator.choice([100, 4096, len(data)])
            data[generator.randrange(limit)] = generator.randrange(256)
        path.write_bytes(data)
        health = HealthLog()
        try:
            with SqliteFile(path, health) as database:
                for table in database.tables:
                    wanted = {name: generator.choice([INTEGER, REAL, TEXT]) for name in database.column_names(table)}
                    assert database.read(table, wanted).height <= len(data)
            outcomes["reported" if health.findings else "unnoticed"] += 1
        except InputError:
            outcomes["refused"] += 1
    assert time.process_time() - begin < 1500 * million_steps_s
    assert outcomes["refused"] > 5
    assert outcomes["reported"] > 5


def test_pages_that_repeat_without_end(tmp_path: Path, million_steps_s: float) -> None:
    """A tree of 19 pages, each of which lists the next one four times: 4**19 rows in a file of 22 pages."""
    page = 512
    path = make(tmp_path / "a.db", f"PRAGMA page_size={page}", "CREATE TABLE T (a INTEGER)", rows={"T": [(7,)]})
    data = bytearray(path.read_bytes())
    assert len(data) == 2 * page
    leaf = bytes(data[page:])
    levels = 18
    data = data[:page]
    for level in range(levels):
        child = 3 + level
        cells = b"".join(struct.pack(">I", child) + b"\x01" for _ in range(3))
        head = struct.pack(">BHHHBI", 5, 0, 3, page - len(cells), 0, child)
        pointers = b"".join(struct.pack(">H", page - len(cells) + 5 * index) for index in range(3))
        body = head + pointers
        data += body + bytes(page - len(body) - len(cells)) + cells
    data += leaf
    pages = len(data) // page
    data[28:32] = struct.pack(">I", pages)
    path.write_bytes(data)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        # the file does what it is made for
        assert len(connection.execute("SELECT a FROM T LIMIT 100000").fetchall()) == 100_000
    begin = time.process_time()
    frame, health = read(path, "T", a=INTEGER)
    assert time.process_time() - begin < 250 * million_steps_s
    assert frame.height < 20_000
    assert checks(health) == {"damaged_table": 1}
    assert "more than the file has room for" in health.findings[0].message


def test_patience_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(index,) for index in range(200_000)]
    path = make(tmp_path / "a.db", "CREATE TABLE T (a INTEGER)", rows={"T": rows})
    health = HealthLog()
    with SqliteFile(path, health) as database:
        monkeypatch.setattr(sqlite_file, "_BASE_SECONDS", -10.0)
        monkeypatch.setattr(sqlite_file, "_BYTES_PER_SECOND", 1 << 40)
        frame = database.read("T", {"a": INTEGER})
    assert frame.height < 200_000
    assert frame["a"].to_list() == list(range(frame.height))
    assert "interrupted" in health.findings[0].message
