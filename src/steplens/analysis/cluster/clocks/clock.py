"""One clock for all ranks of a job: offset and drift of each, with error bars, from the messages between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl

from steplens.analysis.cluster.clocks.bounds import pairs_of
from steplens.analysis.cluster.clocks.cuts import find_broken, find_cuts, set_back
from steplens.analysis.cluster.clocks.pair_errors import PairErrors
from steplens.analysis.cluster.clocks.solution import solve_clocks
from steplens.analysis.cluster.clocks.system import Choice, ClockSystem

#: rounds in which clocks are cut where they were set, one cut of each rank a round
_MOST_CUTS = 8
#: messages that are not the same break the corridor every few of them; that a clock was set takes as many to show it
_MESSAGES_PER_CUT = 6
#: so often ranks are left out whose messages are not believed
_MOST_DENIED = 8


@dataclass(frozen=True)
class Clocks:
    """What ``find_clocks`` finds.

    Attributes:
        pieces: columns ``solution.PIECES``, sorted by rank and time.
        parts: message, rank, piece: of which piece each side of a message is. Sides near a moment at which a clock was set are
            left out.
        broken: messages that would still be received before they were sent.
        contradictions: pairs of ranks whose messages contradict each other, the lower one first, with the number of their
            messages; these tell nothing. A rank has no piece where it would have to be set every few messages.
        separate_hosts: hosts whose ranks do not go by one clock, although they run on one host.
        errors: by two ranks, what the messages between them alone say of the error of their difference, ns.
        hosts: of ranks that go by the clock of their host, which.
        host_error_ns: how far times of two such ranks are apart at most that are of one moment.
    """

    pieces: pl.DataFrame
    parts: pl.DataFrame
    broken: int = 0
    contradictions: tuple[tuple[int, int, int], ...] = ()
    separate_hosts: tuple[str, ...] = ()
    errors: PairErrors = field(default_factory=PairErrors, repr=False)
    hosts: Mapping[int, str] = field(default_factory=dict, repr=False)
    host_error_ns: int = 0

    def put_on_one_clock(self, frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
        """Rows with some of their times on the clock of the reference.

        Args:
            frame: rows with ``rank`` and times, ns on the rank's own clock; a rank that exchanged no messages keeps its times.
            columns: which times. The first says between which two moments at which the rank's clock was set the row lies.
        """
        moved = self.pieces.filter((pl.col("offset_ns") != 0) | (pl.col("drift_ppm") != 0) | (pl.col("piece") > 0))
        if moved.is_empty():
            return frame
        names = ["first_message_ns", "offset_ns", "drift_ppm"]
        pieces = self.pieces.sort("first_message_ns").select("rank", *(pl.col(name).alias(f"_{name}") for name in names))
        ordered = frame.with_row_index("_order").sort(columns[0])
        joined = ordered.join_asof(pieces, left_on=columns[0], right_on="_first_message_ns", by="rank", check_sortedness=False)
        # before the first message the clock is that of the first piece
        first = pieces.unique("rank", keep="first").rename({f"_{name}": f"_first_{name}" for name in names})
        joined = joined.join(first, on="rank", how="left", maintain_order="left").with_columns(
            pl.coalesce(f"_{name}", f"_first_{name}").alias(f"_{name}") for name in names
        )
        added = [
            (
                pl.col("_offset_ns")
                + (pl.col("_drift_ppm") / 1e6 * (pl.col(name) - pl.col("_first_message_ns"))).round().cast(pl.Int64)
            )
            for name in columns
        ]
        times = [(pl.col(name) + shift.fill_null(0)).alias(name) for name, shift in zip(columns, added, strict=True)]
        return joined.with_columns(times).sort("_order").select(frame.columns)

    def error_between(self, one: int, other: int) -> float | None:
        """How far the difference of two ranks' times may be off, ns, the most over all pieces; None where it cannot be told."""
        if one == other:
            return 0.0
        of_both = self.errors.find_error(one, other)
        if one in self.hosts and self.hosts[one] == self.hosts.get(other):
            return float(self.host_error_ns)
        reference, error = self._by_rank.get(one, (None, None)), self._by_rank.get(other, (None, None))
        if reference[0] is None or reference[0] != error[0] or reference[1] is None or error[1] is None:
            return of_both
        both = reference[1] + error[1]
        return both if of_both is None else min(of_both, both)

    @cached_property
    def _by_rank(self) -> dict[int, tuple[int | None, float | None]]:
        """Reference and largest error of each rank; None where its pieces have several, or one of which nothing is known."""
        by_rank: dict[int, tuple[int | None, float | None]] = {}
        for rank, reference, error in self.pieces.select("rank", "reference", "error_ns").iter_rows():
            before = by_rank.get(rank)
            if before is None:
                by_rank[rank] = (reference, error)
            elif before[0] != reference or error is None or before[1] is None:
                by_rank[rank] = (reference if before[0] == reference else None, None)
            else:
                by_rank[rank] = (reference, max(error, before[1]))
        return by_rank


