"""How likely it is that what looks like a pattern comes about by itself."""

from __future__ import annotations

import math


def chance_of_at_least(count: int, of: int, share: float) -> float:
    """Probability of at least ``count`` successes in ``of`` independent trials (binomial tail).

    Args:
        count: 0 or more.
        of: number of trials.
        share: chance of success in each, 0 to 1.
    """
    if count <= 0 or share >= 1.0:
        return 1.0 if count <= of else 0.0
    if count > of or share <= 0.0:
        return 0.0
    # from the logarithm: factorials of thousands fit no floating point number
    log_exact = math.lgamma(of + 1) - math.lgamma(count + 1) - math.lgamma(of - count + 1)
    exact = math.exp(log_exact + count * math.log(share) + (of - count) * math.log1p(-share))
    if count <= of * share:
        # most of it lies above: what lies below is added up instead
        return 1.0 - chance_of_at_least(of - count + 1, of, 1.0 - share)
    total = 0.0
    for hits in range(count, of + 1):
        total += exact
        exact *= (of - hits) / (hits + 1) * share / (1.0 - share)
        if exact < total * 1e-16:
            break
    return min(total, 1.0)
