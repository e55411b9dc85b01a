"""Whether a step is slower than the history of its job says it should be."""

from __future__ import annotations

import math
import statistics
from collections import deque

#: steps that are remembered, and how many of them it takes to judge
_REMEMBERED = 256
_LEAST = 10

#: a slow step takes so many times the median ...
_LEAST_RATIO = 3.0
#: ... and lies so many standard deviations above it, of the logarithm: lengths of steps are skewed. One of 300,000 values of a
#: log-normal distribution does.
_LEAST_DEVIATIONS = 4.5
#: the standard deviation of a normal distribution in terms of its median absolute deviation
_DEVIATIONS_PER_MAD = 1.4826

#: The upper tail, from this many steps on: lengths often end in an exponential tail, of which the 90th percentile and the median
#: tell the scale. So many of their distances above the former it reaches once in a million steps. It is never more than so many
#: times the 90th percentile, since two lengths that alternate have no tail.
_TAIL_FROM = 64
_TAIL_DISTANCES = 7.1
_TAIL_AT_MOST = 4.0

#: so many steps like it among so many before are a habit (an evaluation, a checkpoint) and no event
_HABIT = 3
_HABIT_STEPS = 2048
_LIKE_IT = 0.7

#: after so many steps the median is taken again
_REFRESH = 16


class StepHistory:
    """Remembers how long steps took, and judges the next one by them.

    The judgement is robust: medians, so that slow steps do not hide those that follow. A step is slow when it takes three times
    the median, is beyond what the spread of the history explains, and happens less often than three times in 2048 steps.
    """

    def __init__(self) -> None:
        self._lengths: deque[int] = deque(maxlen=_REMEMBERED)
        self._slow: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)
        self._count = 0
        self._until_refresh = 0
        #: the median length of a step in ns; 0 before there are enough
        self.median_ns = 0.0
        self._limit = math.inf

    def add(self, length_ns: int) -> bool:
        """Add a step, which took ``length_ns``; whether it is slow, judged by the steps before it."""
        if self._until_refresh <= 0 and len(self._lengths) >= _LEAST:
            self._refresh_limit()
        self._until_refresh -= 1
        self._count += 1
        self._lengths.append(length_ns)
        if length_ns < self._limit:
            return False
        habit = self._is_habit(length_ns)
        self._slow.append((self._count, length_ns))
        return not habit

    def _refresh_limit(self) -> None:
        # While the history is short, the first steps weigh in the spread: it is looked at more often.
        self._until_refresh = min(_REFRESH, len(self._lengths) // 4)
        self.median_ns = max(1.0, statistics.median(self._lengths))
        logarithms = [math.log(max(length, 1)) for length in self._lengths]
        middle = math.log(self.median_ns)
        deviation = _DEVIATIONS_PER_MAD * statistics.median(abs(value - middle) for value in logarithms)
        limit = self.median_ns * max(_LEAST_RATIO, math.exp(min(_LEAST_DEVIATIONS * deviation, 50.0)))
        if len(self._lengths) >= _TAIL_FROM:
            high = sorted(self._lengths)[len(self._lengths) * 9 // 10]
            limit = max(limit, min(high + _TAIL_DISTANCES * (high - self.median_ns), _TAIL_AT_MOST * high))
        self._limit = limit

    def _is_habit(self, length_ns: int) -> bool:
        least, since = length_ns * _LIKE_IT, self._count - _HABIT_STEPS
        return sum(count > since and length >= least for count, length in self._slow) >= _HABIT
