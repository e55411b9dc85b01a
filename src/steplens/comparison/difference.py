"""By how much a figure differs between recordings of two versions of a program, with its interval of 95 %."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from steplens.comparison.noise import Sample
from steplens.comparison.student import student_quantile

CONFIDENCE = 0.95
#: processes of one program differ by this share of what single steps differ by (docs/compare.md), ...
_OF_SPREAD = 0.8
#: ... and by this share of the figure at least
_LEAST_APART = 0.005
#: what is known of that beforehand weighs as much as so many processes that were recorded
_WORTH = 4
#: runs a side that may still be asked for
_MOST_RUNS = 1_000


@dataclass(frozen=True)
class Difference:
    """A difference, in the unit of the samples.

    Attributes:
        value: the later side less the earlier one.
        error: half of the interval of 95 %: processes of one program, without any change, differ by more only one time in 20.
        runs: how many recordings each side has.
        variance: of one recording, without a change, with ``freedom`` degrees of freedom.
    """

    value: float
    error: float
    runs: tuple[int, int]
    variance: float
    freedom: float

    @property
    def low_end(self) -> float:
        """Where the interval begins."""
        return self.value - self.error

    @property
    def high_end(self) -> float:
        """Where the interval ends."""
        return self.value + self.error

    @property
    def is_certain(self) -> bool:
        """Whether the whole interval lies on one side of 0."""
        return self.low_end > 0.0 or self.high_end < 0.0

    def runs_needed(self, least: float) -> int | None:
        """How many recordings a side tell a difference as large as ``least``, all as noisy as these; None of more than 1,000."""

        def tells_it(runs: int) -> bool:
            freedom = max(_WORTH + 2 * runs - 2, 1)
            return student_quantile((1.0 + CONFIDENCE) / 2.0, freedom) * math.sqrt(2.0 * self.variance / runs) <= least

        # more recordings tell smaller differences
        runs = bisect.bisect_left(range(1, _MOST_RUNS + 1), True, key=tells_it) + 1
        return runs if runs <= _MOST_RUNS else None


def find_difference(before: Sequence[Sample], after: Sequence[Sample], unit: float = 1.0) -> Difference:
    """The difference of two sides, each of one recording or several.

    Processes of one program differ by more than their own steps tell: memory lies elsewhere, neighbours on the machine do
    something else. How much, recordings of one side tell; beside them counts what is known beforehand, as much as four
    recordings: four fifths of what single steps differ by, and the share of its time that a process waited for a processor, since
    the next one may wait less, or more.

    Args:
        before: the recordings of the earlier side, each with ``LEAST_STEPS`` at least.
        after: those of the later side.
        unit: what the least noise is a share of: 1 of logarithms, else the size of the figure.
    """
    sides = (before, after)
    means = [sum(sample.usual for sample in side) / len(side) for side in sides]
    samples = [*before, *after]
    sampling = sum(sample.sampling_variance for sample in samples) / len(samples)
    assumed = assumed_variance(samples, unit)
    apart = sum((sample.usual - mean) ** 2 for side, mean in zip(sides, means, strict=True) for sample in side)
    freedom = _WORTH + len(samples) - 2
    # recordings that happen to agree are as uncertain as each of them is
    variance = max((_WORTH * assumed + apart) / freedom, sampling)
    error = student_quantile((1.0 + CONFIDENCE) / 2.0, freedom) * math.sqrt(variance * (1.0 / len(before) + 1.0 / len(after)))
    return Difference(means[1] - means[0], error, (len(before), len(after)), variance, freedom)


def assumed_variance(samples: Sequence[Sample], unit: float = 1.0) -> float:
    """What is known beforehand of how far a recording like these is off, squared.

    Args:
        samples: recordings, one at least.
        unit: as of ``find_difference``.
    """
    sampling = sum(sample.sampling_variance for sample in samples) / len(samples)
    spread = sum(sample.spread for sample in samples) / len(samples)
    contention = sum(sample.contention**2 for sample in samples) / len(samples)
    return (_OF_SPREAD * spread) ** 2 + sampling + (_LEAST_APART**2 + contention) * unit**2
