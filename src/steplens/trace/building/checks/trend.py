"""Whether the steps still get faster while they are recorded: caches fill, compilers adapt, memory is kept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from steplens.trace import health
from steplens.trace.building.checks.common import Tables, format_duration

#: the name of the finding
STEPS_GET_FASTER = "steps_get_faster"
#: of fewer steps no order says anything
_LEAST_STEPS = 5
#: by so much of their median the steps get shorter from the first to the last
_LEAST_CHANGE = 0.2
#: how rarely steps in no order look as if they had one: of few steps, and of so many or more
_CHANCE, _MANY, _CHANCE_OF_MANY = 0.05, 8, 0.005
#: more steps are judged by the medians of so many groups of consecutive ones
_MOST_GROUPS = 40
#: a first step that takes so many times the others is warming up, which is a finding of its own
_WARM_UP = 2.0


def steps_get_faster(tables: Tables) -> Iterator[health.HealthFinding]:
    """Later steps are not faster than earlier ones: a trend of Mann and Kendall, of a fifth of the step by the slope of Sen."""
    steps = tables.get("steps")
    if steps is None or steps.height < _LEAST_STEPS:
        return
    rows = steps.sort("start_ns").select("id", length=pl.col("end_ns") - pl.col("start_ns"))
    lengths, numbers = rows["length"].to_list(), rows["id"].to_list()
    if lengths[0] > _WARM_UP * float(np.median(lengths[1:])):
        lengths, numbers = lengths[1:], numbers[1:]
    if not does_shrink(lengths):
        return
    third = max(len(lengths) // 3, 1)
    first, last = (float(np.median(part)) for part in (lengths[:third], lengths[-third:]))
    message = (
        f"steps still get faster while they are recorded, from {format_duration(first)} to {format_duration(last)} "
        f"(steps {numbers[0]} to {numbers[-1]}): record later ones, after more warm-up"
    )
    yield health.finding(STEPS_GET_FASTER, health.WARNING, 1, message, health.STEP_AVERAGES)


def does_shrink(lengths: Sequence[int]) -> bool:
    """Whether lengths become shorter from one to the next, more than chance makes them, and by a fifth or more in all."""
    values = np.asarray(lengths, dtype=np.float64)
    if len(values) > _MOST_GROUPS:
        values = np.array([np.median(group) for group in np.array_split(values, _MOST_GROUPS)])
    count, median = len(values), float(np.median(values)) if len(values) else 0.0
    if count < _LEAST_STEPS or median <= 0:
        return False
    earlier, later = np.triu_indices(count, 1)
    difference = values[later] - values[earlier]
    slope = float(np.median(difference / (later - earlier)))
    if -slope * (count - 1) < _LEAST_CHANGE * median:
        return False
    not_shorter = int((difference >= 0).sum())
    return _chance_of_order(count, not_shorter) <= (_CHANCE if count < _MANY else _CHANCE_OF_MANY)


def _chance_of_order(count: int, inversions: int) -> float:
    """How likely so many values in a random order have at most so many pairs in one of both orders."""
    ways = [1.0]
    for size in range(2, count + 1):
        width = len(ways) + size - 1
        sums = np.cumsum(np.r_[ways, np.zeros(size - 1)])
        ways = [float(sums[place] - (sums[place - size] if place >= size else 0.0)) / size for place in range(width)]
    return math.fsum(ways[: inversions + 1])
