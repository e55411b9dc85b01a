"""One straight line for the offset of each clock, such that no message is received before it was sent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steplens.analysis.cluster.clocks.bounds import PairBounds
from steplens.analysis.cluster.clocks.corridors import Floats

#: passes in which lines are moved off the bounds that they break
_PASSES = 400
#: a line is moved this far beyond what it breaks, as a part of that, so that the passes come to an end
_BEYOND = 0.25
#: and at least this far, ns
_LEAST_NS = 1.0


@dataclass(frozen=True)
class Lines:
    """Offsets of clocks as straight lines: ``begin`` at the time ``first``, ``end`` at the time ``last``; arrays (clocks,).

    Attributes:
        first: s.
        last: s, later than ``first``.
        begin: ns.
        end: ns.
    """

    first: Floats
    last: Floats
    begin: Floats
    end: Floats

    def offset_at(self, clock: npt.NDArray[np.int64], moment: Floats) -> Floats:
        """The offset of some clocks at one moment (s) each, ns."""
        share = self.share_of_span(clock, moment)
        return np.asarray(self.begin[clock] * (1 - share) + self.end[clock] * share)

    def share_of_span(self, clock: npt.NDArray[np.int64], moment: Floats) -> Floats:
        """How much of the way from ``first`` to ``last`` of some clocks has gone at one moment (s) each; below 0 before that."""
        return np.asarray((moment - self.first[clock]) / (self.last - self.first)[clock])


def fit_lines(moments: Floats, middle: Floats, half_width: Floats, first: Floats, last: Floats) -> Lines:
    """Lines through the middles of intervals, those counting most that are narrow.

    Args:
        moments: s, shape (moments,).
        middle: of each clock's interval at each moment, ns, shape (clocks, moments).
        half_width: of these intervals; ``inf`` where a moment does not count.
        first: when the messages of each clock begin, s, shape (clocks,).
        last: when they end.
    """
    # lines are held at two moments that are not nearer to each other than a part of the whole
    last = np.maximum(last, first + max(float(np.ptp(moments)), 1e-3) / 100)
    is_counted = np.isfinite(half_width)
    weight = np.where(is_counted, 1 / (np.where(is_counted, half_width, 1.0) + 100.0) ** 2, 0.0)
    values = np.where(is_counted, middle, 0.0)
    total = np.maximum(weight.sum(axis=1), 1e-300)
    center = (weight * moments).sum(axis=1) / total
    height = (weight * values).sum(axis=1) / total
    distance = moments - center[:, None]
    spread = (weight * distance**2).sum(axis=1)
    # of one moment alone the slope is not known
    is_known = spread > total * (1e-3 * (last - first)) ** 2
    slope = np.where(is_known, (weight * distance * values).sum(axis=1) / np.where(is_known, spread, 1.0), 0.0)
    return Lines(first, last, height + slope * (first - center), height + slope * (last - center))


def keep_bounds(lines: Lines, bounds: PairBounds, is_fixed: npt.NDArray[np.bool_], passes: int = _PASSES) -> tuple[Lines, int]:
    """Lines near those given that break no bound, as far as there are any.

    Each pass moves every clock by the mean of what the bounds that it breaks ask for (projections onto half-spaces).

    Args:
        lines: to begin with.
        bounds: on their differences.
        is_fixed: clocks whose lines stay as they are; shape (clocks,).
        passes: over all bounds, at most.

    Returns:
        The lines, and how many bounds they break.
    """
    begin, end = lines.begin.copy(), lines.end.copy()
    clocks = len(begin)
    # bounds that were broken once are looked at in each pass, all others now and then
    watched = np.zeros(len(bounds), bool)
    # from the arrival on the first clock to the end on the second: a clock drifts by tens of nanoseconds meanwhile
    half_s = bounds.at_most / 2e9
    share_of = [lines.share_of_span(bounds.first, bounds.at - half_s), lines.share_of_span(bounds.second, bounds.at + half_s)]
    is_free = 1.0 - is_fixed.astype(float)
    for _ in range(passes):
        excess = _excess_over(begin, end, bounds, share_of)
        broken = excess > 0
        if not broken.any():
            break
        watched |= broken
        of = np.flatnonzero(watched)
        some = bounds.select_rows(of)
        shares = [share[of] for share in share_of]
        weights = [
            np.stack([1 - share, share]) * is_free[clock] for clock, share in zip((some.first, some.second), shares, strict=True)
        ]
        # a bound between two fixed clocks moves nothing
        norm = np.maximum(sum((weight**2).sum(axis=0) for weight in weights), 1e-6)
        for _ in range(20):
            excess = _excess_over(begin, end, some, shares)
            is_broken = excess > 0
            if not is_broken.any():
                break
            push = np.where(is_broken, (excess * (1 + _BEYOND) + _LEAST_NS) / norm, 0.0)
            push_sum = np.zeros((2, clocks))
            count = np.zeros(clocks)
            for clock, weight, sign in ((some.first, weights[0], -1.0), (some.second, weights[1], 1.0)):
                for half in (0, 1):
                    push_sum[half] += np.bincount(clock, sign * push * weight[half], minlength=clocks)
                count += np.bincount(clock, is_broken.astype(float), minlength=clocks)
            mean = push_sum / np.maximum(count, 1.0)
            begin += mean[0]
            end += mean[1]
    moved = Lines(lines.first, lines.last, begin, end)
    return moved, int((_excess_over(begin, end, bounds, share_of) > 0).sum())


def _excess_over(begin: Floats, end: Floats, bounds: PairBounds, shares: list[Floats]) -> Floats:
    """By how much each bound is broken, ns."""
    first = begin[bounds.first] * (1 - shares[0]) + end[bounds.first] * shares[0]
    second = begin[bounds.second] * (1 - shares[1]) + end[bounds.second] * shares[1]
    return np.asarray(first - second - bounds.at_most)
