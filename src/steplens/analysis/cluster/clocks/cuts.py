"""Where a clock was set: moments at which the corridor between two clocks breaks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.cluster.clocks.bounds import Pairs
from steplens.analysis.cluster.clocks.corridors import Bounds, Floats, find_corridors

#: bounds that contradict each other by less are loosened: times are rounded, and a device's are converted to the host's
NOISE_NS = 20_000.0
#: of the time that messages cover, how exactly the moment of a break is found: one part of 2**this
_ROUNDS = 14
#: an arrival that is this much earlier than the one before it in the order of the program shows that the clock was set back, ns
_BACK_NS = 1_000_000


@dataclass(frozen=True)
class Cut:
    """A moment at which a clock was set.

    Attributes:
        clock: its number.
        low: seconds from the beginning of the messages: it was set at this moment at the earliest,
        high: and at this one at the latest.
    """

    clock: int
    low: float
    high: float


def find_broken(pairs: Pairs) -> npt.NDArray[np.bool_]:
    """Which pairs no straight line keeps between the bounds of."""
    return find_corridors(pairs.bounds).width < -2 * NOISE_NS


def find_cuts(pairs: Pairs) -> list[Cut]:
    """One cut for each clock that was set, from pairs that are broken, with all their bounds.

    The clock with the most broken pairs was set: the others are in order with each other. Of two clocks alone nobody can tell
    which one it was, nor does it matter: the later one is cut.
    """
    first_s, last_s = _time_span(pairs.bounds)
    ends = _last_straight(pairs.bounds, first_s, last_s)
    begins = -_last_straight(_turn_back(pairs.bounds), -last_s, -first_s)
    # more than one cut: of the first it is known that it is felt where the straight part from the beginning ends
    several = begins > ends
    begins = np.where(several, ends - (last_s - first_s) / (1 << _ROUNDS), begins)
    cuts: list[Cut] = []
    left = np.ones(len(pairs.first), bool)
    while left.any():
        counts = np.bincount(np.concatenate([pairs.first[left], pairs.second[left]]))
        clock = len(counts) - 1 - int(np.argmax(counts[::-1]))
        of_clock = left & ((pairs.first == clock) | (pairs.second == clock))
        low, high = _common_moment(begins[of_clock], ends[of_clock])
        cuts.append(Cut(clock, low, high))
        left &= ~of_clock
    return cuts


def set_back(parts: pl.DataFrame) -> pl.DataFrame:
    """Pieces of the clocks between the moments at which they went back, by the order in which the program sent its messages.

    Args:
        parts: message (in the order of the program within a group), group, rank, arrival_ns.

    Returns:
        ``parts`` with the column ``piece``, from 0 for each rank.
    """
    # a clock that went back within a message has it end before it began
    ordered = parts.filter(pl.col("leave_ns") >= pl.col("arrival_ns")).sort("rank", "group", "message")
    key = ["rank", "group"]
    back = (pl.col("arrival_ns") < pl.col("arrival_ns").shift(1).over(key) - _BACK_NS).fill_null(False)
    if not ordered.select(back.any()).item():
        return ordered.with_columns(piece=pl.lit(0, dtype=pl.Int64))
    return ordered.with_columns(piece=back.cast(pl.Int64).cum_sum().over(key))


def _common_moment(begins: Floats, ends: Floats) -> tuple[float, float]:
    """The part of the time that most of some intervals have in common."""
    moments = np.concatenate([begins, ends])
    order = np.lexsort((np.repeat([0, 1], len(begins)), moments))
    depth = np.cumsum(np.repeat([1, -1], len(begins))[order])
    deepest = int(np.argmax(depth))
    moments = moments[order]
    return float(moments[deepest]), float(moments[min(deepest + 1, len(moments) - 1)])


def _time_span(bounds: Bounds) -> tuple[float, float]:
    times = np.concatenate([bounds.upper_at[np.isfinite(bounds.upper)], bounds.lower_at[np.isfinite(bounds.lower)]])
    return float(times.min(initial=np.inf)), float(times.max(initial=-np.inf))


def _turn_back(bounds: Bounds) -> Bounds:
    return Bounds(-bounds.upper_at, bounds.upper, -bounds.lower_at, bounds.lower)


def _last_straight(bounds: Bounds, first_s: float, last_s: float) -> Floats:
    """Until when, from the beginning, a straight line keeps between the bounds of each pair; bisected."""
    near = np.full(len(bounds.upper), first_s)
    far = np.full(len(bounds.upper), last_s)
    for _ in range(_ROUNDS):
        middle = (near + far) / 2
        upper = np.where(bounds.upper_at <= middle[:, None], bounds.upper, np.inf)
        lower = np.where(bounds.lower_at <= middle[:, None], bounds.lower, -np.inf)
        is_straight = find_corridors(Bounds(bounds.upper_at, upper, bounds.lower_at, lower)).width >= -2 * NOISE_NS
        near, far = np.where(is_straight, middle, near), np.where(is_straight, far, middle)
    return near
