"""Reads many traces, in several processes at once where that is worth it: each reads some of them into their caches.

The processes beside this one run this module.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from steplens.common.errors import InputError
from steplens.common.executors import TaskExecutor, map_ranks
from steplens.common.storage.files import locate_path, private_address, public_address
from steplens.common.worker_processes import SharedTasks, serve_tasks
from steplens.readers.common.reading import PARALLEL_BYTES
from steplens.readers.detect import find_traces, is_kept, load, sources
from steplens.readers.reader import AnyCapture
from steplens.trace.cache.store import tables_kept_at_once, tables_read_later
from steplens.trace.trace import Trace

#: so many take longer to read than a process takes to start
_MANY = 100
#: of so many most are never asked for their tables: what is asked of every trace is kept beside them
_READ_LATER = 32
#: memory of a process that reads, beside what it reads; and of what it reads for each byte of the source
_PROCESS_BYTES = 200 << 20
_TIMES_SOURCE = 12
#: of the memory of the machine, all processes may take one part of so many
_PART_OF_MEMORY = 2


def load_all(
    top: Path,
    every: Sequence[AnyCapture],
    progress: Callable[[int, int, Path], None] | None,
    executor: TaskExecutor | None = None,
) -> list[Trace | InputError]:
    """Every trace, or why it cannot be read.

    Args:
        top: what ``find_traces`` was given.
        every: what it found there.
        progress: told before each trace is read: how many are, how many there are, and its path.
        executor: what reads the traces first, into their caches.
    """
    if executor is not None:
        unread = [number for number, capture in enumerate(every) if not is_kept(capture)]
        read_there = partial(_cache_capture, public_address(top))
        for done, (number, _) in enumerate(map_ranks(executor, read_there, unread)):
            if progress is not None:
                progress(done, len(unread), every[number].path)
    loaded: dict[int, Trace | InputError] = {}
    at_once = len(every) >= _MANY and not any(map(is_kept, (every[0], every[-1])))
    tasks = SharedTasks(
        len(every), "steplens.readers.many", private_address(top), at_once=at_once, most_workers=partial(_most_processes, every)
    )

    def load_numbered(number: int) -> None:
        if progress is not None:
            progress(tasks.done, len(every), every[number].path)
        loaded[number] = _load_or_error(every[number])

    with contextlib.ExitStack() as ways:
        if len(every) > 1:
            ways.enter_context(tables_kept_at_once())
        if len(every) >= _READ_LATER:
            ways.enter_context(tables_read_later())
        for number in sorted(tasks.run(load_numbered)):
            loaded[number] = _load_or_error(every[number])
    return [loaded[number] for number in range(len(every))]


def _load_or_error(capture: AnyCapture) -> Trace | InputError:
    try:
        return load(capture)
    except InputError as error:
        return error
    except OSError as error:  # one file of a failing disk is one file
        return InputError(capture.path, f"cannot be read ({error.strerror or error})")


def _most_processes(every: Sequence[AnyCapture]) -> int:
    """How many processes may read beside this one; none where a source is so large that reading it takes several itself."""
    largest = max(map(_source_bytes, every), default=0) if len(every) > 1 else PARALLEL_BYTES
    if largest >= PARALLEL_BYTES:
        return 0
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return memory // (_PART_OF_MEMORY * (_PROCESS_BYTES + _TIMES_SOURCE * largest))


def _source_bytes(capture: AnyCapture) -> int:
    """Bytes of what a trace is read from; 0 where they cannot be looked at, which reading tells."""
    try:
        return sum(source.stat().st_size for source in sources(capture))
    except (InputError, OSError):
        return 0


def _cache_capture(top: str, number: int) -> bool:
    """Read one of the traces at a path into its cache, in a process of an executor."""
    return _tasks_of(top)(number)


@lru_cache(maxsize=1)
def _tasks_of(top: str) -> Callable[[int], bool]:
    return _task_of(locate_path(top))


def _make_task(top: Any) -> Callable[[int], bool]:
    return _task_of(locate_path(top, listed_before=True))


def _task_of(top: Path) -> Callable[[int], bool]:
    all_captures = find_traces(top)

    def cache_numbered(number: int) -> bool:
        if load(all_captures[number]).kept is None:
            raise ValueError("nothing can be kept there")
        return True

    return cache_numbered


if __name__ == "__main__":
    serve_tasks(_make_task)
