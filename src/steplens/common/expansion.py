"""The one way compressed files are read: as far as what comes out stands in proportion to the file.

A few megabytes can expand to gigabytes of events, and reading those takes minutes and more memory than a machine has. Recorded
traces expand to 10 to 25 times their size. Who has one that expands to more raises the limit, or unpacks it: a file that is not
compressed is read as a whole, however large it is. Small files are always read.
"""

from __future__ import annotations

import math
import os
import zlib
from pathlib import Path
from typing import IO

from steplens.common.errors import SteplensError
from steplens.common.storage.files import open_file, size_of

#: says how many times its size a compressed file may expand to
VARIABLE = "STEPLENS_EXPANSION_LIMIT"
MOST_TIMES = 100.0
#: so much may come out of any file
FLOOR_BYTES = 16 << 20

_INPUT_BYTES = 1 << 18
#: portions with damage ahead, down to single bytes
_SMALLER = 64
_MAGIC = b"\x1f\x8b"


class DamagedGzipError(ValueError):
    """A file cannot be decompressed from its beginning."""


def most_times() -> float:
    """How many times its size a compressed file may expand to.

    Raises:
        SteplensError: ``VARIABLE`` does not hold a number.
    """
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return MOST_TIMES
    try:
        times = float(text)
    except ValueError:
        times = math.nan
    if not times >= 1:
        raise SteplensError(f"{VARIABLE} is {text!r}; give how many times its size a compressed file may expand to, such as 1000")
    return times


def limit_setting() -> dict[str, float]:
    """What was asked for in place of the default: what is kept of a file that was read under another limit is not of this one."""
    times = most_times()
    return {} if times == MOST_TIMES else {"expansion_limit": times}


def is_compressed(handle: IO[bytes]) -> bool:
    """Whether a file that was just opened is a gzip file; it is at its beginning again afterwards."""
    start = handle.read(len(_MAGIC))
    handle.seek(0)
    return start == _MAGIC


def expand_bytes(content: bytes, most_bytes: int, *, dictionary: bytes = b"", is_gzip: bool = False) -> bytes:
    """The bytes that ``zlib.compress`` made small, or ``gzip.compress``.

    Args:
        content: what it made of them.
        most_bytes: they are no more than this.
        dictionary: bytes that they were compressed against.
        is_gzip: which of the two it was.

    Raises:
        ValueError: they are more, or the content is cut.
        zlib.error: it is damaged.
    """
    bounded = zlib.decompressobj(wbits=31 if is_gzip else zlib.MAX_WBITS, zdict=dictionary)
    plain = bounded.decompress(content, most_bytes)
    if bounded.unconsumed_tail or not bounded.eof:
        raise ValueError("cut, or more than was asked for")
    return plain


def read_head(path: Path, most_bytes: int) -> bytes:
    """The first bytes of a file, decompressed.

    Raises:
        OSError: it cannot be read.
        DamagedGzipError: it looks compressed, and cannot be decompressed.
    """
    with open_file(path) as handle:
        return ExpandingStream(handle).read(most_bytes) if is_compressed(handle) else handle.read(most_bytes)


def head_holds(path: Path, text: bytes, most_bytes: int) -> bool:
    """Whether some text stands in the first bytes of a file, decompressed; no more is read than is needed to tell.

    Raises:
        OSError: it cannot be read.
        DamagedGzipError: it looks compressed, and cannot be decompressed.
    """
    with open_file(path) as handle:
        source = ExpandingStream(handle) if is_compressed(handle) else handle
        end, left = b"", most_bytes
        while left > 0 and (part := source.read(min(left, _INPUT_BYTES))):
            if text in end + part:
                return True
            # it may stand across two parts
            end, left = part[-len(text) :], left - len(part)
    return False


class ExpandingStream:
    """Decompressed bytes of a gzip file; what precedes damage or the limit is delivered, then it ends.

    Args:
        handle: the file, at its beginning.

    Attributes:
        of_bytes: size of the file.
        expanded: bytes delivered so far.
        damaged: it ended because the rest cannot be decompressed.
        limited: it ended because more than may come out of it did.
    """

    def __init__(self, handle: IO[bytes]) -> None:
        self.of_bytes = size_of(handle)
        self.expanded = 0
        self.damaged = False
        self.limited = False
        self.times = most_times()
        self._most = int(min(max(FLOOR_BYTES, self.times * self.of_bytes), 1 << 62))
        self._handle = handle
        self._inflate = zlib.decompressobj(wbits=31)
        self._input = b""
        self._step = _INPUT_BYTES

    @property
    def taken(self) -> int:
        """Bytes of the file that were decompressed so far."""
        return self._handle.tell() - len(self._input)

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; empty at the end.

        Raises:
            DamagedGzipError: nothing at all can be decompressed.
        """
        parts: list[bytes] = []
        while size > 0 and not (self.damaged or self.limited):
            if self._inflate.eof:
                # another member may follow
                self._input = self._input or self._handle.read(_INPUT_BYTES)
                if not self._input.startswith(_MAGIC):
                    break
                self._inflate = zlib.decompressobj(wbits=31)
            self._input = self._input or self._handle.read(_INPUT_BYTES)
            if not self._input:
                break
            fed, rest = self._input[: self._step], self._input[self._step :]
            before = self._inflate.copy()
            try:
                part = self._inflate.decompress(fed, min(size, self._most - self.expanded + 1))
            except zlib.error as error:
                if self._step > 1:
                    # what came out before the damage went with it: once more, in smaller portions
                    self._inflate, self._step = before, self._step // _SMALLER
                    continue
                if not self.expanded:
                    raise DamagedGzipError(str(error)) from None
                self.damaged = True
                break
            self._input = (self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail) + rest
            if self.expanded + len(part) > self._most:
                self.limited = True
                part = part[:-1]
            self.expanded += len(part)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    @property
    def stopped(self) -> str:
        """Why it ended before the file did, in words that follow the file's name, and how to go on; empty where it did not."""
        if self.damaged:
            return f"cannot be decompressed behind {_format_share(self.taken, self.of_bytes)} of it, so the rest was not read"
        if self.limited:
            return (
                f"was read as far as {_format_bytes(self.expanded)} came out of {_format_share(self.taken, self.of_bytes)} of its"
                f" {_format_bytes(self.of_bytes)}: recorded traces expand to less than {self.times:g} times their size."
                f" To read on, set {VARIABLE} to more than {self.times:g}, or unpack it (gunzip) and open that"
            )
        return ""


def _format_share(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.3g} %"


def _format_bytes(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"
