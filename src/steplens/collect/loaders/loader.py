"""Observes every ``DataLoader`` of the process while a profiler runs, and writes what a window needs of it.

Loaders are watched from a profiler's start to its stop and not only in its windows, because a batch that a window gets was
made before it, often by workers that were started before it.
"""

from __future__ import annotations

import os
import sys
import threading
from array import array
from pathlib import Path
from typing import Any

from steplens.collect.common import clock, exception_text, log
from steplens.collect.common.health import WARNING, Health
from steplens.collect.loaders.loader_arena import CAPACITY, Slot
from steplens.collect.loaders.loader_ring import ATTACHED_NS, BATCH_COLUMNS, COUNT, STAGE_COLUMNS
from steplens.collect.loaders.loader_watch import Delivery, LoaderWatch
from steplens.common import rundir

#: what findings call the tables
_DATA_LOADING = "data loading"

#: columns of the file: those of the ring, and the process
_FILE_COLUMNS = (*STAGE_COLUMNS, "pid")
_START, _END = STAGE_COLUMNS.index("start_ns"), STAGE_COLUMNS.index("end_ns")

#: where in a delivery the stages of a batch begin that the loop made itself
_MADE = 1 + len(BATCH_COLUMNS)
#: stands for the training process in the column of workers
_IN_LOOP = -1

Rows = list[tuple[int, ...]]


class _State:
    """What belongs to the process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.running = 0
        self.watch: LoaderWatch | None = None
        #: windows that are open or not saved
        self.windows: list[LoaderWindow] = []
        self.problem = ""


_state = _State()


def profiler_starts() -> None:
    """Watch the loaders; called once per profiler that runs."""
    with _state.lock:
        _state.running += 1
        if _state.watch is None:
            _state.problem = ""
            watch = LoaderWatch(_needed_since_ns, _watch_failed)
            _state.watch = watch
            watch.install()


def profiler_stops() -> None:
    """Undo :func:`profiler_starts`."""
    with _state.lock:
        _state.running = max(0, _state.running - 1)
        if not _state.running and _state.watch is not None:
            watch, _state.watch = _state.watch, None
            watch.remove()


def _needed_since_ns() -> int | None:
    return min((window.begin_ns for window in _state.windows), default=None)


def _watch_failed(exception: Exception) -> None:
    _state.problem = exception_text.describe_exception(exception)
    log.report_failure("data_loader", exception)


class LoaderWindow:
    """The loaders during one window; ``health`` gets what is missing."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._watch: LoaderWatch | None = None
        self._counts: dict[Slot, int] = {}
        self._first = 0
        self._stages: Rows = []
        self._batches: Rows = []
        self._epochs: list[list[int]] = []
        self.begin_ns = self.end_ns = 0

    def start(self) -> None:
        """The window opens."""
        with _state.lock:
            watch = self._watch = _state.watch
            self.begin_ns = clock.now_ns()
            if watch is not None:
                _state.windows.append(self)
                self._counts = watch.arena.counts() if watch.arena is not None else {}
                self._first = watch.delivered[-1][0] + 1 if watch.delivered else 0

    def stop(self) -> None:
        """It closes."""
        watch = self._watch
        self.end_ns = clock.now_ns()
        if watch is None:
            return
        # copying a deque is one step of the interpreter: nothing is delivered meanwhile
        new = [delivery for delivery in watch.delivered.copy() if delivery[0] >= self._first]
        self._batches = [delivery[1:_MADE] for delivery in new]
        self._stages = [_made_here(delivery) for delivery in new if len(delivery) > _MADE]
        self._epochs = [list(epoch) for epoch in watch.epochs]
        if new:
            self._report_overwritten(new[0][0] - self._first)

    def cancel(self) -> None:
        """Nothing will be saved."""
        with _state.lock:
            if self in _state.windows:
                _state.windows.remove(self)
        self._watch = None

    def save(self, folder: Path) -> None:
        """Write what the window needs into the folder of the raw data, if any loader was used."""
        watch = self._watch
        try:
            if watch is None:
                return
            problem = _state.problem or ("the program has too many data loaders at a time" if watch.ignored else "")
            if problem:
                message = f"data loading was not recorded completely: {problem}"
                self._health.add("loader_incomplete", WARNING, message, unsafe=_DATA_LOADING)
            workers = self._read_workers(watch)
            if self._stages or self._batches:
                self._write_window(folder, watch, workers)
        finally:
            self.cancel()

    def _read_workers(self, watch: LoaderWatch) -> list[dict[str, int]]:
        """Take the rows of workers that belong to this window; what is known of the workers."""
        if watch.arena is None:
            return []
        batches = {row[:3] for row in self._batches}
        workers = []
        for slot in watch.arena.slots:
            ring = watch.arena.ring(slot)
            rows = [
                (*row, slot.pid)
                for row in ring.rows()
                if row[:3] in batches or (row[_END] >= self.begin_ns and row[_START] <= self.end_ns)
            ]
            if not rows and slot.retired_ns and slot.retired_ns < self.begin_ns:
                continue
            self._stages += rows
            # a row of a full ring may be half written and is left out
            self._report_overwritten(ring.get(COUNT) - self._counts.get(slot, 0) - CAPACITY + 1)
            described = {"loader": slot.loader, "worker": slot.worker, "pid": slot.pid, "attached_ns": ring.get(ATTACHED_NS)}
            workers.append(described)
        return workers

    def _report_overwritten(self, count: int) -> None:
        if count > 0:
            message = "batches at the beginning of the window were overwritten, because loaders made too many of them"
            self._health.add("loader_overwritten", WARNING, message, unsafe=_DATA_LOADING, count=count)

    def _write_window(self, folder: Path, watch: LoaderWatch, workers: list[dict[str, int]]) -> None:
        numbers = {row[0] for row in (*self._stages, *self._batches)}
        rows = array("q")
        for row in (*self._stages, *self._batches):
            rows.extend(row)
        content: dict[str, Any] = {
            "pid": os.getpid(),
            "begin_ns": self.begin_ns,
            "end_ns": self.end_ns,
            "stage_columns": _FILE_COLUMNS,
            "stages": len(self._stages),
            "batch_columns": BATCH_COLUMNS,
            "batches": len(self._batches),
            "loaders": [{"loader": number, **watch.loaders[number]} for number in sorted(numbers)],
            "workers": [worker for worker in workers if worker["loader"] in numbers],
            "epochs": [epoch for epoch in self._epochs if epoch[0] in numbers],
        }
        if sys.byteorder == "big":
            rows.byteswap()
        rundir.write_bytes(folder / rundir.LOADER_ROWS, rows.tobytes())
        rundir.write_json(folder / rundir.LOADERS, content)


def _made_here(delivery: Delivery) -> tuple[int, ...]:
    """The row of ``_FILE_COLUMNS`` of a batch that the loop made itself; nothing failed, and nothing was sent."""
    loader, epoch, batch = delivery[1:4]
    *stages, processor_ns = delivery[_MADE:]
    return (loader, epoch, batch, _IN_LOOP, *stages, 0, processor_ns, 0, 0, os.getpid())


def _after_fork() -> None:
    """A forked process is not observed, unless it is a worker, which is told so later."""
    watch = _state.watch
    _state.__init__()  # type: ignore[misc]
    if watch is not None:
        watch.leave()


os.register_at_fork(after_in_child=_after_fork)
