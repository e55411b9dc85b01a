"""Rows of integers as pages of an SQLite file, made from whole columns: some ten times faster than statements.

A table's rows lie in leaf pages, in order of rowid; interior pages above them lead to the leaves. Leaves refer to no other page,
so they are made as the rows come and appended to the file once SQLite itself has written everything else and closed it. The
format is documented in https://www.sqlite.org/fileformat2.html; the tests let SQLite check every page.
"""

from __future__ import annotations

import itertools
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import polars as pl

PAGE_BYTES = 4096

_LEAF = 0x0D
_INTERIOR = 0x05
_LEAF_HEADER = 8
_INTERIOR_HEADER = 12
#: children of an interior page for whose cells there is room in any case: number, key of nine bytes, pointer; one has no cell
_CHILDREN = (PAGE_BYTES - _INTERIOR_HEADER) // (4 + 9 + 2) + 1
#: rows that are turned into pages at a time
_PIECE_ROWS = 100_000
_COPIED_PAGES = 256
#: number of the page with the byte that SQLite locks, 2**30; it stays unused
_LOCK_PAGE = (1 << 30) // PAGE_BYTES + 1
#: places in the header of a file
_PAGES_AT = 28
_RESERVED_AT = 20

#: serial types of integers: (bytes, type), the smallest first
_WIDTHS = ((1, 1), (2, 2), (3, 3), (4, 4), (6, 5), (8, 6))

_Bytes = npt.NDArray[np.uint8]


class TablePages:
    """The leaf pages of one table, in a temporary file until the table's file is complete.

    Args:
        folder: where the temporary file lies; it has no name there.
        key: position of the column that is the rowid (INTEGER PRIMARY KEY); None where rows are numbered from 1.
    """

    def __init__(self, folder: Path, key: int | None = None) -> None:
        self._key = key
        self._spool: BinaryIO = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._last_keys: list[int] = []
        self._rows = 0

    def add(self, columns: list[pl.Series]) -> None:
        """Add rows: one series of integers per column of the table; those of a key are ascending and greater than all before.

        Raises:
            ValueError: keys are not ascending, or a value has no place in 64 bits.
        """
        length = len(columns[0])
        for start in range(0, length, _PIECE_ROWS):
            self._add([column.slice(start, _PIECE_ROWS) for column in columns])

    def _add(self, columns: list[pl.Series]) -> None:
        count = len(columns[0])
        if self._key is None:
            keys = np.arange(self._rows + 1, self._rows + count + 1, dtype=np.int64)
        else:
            keys = columns[self._key].cast(pl.Int64).to_numpy()
            if (np.diff(keys) <= 0).any() or (self._last_keys and keys[0] <= self._last_keys[-1]) or keys[0] < 0:
                raise ValueError("the keys of a table are not ascending")
        self._rows += count
        cells, lengths = _leaf_cells(columns, keys, self._key)
        ends = np.cumsum(lengths)
        for last, page in _leaf_pages(cells, lengths, ends):
            self._spool.write(page)
            self._last_keys.append(int(keys[last - 1]))

    def append_to(self, file: BinaryIO, root: int) -> None:
        """Append the pages to the file of a database that nobody has open, below the table's root page.

        Args:
            file: open for reading and writing.
            root: number of the table's root page, which has no rows.
        """
        file.seek(0, os.SEEK_END)
        pages = file.tell() // PAGE_BYTES
        self._spool.seek(0)
        if len(self._last_keys) == 1:
            file.seek((root - 1) * PAGE_BYTES)
            file.write(self._spool.read())
        elif self._last_keys:
            numbers = _numbers_behind(pages, len(self._last_keys))
            pages = numbers[-1]
            before = sum(number < _LOCK_PAGE for number in numbers)
            _copy_pages(self._spool, file, numbers[:before])
            _copy_pages(self._spool, file, numbers[before:])
            level = list(zip(numbers, self._last_keys, strict=True))
            while len(made := _interior_pages(level)) > 1:
                numbers = _numbers_behind(pages, len(made))
                pages = numbers[-1]
                for number, (page, _) in zip(numbers, made, strict=True):
                    file.seek((number - 1) * PAGE_BYTES)
                    file.write(page)
                level = [(number, key) for number, (_, key) in zip(numbers, made, strict=True)]
            file.seek((root - 1) * PAGE_BYTES)
            file.write(made[0][0])
        file.seek(_PAGES_AT)
        file.write(struct.pack(">I", pages))

    def close(self) -> None:
        """Forget the pages."""
        self._spool.close()


def has_expected_pages(file: BinaryIO) -> bool:
    """Whether an SQLite file has pages as this module makes them: of its size and without a reserved end."""
    file.seek(0)
    header = file.read(100)
    return len(header) == 100 and struct.unpack_from(">H", header, 16)[0] == PAGE_BYTES and header[_RESERVED_AT] == 0


def _numbers_behind(pages: int, count: int) -> list[int]:
    """Numbers of ``count`` pages behind the first ``pages``, without the one that SQLite locks."""
    numbers = list(range(pages + 1, pages + count + 2))
    return [number for number in numbers if number != _LOCK_PAGE][:count]


def _copy_pages(spool: BinaryIO, file: BinaryIO, numbers: list[int]) -> None:
    """Copy pages from ``spool`` to consecutive numbers."""
    if numbers:
        file.seek((numbers[0] - 1) * PAGE_BYTES)
    for start in range(0, len(numbers), _COPIED_PAGES):
        file.write(spool.read(len(numbers[start : start + _COPIED_PAGES]) * PAGE_BYTES))


