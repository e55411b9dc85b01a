"""Times of rows in the steps of a recording, in few bytes, from which follows what any sum of rows differs by from step to step.

Which rows become one cause is known only when two sides are compared. So means are kept of all rows, and of those that are much
of a step their times in some single steps, from which those of any sum follow. Where these are not all steps, their means over
blocks of steps are kept, too: how sure a mean is may hang on a single step, which is long and not among those that are kept.

Of the other rows, which are many, only how far their steps lie apart is kept. These are taken to be long in the same steps: then
a sum of them differs by what each of them differs by together, which is the most that it can be (the mean absolute deviation of a
sum is no greater than the sum of theirs).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from steplens.comparison.causes.row_times import MeasuredTimes, RowTimes
from steplens.comparison.noise import Floats, Sample, robust_deviation, sample_mean
from steplens.comparison.paths import Numbers

#: single steps of a recording that are kept, evenly apart
MOST_STEPS = 100
#: blocks of steps on end whose means are kept where there are more
BLOCKS = 25
#: a row that is a smaller share of a step has no single steps
_LARGE = 0.0005
#: spreads are kept as powers of 2 with so many to a doubling, rounded up: the number 0 is none, less than a nanosecond
_OF_DOUBLING = 4
#: deviations are counted in so much of the spread of the row, ...
_UNIT = 0.25
#: ... from so many units on in steps that grow with them, ...
_LINEAR = 6.0
#: ... and are cut off at so many, which are 80 spreads
MOST_LEVEL = 28
#: mean absolute deviation to standard deviation of a normal distribution
_NORMAL = math.sqrt(math.pi / 2.0)
#: multiples of it, without their whole part, lie evenly between 0 and 1, however many there are
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0

Levels = npt.NDArray[np.int8]


@dataclass(frozen=True)
class KeptTimes:
    """``RowTimes`` of a recording that may be gone.

    Attributes:
        mean_ns: of each row the mean over all of the steps.
        waited_share: as in ``RowTimes``.
        spread: of each row how far its steps lie apart, as a power of 2; 0 where they hardly do.
        rows: rows with single steps.
        levels: of these how far each of the steps that are kept, and the mean of each block behind them, lies from the median of
            the steps, shape (rows, steps and blocks).
        blocks: how many of these are of blocks; 0 where all steps are kept.
    """

    mean_ns: Floats
    waited_share: float
    spread: Numbers
    rows: Numbers
    levels: Levels
    blocks: int

    @property
    def step_count(self) -> int:
        """As in ``RowTimes``: those that are kept."""
        return int(self.levels.shape[1]) - self.blocks

    @cached_property
    def _place_of_row(self) -> Numbers:
        """Of each row its place in ``rows``, or -1."""
        place = np.full(self.spread.size, -1)
        place[self.rows] = np.arange(self.rows.size)
        return place

    def sample_sum(self, rows: Numbers, shares: Floats) -> Sample:
        """As in ``RowTimes``."""
        steps, blocks = self.sum_deviations(rows, shares)
        usual = float(shares @ self.mean_ns[rows])
        variance = sample_mean(blocks if self.blocks else steps).sampling_variance
        return Sample(self.step_count, usual, variance, robust_deviation(steps), 1, self.waited_share)

    def sum_deviations(self, rows: Numbers, shares: Floats) -> tuple[Floats, Floats]:
        """How far what shares of some rows take together lies from a usual step, ns: of each step that is kept, and of blocks.

        Args:
            rows: which.
            shares: how much of each.
        """
        place, scale = self._place_of_row[rows], shares * _scale_of(self.spread[rows])
        has_steps = place >= 0
        bent = (self.levels[place[has_steps]] - _shake_steps(self.levels.shape[1])) / _LINEAR
        single_steps: Floats = (_UNIT * scale[has_steps]) @ (_LINEAR * np.sinh(bent))
        together_ns = float(scale[~has_steps].sum())
        of_kinds = np.split(single_steps, [self.step_count])
        steps, blocks = (values + together_ns * _typical_steps(values.size) for values in of_kinds)
        return steps, blocks

    def move_rows(self, places: Numbers, count: int) -> KeptTimes:
        """As in ``RowTimes``; of rows that become one, single steps are lost."""
        shared = np.bincount(places, minlength=count)
        mean_ns: Floats = np.bincount(places, weights=self.mean_ns, minlength=count).astype(np.float64)
        scale: Floats = np.bincount(places, weights=_scale_of(self.spread), minlength=count).astype(np.float64)
        spread = np.zeros(count, dtype=np.int64)
        spread[places] = self.spread
        spread = np.where(shared > 1, _spread_of(scale), spread)
        is_alone = shared[places[self.rows]] == 1
        rows, levels = places[self.rows[is_alone]], self.levels[is_alone]
        return KeptTimes(mean_ns, self.waited_share, spread, rows, levels, self.blocks)


def keep_times(times: RowTimes) -> KeptTimes:
    """What is kept of the times of a recording; of the same ones the same each time.

    Args:
        times: ``MeasuredTimes``, or what was kept before.
    """
    if isinstance(times, KeptTimes):
        return times
    if not isinstance(times, MeasuredTimes):
        raise TypeError(f"{type(times).__name__} are neither measured nor kept times")
    ns = times.ns
    # whole numbers whose sum is that of the means
    mean_ns: Floats = np.diff(np.round(np.cumsum(times.mean_ns)), prepend=0.0).astype(np.float64)
    spread = _spread_of(_NORMAL * np.abs(ns - np.median(ns, axis=1, keepdims=True)).mean(axis=1))
    rows = np.flatnonzero((times.mean_ns >= _LARGE * times.mean_ns.sum()) & (spread > 0))
    count, of_rows = min(times.step_count, MOST_STEPS), ns[rows]
    single_steps = of_rows[:, np.arange(count) * times.step_count // count]
    blocks = BLOCKS if count < times.step_count else 0
    ends = np.arange(blocks + 1) * times.step_count // max(blocks, 1)
    means = [of_rows[:, begin:end].mean(axis=1, keepdims=True) for begin, end in itertools.pairwise(ends.tolist())]
    deviations = np.concatenate([single_steps, *means], axis=1) - np.median(single_steps, axis=1, keepdims=True)
    units = deviations / (_UNIT * _scale_of(spread[rows]))[:, np.newaxis]
    levels = np.round(_LINEAR * np.arcsinh(units / _LINEAR) + _shake_steps(count + blocks))
    clipped = np.clip(levels, -MOST_LEVEL, MOST_LEVEL).astype(np.int8)
    return KeptTimes(mean_ns, times.waited_share, spread, rows, clipped, blocks)


def _scale_of(spread: Numbers) -> Floats:
    """The nanoseconds of spreads."""
    scale: Floats = np.where(spread > 0, 2.0 ** (spread / _OF_DOUBLING), 0.0)
    return scale


def _spread_of(scale: Floats) -> Numbers:
    spread: Numbers = np.ceil(_OF_DOUBLING * np.log2(np.maximum(scale, 1.0)) - 1e-9).astype(np.int64)
    return spread


def _spaced_steps(count: int) -> Floats:
    multiples: Floats = _GOLDEN * np.arange(1, count + 1, dtype=np.float64)
    return multiples - np.floor(multiples)


def _shake_steps(count: int) -> Floats:
    """What is added to each step before it is rounded, and taken off again: so errors are chance, whatever the times are."""
    return _spaced_steps(count) - 0.5


def _typical_steps(count: int) -> Floats:
    """Deviations of steps whose standard deviation, by the median of the absolute ones, is 1."""
    if not count:
        return np.zeros(0)
    places = [NormalDist().inv_cdf(place) for place in _spaced_steps(count).tolist()]
    deviations: Floats = np.subtract(places, np.median(places)).astype(np.float64)
    middle = float(np.median(np.abs(deviations)))
    if middle:
        deviations *= NormalDist().inv_cdf(0.75) / middle
    return deviations
