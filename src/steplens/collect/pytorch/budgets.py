"""Limits of a window: how long it records, how large its trace becomes, how much it slows the training down."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

from steplens.collect.common import clock
from steplens.collect.pytorch.schedule_text import size_text
from steplens.collect.pytorch.trace_size import TraceSize

#: steps before a window that recorded ones are compared with, and how many of them it takes
_BASELINE_STEPS = 64
_LEAST_BASELINE = 3

#: recorded steps before their length is judged; the first is often slower for reasons of its own
_LEAST_RECORDED = 2


@dataclass(frozen=True)
class Limits:
    """What a window may cost.

    Attributes:
        max_seconds: of recording.
        max_bytes: of the trace on disk.
        max_overhead: of a step, as a share of its length without recording: 0.2 allows 1.2 times as long.
    """

    max_seconds: float | None = None
    max_bytes: int | None = None
    max_overhead: float | None = None

    def __bool__(self) -> bool:
        return any(limit is not None for limit in (self.max_seconds, self.max_bytes, self.max_overhead))


class Budget:
    """Watches the steps, and says when the window that is open should be closed.

    Seconds and bytes are kept by not beginning a step that would exceed them, if it is like those before; a window always
    holds one step. The overhead is judged by the fastest recorded step, so that no other disturbance ends a window.

    Args:
        limits: what a window may cost.
        size: tells how large the trace becomes.
    """

    def __init__(self, limits: Limits, size: TraceSize) -> None:
        self._limits = limits
        self._size = size
        self._baseline: deque[int] = deque(maxlen=_BASELINE_STEPS)
        self._recorded: list[int] = []
        self._began_ns: int | None = None

    def step_begins(self) -> None:
        """The training goes on, after everything that the profiler had to do between two steps."""
        self._began_ns = clock.monotonic_ns()

    def window_opens(self) -> None:
        """Recording begins."""
        self._recorded = []

    def step_ends(self, *, recorded: bool) -> str:
        """A step has ended; why the window that recorded it should not go on, with the figures, and empty when it may."""
        if self._began_ns is None:
            return ""
        length, self._began_ns = clock.monotonic_ns() - self._began_ns, None
        if not recorded:
            self._baseline.append(length)
            return ""
        self._recorded.append(length)
        return self._too_long() or self._too_large() or self._too_slow()

    def _too_long(self) -> str:
        limit, lengths = self._limits.max_seconds, self._recorded
        if limit is None or (sum(lengths) + lengths[-1]) / 1e9 <= limit:
            return ""
        return f"max_seconds={limit:g}: {sum(lengths) / 1e9:.3g} s are recorded and a step takes {lengths[-1] / 1e9:.3g} s"

    def _too_large(self) -> str:
        limit, steps = self._limits.max_bytes, len(self._recorded)
        size = self._size.estimate(steps) if limit is not None else None
        if limit is None or size is None:
            return ""
        per_step = max(size / steps, self._size.bytes_per_step or 0)
        if max(size, per_step * steps) + per_step <= limit:
            return ""
        return f"max_bytes={limit}: about {size_text(size)} are recorded and a step takes about {size_text(per_step)}"

    def _too_slow(self) -> str:
        limit = self._limits.max_overhead
        if limit is None or len(self._recorded) < _LEAST_RECORDED or len(self._baseline) < _LEAST_BASELINE:
            return ""
        before, fastest = statistics.median(self._baseline), min(self._recorded)
        if fastest <= before * (1 + limit):
            return ""
        return (
            f"max_overhead={limit:g}: recorded steps take {fastest / 1e6:.3g} ms or more, {fastest / before - 1:.0%} more than "
            f"the {before / 1e6:.3g} ms of those before"
        )

    def unjudged(self) -> str:
        """Which limit could not be watched in the window that closes, and why; empty when all were."""
        if self._limits.max_overhead is not None and len(self._baseline) < _LEAST_BASELINE:
            return (
                f"max_overhead was not watched: {len(self._baseline)} steps ran before the window, {_LEAST_BASELINE} are needed; "
                "give the schedule a longer wait."
            )
        if self._limits.max_bytes is not None and self._size.estimate(0) is None:
            return "max_bytes was not watched: this system's C library does not say how much memory is in use."
        return ""
