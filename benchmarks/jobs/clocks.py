"""What the clock of each host shows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from benchmarks.jobs.faults import Fault, of_clocks
from benchmarks.jobs.layout import Layout

#: Unix ns at the true time 0 of every job
START_NS = 1_767_571_200_000_000_000

Ints = npt.NDArray[np.int64]


@dataclass
class Clock:
    """Of one host: it shows ``START_NS`` + t + offset + drift * t, and what it was set by since, where t is the true time."""

    offset_ns: int = 0
    drift: float = 0.0
    #: true time and size of its steps
    steps: list[tuple[int, int]] = field(default_factory=list)

    def stamp(self, time_ns: Ints) -> Ints:
        """What it shows at true times."""
        shown = START_NS + self.offset_ns + time_ns
        if self.drift:
            shown = shown + np.rint(time_ns * self.drift).astype(np.int64)
        for at, size in self.steps:
            shown = shown + np.where(time_ns >= at, size, 0)
        return np.asarray(shown, dtype=np.int64)


def clocks_of(layout: Layout, faults: list[Fault]) -> list[Clock]:
    """The clock of every host; when they step is known once the job runs (``step_clocks``)."""
    clocks = [Clock() for _ in range(layout.hosts)]
    for fault in of_clocks(faults):
        assert fault.host is not None
        clock = clocks[fault.host]
        if fault.kind == "clock_offset":
            clock.offset_ns += round((fault.seconds or 0) * 1e9)
        elif fault.kind == "clock_drift":
            clock.drift += (fault.ppm or 0) * 1e-6
    return clocks


def step_clocks(clocks: list[Clock], faults: list[Fault], step: int, middle_ns: int) -> None:
    """Let the clocks that have it step in the middle of a training step."""
    for fault in faults:
        if fault.kind == "clock_step" and fault.step == step:
            assert fault.host is not None
            clocks[fault.host].steps.append((middle_ns, round((fault.seconds or 0) * 1e9)))
