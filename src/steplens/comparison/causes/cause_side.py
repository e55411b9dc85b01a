"""What of a side is compared to find causes, from its recordings; ``baselines`` has the same of sides that were kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from steplens.analysis.steps.times import DEVICE_PARTS, HOST_PARTS, runs_behind
from steplens.comparison.causes.cause import HOST
from steplens.comparison.causes.sequences import OperatorSequence, usual_sequence
from steplens.comparison.causes.side_times import SideTimes, join_times, measure_times
from steplens.comparison.recordings import Recording


@dataclass(frozen=True)
class CauseSide:
    """What of a side is compared to find causes.

    Attributes:
        times: of calls, in each step.
        sequence: of its operators; None where that is not known.
        step_ns: mean of the usual steps on the critical side.
    """

    times: SideTimes
    sequence: OperatorSequence | None
    step_ns: float


class CauseSource(Protocol):
    """A side, as far as it tells causes."""

    @property
    def is_behind(self) -> bool:
        """Whether the device runs behind the host in a recording."""

    def measure_side(self, side: str) -> CauseSide | None:
        """What is compared; None where calls or tasks were not recorded.

        Args:
            side: HOST or DEVICE: which times.
        """


class RecordedSource:
    """``CauseSource`` of recordings that are there.

    Args:
        recordings: of the side.
    """

    def __init__(self, recordings: Sequence[Recording]) -> None:
        self._recordings = recordings

    @property
    def is_behind(self) -> bool:
        """As in ``CauseSource``."""
        return any(runs_behind(trace) for recording in self._recordings for trace in recording.traces)

    def measure_side(self, side: str) -> CauseSide | None:
        """As in ``CauseSource``."""
        if not self._recordings or not all(recording.traces for recording in self._recordings):
            return None
        times = measure_times(self._recordings, side)
        if times is None:
            return None
        return CauseSide(times, usual_sequence(self._recordings[0].traces[0]), mean_step(self._recordings, side))


class JoinedSource:
    """``CauseSource`` of several sides, as one of all of their recordings.

    Args:
        sources: of the sides.
        recordings: all of them.
    """

    def __init__(self, sources: Sequence[CauseSource], recordings: Sequence[Recording]) -> None:
        self._sources = sources
        self._recordings = recordings

    @property
    def is_behind(self) -> bool:
        """As in ``CauseSource``."""
        return any(source.is_behind for source in self._sources)

    def measure_side(self, side: str) -> CauseSide | None:
        """As in ``CauseSource``."""
        sides = [measured for source in self._sources if (measured := source.measure_side(side)) is not None]
        if len(sides) < len(self._sources):
            return None
        times = join_times([measured.times for measured in sides])
        return CauseSide(times, sides[0].sequence, mean_step(self._recordings, side))


def mean_step(recordings: Sequence[Recording], side: str) -> float:
    """The mean of the usual steps, ns, by the parts that they are divided into.

    Args:
        recordings: of a side.
        side: HOST or DEVICE: which parts.
    """
    parts = list(HOST_PARTS if side == HOST else DEVICE_PARTS)
    frames = [recording.usual.drop_nulls(parts).select(parts) for recording in recordings]
    # a recording whose steps take no time has no times of calls either
    step_ns = [total_ns / frame.height for frame in frames if (total_ns := float(frame.to_numpy().sum())) > 0.0]
    return float(np.mean(step_ns)) if step_ns else 0.0
