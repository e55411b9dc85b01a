"""Cuts a Chrome/Kineto JSON file into bounded pieces at event boundaries, without parsing the events.

Accepted are ``{"traceEvents": [...], ...}`` and a bare array, plain or gzip, of any size: memory stays at a few pieces.
What follows the last complete event of a file that breaks off is dropped and reported, never guessed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from steplens.common.errors import InputError
from steplens.common.expansion import DamagedGzipError, ExpandingStream, is_compressed
from steplens.common.storage.files import open_file, size_of
from steplens.readers.common import json_decoder
from steplens.readers.common.json_start import (
    BEFORE,
    BETWEEN,
    EVENTS_KEY,
    GLANCE_BYTES,
    HEADER_LIMIT_BYTES,
    Source,
    damaged_gzip,
    find_events,
)
from steplens.readers.common.reading import tell
from steplens.trace.health import ERROR, EVERYTHING, HealthFinding, finding

#: small enough that the allocator reuses the memory of one piece for the next: at 16 MiB a piece reads at half the speed
PIECE_BYTES = 2 << 20
#: an event larger than this is none: a quote that is gone makes the rest of a file look like one text
EVENT_LIMIT_BYTES = 32 << 20

#: how many commas of a damaged footer are tried as the end of its last whole member
_MEMBER_LIMIT = 64

# Kineto writes every event with this line structure, and a JSON string cannot contain a raw line break, so the
# sequence is a boundary between two events and nothing else.
#: its last byte begins an event
KINETO_BOUNDARY = b"},\n  {"
#: where an event seems to begin, inside damage and behind a bracket that closes the list too early
_NEXT_EVENT = re.compile(rb'[}\]]\s*,\s*\{\s*"(?:ph|name|cat|pid|tid|ts|dur|id|args|s|bp)"')
_EVENT_FOLLOWS = re.compile(rb'\s*,?\s*\{\s*"')
#: an event that cannot be read, so that it is counted
_DAMAGED = b"[\0]"
#: after so many damaged places the rest is given up
_DAMAGE_LIMIT = 256
#: as much white space between two events as a search for the next one looks through
_BLANKS_LIMIT = 64
_SPACE, _COMMA, _BRACE = b" ,{"
_VALUE_BEGINS = b"{[0123456789"
_OPENING_BRACKET, _CLOSING_BRACKET = ord("["), ord("]")
Piece = bytes | memoryview
_QUOTE, _BACKSLASH = ord('"'), ord("\\")


class JsonEventFile:
    """The events of one trace file as pieces of JSON array text.

    Iterate once; ``header``, ``footer`` and ``truncated`` are complete afterwards. A piece is valid until the next one is
    asked for: its memory is used again where nothing decoded refers to it, since new memory costs more than reading.

    Attributes:
        header: members of the top object before ``traceEvents``.
        footer: members behind it.
        truncated: the file ends inside the event array.
        lost_bytes: bytes behind the last complete event of a truncated file, and those of damage inside it.
        damaged: places inside the events that could not be followed; each is a piece that cannot be decoded.
        header_damaged: ``header`` cannot be decoded and is empty.
        footer_cut: the file ends, or is damaged, behind its events; ``footer`` holds the members before that.
        stopped: why reading a compressed file ended before the file did; None where it did not.
    """

    def __init__(self, path: Path, *, piece_bytes: int = PIECE_BYTES, start: int = 0, end: int | None = None) -> None:
        """Prepare to read ``path``.

        Args:
            path: the file.
            piece_bytes: size of the pieces, about.
            start: begin at this event of a plain file in Kineto's layout (from ``kineto_split``); the header is still read.
            end: stop behind this event (from ``kineto_split``); then there is no footer, and the file is not truncated.
        """
        self.path = path
        self.header: dict[str, Any] = {}
        self.footer: dict[str, Any] = {}
        self.truncated = False
        self.lost_bytes = 0
        self.damaged = 0
        self.header_damaged = False
        self.footer_cut = False
        self.stopped: HealthFinding | None = None
        self._in_object = True
        self._piece_bytes = piece_bytes
        self._from = start
        self._to = end

    def __iter__(self) -> Iterator[Piece]:
        try:
            with open_file(self.path) as handle:
                expanding = ExpandingStream(handle) if is_compressed(handle) else None
                stream: Source = handle if expanding is None else expanding
                source = stream if self._to is None else _Limited(stream, self._to)
                try:
                    first = self._start(source)
                except InputError as error:
                    if expanding is not None and expanding.stopped:
                        raise InputError(self.path, f"{error.problem}, and {expanding.stopped}") from error
                    raise
                line_layout = KINETO_BOUNDARY in first[: 1 << 20]
                if self._from:
                    handle.seek(self._from)
                    first = b""
                size = size_of(handle)
                for piece in self._read_pieces(source, first, line_layout=line_layout, partial=self._to is not None):
                    tell(self.path, handle.tell() if expanding is None else expanding.taken, size)
                    yield piece
                if expanding is not None and expanding.stopped:
                    check = "expansion_limit" if expanding.limited else "truncated_file"
                    self.stopped = finding(check, ERROR, 1, f"{self.path.name} {expanding.stopped}", EVERYTHING)
        except DamagedGzipError as error:
            raise damaged_gzip(self.path, error) from error
        except OSError as error:
            raise InputError(self.path, f"cannot be read ({error.strerror or error})") from error

    def _start(self, handle: Source) -> bytes:
        """Read and decode the header; return what was read behind the opening bracket of the events."""
        # with a start offset only the header is wanted here, so a small first read does
        text, members_end, begin = find_events(self.path, handle, 1 << 20 if self._from else self._piece_bytes)
        if not members_end:
            self._in_object = False
            return text[begin:]
        members = text[:members_end].rstrip(BETWEEN)
        self.header = _decode_members(members + b"}")
        self.header_damaged = not self.header and members != b"{"
        return text[begin:]

    def _read_pieces(self, handle: Source, first: bytes, *, line_layout: bool, partial: bool) -> Iterator[Piece]:
        # a piece is a view of the buffer: the bracket before it is put there first, the comma behind it becomes the other one
        buffer = bytearray(b"[" + first)
        chunk = bytearray(self._piece_bytes)
        scan_at = 0
        while True:
            size = _read_into(handle, chunk)
            if not size:
                break
            buffer += memoryview(chunk)[:size]
            if line_layout and (boundary := buffer.rfind(KINETO_BOUNDARY)) > 0:
                comma = boundary + 1
                buffer[comma] = _CLOSING_BRACKET
                piece = memoryview(buffer)[: comma + 1]
                yield piece
                try:
                    piece.release()
                    del buffer[:comma]
                    buffer[0] = _OPENING_BRACKET
                except BufferError:
                    # something decoded from it still refers to it
                    buffer = bytearray(b"[") + buffer[comma + 1 :]
                continue
            if len(buffer) < scan_at:
                continue
            remainder, tail = yield from self._split_events(bytes(buffer[1:]), last=False)
            if tail is not None:
                # the array ends inside this piece; the rest of the file is the footer
                self._finish(tail + _read_remainder(handle))
                return
            if len(remainder) > EVENT_LIMIT_BYTES:
                if not self.damaged:
                    raise InputError(self.path, f"holds an event of more than {EVENT_LIMIT_BYTES >> 20} MiB, so it is no trace")
                break
            # an event that does not end yet is not looked through again for every piece that is added to it
            scan_at = min(2 * len(remainder), EVENT_LIMIT_BYTES)
            buffer = bytearray(b"[") + remainder
        data = bytes(buffer[1:])
        if partial:
            if data.strip(BETWEEN):
                yield _to_json_array(data)
            return
        remainder, tail = yield from self._split_events(data, last=True)
        if tail is not None:
            self._finish(tail)
            return
        self.truncated = True
        self.lost_bytes += len(remainder)

    def _split_events(self, data: bytes, *, last: bool) -> Generator[Piece, None, tuple[bytes, bytes | None]]:
        """Yield the complete events of a stretch that begins between two events.

        A damaged quote or brace makes everything behind it look like text, or the list of events end early. Then reading
        goes on at what looks like the beginning of the next event.

        Args:
            data: the stretch.
            last: nothing follows it.

        Returns:
            What is left of it, and what follows the list of events, or None while that is open.
        """
        while self.damaged < _DAMAGE_LIMIT:
            data = data.lstrip(BETWEEN)
            if not data and not last:
                return b"", None
            ends, closed, damaged = _followed_event_ends(data)
            cut = closed if closed is not None else ends[-1] if ends else 0
            if data[:cut].strip(BETWEEN):
                yield _to_json_array(data[:cut])
            if closed is not None:
                return b"", data[closed + 1 :]
            data = data[cut:]
            if not damaged and not last and len(data) <= EVENT_LIMIT_BYTES:
                return data.lstrip(BETWEEN), None
            begin = next_event(data)
            if begin is None:
                break
            self.lost_bytes += begin
            self.damaged += 1
            yield _DAMAGED
            data = data[begin:]
        return data, None

    def _finish(self, tail: bytes) -> None:
        """Decode the footer."""
        tail = tail.strip(BETWEEN)
        if tail == b"}" if self._in_object else not tail:
            return
        if not self._in_object:
            self.truncated = True
            self.lost_bytes += len(tail)
            return
        self.footer = _decode_members(b"{" + tail)
        if not self.footer:
            self.footer_cut = True
            self.footer = _first_members(tail)


class _Limited:
    """A view of the next ``size`` bytes of a file."""

    def __init__(self, handle: Source, size: int) -> None:
        self._handle = handle
        self._left = size

    def read(self, size: int) -> bytes:
        data = self._handle.read(min(size, self._left))
        self._left -= len(data)
        return data

    def readinto(self, chunk: bytearray | memoryview) -> int:
        """Fill ``chunk`` from its start; returns how many bytes there were."""
        size = _read_into(self._handle, memoryview(chunk)[: self._left])
        self._left -= size
        return size


def kineto_split(path: Path, share: float) -> tuple[int, int] | None:
    """Two byte offsets inside a plain Kineto file: the end of one event and the start of the next.

    None where the layout is not Kineto's, the file is compressed, or no boundary lies near that place.

    Args:
        path: the file.
        share: of the file that is to lie before them.
    """
    if path.suffix == ".gz":
        return None
    with open_file(path) as handle:
        if KINETO_BOUNDARY not in handle.read(GLANCE_BYTES):
            return None
        middle = int(path.stat().st_size * share)
        handle.seek(middle)
        boundary = handle.read(1 << 20).find(KINETO_BOUNDARY)
    return None if boundary < 0 else (middle + boundary + 1, middle + boundary + 2)


def event_ends(data: bytes) -> tuple[list[int], int | None]:
    """Offsets behind the complete events of ``data``, which starts between two events.

    A vectorised scan of strings and brackets: exact for any JSON, whatever its white space.

    Returns:
        The offsets, and the offset of the bracket that closes the event array, or None while it is open.
    """
    array = np.frombuffer(data, dtype=np.uint8)
    if len(array) == 0:
        return [], None
    quote = array == _QUOTE
    backslashes = np.flatnonzero(array == _BACKSLASH)
    if len(backslashes):
        # a quote is escaped when an odd run of backslashes ends right before it
        run_first = np.r_[True, np.diff(backslashes) != 1]
        position = np.arange(len(backslashes))
        in_run = position - np.maximum.accumulate(np.where(run_first, position, 0))
        odd_ends = backslashes[in_run % 2 == 0] + 1
        odd_ends = odd_ends[odd_ends < len(array)]
        quote[odd_ends] = False
    outside = (np.cumsum(quote, dtype=np.int32) & 1) == 0
    opening = outside & ((array == ord("{")) | (array == ord("[")))
    closing = outside & ((array == ord("}")) | (array == ord("]")))
    brackets = np.flatnonzero(opening | closing)
    depth = np.cumsum(np.where(opening[brackets], 1, -1))
    is_closed = np.flatnonzero(depth < 0)
    closed = None
    if len(is_closed):
        closed = int(brackets[is_closed[0]])
        brackets, depth = brackets[: is_closed[0]], depth[: is_closed[0]]
    ends = brackets[(depth == 0) & closing[brackets]] + 1
    return ends.tolist(), closed


def events_of(data: bytes) -> Iterator[bytes | None]:
    """The texts of the events in a stretch that begins between two events; None for what cannot be told apart."""
    for _ in range(_DAMAGE_LIMIT):
        ends, _, _ = _followed_event_ends(data)
        start = 0
        for end in ends:
            yield data[start:end].lstrip(BETWEEN)
            start = end
        data = data[start:]
        if not data.strip(BETWEEN):
            return
        yield None
        begin = next_event(data)
        if begin is None:
            return
        data = data[begin:]


def _followed_event_ends(data: bytes) -> tuple[list[int], int | None, bool]:
    """Like ``event_ends``, as far as every event but the last is followed by another; and whether that went wrong."""
    ends, closed = event_ends(data)
    wrong = _first_unfollowed_end(data, np.array(ends[:-1], dtype=np.int64))
    if wrong is not None:
        return ends[:wrong], None, True
    if closed is not None:
        # nothing stands between the last event and the end of the list, and no event behind it
        between = data[ends[-1] if ends else 0 : closed]
        if between.strip(BETWEEN) or _EVENT_FOLLOWS.match(data, closed + 1):
            return ends, None, True
    return ends, closed, False


def _first_unfollowed_end(data: bytes, ends: npt.NDArray[np.int64]) -> int | None:
    """The first of the ends (all of them inside ``data``) behind which no comma and no further value stand."""
    array = np.frombuffer(data, dtype=np.uint8)
    doubtful = np.flatnonzero((array[ends] != _COMMA) | (array[ends + 1] != _BRACE)) if len(ends) else ends
    position = ends[doubtful]
    right = np.ones(len(position), dtype=bool)
    for expected in (b",", _VALUE_BEGINS):
        for _ in range(_BLANKS_LIMIT):
            blank = array[position] <= _SPACE
            if not blank.any():
                break
            position = np.minimum(position + blank, len(array) - 1)
        right &= np.isin(array[position], np.frombuffer(expected, dtype=np.uint8))
        position = np.minimum(position + 1, len(array) - 1)
    return None if right.all() else int(doubtful[int(np.argmin(right))])


def behind_damage(text: bytes) -> bytes | None:
    """What follows the first event of a text that cannot be decoded as one, and so may be many with a quote too few."""
    begin = next_event(text)
    return None if begin is None else text[begin:]


def events_begin(start: bytes) -> int | None:
    """Where the list of events begins in the first bytes of a file, behind its bracket; None where it is not among them."""
    text = start.lstrip(BEFORE)
    if text[:1] == b"[":
        return len(start) - len(text) + 1
    matched = EVENTS_KEY.search(start) if text[:1] == b"{" else None
    return None if matched is None else matched.end()


def next_event(data: bytes) -> int | None:
    """Where the event after the one that ``data`` begins inside of seems to begin."""
    matched = _NEXT_EVENT.search(data, 1)
    return None if matched is None else data.rfind(b"{", 0, matched.end())


def _read_into(handle: Source, chunk: bytearray | memoryview) -> int:
    """Fill ``chunk`` from its start; returns how many bytes there were."""
    if isinstance(handle, (io.BufferedIOBase, _Limited)):
        return handle.readinto(chunk)
    data = handle.read(len(chunk))
    chunk[: len(data)] = data
    return len(data)


def _to_json_array(events: bytes) -> bytes:
    return b"[" + events.strip(BETWEEN) + b"]"


def _decode_members(text: bytes) -> dict[str, Any]:
    """Members of a JSON object; an empty dictionary where it is damaged, since events matter more than the header."""
    try:
        value = json_decoder.decode(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _first_members(text: bytes) -> dict[str, Any]:
    """The members before the place where the text of an object breaks off. The last one may be cut, even if it looks whole."""
    for _ in range(_MEMBER_LIMIT):
        text, comma, _ = text.rpartition(b",")
        if not comma:
            break
        if members := _decode_members(b"{" + text + b"}"):
            return members
    return {}


def _read_remainder(handle: Source) -> bytes:
    parts = []
    total = 0
    while (part := handle.read(PIECE_BYTES)) and total < HEADER_LIMIT_BYTES:
        parts.append(part)
        total += len(part)
    return b"".join(parts)
