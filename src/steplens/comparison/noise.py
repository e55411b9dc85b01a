"""What the steps of one recording say of their usual value, and how far that may be off by chance."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: steps of a recording below which nothing is said
LEAST_STEPS = 3
#: resamples of the bootstrap
_RESAMPLES = 400
#: cells of an array that are resampled at once
_CELLS = 1 << 20
#: median absolute deviations to standard deviation of a normal distribution
_NORMAL = 1.4826
#: values farther off than so many of these say nothing of how steps depend on each other
_OUTLIER = 5.0


@dataclass(frozen=True)
class Sample:
    """One recording of a program.

    Attributes:
        steps: how many steps it is of.
        usual: median (or mean) of their values.
        sampling_variance: how far another stretch of as many steps of this process would be off, squared.
        spread: how far single steps lie from the usual one: standard deviation, robust.
        block: so many steps on end are resampled together, as neighbours resemble each other.
        contention: the share of its time that the process waited for a processor, 0 to 1; 0 where that was not recorded.
    """

    steps: int
    usual: float
    sampling_variance: float
    spread: float
    block: int
    contention: float = 0.0


def sample_median(values: Floats, contention: float = 0.0) -> Sample:
    """A recording by the median of its steps.

    Args:
        values: shape (steps,), in order of time; ``LEAST_STEPS`` at least.
        contention: as in ``Sample``.
    """
    return _sample_steps(values, np.median, contention)


def sample_mean(values: Floats, contention: float = 0.0) -> Sample:
    """A recording by the mean of its steps, as of parts of a step, which add up.

    Args:
        values: shape (steps,), in order of time; ``LEAST_STEPS`` at least.
        contention: as in ``Sample``.
    """
    return _sample_steps(values, np.mean, contention)


def _sample_steps(values: Floats, statistic: Callable[..., Floats], contention: float) -> Sample:
    block = choose_block(values)
    count = values.size
    blocks = math.ceil(count / block)
    random = np.random.default_rng(count)
    resampled = []
    at_once = max(1, min(_RESAMPLES, _CELLS // (blocks * block)))
    for begin in range(0, _RESAMPLES, at_once):
        starts = random.integers(0, count, (min(at_once, _RESAMPLES - begin), blocks, 1))
        # around the end, so that each step is in as many blocks
        places = ((starts + np.arange(block)) % count).reshape(starts.shape[0], -1)[:, :count]
        resampled.append(statistic(values[places], axis=1))
    # resamples of few blocks vary too little
    inflation = count / (count - block) if count > block else 1.0
    variance = float(np.concatenate(resampled).var()) * inflation
    return Sample(count, float(statistic(values)), variance, robust_deviation(values), block, contention)


def choose_block(values: Floats) -> int:
    """How many steps on end are alike: the length of the blocks of a circular block bootstrap.

    After Politis and White, "Automatic block-length selection for the dependent bootstrap" (2004), with the correction of
    Patton, Politis and White (2009), on values the outliers of which are cut off; at most a third of the steps.

    Args:
        values: shape (steps,), in order of time.
    """
    count = values.size
    most = max(1, count // 3)
    reach = _OUTLIER * robust_deviation(values)
    centred = np.clip(values - np.median(values), -reach, reach)
    centred = centred - centred.mean()
    variance = float(centred @ centred) / count
    if count < 2 * LEAST_STEPS or variance <= 0.0:
        return 1
    in_a_row = max(5, math.isqrt(int(math.log10(count))))
    last = min(count - 2, math.ceil(math.sqrt(count)) + in_a_row)
    correlations = np.array([1.0, *(float(centred[:-lag] @ centred[lag:]) / count / variance for lag in range(1, last + 1))])
    is_small = np.abs(correlations[1:]) < 2.0 * math.sqrt(math.log10(count) / count)
    lags = next((lag for lag in range(last) if is_small[lag : lag + in_a_row].all()), last)
    if lags == 0:
        return 1
    window = min(2 * lags, last)
    lag = np.arange(1, window + 1)
    weights = np.where(lag <= window / 2, 1.0, 2.0 * (1.0 - lag / window)) * correlations[1 : window + 1]
    long_run, slope = 1.0 + 2.0 * float(weights.sum()), 2.0 * float((weights * lag).sum())
    if long_run <= 0.0 or slope == 0.0:
        return min(most, window)
    length = (2.0 * slope**2 / (4.0 / 3.0 * long_run**2)) ** (1.0 / 3.0) * count ** (1.0 / 3.0)
    return int(min(max(round(length), 1), most))


def robust_deviation(values: Floats) -> float:
    """The standard deviation of values, by the median of their absolute deviations, which outliers do not change."""
    return float(np.median(np.abs(values - np.median(values)))) * _NORMAL
