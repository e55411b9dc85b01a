"""What is kept of every step while nothing is recorded: a few numbers in a ring in memory."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import resource
import struct
import sys
import threading
from typing import Any

from steplens.collect.common import clock

#: the columns of a row
COLUMNS = (
    "step",
    "start_ns",
    "duration_ns",
    "data_wait_ns",
    "gc_ns",
    "gc_count",
    "cpu_ns",
    "minor_faults",
    "major_faults",
    "voluntary_switches",
    "involuntary_switches",
    "resident_bytes",
)

#: step, start, duration, resident pages; sums: wait, collecting, collections, user and system s, faults, switches
_ROW = struct.Struct("=4q3q2d4q")

#: asking for resident memory takes as long as everything else together
_RESIDENT_EVERY = 16

_getrusage = resource.getrusage
#: of the calling thread where the system can tell
_WHOSE = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)

_LOADER_MODULE = "torch.utils.data.dataloader"


class DataWait:
    """Adds up how long the calling thread waits for a ``DataLoader``, between :meth:`install` and :meth:`remove`."""

    def __init__(self) -> None:
        self.total_ns = 0
        self._thread = 0
        self._replaced: tuple[Any, Any, Any] | None = None

    def install(self) -> None:
        """Begin; the time of this thread counts. Without PyTorch's loader there is nothing to wait for."""
        module = sys.modules.get(_LOADER_MODULE)
        iterator = getattr(module, "_BaseDataLoaderIter", None)
        if iterator is None or self._replaced is not None:
            return
        self._thread = threading.get_ident()
        original = iterator.__next__

        @functools.wraps(original)
        def timed_next(loader: Any) -> Any:
            if threading.get_ident() != self._thread:
                return original(loader)
            begin = clock.monotonic_ns()
            try:
                return original(loader)
            finally:
                self.total_ns += clock.monotonic_ns() - begin

        iterator.__next__ = timed_next
        self._replaced = (iterator, original, timed_next)

    def remove(self) -> None:
        """Put the method back, unless somebody else has replaced it meanwhile."""
        if self._replaced is not None:
            iterator, original, ours = self._replaced
            self._replaced = None
            if vars(iterator).get("__next__") is ours:
                iterator.__next__ = original


class GarbageCollections:
    """Adds up the interpreter's collections of garbage, between :meth:`install` and :meth:`remove`."""

    def __init__(self) -> None:
        self.total_ns = 0
        self.count = 0
        self._began = 0

    def install(self) -> None:
        """Begin."""
        gc.callbacks.append(self._on_collection)

    def remove(self) -> None:
        """End; the sums stay."""
        with contextlib.suppress(ValueError):
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, _info: dict[str, Any]) -> None:
        if phase == "start":
            self._began = clock.monotonic_ns()
        elif self._began:
            self.total_ns += clock.monotonic_ns() - self._began
            self.count += 1
            self._began = 0


class StepRing:
    """Rows of :data:`COLUMNS` of the last steps. Times are ns, sizes bytes; all but the first two columns are of the step alone.

    Processor time, faults and switches are those of the thread that trains; resident memory is looked at every 16th step. What
    is stored are sums since the process began, in one call; rows are made when they are asked for.

    Args:
        capacity: how many steps are kept.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._rows = bytearray(_ROW.size * capacity)
        self._count = 0
        self._waits = DataWait()
        self._collections = GarbageCollections()
        self._statm = -1
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._start_ns = 0
        self._resident = 0
        #: sums at the beginning of a step, where they are not those at the end of the step before
        self._sums_before: dict[int, tuple[float, ...]] = {}

    def open(self) -> None:
        """Begin to count what happens in a step."""
        self._waits.install()
        self._collections.install()
        with contextlib.suppress(OSError):
            self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """End; the rows stay."""
        self._waits.remove()
        self._collections.remove()
        if self._statm >= 0:
            os.close(self._statm)
            self._statm = -1

    def begin(self, *, again: bool = True) -> None:
        """A step begins; ``again``: something else than training has happened since the last one ended."""
        if again:
            if len(self._sums_before) > self._capacity:
                self._sums_before = {number: sums for number, sums in self._sums_before.items() if number >= self._oldest_index}
            self._sums_before[self._count] = self._counter_sums()
        self._start_ns = clock.now_ns()

    def end(self, step: int, duration_ns: int) -> None:
        """The step of this number has ended."""
        at = self._count % self._capacity * _ROW.size
        if self._count % _RESIDENT_EVERY == 0 and self._statm >= 0:
            self._resident = int(os.pread(self._statm, 128, 0).split(b" ", 2)[1])
        _ROW.pack_into(self._rows, at, step, self._start_ns, duration_ns, self._resident, *self._counter_sums())
        self._count += 1

    def _counter_sums(self) -> tuple[float, ...]:
        usage = _getrusage(_WHOSE)
        waits, collections = self._waits, self._collections
        # user time, system time, minor and major faults, voluntary and involuntary switches
        return (waits.total_ns, collections.total_ns, collections.count, *usage[:2], *usage[6:8], *usage[14:16])

    @property
    def _oldest_index(self) -> int:
        return max(0, self._count - self._capacity)

    def rows(self) -> list[dict[str, int]]:
        """What is kept, oldest first. The oldest is left out where the ring no longer holds what its sums began with."""
        records: list[dict[str, int]] = []
        before: tuple[float, ...] | None = None
        for number in range(self._oldest_index, self._count):
            step, start_ns, duration_ns, resident, *sums = _ROW.unpack_from(self._rows, number % self._capacity * _ROW.size)
            before = self._sums_before.get(number, before)
            if before is not None:
                wait, collecting, count, user, system, *rest = (now - then for now, then in zip(sums, before, strict=True))
                cpu_ns = round((user + system) * 1e9)
                values = (step, start_ns, duration_ns, wait, collecting, count, cpu_ns, *rest, resident * self._page)
                records.append(dict(zip(COLUMNS, values, strict=True)))
            before = tuple(sums)
        return records
