"""What is to be said of clocks that differ or were set: ranks whose clocks were moved alike are one finding, many one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from steplens.analysis.step_words import number_ranges
from steplens.trace import health
from steplens.trace.building.checks.common import format_duration

#: a difference of less is not worth a word, ns: computers of one job rarely agree to less
WORTH_SAYING_NS = 1_000_000
#: nor is a drift that adds up to less than this over the recording, ns
_DRIFT_NS = 100_000
#: a bar of more than this share of a step leaves open who is late: a rank is called slow from this share on
_SHARE_OF_STEP = 0.03
#: more than so many findings of a kind are one
_MOST_LINES = 8
#: ranges of ranks that are named
_NAMED = 8

_COMPARED = (health.RANK_COMPARISON, health.COMMUNICATION_TIMES)


@dataclass(frozen=True)
class _Moved:
    """Ranks whose clocks were moved alike.

    Attributes:
        ranks: which.
        host: that all of them run on; empty where that is not known.
        reference: the rank that they are compared with.
        offset_ns: by how much their clocks are ahead of its clock at the beginning; or were set forward.
        drift_ns: by how much more they are ahead at the end.
        ppm: the same, of the time between.
        error_ns: how far the offset may be off; None where nothing tells.
        low: of clocks that were set, on the clock of the first rank: at the earliest then,
        high: and at the latest then.
    """

    ranks: tuple[int, ...]
    host: str
    reference: int
    offset_ns: int
    drift_ns: float
    ppm: float
    error_ns: int | None
    low: int = 0
    high: int = 0

    @property
    def rank_text(self) -> str:
        """The ranks in words."""
        ranks = f"rank {self.ranks[0]}" if len(self.ranks) == 1 else f"ranks {rank_ranges(self.ranks)}"
        if self.host:
            return f"host {self.host} ({ranks})"
        return ranks if len(self.ranks) == 1 else f"each of {ranks}"

    @property
    def most_ns(self) -> float:
        """The largest difference between beginning and end."""
        return max(self.offset_ns, self.offset_ns + self.drift_ns, key=abs)


def rank_ranges(ranks: Iterable[int]) -> str:
    """Ranks in few words: "0-2, 5"."""
    ranges = number_ranges(list(ranks)).split(", ")
    return ", ".join(ranges[:_NAMED]) + (" ..." if len(ranges) > _NAMED else "")


def differing_clocks(pieces: pl.DataFrame, hosts: Mapping[int, str], step_ns: float | None) -> Iterator[health.HealthFinding]:
    """Clocks that differ from that of the reference by more than their error bars, and by 1 ms.

    Args:
        pieces: columns ``solution.PIECES``.
        hosts: the computer of each rank, as far as it is known.
        step_ns: how long a step takes, to judge the error bars by.
    """
    # of a clock that was set, the finding about that tells; where all of its pieces are off it was off besides
    of_rank = _with_ends(pieces).sort("most_ns").unique("rank", keep="first").filter("differs")
    groups = _group_alike([_moved_clock(row, hosts) for row in of_rank.sort("rank").iter_rows(named=True)])
    if len(groups) > _MOST_LINES:
        yield _many_differ(groups, step_ns)
        return
    for group in groups:
        ahead = _describe_offset(group)
        if group.error_ns is None:
            message = (
                f"the clock of {group.rank_text} is about {ahead} that of rank {group.reference}, and messages bound it on one "
                "side only: how long others waited there cannot be told"
            )
            yield health.finding("rank_clock_offset", health.WARNING, len(group.ranks), message, *_COMPARED)
        elif _is_exact(group, step_ns):
            message = (
                f"the clock of {group.rank_text} is {ahead} that of rank {group.reference}, within "
                f"{format_duration(group.error_ns)}, as their messages say; what compares times of ranks is corrected for it"
            )
            yield health.finding("rank_clock_offset", health.INFO, len(group.ranks), message, *_COMPARED)
        else:
            message = (
                f"the clock of {group.rank_text} is {ahead} that of rank {group.reference}, within no less than "
                f"{format_duration(group.error_ns)}, as their messages say; what compares times of ranks is corrected for it, "
                "and shorter waits are not told apart"
            )
            yield health.finding("rank_clock_offset", health.WARNING, len(group.ranks), message, *_COMPARED)


def clocks_that_were_set(pieces: pl.DataFrame, hosts: Mapping[int, str]) -> Iterator[health.HealthFinding]:
    """Clocks that were set while they were recorded, by 1 ms at least.

    Args:
        pieces: columns ``solution.PIECES``.
        hosts: the computer of each rank, as far as it is known.
    """
    ordered = _with_ends(pieces).sort("rank", "piece")
    end_of_last = (pl.col("offset_ns") + pl.col("gained_ns")).shift(1).over("rank")
    ordered = ordered.with_columns(set_by=end_of_last - pl.col("offset_ns"), low=pl.col("last_message_ns").shift(1).over("rank"))
    rows = ordered.filter(pl.col("set_by").abs() >= WORTH_SAYING_NS).iter_rows(named=True)
    groups = _group_alike(
        [
            _Moved(
                (row["rank"],), hosts.get(row["rank"], ""), row["reference"], round(row["set_by"]), 0.0, 0.0, row["error_ns"],
                row["low"], row["first_message_ns"],
            )
            for row in rows
        ]
    )  # fmt: skip
    if len(groups) > _MOST_LINES:
        ranks = [rank for group in groups for rank in group.ranks]
        most = max(groups, key=lambda group: abs(group.offset_ns))
        message = (
            f"the clocks of {len(set(ranks))} ranks were set while they were recorded, as their messages say, that of "
            f"{most.rank_text} by {format_duration(abs(most.offset_ns))}; what came before and what came after are brought to "
            "the other clocks each for itself; steplens table rank_clocks has each of them"
        )
        yield health.finding("rank_clock_set", health.WARNING, len(ranks), message, *_COMPARED)
        return
    for group in groups:
        direction = "forward" if group.offset_ns > 0 else "back"
        message = (
            f"the clock of {group.rank_text} was set {direction} by {format_duration(abs(group.offset_ns))} while it was "
            f"recorded, as its messages say (between {group.low} and {group.high} ns on it); what came before and what "
            "came after are brought to the other clocks each for itself"
        )
        yield health.finding("rank_clock_set", health.WARNING, len(group.ranks), message, *_COMPARED)


def _with_ends(pieces: pl.DataFrame) -> pl.DataFrame:
    """Pieces with what is added to a time at their end besides ``offset_ns``, the most that is, and whether that matters."""
    rows = pieces.with_columns(gained_ns=pl.col("drift_ppm") / 1e6 * (pl.col("last_message_ns") - pl.col("first_message_ns")))
    most = pl.max_horizontal(pl.col("offset_ns").abs(), (pl.col("offset_ns") + pl.col("gained_ns")).abs())
    differs = most > pl.max_horizontal(pl.lit(WORTH_SAYING_NS), pl.col("error_ns").fill_null(0))
    return rows.with_columns(most_ns=most, differs=differs)


def _moved_clock(row: Mapping[str, int], hosts: Mapping[int, str]) -> _Moved:
    # what is to be added to a time is by how much it is behind
    rank, error = row["rank"], row["error_ns"]
    return _Moved(
        (rank,), hosts.get(rank, ""), row["reference"], -row["offset_ns"], -row["gained_ns"], -row["drift_ppm"], error
    )  # fmt: skip


def _group_alike(clocks: Sequence[_Moved]) -> list[_Moved]:
    """Ranks of one host, or of hosts that nobody knows, whose clocks were moved alike, as one; in order of their first rank."""

    def sort_key(clock: _Moved) -> tuple[int, str, int, int]:
        return clock.reference, clock.host, clock.low, clock.offset_ns

    groups: list[list[_Moved]] = []
    for clock in sorted(clocks, key=sort_key):
        if groups and _belongs_to(groups[-1], clock):
            groups[-1].append(clock)
        else:
            groups.append([clock])
    return sorted(map(_put_together, groups), key=lambda group: group.ranks)


def _belongs_to(group: Sequence[_Moved], clock: _Moved) -> bool:
    first = group[0]
    if (first.reference, first.host) != (clock.reference, clock.host) or (first.error_ns is None) != (clock.error_ns is None):
        return False
    if any(clock.ranks == member.ranks for member in group):
        return False
    near = max(WORTH_SAYING_NS, (first.error_ns or 0) + (clock.error_ns or 0))
    ends = (first.offset_ns - clock.offset_ns, first.most_ns - clock.most_ns)
    return max(map(abs, ends)) <= near and clock.low - near <= first.high and first.low - near <= clock.high


def _put_together(group: Sequence[_Moved]) -> _Moved:
    middle = sorted(group, key=lambda clock: clock.offset_ns)[len(group) // 2]
    errors = [clock.error_ns for clock in group if clock.error_ns is not None]
    return _Moved(
        tuple(sorted(rank for clock in group for rank in clock.ranks)), middle.host, middle.reference, middle.offset_ns,
        middle.drift_ns, middle.ppm, max(errors) if errors else None, middle.low, middle.high,
    )  # fmt: skip


def _describe_offset(group: _Moved) -> str:
    begin, end = (
        f"{format_duration(abs(ns))} {'ahead of' if ns > 0 else 'behind'}"
        for ns in (group.offset_ns, group.offset_ns + group.drift_ns)
    )
    if abs(group.drift_ns) < max(_DRIFT_NS, group.error_ns or 0):
        return begin
    return f"at first {begin} and, drifting by {abs(group.ppm):.3g} ppm, in the end {end}"


def _is_exact(group: _Moved, step_ns: float | None) -> bool:
    return group.error_ns is not None and (step_ns is None or group.error_ns <= _SHARE_OF_STEP * step_ns)


def _many_differ(groups: Sequence[_Moved], step_ns: float | None) -> health.HealthFinding:
    most = max(groups, key=lambda group: abs(group.most_ns))
    ranks = sum(len(group.ranks) for group in groups)
    errors = [group.error_ns for group in groups if group.error_ns is not None]
    bar = f"within {format_duration(max(errors))}" if len(errors) == len(groups) else "some of them bounded on one side only"
    severity = health.INFO if all(_is_exact(group, step_ns) for group in groups) else health.WARNING
    message = (
        f"the clocks of {ranks} ranks differ from that of the rank that they are compared with, that of {most.rank_text} by "
        f"{format_duration(abs(most.most_ns))}, {bar}, as their messages say; what compares times of ranks is corrected for it; "
        "steplens table rank_clocks has each of them"
    )
    return health.finding("rank_clock_offset", severity, ranks, message, *_COMPARED)
