"""Memory that workers of a ``DataLoader`` write their rings into, and that this process reads."""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

from steplens.collect.loaders.loader_ring import COUNT, HEAD_BYTES, STAGE_COLUMNS, STOP, TOKEN, Ring, size_bytes

#: batches that a worker's ring holds
CAPACITY = 4096
#: workers that are observed at a time, counting those that have ended and whose windows are not saved
MOST_SLOTS = 1024

_LENGTH = -(-size_bytes(STAGE_COLUMNS, CAPACITY) // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY


@dataclass(eq=False)
class Slot:
    """The ring of one worker.

    Attributes:
        index: which part of the memory.
        loader: number of the loader.
        worker: its number in the loader.
        pid: its process.
        token: what its head holds.
        introduced: whether the worker was told.
        retired_ns: when its loader's iterator was gone, Unix ns; 0 while it is there.
    """

    index: int
    loader: int
    worker: int
    pid: int
    token: int
    introduced: bool = False
    retired_ns: int = 0


class Arena:
    """One file without a name: it is gone with the last process that uses it, however that ends.

    Raises:
        OSError: there is no room for a file.
    """

    def __init__(self) -> None:
        self._has_name = not hasattr(os, "memfd_create")
        if self._has_name:
            self._handle, self._path = tempfile.mkstemp(prefix="steplens_loader_")
        else:
            self._handle = os.memfd_create("steplens_loader")
            self._path = f"/proc/{os.getpid()}/fd/{self._handle}"
        self.slots: list[Slot] = []

    def new(self, loader: int, worker: int, pid: int, needed_since_ns: int | None) -> Slot | None:
        """A slot for a worker; None when there are too many.

        Args:
            loader: number of the loader.
            worker: its number in the loader.
            pid: its process.
            needed_since_ns: what workers that ended before this have written is not needed any more; None: nothing is.
        """
        old = next((s for s in self.slots if s.retired_ns and (needed_since_ns is None or s.retired_ns < needed_since_ns)), None)
        if old is not None:
            self.slots.remove(old)
        elif len(self.slots) >= MOST_SLOTS:
            return None
        slot = Slot(old.index if old is not None else len(self.slots), loader, worker, pid, secrets.randbits(62))
        self.slots.append(slot)
        os.ftruncate(self._handle, max(os.fstat(self._handle).st_size, (slot.index + 1) * _LENGTH))
        os.pwrite(self._handle, bytes(HEAD_BYTES), slot.index * _LENGTH)
        self._write_field(slot, TOKEN, slot.token)
        return slot

    def terms(self, slot: Slot) -> dict[str, Any]:
        """What the worker must know of its ring."""
        offset = slot.index * _LENGTH
        return {"path": self._path, "offset": offset, "length": _LENGTH, "capacity": CAPACITY, "token": slot.token}

    def ring(self, slot: Slot) -> Ring:
        """A copy of a worker's ring as it is now."""
        return Ring(bytearray(os.pread(self._handle, _LENGTH, slot.index * _LENGTH)), STAGE_COLUMNS, CAPACITY)

    def counts(self) -> dict[Slot, int]:
        """How many rows each worker has written so far."""
        offset = 8 * COUNT
        cells = ((slot, os.pread(self._handle, 8, slot.index * _LENGTH + offset)) for slot in self.slots)
        return {slot: int.from_bytes(cell, sys.byteorder) for slot, cell in cells}

    def stop(self, slot: Slot) -> None:
        """Tell a worker to end observing itself."""
        self._write_field(slot, STOP, 1)

    def close(self) -> None:
        """Give the memory back; workers keep what they have mapped until they end."""
        self.close_copy()
        if self._has_name:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def close_copy(self) -> None:
        """The same in a forked process, whose parent goes on to use it."""
        with contextlib.suppress(OSError):
            os.close(self._handle)

    def _write_field(self, slot: Slot, field: int, value: int) -> None:
        os.pwrite(self._handle, value.to_bytes(8, sys.byteorder), slot.index * _LENGTH + 8 * field)
