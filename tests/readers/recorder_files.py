"""Files of the recorder of operators, built block by block from arrays: what the library in C++ writes, without it."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steplens.formats import recorder as layout

PID = 4321
#: Unix time at ``FIRST_TICKS``, and how many ticks the counter makes in a nanosecond
BEGIN_NS = 1_790_000_000_000_000_000
FIRST_TICKS = 1 << 62
TICKS_PER_NS = 3
MONOTONIC_NS = 5_000_000_000_000

CALL = np.dtype(list(layout.CALL_FIELDS))
MEMORY = np.dtype(list(layout.MEMORY_FIELDS))
PYTHON = np.dtype(list(layout.PYTHON_FIELDS))
SAMPLE, STACK = np.dtype(list(layout.SAMPLE_FIELDS)), np.dtype(list(layout.STACK_FIELDS))


def ticks_at(ns: int) -> int:
    """The counter so many ns after the begin."""
    return FIRST_TICKS + ns * TICKS_PER_NS


def header(
    *,
    version: int = layout.VERSION,
    options: int = 7,
    call_bytes: int = 40,
    memory_bytes: int = 24,
    source: int = 1,
    begin_ns: int = BEGIN_NS,
    pid: int = PID,
) -> bytes:
    offset = begin_ns - MONOTONIC_NS
    return struct.pack(layout.HEADER, layout.MAGIC, version, options, pid, call_bytes, memory_bytes, source, offset)


def block(kind: int, content: bytes, *, count: int, thread: int = 0, magic: bytes = layout.BLOCK_MAGIC) -> bytes:
    head = struct.pack(layout.BLOCK_HEADER, magic, kind, count, thread, len(content))
    return head + content + bytes(-len(content) % layout.ALIGNMENT)


def clocks(*times_ns: int) -> bytes:
    pairs = b"".join(struct.pack("<Qq", ticks_at(ns), MONOTONIC_NS + ns) for ns in times_ns)
    return block(layout.CLOCKS, pairs, count=len(times_ns))


def signatures(*texts: dict[str, Any] | bytes, first: int = 0) -> bytes:
    raw = [text if isinstance(text, bytes) else json.dumps(text).encode() for text in texts]
    return block(layout.SIGNATURES, b"".join(struct.pack("<I", len(text)) + text for text in raw), count=len(raw), thread=first)


def python_names(*texts: dict[str, Any] | bytes, first: int = 0) -> bytes:
    raw = [text if isinstance(text, bytes) else json.dumps(text).encode() for text in texts]
    return block(layout.PYTHON_NAMES, b"".join(struct.pack("<I", len(text)) + text for text in raw), count=len(raw), thread=first)


def python_calls(*rows: tuple[int, int, int, int], thread: int = 1, kind: int = layout.PYTHON_CALLS) -> bytes:
    """Calls of Python: ns after the begin of their begin and end, number of the name, depth."""
    records = np.array([(ticks_at(start), ticks_at(end), name, depth) for start, end, name, depth in rows], dtype=PYTHON)
    return block(kind, records.tobytes(), count=len(records), thread=thread)


def python_samples(*rows: tuple[int, int, int, int, int, int]) -> bytes:
    """Samples: ns after the begin when each was to be taken and was, processor time, stack, thread, periods."""
    ticks = [(ticks_at(wanted), ticks_at(taken), *rest, 0) for wanted, taken, *rest in rows]
    return block(layout.PYTHON_SAMPLES, np.array(ticks, dtype=SAMPLE).tobytes(), count=len(ticks))


def python_stacks(*rows: tuple[int, int, int], first: int = 0) -> bytes:
    """Stacks: the one around it (-1: none), name, line."""
    records = np.array([(parent % (1 << 32), name, line, 0) for parent, name, line in rows], dtype=STACK)
    return block(layout.PYTHON_STACKS, records.tobytes(), count=len(records), thread=first)


def sampled_threads(*texts: dict[str, Any] | bytes, first: int = 0) -> bytes:
    raw = [text if isinstance(text, bytes) else json.dumps(text).encode() for text in texts]
    content = b"".join(struct.pack("<I", len(text)) + text for text in raw)
    return block(layout.PYTHON_SAMPLED_THREADS, content, count=len(raw), thread=first)


def thread(number: int, native_id: int, torch_id: int, name: str = "python") -> bytes:
    return block(layout.THREADS, struct.pack("<IIQ16s", number, native_id, torch_id, name.encode()), count=1, thread=number)


def call(
    start_ns: int, end_ns: int, signature: int, *, sequence: int = -1, forward_thread: int = 0, thread: int = 1, scope: int = 0
) -> NDArray[np.void]:
    row = (ticks_at(start_ns), ticks_at(end_ns), sequence, signature, forward_thread, thread, scope, 0)
    return np.array([row], dtype=CALL)


def calls(*rows: NDArray[np.void], thread: int = 1, kind: int = layout.CALLS) -> bytes:
    return block(kind, b"".join(row.tobytes() for row in rows), count=sum(map(len, rows)), thread=thread)


def memory(*rows: tuple[int, int, int], thread: int = 1) -> bytes:
    """Allocator events: ns after the begin, address, bytes."""
    records = np.array([(ticks_at(ns), address, size) for ns, address, size in rows], dtype=MEMORY)
    return block(layout.MEMORY, records.tobytes(), count=len(records), thread=thread)


def metadata(members: dict[str, Any] | bytes) -> bytes:
    return block(layout.METADATA, members if isinstance(members, bytes) else json.dumps(members).encode(), count=1)


def end(calls: int = 0, memory_events: int = 0, *, dropped_calls: int = 0, dropped_memory: int = 0, error: int = 0) -> bytes:
    return block(layout.END, struct.pack("<5Qq", calls, memory_events, dropped_calls, dropped_memory, 0, error), count=1)


def end_with_python(calls: int, python_calls: int, *, dropped: int = 0, refused: int = 0, lost: int = 0) -> bytes:
    return block(layout.END, struct.pack("<5Qq4Q", calls, 0, 0, 0, 0, 0, python_calls, dropped, refused, lost), count=1)


def end_with_samples(samples: int, *, dropped: int = 0, stackless: int = 0, cut: int = 0) -> bytes:
    numbers = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, samples, dropped, stackless, cut)
    return block(layout.END, struct.pack("<5Qq8Q", *numbers), count=1)


@dataclass
class Recording:
    """A file that is put together in the order in which its blocks are added."""

    parts: list[bytes] = field(default_factory=lambda: [header()])

    def add(self, *blocks: bytes) -> Recording:
        self.parts += blocks
        return self

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(self.parts))
        return path
