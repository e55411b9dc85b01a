"""Quantiles of Student's distribution."""

from __future__ import annotations

import math
from functools import lru_cache

#: halvings of an interval: more than the digits of a floating point number
_HALVINGS = 80


@lru_cache(maxsize=512)
def student_quantile(probability: float, freedom: float) -> float:
    """The value that a variable of Student's distribution exceeds with a chance of 1 - ``probability``.

    Args:
        probability: 0.5 to 1, both exclusive.
        freedom: degrees of freedom, 1 or more.
    """
    low, high = 0.0, 2.0
    while _chance_beyond(high, freedom) > 1.0 - probability:
        high *= 2.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if _chance_beyond(middle, freedom) > 1.0 - probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _chance_beyond(value: float, freedom: float) -> float:
    """The chance of more than ``value``, which is 0 or more: half of the incomplete beta function (Abramowitz, Stegun 26.7.1)."""
    return _incomplete_beta(freedom / (freedom + value * value), freedom / 2.0, 0.5) / 2.0


def _incomplete_beta(at: float, first: float, second: float) -> float:
    """The regularized incomplete beta function, by its continued fraction (Abramowitz, Stegun 26.5.8), after Lentz."""
    if at <= 0.0 or at >= 1.0:
        return min(max(at, 0.0), 1.0)
    if at > (first + 1.0) / (first + second + 2.0):
        # where it converges faster
        return 1.0 - _incomplete_beta(1.0 - at, second, first)
    log_front = math.lgamma(first + second) - math.lgamma(first) - math.lgamma(second)
    front = math.exp(log_front + first * math.log(at) + second * math.log1p(-at)) / first
    tiny = 1e-300
    fraction, upper, lower = 1.0, 1.0, 0.0
    for number in range(500):
        half = number // 2
        if number == 0:
            term = 1.0
        elif number % 2 == 0:
            term = half * (second - half) * at / ((first + 2 * half - 1) * (first + 2 * half))
        else:
            term = -(first + half) * (first + second + half) * at / ((first + 2 * half) * (first + 2 * half + 1))
        lower = 1.0 / ((1.0 + term * lower) or tiny)
        upper = (1.0 + term / upper) or tiny
        fraction *= upper * lower
        if abs(1.0 - upper * lower) < 1e-14:
            break
    return front * (fraction - 1.0)
