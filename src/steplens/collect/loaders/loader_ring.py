"""Rows of numbers in a piece of memory that never grows: the newest overwrite the oldest, and nobody waits for anybody.

One process writes, and another may read at any time, since the writer counts a row only once it is complete.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

#: what the head of a ring holds, int64 each: rows written so far; 1 once somebody writes; 1 when he should end; his process;
#: when he began, Unix ns; a number by which he knows that this is the ring that he was told of
COUNT, ATTACHED, STOP, PID, ATTACHED_NS, TOKEN = range(6)
_HEAD_FIELDS = 8
HEAD_BYTES = 8 * _HEAD_FIELDS

#: one batch as it is made, by a worker or by the training process itself; times are Unix ns, 0 where something did not happen.
#: transform_ns is part of the time between start and collate, of so many transforms (-1: they were not timed); cpu_ns is the
#: processor time that the process has used so far
STAGE_COLUMNS = (
    "loader",
    "epoch",
    "batch",
    "worker",
    "start_ns",
    "collate_ns",
    "end_ns",
    "transform_ns",
    "transforms",
    "failed",
    "cpu_ns",
    "pickle_start_ns",
    "pickle_end_ns",
)

#: one batch as the training loop gets it; pin_end_ns only with a pinning thread; waited_ns is the part of next() in which no
#: batch was there to be received; ready: batches that were made and not taken when the loop asked, -1 where nobody tells
BATCH_COLUMNS = (
    "loader",
    "epoch",
    "batch",
    "next_start_ns",
    "next_end_ns",
    "waited_ns",
    "ready",
    "receive_start_ns",
    "receive_end_ns",
    "pin_end_ns",
)


def size_bytes(columns: Sequence[str], capacity: int) -> int:
    """How much memory a ring of so many rows takes."""
    return HEAD_BYTES + 8 * len(columns) * capacity


class Ring:
    """A ring in a buffer. Who writes rows does so in its own lines, which is quicker than a call: ``loader_worker``.

    Args:
        buffer: writable, of ``size_bytes``; all zero where nobody has written.
        columns: of a row.
        capacity: rows.

    Attributes:
        buffer, capacity: these.
        cells: the buffer as numbers.
        pack_into: writes a row to a place in bytes.
        row_bytes: size of a row.
    """

    def __init__(self, buffer: Any, columns: Sequence[str], capacity: int) -> None:
        self.buffer = buffer
        self.capacity = capacity
        #: the same as numbers: reading and writing one is quicker than packing it
        self.cells = memoryview(buffer).cast("q")
        self._row = struct.Struct(f"={len(columns)}q")
        self.pack_into = self._row.pack_into
        self.row_bytes = self._row.size

    def get(self, field: int) -> int:
        """A field of the head."""
        return self.cells[field]

    def set(self, field: int, value: int) -> None:
        """Write a field of the head."""
        self.cells[field] = value

    def rows(self) -> list[tuple[int, ...]]:
        """The rows that are there, oldest first."""
        count = self.get(COUNT)
        size, capacity = self.row_bytes, self.capacity
        complete = min(count, capacity)
        first = (count - complete) % capacity
        # the row that comes next lies over the oldest one, and may be half written
        complete -= complete == capacity
        rows = list(self._row.iter_unpack(bytes(self.buffer[HEAD_BYTES : HEAD_BYTES + size * min(capacity, count)])))
        return (rows[first:] + rows[:first])[-complete:] if complete else []
