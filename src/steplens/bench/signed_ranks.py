"""What pairs of recordings that were made side by side say of a difference: Wilcoxon's signed ranks.

Two versions that run in turns, in an order drawn by lot, differ by as much upwards as downwards where nothing changed, whatever
the machine does: that is all that this interval assumes. A few rounds that were disturbed hardly move it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from steplens.comparison.noise import Floats

#: of more pairs than that the ranks are nearly normal, and the exact count takes long
_MOST_PAIRS = 400


@dataclass(frozen=True)
class PairedDifference:
    """A difference, in the unit of the pairs.

    Attributes:
        value: the estimate of Hodges and Lehmann: the median of all averages of two pairs.
        low_end: where its interval begins; -inf where there are too few pairs for any.
        high_end: where it ends.
    """

    value: float
    low_end: float
    high_end: float


def find_paired_difference(differences: Floats, confidence: float) -> PairedDifference:
    """The difference of two versions, with its interval, exact for pairs of any distribution that is symmetric about it.

    Source: Hollander, Wolfe and Chicken, "Nonparametric Statistical Methods" (2014), section 3.3: the interval lies between two
    of the ordered averages of pairs (Walsh), which the distribution of the signed ranks chooses.

    Args:
        differences: of each pair later less earlier, shape (pairs,), one at least.
        confidence: 0 to 1, such as 0.95.
    """
    count = differences.size
    first, second = np.triu_indices(count)
    averages = np.sort((differences[first] + differences[second]) / 2.0)
    rank = _critical_rank(count, 1.0 - confidence)
    estimate = float(np.median(averages))
    if rank == 0:
        return PairedDifference(estimate, -np.inf, np.inf)
    return PairedDifference(estimate, float(averages[rank - 1]), float(averages[averages.size - rank]))


def least_pairs(confidence: float) -> int:
    """The fewest pairs of which an interval is known."""
    count = 1
    while _critical_rank(count, 1.0 - confidence) == 0:
        count += 1
    return count


@lru_cache(maxsize=256)
def _critical_rank(count: int, chance: float) -> int:
    """Which average, from 1, an interval begins with: a lower sum of ranks has half of ``chance`` at most; 0 for none."""
    if count > _MOST_PAIRS:
        raise ValueError(f"{count} pairs: the distribution is known up to {_MOST_PAIRS}")
    # the share of all choices of signs with each sum of positive ranks
    shares = np.ones(1)
    for rank in range(1, count + 1):
        longer = np.zeros(shares.size + rank)
        longer[: shares.size] = shares
        longer[rank:] += shares
        shares = longer / 2.0
    return int(np.searchsorted(np.cumsum(shares), chance / 2.0, side="right"))
