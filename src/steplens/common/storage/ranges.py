"""A file that lies elsewhere as a file object: what is read is fetched in ranges, larger ones where it is read on and on."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

#: the beginning of a file, which tells what it is, and the least that is fetched
HEAD_BYTES = 1 << 16
#: of a file that is read on and on
_MOST_BYTES = 8 << 20

Fetch = Callable[[int, int], bytes]


class RangeFile(io.RawIOBase):
    """Bytes of a file, fetched when they are read and not kept.

    It has no descriptor on purpose: libraries that find one read from it, past this.

    Args:
        size: bytes that the file has.
        fetch: gives those from one place to another.
        head: its first bytes, where they are at hand.
    """

    def __init__(self, size: int, fetch: Fetch, head: bytes = b"") -> None:
        self._size = size
        self._fetch = fetch
        self._place = 0
        self._begin = 0
        self._bytes = head
        self._next_bytes = HEAD_BYTES

    def _is_possible(self) -> bool:
        return True

    def _go_to(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a place."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("a place before the beginning of a file")
        self._place = base + offset
        return self._place

    def _read_into(self, buffer: Any, /) -> int:
        """Fill a buffer as far as what is at hand goes; 0 at the end of the file.

        Raises:
            OSError: the bytes cannot be fetched.
        """
        length = min(len(buffer), self._size - self._place)
        if length <= 0:
            return 0
        if not self._begin <= self._place < self._begin + len(self._bytes):
            self._fetch_more(length)
        at = self._place - self._begin
        part = memoryview(self._bytes)[at : at + length]
        memoryview(buffer).cast("B")[: len(part)] = part
        self._place += len(part)
        return len(part)

    def _fetch_more(self, length: int) -> None:
        reads_on = self._place == self._begin + len(self._bytes)
        self._next_bytes = min(2 * self._next_bytes, _MOST_BYTES) if reads_on else HEAD_BYTES
        end = min(self._place + min(max(length, self._next_bytes), _MOST_BYTES), self._size)
        self._bytes = self._fetch(self._place, end)
        self._begin = self._place

    # what ``io`` calls these
    readable = seekable = _is_possible
    seek = _go_to
    readinto = _read_into