def _leaf_cells(columns: list[pl.Series], keys: npt.NDArray[np.int64], key: int | None) -> tuple[_Bytes, npt.NDArray[np.int64]]:
    """The cells of a leaf one after the other, and the length of each: length of the record, rowid, types, values."""
    count = len(keys)
    parts: list[_Bytes] = []
    present: list[npt.NDArray[np.bool_] | None] = []
    types = np.zeros((count, len(columns)), dtype=np.uint8)
    body = np.zeros(count, dtype=np.int64)
    for number, column in enumerate(columns):
        if number == key or column.null_count() == count:
            continue
        # nothing but integers has a place here; polars refuses what does not fit
        values = column.cast(pl.Int64).fill_null(strategy="min").to_numpy()
        width, kind = _integer_width(int(values.min()), int(values.max()))
        is_present = None if not column.null_count() else column.is_not_null().to_numpy()
        types[:, number] = kind if is_present is None else np.where(is_present, kind, 0)
        parts.append(values.astype(">i8").view(np.uint8).reshape(count, 8)[:, 8 - width :])
        present.append(is_present)
        body += width if is_present is None else np.where(is_present, width, 0)
    head = len(columns) + 1
    record = body + head
    size, size_known = _encode_varints(record)
    rowid, rowid_known = _encode_varints(keys)
    parts = [size, rowid, np.full((count, 1), head, dtype=np.uint8), types, *parts]
    matrix = np.concatenate(parts, axis=1)
    masks = [size_known, rowid_known, None, None, *present]
    if all(mask is None for mask in masks):
        return matrix.reshape(-1), np.full(count, matrix.shape[1], dtype=np.int64)
    is_used = np.ones(matrix.shape, dtype=np.bool_)
    at = 0
    for part, mask in zip(parts, masks, strict=True):
        if mask is not None:
            is_used[:, at : at + part.shape[1]] = mask if mask.ndim == 2 else mask[:, None]
        at += part.shape[1]
    return matrix[is_used], is_used.sum(axis=1, dtype=np.int64)


def _integer_width(low: int, high: int) -> tuple[int, int]:
    for width, kind in _WIDTHS:
        limit = 1 << (8 * width - 1)
        if -limit <= low and high < limit:
            return width, kind
    raise ValueError(f"{low} to {high} have no place in 64 bits")


def _encode_varints(values: npt.NDArray[np.int64]) -> tuple[_Bytes, npt.NDArray[np.bool_] | None]:
    """Integers >= 0 below 2**56 as SQLite's variable-length ones, and which bytes of each count; None for all of them."""
    longest = max((int(values.max()).bit_length() + 6) // 7, 1)
    if longest > 8:
        raise ValueError("a key has no place in 56 bits")
    made = np.empty((len(values), longest), dtype=np.uint8)
    for place in range(longest):
        shift = 7 * (longest - 1 - place)
        made[:, place] = (values >> shift) & 0x7F | (0x80 if shift else 0)
    if longest == 1 or int(values.min()) >> (7 * (longest - 1)):
        return made, None
    needed = np.ones((len(values), longest), dtype=np.bool_)
    for place in range(longest - 1):
        needed[:, place] = values >> (7 * (longest - 1 - place)) > 0
    return made, needed


def _leaf_pages(cells: _Bytes, lengths: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Iterator[tuple[int, bytes]]:
    """Leaf pages, each with the row behind its last one."""
    # a cell takes its bytes and a pointer of two
    filled = ends + 2 * np.arange(1, len(ends) + 1)
    first, before_bytes, before_filled = 0, 0, 0
    while first < len(ends):
        last = int(np.searchsorted(filled, before_filled + PAGE_BYTES - _LEAF_HEADER, side="right"))
        size = int(ends[last - 1]) - before_bytes
        start = PAGE_BYTES - size
        pointers = (ends[first:last] - lengths[first:last] - before_bytes + start).astype(">u2").tobytes()
        head = struct.pack(">BHHHB", _LEAF, 0, last - first, start, 0) + pointers
        yield last, head + bytes(start - len(head)) + cells[before_bytes : before_bytes + size].tobytes()
        first, before_bytes, before_filled = last, int(ends[last - 1]), int(filled[last - 1])


def _interior_pages(children: list[tuple[int, int]]) -> list[tuple[bytes, int]]:
    """Interior pages above pages given as (number, greatest key): each with the greatest key below it."""
    # shared evenly, since SQLite takes no page with a single child
    pages = -(-len(children) // _CHILDREN)
    borders = [len(children) * page // pages for page in range(pages + 1)]
    made = []
    for first, behind in itertools.pairwise(borders):
        *cells, (rightmost, greatest) = children[first:behind]
        made.append(
            (_interior_page([struct.pack(">I", number) + _encode_varint(key) for number, key in cells], rightmost), greatest)
        )
    return made


def _interior_page(cells: list[bytes], rightmost: int) -> bytes:
    start = PAGE_BYTES - sum(map(len, cells))
    pointers, at = [], start
    for cell in cells:
        pointers.append(at)
        at += len(cell)
    head = struct.pack(">BHHHBI", _INTERIOR, 0, len(cells), start, 0, rightmost) + struct.pack(f">{len(cells)}H", *pointers)
    return head + bytes(start - len(head)) + b"".join(cells)


def _encode_varint(value: int) -> bytes:
    made = [value & 0x7F]
    while value := value >> 7:
        made.append(value & 0x7F | 0x80)
    return bytes(reversed(made))
