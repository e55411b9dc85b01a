"""Straight corridors between bounds: what a straight line can be that some points lie above and others below.

The difference of two clocks is a straight line in time, offset and drift. Each message bounds it on one side at one moment. All
lines between these bounds make a corridor; the method is known for network clocks (convex hulls of one-way delays).

All functions work on many pairs of clocks at once: arrays of shape (pairs, bounds), times in seconds, bounds in nanoseconds.
Where a pair has fewer bounds, an upper one is ``inf`` and a lower one ``-inf``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: two oscillators of computers differ by less than 200 parts in a million; ns a second
STEEPEST = 500_000.0
#: halvings of an interval of slopes: 5e5 ns/s * 0.618**56 is below a millionth of a nanosecond a second
_ROUNDS = 56
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Bounds:
    """Bounds of one line for each pair.

    Attributes:
        upper_at: when each upper bound holds, s; shape (pairs, bounds), 0 where there is none.
        upper: what the line is at most then, ns.
        lower_at: when each lower bound holds, s.
        lower: what the line is at least then, ns.
    """

    upper_at: Floats
    upper: Floats
    lower_at: Floats
    lower: Floats

    def highest_start(self, slope: Floats) -> Floats:
        """How high a line of this slope can be at time 0, ns."""
        return np.asarray((self.upper - slope[:, None] * self.upper_at).min(axis=1, initial=np.inf))

    def lowest_start(self, slope: Floats) -> Floats:
        """How low a line of this slope can be at time 0, ns."""
        return np.asarray((self.lower - slope[:, None] * self.lower_at).max(axis=1, initial=-np.inf))

    def select_rows(self, pairs: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Bounds:
        """The bounds of some pairs."""
        return Bounds(self.upper_at[pairs], self.upper[pairs], self.lower_at[pairs], self.lower[pairs])


@dataclass(frozen=True)
class Corridors:
    """The lines that keep within the bounds of each pair.

    Attributes:
        bounds: which.
        slope: of the line in the middle of the widest place of the corridor, ns/s.
        width: vertical width for that slope, ns; below 0 where no straight line keeps within all bounds, ``inf`` where all
            bounds are on one side.
        steepest: slopes that lines of the corridor can have, ns/s: from ``flattest`` to ``steepest``.
        flattest: see there.
    """

    bounds: Bounds
    slope: Floats
    width: Floats
    flattest: Floats
    steepest: Floats

    def highest_at(self, at: float) -> Floats:
        """How high a line of the corridor can be at a moment (s), ns."""
        slope = _golden_section(lambda slope: self.bounds.highest_start(slope) + slope * at, self.flattest, self.steepest)
        return np.asarray(self.bounds.highest_start(slope) + slope * at)

    def lowest_at(self, at: float) -> Floats:
        """How low a line of the corridor can be at a moment (s), ns."""
        slope = _golden_section(lambda slope: -self.bounds.lowest_start(slope) - slope * at, self.flattest, self.steepest)
        return np.asarray(self.bounds.lowest_start(slope) + slope * at)


def find_corridors(bounds: Bounds) -> Corridors:
    """The corridor of each pair; where no straight line keeps within the bounds, all are loosened by as much as one needs."""
    steepest = np.full(len(bounds.upper), STEEPEST)
    slope = _golden_section(lambda slope: bounds.highest_start(slope) - bounds.lowest_start(slope), -steepest, steepest)
    width = bounds.highest_start(slope) - bounds.lowest_start(slope)
    slope = np.where(np.isfinite(width), slope, 0.0)
    # a hundredth of a nanosecond more, for the rounding of what is computed
    slack = np.maximum(-width, 0.0)[:, None] / 2 + 0.01
    loosened = Bounds(bounds.upper_at, bounds.upper + slack, bounds.lower_at, bounds.lower - slack)

    def is_inside(slope: Floats) -> npt.NDArray[np.bool_]:
        return np.asarray(loosened.highest_start(slope) >= loosened.lowest_start(slope))

    return Corridors(loosened, slope, width, _last_inside(is_inside, slope, -steepest), _last_inside(is_inside, slope, steepest))


def thin_out(bounds: Bounds, line: Floats, slope: Floats, columns: int) -> Bounds:
    """The tightest bounds of each of some equal parts of the time of a pair, at most ``columns`` a side.

    A pair that has no more on either side keeps all. What a pair keeps does not depend on the others.

    Args:
        bounds: all of them, those of a side from the first column on.
        line: of each pair, at time 0 (ns), and
        slope: its slope (ns/s): a bound is as tight as it is near to this line.
        columns: number of parts.
    """
    if bounds.upper.shape[1] <= columns and bounds.lower.shape[1] <= columns:
        return bounds
    over_line = bounds.upper - line[:, None] - slope[:, None] * bounds.upper_at
    under_line = line[:, None] + slope[:, None] * bounds.lower_at - bounds.lower
    sides = ((bounds.upper_at, bounds.upper, over_line), (bounds.lower_at, bounds.lower, under_line))
    is_there = [np.isfinite(bound) for _, bound, _ in sides]
    has_few = np.logical_and(*(there.sum(axis=1) <= columns for there in is_there))
    of_both = list(zip(sides, is_there, strict=True))
    first = np.minimum(*(np.where(there, at, np.inf).min(axis=1, initial=np.inf) for (at, _, _), there in of_both))
    last = np.maximum(*(np.where(there, at, -np.inf).max(axis=1, initial=-np.inf) for (at, _, _), there in of_both))
    has_any = np.isfinite(first)
    begin, part_s = np.where(has_any, first, 0.0), np.maximum(np.where(has_any, last - first, 0.0), 1e-9) / columns
    tightest: list[Floats] = []
    for at, bound, distance in sides:
        part = np.clip((at - begin[:, None]) / part_s[:, None], 0, columns - 1).astype(np.intp)
        times = np.zeros((len(at), columns))
        values = np.full((len(at), columns), np.inf if bound is bounds.upper else -np.inf)
        rows = np.arange(len(at))
        for column in range(columns):
            of_part = np.where(part == column, distance, np.inf)
            if of_part.shape[1]:
                nearest = of_part.argmin(axis=1)
                there = np.isfinite(of_part[rows, nearest])
                times[there, column] = at[rows, nearest][there]
                values[there, column] = bound[rows, nearest][there]
        width = min(columns, bound.shape[1])
        times[has_few, :width], values[has_few, :width] = at[has_few, :width], bound[has_few, :width]
        times[has_few, width:], values[has_few, width:] = 0.0, np.inf if bound is bounds.upper else -np.inf
        tightest += [times, values]
    return Bounds(*tightest)


def _golden_section(function: Callable[[Floats], Floats], low: Floats, high: Floats) -> Floats:
    """Where a concave function is largest, by golden section, for each pair."""
    low, high = low.copy(), high.copy()
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(_ROUNDS):
        rises = at_left < at_right
        low, high = np.where(rises, left, low), np.where(rises, high, right)
        new = np.where(rises, low + _GOLDEN * (high - low), high - _GOLDEN * (high - low))
        at_new = function(new)
        left, right = np.where(rises, right, new), np.where(rises, new, left)
        at_left, at_right = np.where(rises, at_right, at_new), np.where(rises, at_new, at_left)
    return np.asarray((low + high) / 2)


def _last_inside(is_inside: Callable[[Floats], npt.NDArray[np.bool_]], inside: Floats, outside: Floats) -> Floats:
    """How far from ``inside`` towards ``outside`` one comes, for each pair."""
    near, far = inside.copy(), outside.copy()
    near = np.where(is_inside(far), far, near)
    for _ in range(_ROUNDS):
        middle = (near + far) / 2
        is_near = is_inside(middle)
        near, far = np.where(is_near, middle, near), np.where(is_near, far, middle)
    return np.asarray(near)
