"""The clocks of a job by number, with all bounds on their differences that its messages give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.cluster.clocks.bounds import PairBounds, Pairs, bounds_of, is_few, tightest_bounds
from steplens.analysis.cluster.clocks.corridors import Floats
from steplens.analysis.cluster.clocks.cuts import Cut
from steplens.analysis.cluster.clocks.offset_lines import Lines

Numbers = npt.NDArray[np.int64]
Choice = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ClockSystem:
    """Clocks by number: each is a rank's between two moments at which it was set. All times are near each other.

    Attributes:
        parts: sides of messages with ``clock``, and ``arrival`` and ``leave`` in ns from ``origin``, less ``rough`` of the clock.
        clocks: clock, rank, piece and is_cut of each, sorted by number: those that were never set come first, in order of rank.
        rough: by how much each clock is ahead of the lowest that it is connected with, roughly, ns.
        origin: ns.
        pairs: the tightest bounds on the difference of each pair.
        resolution_ns: by how much a time of the source may be rounded, which the bounds grant.
    """

    parts: pl.DataFrame
    clocks: pl.DataFrame
    rough: Numbers
    origin: int
    pairs: Pairs
    resolution_ns: int

    @classmethod
    def build_system(cls, parts: pl.DataFrame, resolution_ns: int) -> ClockSystem:
        """The system of some sides of messages.

        Args:
            parts: columns ``bounds.MESSAGES`` and ``piece``.
            resolution_ns: by how much a time of the source may be rounded.
        """
        clocks = parts.select("rank", "piece").unique().with_columns(is_cut=pl.len().over("rank") > 1)
        clocks = clocks.sort("is_cut", "rank", "piece").with_row_index("clock").with_columns(pl.col("clock").cast(pl.Int64))
        parts = parts.join(clocks.drop("is_cut"), on=["rank", "piece"], maintain_order="left")
        rough = _rough_offsets(parts, clocks.height)
        moved = pl.Series(rough)[parts["clock"]]
        origin = int((parts["arrival_ns"] - moved).min() or 0)
        parts = parts.with_columns(
            arrival=(pl.col("arrival_ns") - moved - origin).cast(pl.Float64),
            leave=(pl.col("leave_ns") - moved - origin).cast(pl.Float64),
        )
        return cls(parts, clocks, rough, origin, tightest_bounds(parts, resolution_ns), resolution_ns)

    @property
    def clock_ranks(self) -> Numbers:
        """The rank of each clock."""
        return self.clocks["rank"].to_numpy()

    def bounds_between(self, pairs: Pairs) -> PairBounds:
        """All bounds of some pairs."""
        count = self.clocks.height
        clocks = np.unique(np.concatenate([pairs.first, pairs.second]))
        # all members of a message tell between which of them it is looked at
        messages = self.parts.filter(pl.col("clock").is_in(clocks)).select("message")
        bounds = bounds_of(self.parts.join(messages, on="message", how="semi", maintain_order="left"), self.resolution_ns)
        low, high = np.minimum(bounds.first, bounds.second), np.maximum(bounds.first, bounds.second)
        return bounds.select_rows(np.isin(low * count + high, pairs.first * count + pairs.second))

    def bounds_to_keep(self, pairs: Pairs) -> PairBounds:
        """All bounds of some pairs, or their tightest ones where there are very many: what these leave out is found broken."""
        return self.bounds_between(pairs) if is_few(self.parts) else pairs.all_bounds()

    def broken_bounds(self, lines: Lines, denied: Numbers) -> PairBounds:
        """What messages ask for and lines break: that who waits in a message does not leave before the last one has arrived.

        Args:
            lines: of all clocks.
            denied: ranks whose messages are not believed, as ``pairs_of_ranks`` numbers two.
        """
        parts = self.parts
        clock = parts["clock"].to_numpy()
        common = {}
        for name in ("arrival", "leave"):
            times = parts[name].to_numpy()
            common[f"common_{name}"] = pl.Series(times + lines.offset_at(clock, times / 1e9))
        parts = parts.select("message", "clock", "arrival", "leave", "is_awaited", "has_waited").with_columns(**common)
        awaited = parts.filter("is_awaited").select("message", "common_arrival", first="clock", sent="arrival")
        last = awaited.group_by("message").agg(pl.col("common_arrival").max())
        waiting = parts.filter("has_waited").select("message", "clock", "leave", "common_leave").join(last, on="message")
        left_early = waiting.filter(pl.col("common_leave") < pl.col("common_arrival") - 1).drop("common_arrival")
        broken = left_early.join(awaited, on="message").filter(pl.col("common_leave") < pl.col("common_arrival") - 1)
        broken = broken.filter(pl.col("first") != pl.col("clock"))
        at_most = pl.col("leave") - pl.col("sent") + self.resolution_ns
        broken = broken.select("message", "first", "clock", at=(pl.col("leave") + pl.col("sent")) / 2e9, at_most=at_most)
        bounds = PairBounds(*(broken[name].to_numpy() for name in ("first", "clock", "at", "at_most", "message")))
        return bounds.select_rows(~np.isin(pairs_of_ranks(self.clock_ranks, bounds.first, bounds.second), denied))

    def message_span(self) -> tuple[Floats, Floats, Numbers]:
        """When the messages of each clock begin and end (s from ``origin``), and how many it has."""
        sides = pl.col("arrival").min() / 1e9, pl.col("leave").max() / 1e9, pl.len().cast(pl.Int64)
        life = self.parts.group_by("clock").agg(first=sides[0], last=sides[1], messages=sides[2]).sort("clock")
        return life["first"].to_numpy(), life["last"].to_numpy(), life["messages"].to_numpy()

    def split_pieces(self, cuts: list[Cut]) -> pl.DataFrame:
        """The sides of messages with pieces cut in two; what lies where a clock was set belongs to neither."""
        moments = pl.DataFrame([(cut.clock, cut.low, cut.high) for cut in cuts], schema=["clock", "low", "high"], orient="row")
        parts = self.parts.join(
            moments.with_columns(pl.col("clock").cast(pl.Int64)), on="clock", how="left", maintain_order="left"
        )
        begin, end = pl.col("arrival") / 1e9, pl.col("leave") / 1e9
        is_within = ((begin <= pl.col("high")) & (end >= pl.col("low"))).fill_null(False)
        is_behind = (begin > (pl.col("low") + pl.col("high")) / 2).fill_null(False)
        # pieces of a rank keep their order: those behind the one that is cut count one more
        parts = parts.filter(~is_within).with_columns(piece=2 * pl.col("piece") + is_behind.cast(pl.Int64))
        parts = parts.with_columns(piece=pl.col("piece").rank("dense").over("rank").cast(pl.Int64) - 1)
        return parts.drop("clock", "arrival", "leave", "low", "high")


def pairs_of_ranks(ranks: Numbers, first: Numbers, second: Numbers) -> Numbers:
    """A number for the two ranks of each pair of clocks, in whichever order."""
    low, high = np.minimum(ranks[first], ranks[second]), np.maximum(ranks[first], ranks[second])
    return np.asarray(low * (int(ranks.max(initial=0)) + 1) + high)


def _rough_offsets(parts: pl.DataFrame, clocks: int) -> Numbers:
    ends = parts.select("message", "clock", end=pl.when("has_waited").then("leave_ns").otherwise("arrival_ns"))
    return np.round(compare_ends(ends, clocks)).astype(np.int64)


def compare_ends(ends: pl.DataFrame, clocks: int) -> Floats:
    """By how much later messages end on each clock than on the lowest that it is connected with, the median, ns; shape (clocks,).

    Args:
        ends: message, clock, end (ns).
        clocks: number of clocks.
    """
    lowest = ends.sort("clock").unique("message", keep="first").select("message", of="clock", of_end="end")
    apart = ends.join(lowest, on="message").filter(pl.col("clock") != pl.col("of"))
    medians = apart.group_by("of", "clock").agg(apart=(pl.col("end") - pl.col("of_end")).median(), count=pl.len())
    neighbours: dict[int, list[tuple[int, int, float]]] = {}
    for of, clock, distance, count in medians.iter_rows():
        neighbours.setdefault(of, []).append((count, clock, distance))
        neighbours.setdefault(clock, []).append((count, of, -distance))
    later = np.zeros(clocks)
    is_known = np.zeros(clocks, bool)
    for start in range(clocks):
        if is_known[start]:
            continue
        is_known[start] = True
        reached = [start]
        for clock in reached:
            for _, neighbour, distance in sorted(neighbours.get(clock, ()), reverse=True):
                if not is_known[neighbour]:
                    is_known[neighbour] = True
                    later[neighbour] = later[clock] + distance
                    reached.append(neighbour)
    return later
