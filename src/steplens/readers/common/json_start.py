"""Where the events of a trace file begin, and what is said of a file that has none; without anything that takes long to load."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Protocol

from steplens.common.errors import InputError
from steplens.common.expansion import DamagedGzipError, ExpandingStream, is_compressed
from steplens.common.storage.files import open_file

#: from a file without events so much is read before it is given up
HEADER_LIMIT_BYTES = 64 << 20
#: what is decided at a glance lies in so many first bytes
GLANCE_BYTES = 1 << 20

EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
#: what may stand between two events
BETWEEN = b", \t\r\n"
#: what may stand in front of a document: a mark of its encoding, and white space
BEFORE = b"\xef\xbb\xbf \t\r\n"


class Source(Protocol):
    """Anything bytes can be read from, up to a size, empty at the end."""

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; empty at the end."""


def find_events(path: Path, source: Source, piece_bytes: int) -> tuple[bytes, int, int]:
    """Read as far as the list of events.

    Args:
        path: the file, for messages.
        source: its bytes.
        piece_bytes: so many are read at once.

    Returns:
        What was read, without what may stand in front of a document; where in it the members in front of the list end, 0 where
        the document is the list; where the first event begins.

    Raises:
        InputError: the file is empty, no JSON, or has no such list.
    """
    text = b""
    while not text and (data := source.read(piece_bytes)):
        text = data.lstrip(BEFORE)
    if not text:
        raise empty_file(path)
    if text[:1] == b"[":
        return text, 0, 1
    if text[:1] != b"{":
        raise InputError(path, "is not a JSON trace", "steplens reads Kineto and Chrome trace JSON, plain or .gz")
    while (matched := EVENTS_KEY.search(text)) is None:
        more = source.read(piece_bytes)
        if not more or len(text) > HEADER_LIMIT_BYTES:
            raise InputError(path, 'holds no "traceEvents", so it is not a trace', "Give a Kineto or Chrome trace")
        text += more
    return text, matched.start(), matched.end()


def empty_file(path: Path) -> InputError:
    """A file with nothing in it."""
    return InputError(path, "is empty", "Record the trace again")


def damaged_gzip(path: Path, error: DamagedGzipError) -> InputError:
    """A file of which nothing can be decompressed."""
    return InputError(path, f"is not a readable gzip file ({error})", "Copy or export it again")


def without_events(path: Path) -> InputError:
    """A trace in which no step, call or task stands."""
    return InputError(path, "holds no events", "Record at least one step, then open it again")


def refuse_without_events(path: Path) -> None:
    """Refuse a small file that has no list of events, or not a single whole event in it; nothing is decoded.

    Raises:
        InputError: what reading it would say, too.
    """
    try:
        with open_file(path) as handle:
            source = ExpandingStream(handle) if is_compressed(handle) else handle
            start = source.read(GLANCE_BYTES)
            if len(start) == GLANCE_BYTES or (isinstance(source, ExpandingStream) and source.stopped):
                return
    except DamagedGzipError as error:
        raise damaged_gzip(path, error) from error
    except OSError:  # its reader says what is wrong
        return
    text, _, begin = find_events(path, io.BytesIO(start), GLANCE_BYTES)
    events = text[begin:].lstrip(BETWEEN)
    if events[:1] in (b"", b"]") or b"}" not in events:
        raise without_events(path)
