"""The clocks of the collector. Tests replace the first two functions; nothing else in the package reads a clock for data."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Unix time in ns, the clock of every recorded time; the function itself, because loaders read it some ten times per batch
now_ns = time.time_ns


def monotonic_ns() -> int:
    """Raw monotonic time in ns: measures durations, and lets the analysis align files that hold it."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


#: two readings of one clock with another's between them, so close that nothing has run in between
_AT_ONCE_NS = 10_000
_TRIES = 20


def both_ns(steady: Callable[[], int] | None = None) -> tuple[int, int]:
    """Unix time and raw monotonic time of one moment, which align files that hold either.

    Where another program takes the processor between the two readings, they are taken again.

    Args:
        steady: the other clock, ns, where it is not that of :func:`monotonic_ns`.
    """
    read = steady or monotonic_ns
    readings = []
    for _ in range(_TRIES):
        before = read()
        unix = now_ns()
        apart = read() - before
        readings.append((apart, unix, before + apart // 2))
        if apart < _AT_ONCE_NS:
            break
    _, unix, monotonic = min(readings)
    return unix, monotonic
