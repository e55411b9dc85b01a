"""How long the threads of this process ran, and how long they were ready to run and another program had the processor."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

#: of more threads than that each is a file to open, for a figure that hardly changes
_MOST_THREADS = 512
_THREADS = Path("/proc/self/task")


def thread_times() -> dict[str, tuple[int, int]]:
    """Of each thread, ns since it began: how long it ran, and how long it waited for a processor. Nothing where nobody tells.

    Source: the second file of Linux' scheduler statistics (Documentation/scheduler/sched-stats.rst).
    """
    times = {}
    with contextlib.suppress(OSError):
        for thread in os.listdir(_THREADS)[:_MOST_THREADS]:
            # one that has just ended, or another system
            with contextlib.suppress(OSError, ValueError, IndexError):
                ran, waited = (_THREADS / thread / "schedstat").read_text().split()[:2]
                times[thread] = int(ran), int(waited)
    return times


def time_between(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> dict[str, int] | None:
    """How long all threads ran and waited between two readings, ns; None where that is not known.

    Args:
        before: of ``thread_times``.
        after: the same, later. A thread that ended meanwhile is in neither sum.
    """
    if not before or not after:
        return None
    sums = [sum(after[thread][part] - before.get(thread, (0, 0))[part] for thread in after) for part in (0, 1)]
    return {"ran_ns": max(sums[0], 0), "waited_ns": max(sums[1], 0)}