def find_clocks(
    messages: pl.DataFrame, hosts: Mapping[int, str] | None = None, *, resolution_ns: int = 1_000, host_error_ns: int = 1_000
) -> Clocks:
    """Offset and drift of the clock of each rank.

    1. No rank leaves a message before all that it waits for have arrived: each message bounds the difference of two clocks.
    2. Between these bounds lies a corridor of straight lines for each pair of ranks. Where it breaks, a clock was set, and is
       cut into two there. A rank whose clock would have been set every few messages is left out: its messages were paired with
       others than their own.
    3. Over the graph of pairs the bounds are difference constraints: shortest paths give the interval of each clock against
       that of a reference, the lowest rank that it is connected with.
    4. Clocks that may agree as they were recorded are left as they are: computers set their clocks by each other. Of the others
       lines in their intervals are chosen, on which collectives end together as well as may be, and no message is received
       before it was sent.

    Args:
        messages: columns ``bounds.MESSAGES``; messages of a group are numbered in the order of the program.
        hosts: of ranks that read the clock of their host, which; nothing for the others.
        resolution_ns: by how much a time may be rounded.
        host_error_ns: how far times of one moment are apart at most that two ranks of a host read from its clock.
    """
    sides = messages.drop_nulls(["rank", "arrival_ns", "leave_ns"])
    contradictions: dict[tuple[int, int], int] = {}
    for _ in range(_MOST_DENIED):
        system, is_broken = _cut_clocks(sides, resolution_ns)
        denied = _set_too_often(system, is_broken)
        if not denied:
            break
        for key, count in _messages_between(system, denied).items():
            contradictions[key] = max(contradictions.get(key, 0), count)
        sides = sides.filter(~pl.col("rank").is_in(sorted(denied)))
    else:
        system, is_broken = _cut_clocks(sides, resolution_ns)
    solution = solve_clocks(system, is_broken, hosts or {}, host_error_ns)
    sides = system.parts.select("message", "rank", "piece")
    for first, second, count in solution.contradictions:
        contradictions[first, second] = count
    of_hosts = {rank: host for rank, host in (hosts or {}).items() if host not in solution.separate_hosts}
    return Clocks(
        solution.pieces,
        sides,
        solution.broken,
        tuple((*pair, count) for pair, count in sorted(contradictions.items())),
        solution.separate_hosts,
        solution.errors,
        of_hosts,
        host_error_ns,
    )


def _cut_clocks(sides: pl.DataFrame, resolution_ns: int) -> tuple[ClockSystem, Choice]:
    """The clocks between the moments at which they were set, and which pairs of them are broken all the same."""
    parts = set_back(sides)
    for number in range(_MOST_CUTS + 1):
        system = ClockSystem.build_system(parts, resolution_ns)
        is_broken = find_broken(system.pairs)
        if not is_broken.any() or number == _MOST_CUTS:
            break
        with_all = pairs_of(system.bounds_between(system.pairs.select_rows(is_broken)), columns=None)
        parts = system.split_pieces(find_cuts(with_all))
    return system, is_broken


def _set_too_often(system: ClockSystem, is_broken: Choice) -> set[int]:
    """The ranks whose clocks were cut so often that their messages must have been paired with others than their own."""
    of_rank = system.parts.group_by("rank").agg(cuts=pl.col("piece").n_unique() - 1, messages=pl.len())
    cuts: dict[int, int] = dict(of_rank.select("rank", "cuts").iter_rows())
    too_often = of_rank.filter(pl.col("cuts") * _MESSAGES_PER_CUT > pl.col("messages"))
    if too_often.height:
        most = too_often["cuts"].max()
        # cutting one clock too often may have cost another one cuts, too
        return set(too_often.filter(pl.col("cuts") == most)["rank"].to_list())
    # no cut mended these pairs
    pairs = zip(
        system.clock_ranks[system.pairs.first[is_broken]], system.clock_ranks[system.pairs.second[is_broken]], strict=True
    )
    return {rank for pair in pairs if cuts[rank := max(map(int, pair), key=lambda rank: (cuts[rank], rank))]}


def _messages_between(system: ClockSystem, denied: set[int]) -> dict[tuple[int, int], int]:
    """The pairs with a rank that is left out whose messages contradict each other, with how many bounds these give."""
    first, second = system.clock_ranks[system.pairs.first], system.clock_ranks[system.pairs.second]
    was_cut = np.isin(first, sorted(denied)) | np.isin(second, sorted(denied))
    bounds_of: dict[tuple[int, int], int] = {}
    for first_rank, second_rank, count in zip(first[was_cut], second[was_cut], system.pairs.messages[was_cut], strict=True):
        pair = (min(int(first_rank), int(second_rank)), max(int(first_rank), int(second_rank)))
        bounds_of[pair] = bounds_of.get(pair, 0) + int(count)
    return bounds_of
