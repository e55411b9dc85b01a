"""Damage as data: a program of numbers that changes the files of a capture, the same way every time.

Every engine (random numbers, hypothesis, atheris) only has to make programs. A step of a program is five numbers: which
file, which operator, and three that the operator uses as it likes. Which operators a file has goes by its kind.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import sqlite3
import struct
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

#: which file, which operator, three numbers for it; all of them below ``LIMIT``
Step = tuple[int, int, int, int, int]
LIMIT = 1 << 32
#: a capture never grows beyond this, so that time and memory can be judged by it
SIZE_LIMIT = 4 << 20

Files = dict[str, bytes]
Operator = Callable[[bytes, int, int, int], bytes]

_NUMBERS = [0, 1, -1, 127, 128, 255, 256, 32767, 65535, 1 << 31, (1 << 31) - 1, -(1 << 31), (1 << 32) - 1, 1 << 32, 1 << 40]
_NUMBERS += [1 << 53, (1 << 63) - 1, -(1 << 63), 1 << 63, (1 << 64) - 1, 0x7FF0000000000000]


def _at(data: bytes, a: int) -> int:
    return a % (len(data) + 1)


def flip(data: bytes, a: int, b: int, c: int) -> bytes:
    """Flip one bit."""
    if not data:
        return data
    changed = bytearray(data)
    changed[a % len(data)] ^= 1 << (b % 8)
    return bytes(changed)


def overwrite_number(data: bytes, a: int, b: int, c: int) -> bytes:
    """Write an interesting number over some bytes."""
    width = (1, 2, 4, 8)[c % 4]
    number = _NUMBERS[b % len(_NUMBERS)] & ((1 << 8 * width) - 1)
    position = _at(data, a)
    return data[:position] + number.to_bytes(width, "little") + data[position + width :]


def overwrite_record_number(data: bytes, a: int, b: int, c: int) -> bytes:
    """The same at a multiple of two, where the lengths of records lie."""
    return overwrite_number(data, a & ~1, b, c)


def delete(data: bytes, a: int, b: int, c: int) -> bytes:
    """Remove some bytes, a few or many."""
    position = _at(data, a)
    return data[:position] + data[position + b % ((8, 64, 4096, 1 << 20)[c % 4]) + 1 :]


def repeat(data: bytes, a: int, b: int, c: int) -> bytes:
    """Repeat some bytes."""
    position = _at(data, a)
    part = data[position : position + b % 512 + 1]
    return data[:position] + part * (c % 40 + 2) + data[position:]


def truncate(data: bytes, a: int, b: int, c: int) -> bytes:
    """Cut the end off."""
    return data[: _at(data, a)]


def zero(data: bytes, a: int, b: int, c: int) -> bytes:
    """Overwrite some bytes with one value, as a lost disk block does."""
    position = _at(data, a)
    length = min(b % 2048, len(data) - position)
    return data[:position] + bytes([c % 256 if c % 3 else 0]) * length + data[position + length :]


def move(data: bytes, a: int, b: int, c: int) -> bytes:
    """Move some bytes elsewhere."""
    position, length = _at(data, a), c % 1024
    part, rest = data[position : position + length], data[:position] + data[position + length :]
    to = _at(rest, b)
    return rest[:to] + part + rest[to:]


def insert(data: bytes, a: int, b: int, c: int) -> bytes:
    """Insert random-looking bytes."""
    position = _at(data, a)
    return (
        data[:position]
        + struct.pack("<QQ", b * 0x9E3779B97F4A7C15 % (1 << 64), c * 0xC2B2AE3D27D4EB4F % (1 << 64))
        + data[position:]
    )


BYTES: Sequence[Operator] = (flip, overwrite_number, overwrite_record_number, delete, repeat, truncate, zero, move, insert)

_VALUES = [
    *(str(number).encode() for number in _NUMBERS),
    *(b"1e308", b"-1e308", b"1e999", b"0.0000001", b"1.7e18", b"123456789012345678901234567890", b"1712195495519689.047", b"NaN"),
    *(b"Infinity", b"null", b"true", b"[]", b"{}", b'""', b'"text"', b'"-1"', b'"1e5"', b'"1,2;3"', b'"\\ud800"', b'"\\u0000"'),
    *(b'"\xff\xfe"', b"[" * 200, b"[" * 200 + b"]" * 200, b'{"a":' * 150 + b"1" + b"}" * 150, b'"' + b"x" * 5000 + b'"'),
    *(b'"ProfilerStep#99999999999999999999"', b'"ProfilerStep#"', b'"Iteration#"', b'"../../etc/passwd"', b'"4294967296"'),
]
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null')


def _replace_token(data: bytes, pattern: re.Pattern[bytes], a: int, value: bytes) -> bytes:
    # from somewhere on, so that a large file need not be scanned whole
    start = _at(data, a)
    found = pattern.search(data, start) or pattern.search(data)
    if found is None:
        return data + value
    return data[: found.start()] + value + data[found.end() :]


def json_value(data: bytes, a: int, b: int, c: int) -> bytes:
    """Another value, or another key, in place of one."""
    return _replace_token(data, _TOKEN, a, _VALUES[b % len(_VALUES)])


def json_number(data: bytes, a: int, b: int, c: int) -> bytes:
    """Another number in place of one."""
    value = _VALUES[b % 29] if c % 2 else str((b << 32 | c) - (1 << 62)).encode()
    return _replace_token(data, re.compile(rb"(?<=[: ])-?\d+(?:\.\d+)?"), a, value)


def json_swap(data: bytes, a: int, b: int, c: int) -> bytes:
    """The value of one member in another one, such as a name where a time was."""
    found = _TOKEN.search(data, _at(data, b)) or _TOKEN.search(data)
    return data if found is None else _replace_token(data, _TOKEN, a, found.group()[:2000])


def json_structure(data: bytes, a: int, b: int, c: int) -> bytes:
    """A comma, colon, quote or bracket too many, too few or wrong."""
    pattern = re.compile(rb'[\[\]{},:"]')
    return _replace_token(data, pattern, a, (b"", b",", b":", b'"', b"]", b"}", b"[", b"{", b"\x00", b"\n", b",,")[b % 11])


def json_event(data: bytes, a: int, b: int, c: int) -> bytes:
    """An event twice, or gone."""
    start = data.rfind(b"{", 0, _at(data, a))
    end = data.find(b"}", max(start, 0))
    if start < 0 or end < 0:
        return data
    event = data[start : end + 1]
    return data[:start] + (event + b"," + event if b % 2 else b"{}") + data[end + 1 :]


JSON: Sequence[Operator] = (json_value, json_value, json_number, json_number, json_swap, json_structure, json_event)

_CELLS = [b"", b"N/A", b"nan", b"inf", b"-1", b"1e999", b"0", b"18446744073709551616", b'"', b'""', b'"a,b"', b"a\x00b", b"\xff"]
_CELLS += [b"1700000000000019.5\t", b"'", b'"open', b"x" * 5000, b"1,2", b"=1+1", b"\r", b"\n", b"\t", b" 5 ", b"0x10", b"1_000"]


def csv_cell(data: bytes, a: int, b: int, c: int) -> bytes:
    """Another cell in place of one."""
    return _replace_token(data, re.compile(rb"(?<=[,\n])[^,\n]*(?=[,\n])"), a, _CELLS[b % len(_CELLS)])


def csv_line(data: bytes, a: int, b: int, c: int) -> bytes:
    """A line twice, gone, shorter or longer."""
    lines = data.split(b"\n")
    row = a % len(lines)
    line = lines[row]
    lines[row : row + 1] = ([line, line], [], [line.rpartition(b",")[0]], [line + b",1"], [line, lines[0]])[b % 5]
    return b"\n".join(lines)


def csv_header(data: bytes, a: int, b: int, c: int) -> bytes:
    """A column with another name, twice, or gone from the header only."""
    first, line_end, rest = data.partition(b"\n")
    names = first.split(b",")
    column = a % len(names)
    names[column : column + 1] = ([b""], [names[column]] * 2, [], [names[b % len(names)]], [b"Name"], [names[column].upper()])[
        c % 6
    ]
    return b",".join(names) + line_end + rest


CSV: Sequence[Operator] = (csv_cell, csv_cell, csv_cell, csv_line, csv_header)

_SQL_VALUES = [
    "NULL",
    "''",
    "'text'",
    "x'ff00'",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "1e308",
    "1e999",
    "0",
    "0.5",
]
_SQL_VALUES += ["'9223372036854775808'", "cast(x'fffe' as text)", "zeroblob(100000)", "'1;2'", "printf('%.*c', 20000, 'x')"]


def _sql(data: bytes, statements: Callable[[sqlite3.Connection], Sequence[str]]) -> bytes:
    """The database after some statements, as far as they succeed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "changed.db"
        path.write_bytes(data)
        # the message of an error may quote a damaged name, which is then no UTF-8
        failures = (sqlite3.Error, UnicodeDecodeError)
        with contextlib.suppress(*failures), contextlib.closing(sqlite3.connect(path)) as connection:
            connection.text_factory = bytes
            for statement in statements(connection):
                with contextlib.suppress(*failures):
                    connection.execute(statement)
            connection.commit()
        return path.read_bytes()


