"""The clocks of the collector. Tests replace these two functions; nothing else in the package reads a clock for data."""

from __future__ import annotations

import time

#: Unix time in ns, the clock of every recorded time; the function itself, because loaders read it some ten times per batch
now_ns = time.time_ns


def monotonic_ns() -> int:
    """Raw monotonic time in ns: measures durations, and lets the analysis align files that hold it."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
