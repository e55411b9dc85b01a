"""A small trace file with some of the events of a large one, taken evenly from all of it: what a draft of its timeline shows.

Nothing is parsed: stretches that lie evenly in the file are taken, each from the first event that begins in it to the last one
that ends in it. What is in front of the events and behind them is taken as it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from steplens.common.storage.files import open_file
from steplens.readers.common.json_events import KINETO_BOUNDARY, event_ends, events_begin, next_event

#: smaller files are read within some seconds
_LEAST_BYTES = 256 << 20
#: bytes of a stretch: some dozens of events, so that what was called inside a call is often beside it
_STRETCH_BYTES = 8 << 10
_STRETCHES = 1024
#: the names of processes and threads are told in front of the first events, or behind the last ones
_END_BYTES = 256 << 10
#: a disk that has to look for every stretch gives fewer of them
_MOST_S = 0.25


@dataclass(frozen=True)
class Sample:
    """What was taken.

    Attributes:
        bytes: of the events that were taken.
        of_bytes: of the whole file.
    """

    bytes: int
    of_bytes: int


def write_sample(path: Path, target: Path) -> Sample | None:
    """Write some of the events of a trace file into a new one.

    Args:
        path: a Kineto or Chrome trace, not compressed.
        target: the new file.

    Returns:
        how much was taken; None where the file is compressed, no trace, or so small that it is not worth it.

    Raises:
        OSError: the file cannot be read, or the new one not written.
    """
    size = path.stat().st_size
    if size < _LEAST_BYTES:
        return None
    with open_file(path) as file, target.open("wb") as made:
        start = file.read(_END_BYTES)
        begin = events_begin(start)
        if begin is None:
            return None
        kineto = KINETO_BOUNDARY in start
        first = _complete_events(start[begin:], kineto=kineto)
        if first is None:
            return None
        made.write(start[:begin])
        parts = [first, *(text for _, text in sorted(_read_stretches(file, size, kineto=kineto)))]
        made.writelines(part + b",\n  " for part in parts)
        file.seek(size - _END_BYTES)
        end = file.read()
        cut = _first_event_start(end, kineto=kineto)
        parts.append(end[cut:] if cut is not None else b"")
        made.write(parts[-1])
    return Sample(sum(map(len, parts)), size)


def _read_stretches(file: IO[bytes], size: int, *, kineto: bool) -> Iterator[tuple[int, bytes]]:
    """Where stretches begin, and their events; any number of the first ones lies evenly in the file."""
    room = size - 2 * _END_BYTES
    until = time.monotonic() + _MOST_S
    # a power of two of them, apart from each other
    bits = max(min(_STRETCHES, room // (2 * _STRETCH_BYTES)).bit_length() - 1, 0)
    for number in range(1 << bits):
        at = _END_BYTES + (room * int(f"{number:0{bits}b}"[::-1], 2) >> bits)
        file.seek(at)
        text = file.read(min(_STRETCH_BYTES, size - _END_BYTES - at))
        begin = _first_event_start(text, kineto=kineto)
        events = None if begin is None else _complete_events(text[begin:], kineto=kineto)
        if events:
            yield at, events
        if time.monotonic() > until:
            return


def _first_event_start(text: bytes, *, kineto: bool) -> int | None:
    """Where the first event begins that a stretch has from its beginning."""
    if not kineto:
        return next_event(text)
    boundary = text.find(KINETO_BOUNDARY)
    return None if boundary < 0 else boundary + len(KINETO_BOUNDARY) - 1


def _complete_events(text: bytes, *, kineto: bool) -> bytes | None:
    """The events that a text has whole, which begins with one; None where it has none."""
    if kineto:
        end = text.rfind(KINETO_BOUNDARY) + 1
    else:
        ends, _ = event_ends(text)
        end = ends[-1] if ends else 0
    return text[:end].strip(b", \t\r\n") if end > 0 else None
