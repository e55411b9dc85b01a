"""What messages say of two clocks: nobody leaves a message before everybody whom it waits for has arrived."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.cluster.clocks.corridors import Bounds, Floats, find_corridors, thin_out

#: what both sides of a message are, one row per rank
MESSAGES = {
    # one number for all parts of a message
    "message": pl.Int64(),
    # ranks that exchange messages with each other again and again, such as the name of a process group
    "group": pl.String(),
    "rank": pl.Int64(),
    # on the rank's own clock
    "arrival_ns": pl.Int64(),
    "leave_ns": pl.Int64(),
    # others do not leave before this rank has arrived, such as the source of a broadcast and all ranks of an all-reduce
    "is_awaited": pl.Boolean(),
    # this rank does not leave before those have arrived, such as the receivers of a broadcast
    "has_waited": pl.Boolean(),
}

#: in a group of at most this many ranks each is compared with each; in larger ones each with some of them
SMALL_GROUP = 8
#: how many that is: those that come last most often, since the last to come bounds all others most tightly
_HUBS = 6
#: bounds of a side that are kept of a pair: more in number are hardly tighter
_KEPT = 24
#: the same where there are more pairs than those of a job of a few thousand ranks
_KEPT_OF_MANY, _MANY_PAIRS = 8, 1 << 15
#: cells of an array that are worked on at once
_CELLS = 1 << 19
#: sides of messages that are compared at once: a job of thousands of ranks has millions
_SIDES = 1 << 15
#: bounds from several such portions that are compared at once
_BOUNDS = 1 << 18


@dataclass(frozen=True)
class PairBounds:
    """Every bound on the difference of two clocks: offset of ``first`` less that of ``second`` is at most ``at_most`` at ``at``.

    Arrays of one length, sorted by pair.

    Attributes:
        first: number of a clock.
        second: number of another one.
        at: when, s from the beginning of the messages.
        at_most: ns.
        message: which message says so.
    """

    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    at: Floats
    at_most: Floats
    message: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def join_all(cls, several: list[PairBounds]) -> PairBounds:
        """All of several."""
        names = ("first", "second", "at", "at_most", "message")
        return cls(*(np.concatenate([getattr(bounds, name) for bounds in several]) for name in names))

    def tighten_by(self, by_ns: float) -> PairBounds:
        """Bounds that are less by some nanoseconds."""
        return PairBounds(self.first, self.second, self.at, self.at_most - by_ns, self.message)

    def select_rows(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> PairBounds:
        """Some of them."""
        return PairBounds(self.first[chosen], self.second[chosen], self.at[chosen], self.at_most[chosen], self.message[chosen])


def bounds_of(parts: pl.DataFrame, resolution_ns: int) -> PairBounds:
    """The bounds that messages give.

    Args:
        parts: message, group, clock (number), arrival and leave (ns, roughly on one clock, floating point numbers), is_awaited,
            has_waited; a row for each rank in each message.
        resolution_ns: by how much a time of the source may be rounded.
    """
    return _bounds_of(parts.with_columns(is_hub=_are_hubs(parts)), resolution_ns)


def tightest_bounds(parts: pl.DataFrame, resolution_ns: int) -> Pairs:
    """The tightest bounds of each pair (``pairs_of``), without having all of them in memory at once.

    Args:
        parts: as of ``bounds_of``.
        resolution_ns: as of ``bounds_of``.
    """
    parts = parts.with_columns(is_hub=_are_hubs(parts))
    if is_few(parts):
        return pairs_of(_bounds_of(parts, resolution_ns))
    parts = parts.sort("message", maintain_order=True)
    begins = parts["message"].rle_id().to_numpy()
    portions: list[PairBounds] = []
    counts: list[tuple[npt.NDArray[np.int64], ...]] = []
    start = 0
    while start < parts.height:
        # a message lies in one portion
        end = int(np.searchsorted(begins, begins[min(start + _SIDES, parts.height - 1)]))
        end = parts.height if start + _SIDES >= parts.height or end <= start else end
        pairs = pairs_of(_bounds_of(parts[start:end], resolution_ns))
        portions.append(pairs.all_bounds())
        counts.append((pairs.first, pairs.second, pairs.messages))
        start = end
    return _tightest_of_all(portions, counts)


def _tightest_of_all(portions: list[PairBounds], counts: list[tuple[npt.NDArray[np.int64], ...]]) -> Pairs:
    """The tightest bounds of each pair in all portions, some clocks after the others.

    Args:
        portions: the tightest bounds of each pair in each portion.
        counts: of each portion the lower clock of each pair, the higher one, and how many bounds it had.
    """
    first, second, messages = (np.concatenate(of_portions) for of_portions in zip(*counts, strict=True))
    clocks = int(second.max(initial=0)) + 1
    names, pair = np.unique(first * clocks + second, return_inverse=True)
    columns = _kept_columns(len(names))
    lower = [np.minimum(bounds.first, bounds.second) for bounds in portions]
    up_to = np.cumsum(sum(np.bincount(clock, minlength=clocks) for clock in lower))
    done: list[tuple[npt.NDArray[np.intp], Bounds]] = []
    begin = position = 0
    while begin < clocks:
        before = up_to[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(up_to, before + _BOUNDS)))
        some = [bounds.select_rows((clock >= begin) & (clock < end)) for bounds, clock in zip(portions, lower, strict=True)]
        some_pairs = pairs_of(PairBounds.join_all(some), columns)
        done.append((np.arange(position, position + len(some_pairs.first)), some_pairs.bounds))
        position += len(some_pairs.first)
        begin = end
    total = np.bincount(pair, weights=messages, minlength=len(names)).astype(np.int64)
    return Pairs(names // clocks, names % clocks, _put_together(done, len(names)), total)


def is_few(parts: pl.DataFrame) -> bool:
    """Whether all bounds of the sides of some messages may be in memory at once."""
    return parts.height <= _SIDES


def _bounds_of(parts: pl.DataFrame, resolution_ns: int) -> PairBounds:
    """As ``bounds_of``, with ``is_hub`` of each side."""
    before = parts.filter("is_awaited").select("message", "arrival", "is_hub", first="clock")
    behind = parts.filter("has_waited").select("message", "leave", is_hub_behind="is_hub", second="clock")
    from_hubs = before.filter("is_hub").join(behind, on="message")
    to_hubs = before.filter(~pl.col("is_hub")).join(behind.filter("is_hub_behind"), on="message")
    pairs = pl.concat([from_hubs, to_hubs.select(from_hubs.columns)]).filter(pl.col("first") != pl.col("second"))
    at_most = pl.col("leave") - pl.col("arrival") + resolution_ns
    at_s = (pl.col("leave") + pl.col("arrival")) / 2e9
    bound_rows = pairs.select("first", "second", "message", at_s=at_s, at_most=at_most).sort("first", "second", "at_s", "at_most")
    columns = (bound_rows[name].to_numpy() for name in ("first", "second", "at_s", "at_most", "message"))
    return PairBounds(*columns)


def _are_hubs(parts: pl.DataFrame) -> pl.Expr | pl.Series:
    """Whether the bounds between a rank and all others of its message are looked at."""
    duration = pl.col("leave") - pl.col("arrival")
    is_last = (duration == duration.min().over("message")).cast(pl.Int64)
    came_last = parts.select("group", "clock", is_last=is_last).group_by("group", "clock").agg(pl.col("is_last").sum())
    place = pl.col("is_last").rank("ordinal", descending=True).over("group")
    size = pl.len().over("group")
    hubs = came_last.sort("group", "clock").select("group", "clock", is_hub=(size <= SMALL_GROUP) | (place <= _HUBS))
    are_hubs = parts.select("group", "clock").join(hubs, on=["group", "clock"], how="left", maintain_order="left")["is_hub"]
    # the one source of a broadcast, or the one rank that a reduction ends on, is on one side alone
    alone = pl.col("is_awaited") & (pl.col("is_awaited").sum().over("message") == 1)
    alone |= pl.col("has_waited") & (pl.col("has_waited").sum().over("message") == 1)
    return are_hubs | parts.select(alone=alone)["alone"]


@dataclass(frozen=True)
class Pairs:
    """Pairs of clocks with the tightest bounds of each: ``first`` has the lower number.

    Attributes:
        first: shape (pairs,).
        second: shape (pairs,).
        bounds: on the offset of ``first`` less that of ``second``.
        messages: how many bounds each pair had, shape (pairs,).
    """

    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    bounds: Bounds
    messages: npt.NDArray[np.int64]

    def select_rows(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Pairs:
        """Some of them."""
        return Pairs(self.first[chosen], self.second[chosen], self.bounds.select_rows(chosen), self.messages[chosen])

    def all_bounds(self) -> PairBounds:
        """The bounds of all pairs, one behind the other; of no message."""
        upper, lower = np.nonzero(np.isfinite(self.bounds.upper)), np.nonzero(np.isfinite(self.bounds.lower))
        first, second = self.first, self.second
        return PairBounds(
            np.concatenate([first[upper[0]], second[lower[0]]]),
            np.concatenate([second[upper[0]], first[lower[0]]]),
            np.concatenate([self.bounds.upper_at[upper], self.bounds.lower_at[lower]]),
            np.concatenate([self.bounds.upper[upper], -self.bounds.lower[lower]]),
            np.full(len(upper[0]) + len(lower[0]), -1),
        )


def pairs_of(found: PairBounds, columns: int | None = _KEPT) -> Pairs:
    """Both sides of each pair beside each other, with the tightest bounds of each alone.

    Args:
        found: all bounds.
        columns: how many of a side are kept; None keeps all.
    """
    is_upper = found.first < found.second
    low, high = np.minimum(found.first, found.second), np.maximum(found.first, found.second)
    key = low * (int(high.max(initial=0)) + 1) + high
    names, pair = np.unique(key, return_inverse=True)
    if columns is not None:
        columns = min(columns, _kept_columns(len(names)))
    counts = np.bincount(pair, minlength=len(names))
    first, second = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
    first[pair], second[pair] = low, high
    # pairs with about equally many bounds are worked on together, so that little of an array is empty
    by_count = np.argsort(-counts, kind="stable")
    order = np.argsort(pair, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)])
    done: list[tuple[npt.NDArray[np.intp], Bounds]] = []
    position = 0
    while position < len(by_count):
        most = int(counts[by_count[position]])
        pair_rows = by_count[position : position + max(1, _CELLS // most)]
        rows = np.concatenate([order[starts[row] : starts[row + 1]] for row in pair_rows])
        row_of = np.repeat(np.arange(len(pair_rows)), counts[pair_rows])
        side = _pad_rows(row_of, len(pair_rows), is_upper[rows], found.at[rows], found.at_most[rows])
        done.append((pair_rows, side if columns is None else _keep_tightest(side, columns)))
        position += len(pair_rows)
    return Pairs(first, second, _put_together(done, len(names)), counts)


def _kept_columns(pairs: int) -> int:
    """How many bounds of a side are kept of each of so many pairs."""
    return _KEPT_OF_MANY if pairs > _MANY_PAIRS else _KEPT


def _keep_tightest(bounds: Bounds, columns: int) -> Bounds:
    """The tightest bounds in each part of the time, seen from the line in the middle of some of them."""
    zero = np.zeros(len(bounds.upper))
    rough = find_corridors(thin_out(bounds, zero, zero, columns))
    line = (rough.bounds.highest_start(rough.slope) + rough.bounds.lowest_start(rough.slope)) / 2
    return thin_out(bounds, np.where(np.isfinite(line), line, 0.0), rough.slope, columns)


def _pad_rows(row: npt.NDArray[np.intp], rows: int, is_upper: npt.NDArray[np.bool_], at: Floats, at_most: Floats) -> Bounds:
    """Bounds of several pairs one after the other, ``row`` saying of which, as arrays of (pairs, bounds)."""
    sides: list[Floats] = []
    for on_side, sign in ((is_upper, 1.0), (~is_upper, -1.0)):
        of = row[on_side]
        counts = np.bincount(of, minlength=rows)
        column = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        shape = (rows, int(counts.max(initial=0)))
        times, values = np.zeros(shape), np.full(shape, sign * np.inf)
        times[of, column], values[of, column] = at[on_side], sign * at_most[on_side]
        sides += [times, values]
    return Bounds(*sides)


def _put_together(parts: list[tuple[npt.NDArray[np.intp], Bounds]], rows: int) -> Bounds:
    arrays: list[Floats] = []
    for name, empty in (("upper_at", 0.0), ("upper", np.inf), ("lower_at", 0.0), ("lower", -np.inf)):
        width = max((getattr(bounds, name).shape[1] for _, bounds in parts), default=0)
        array = np.full((rows, width), empty)
        for pair_rows, bounds in parts:
            values = getattr(bounds, name)
            array[pair_rows, : values.shape[1]] = values
        arrays.append(array)
    return Bounds(*arrays)