def _names(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [row[0].decode("utf-8", "replace") for row in rows]


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1].decode("utf-8", "replace") for row in connection.execute(f'PRAGMA table_info("{table}")')]


def sql_value(data: bytes, a: int, b: int, c: int) -> bytes:
    """Another value in some rows of a column."""

    def statements(connection: sqlite3.Connection) -> list[str]:
        names = _names(connection)
        table = names[a % len(names)] if names else "none"
        columns = _columns(connection, table)
        column = columns[b % len(columns)] if columns else "none"
        rows = ("1", f"rowid % {c % 7 + 1} = 0", f"rowid = {c % 9}")[c % 3]
        return [f'UPDATE "{table}" SET "{column}" = {_SQL_VALUES[c % len(_SQL_VALUES)]} WHERE {rows}']

    return _sql(data, statements)


def sql_schema(data: bytes, a: int, b: int, c: int) -> bytes:
    """A table or column gone, renamed, twice, or a view in its place."""

    def statements(connection: sqlite3.Connection) -> list[str]:
        names = _names(connection)
        if not names:
            return []
        table, other = names[a % len(names)], names[b % len(names)]
        columns = _columns(connection, table)
        column = columns[b % len(columns)] if columns else "none"
        return [
            [f'DROP TABLE "{table}"'],
            [f'ALTER TABLE "{table}" DROP COLUMN "{column}"'],
            [f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "other"'],
            [f'ALTER TABLE "{table}" RENAME TO "kept"', f'CREATE VIEW "{table}" AS SELECT * FROM "kept"'],
            [f'ALTER TABLE "{table}" RENAME TO "kept"', f'CREATE TABLE "{table}" AS SELECT * FROM "{other}"'],
            [f'INSERT INTO "{table}" SELECT * FROM "{table}"'],
            [f'DELETE FROM "{table}"'],
            [f'CREATE TABLE "strange name "" {c}" (x)'],
            [f'DROP TABLE "{table}"', f"CREATE VIRTUAL TABLE \"{table}\" USING fts5(name)"],
        ][c % 9]  # fmt: skip

    return _sql(data, statements)


SQL: Sequence[Operator] = (sql_value, sql_value, sql_value, sql_schema)


def in_archive(data: bytes, a: int, b: int, c: int) -> bytes:
    """Damage inside a gzip file, which stays a good archive."""
    with contextlib.suppress(OSError, EOFError, ValueError, zlib.error):
        text = gzip.decompress(data)
        return gzip.compress(JSON[c % len(JSON)](text, a, b, c >> 3), compresslevel=1, mtime=0)
    return data


def operators_of(name: str, data: bytes) -> Sequence[Operator]:
    """The operators that suit a file."""
    if data.startswith(b"SQLite format 3"):
        return (*SQL, *SQL, *BYTES)
    if data.startswith(b"\x1f\x8b"):
        return (in_archive, in_archive, in_archive, *BYTES)
    if name.endswith(".csv"):
        return (*CSV, *CSV, *BYTES)
    if data[:1] in (b"{", b"["):
        return (*JSON, *JSON, *BYTES)
    return BYTES


def _whole_file(files: Files, name: str, a: int, b: int) -> None:
    """A file gone, empty, or with the content of another one."""
    names = sorted(files)
    if a % 3 == 0:
        del files[name]
    else:
        files[name] = b"" if a % 3 == 1 else files[names[b % len(names)]]


def mutate(files: Files, targets: Sequence[str], program: Sequence[Step]) -> Files:
    """The files after a program.

    Args:
        files: path -> content.
        targets: the files that the program may change.
        program: the steps, in order.
    """
    changed = dict(files)
    for which, operator, a, b, c in program:
        present = [name for name in targets if name in changed]
        if not present:
            break
        name = present[which % len(present)]
        if operator % 61 == 0:
            _whole_file(changed, name, a, b)
            continue
        operators = operators_of(name, changed[name])
        result = operators[operator % len(operators)](changed[name], a, b, c)
        if len(result) <= max(SIZE_LIMIT, len(files.get(name, b"")) * 2):
            changed[name] = result
    return changed
