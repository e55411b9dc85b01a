"""From bounds of pairs of clocks to the offset of each: intervals, what is left as it was recorded, and the chosen lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.analysis.cluster.clocks.bounds import PairBounds, Pairs
from steplens.analysis.cluster.clocks.corridors import Floats, find_corridors
from steplens.analysis.cluster.clocks.graph import Edges, find_components, highest_offsets, lowest_offsets
from steplens.analysis.cluster.clocks.offset_lines import Lines, fit_lines, keep_bounds
from steplens.analysis.cluster.clocks.pair_errors import PairErrors
from steplens.analysis.cluster.clocks.system import Choice, ClockSystem, Numbers, compare_ends, pairs_of_ranks
from steplens.analysis.tools.schemas import table_schema

#: of a rank between two moments at which its clock was set. ``first_message_ns`` and ``last_message_ns``: on its own clock, the
#: first and the last time of a message there. A time of it is on the clock of the rank ``reference`` when ``offset_ns +
#: drift_ppm / 1e6 * (time - first_message_ns)`` is added; then it is off by ``error_ns`` at most, null where that cannot be told.
PIECES = table_schema(
    "rank, piece, reference, first_message_ns, last_message_ns, offset_ns, drift_ppm: Float64, error_ns, messages"
)

#: clocks are looked at this often over the time of the messages
_MOMENTS = 5
#: and where clocks were set, at no more than about this many moments besides
_MOST_MOMENTS = 20
#: a moment counts for a clock whose messages begin or end within this part of all time of it
_NEAR = 0.02
#: sums of floating point numbers are this exact, ns
_ROUNDED_NS = 1.0
#: times that are put on one clock are whole nanoseconds, both sides of a message
_WHOLE_NS = 2
#: so often bounds that lines break are added to those that are looked at
_ADDED = 20
#: passes in which rounding is not granted
_TRIED = 20
#: so many clocks are tried as the one that most others agree with
_CANDIDATES = 3
#: bounds that contradict each other in a circle by no more than this are loosened, ns
_LOOSENED = (0.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4)


@dataclass(frozen=True)
class Solution:
    """See ``clock.Clocks``, whose attributes these are."""

    pieces: pl.DataFrame
    broken: int
    contradictions: tuple[tuple[int, int, int], ...]
    separate_hosts: tuple[str, ...]
    errors: PairErrors


def solve_clocks(system: ClockSystem, is_contradictory: Choice, hosts: Mapping[int, str], host_error_ns: int) -> Solution:
    """The clocks of a system, from all its pairs but those that contradict themselves.

    Args:
        system: of ``ClockSystem.build_system``.
        is_contradictory: pairs whose messages contradict each other.
        hosts: of ranks that read the clock of their host, which.
        host_error_ns: how far times of one moment are apart at most that two ranks of a host read.
    """
    ranks, count = system.clock_ranks, system.clocks.height
    # two ranks that were paired wrongly somewhere are nowhere believed
    of_ranks = pairs_of_ranks(ranks, system.pairs.first, system.pairs.second)
    denied = np.unique(of_ranks[is_contradictory])
    is_denied = np.isin(of_ranks, denied)
    lost = system.pairs.select_rows(is_denied)
    # of thousands of ranks a copy takes a tenth of a gigabyte
    pairs = system.pairs.select_rows(~is_denied) if is_denied.any() else system.pairs
    messages_of: dict[tuple[int, int], int] = {}
    for first, second, messages in zip(ranks[lost.first], ranks[lost.second], lost.messages, strict=True):
        key = (min(int(first), int(second)), max(int(first), int(second)))
        messages_of[key] = messages_of.get(key, 0) + int(messages)
    contradictions = tuple((*key, messages) for key, messages in messages_of.items())
    if not count:
        return Solution(pl.DataFrame(schema=PIECES), 0, contradictions, (), PairErrors())
    first, last, counts = system.message_span()
    moments = _choose_moments(system, first, last)
    corridors = find_corridors(pairs.bounds)
    highest = np.stack([corridors.highest_at(moment) for moment in moments], axis=1)
    lowest = np.stack([corridors.lowest_at(moment) for moment in moments], axis=1)

    names = np.array([hosts.get(int(rank), "") for rank in ranks], dtype=str)
    apart = (system.rough[pairs.first] - system.rough[pairs.second]).astype(np.float64)
    disagree = ((apart[:, None] > highest + host_error_ns) | (apart[:, None] < lowest - host_error_ns)).any(axis=1)
    is_cut = system.clocks["is_cut"].to_numpy()
    is_known = (names[pairs.first] != "") & (names[pairs.first] == names[pairs.second])
    separate = {str(name) for name in names[pairs.first[is_known & disagree]]} | {str(name) for name in names[is_cut] if name}
    graph = _Graph(pairs, lowest, highest, _edges_of_hosts(system, names, separate, host_error_ns), count)
    within = _when_known(moments, first, last)
    reference, is_off = _find_agreeing(system, graph, within, is_cut)
    units = _number_hosts(names, separate)
    is_off |= _explain_disagreement(pairs, disagree & ~is_off[pairs.first] & ~is_off[pairs.second], units)
    is_off |= np.isin(units, units[is_off])
    is_off[reference] = False
    low, high = graph.find_intervals(np.unique(reference))

    recorded = (system.rough - system.rough[reference]).astype(np.float64)
    of_hosts = [graph.same.bounds_at(at) for at in (first, last)]
    bounds = PairBounds.join_all([system.bounds_to_keep(pairs), *of_hosts])

    def lines_that_keep(*, to_middle: bool) -> tuple[Lines, int]:
        lines = _choose_lines(system, moments, (low, high), within, (first, last), to_middle=to_middle)
        lines = Lines(lines.first, lines.last, np.where(is_off, lines.begin, recorded), np.where(is_off, lines.end, recorded))
        return _keep_messages(system, lines, bounds, ~is_off, denied)

    lines, still_broken = lines_that_keep(to_middle=True)
    if still_broken:
        # lines that were moved less are nearer to those of their neighbours
        moved_less = lines_that_keep(to_middle=False)
        lines, still_broken = min((lines, still_broken), moved_less, key=lambda chosen: chosen[1])
    clocks = np.arange(count)
    line_values = np.stack([lines.offset_at(clocks, np.full(count, moment)) for moment in moments], axis=1)
    error = np.where(within, np.maximum(high - line_values, line_values - low), 0.0).max(axis=1)
    pieces = _describe_pieces(system, lines, reference, np.maximum(error, 0.0), counts)
    errors = _errors_of_pairs(system, pairs, (lowest, highest), moments, within, line_values)
    return Solution(pieces, still_broken, contradictions, tuple(sorted(separate)), errors)


@dataclass(frozen=True)
class _Graph:
    """Clocks, and what is known of the differences of two.

    Attributes:
        pairs: with messages.
        lowest: what their difference is at least at each moment, ns; shape (pairs, moments).
        highest: and at most.
        same: of clocks that are one.
        clocks: number of clocks.
    """

    pairs: Pairs
    lowest: Floats
    highest: Floats
    same: Edges
    clocks: int

    def label_components(self) -> Numbers:
        """The lowest clock that each is connected with."""
        first, second = np.concatenate([self.pairs.first, self.same.first]), np.concatenate([self.pairs.second, self.same.second])
        return find_components(self.clocks, first, second)

    def find_intervals(self, references: Numbers) -> tuple[Floats, Floats]:
        """Interval of each clock at each moment against its reference, of which a component has one: low and high."""
        pairs, same, moments = self.pairs, self.same, self.lowest.shape[1]
        low, high = np.full((self.clocks, moments), -np.inf), np.full((self.clocks, moments), np.inf)
        first = np.concatenate([pairs.first, pairs.second, same.first])
        second = np.concatenate([pairs.second, pairs.first, same.second])
        for moment in range(moments):
            at_most = np.concatenate([self.highest[:, moment], -self.lowest[:, moment], same.at_most])
            for loosened in _LOOSENED:
                edges = Edges(first, second, at_most + loosened)
                upper, lower = highest_offsets(edges, references, self.clocks), lowest_offsets(edges, references, self.clocks)
                if upper is not None and lower is not None:
                    high[:, moment], low[:, moment] = upper, lower
                    break
        return low, high


def _find_agreeing(system: ClockSystem, graph: _Graph, within: Choice, is_cut: Choice) -> tuple[Numbers, Choice]:
    """The reference of each clock, and which clocks do not agree with theirs as they were recorded.

    Of the lowest clock, the lowest that does not agree with it and so on, that is the reference which most others agree with.
    """
    component = graph.label_components()
    best = component.copy()
    is_off = np.ones(graph.clocks, bool)
    most = np.zeros(graph.clocks, np.int64)
    size = np.bincount(component, minlength=graph.clocks)[component]
    candidate = component.copy()
    is_tried = np.zeros(graph.clocks, bool)
    for _ in range(_CANDIDATES):
        low, high = graph.find_intervals(np.unique(candidate))
        recorded = (system.rough - system.rough[candidate]).astype(np.float64)[:, None]
        agrees = (~within | ((recorded >= low - _ROUNDED_NS) & (recorded <= high + _ROUNDED_NS))).all(axis=1) & ~is_cut
        agrees[np.unique(candidate)] = True
        agreeing = np.bincount(component, agrees, minlength=graph.clocks)[component].astype(np.int64)
        # that a few of many agree may be chance
        better = (agreeing > most) & ((most == 0) | (2 * agreeing > size))
        best, is_off, most = np.where(better, candidate, best), np.where(better, ~agrees, is_off), np.maximum(most, agreeing)
        is_tried |= agrees
        left = np.flatnonzero(~is_tried & ~is_cut)[::-1]
        if not len(left):
            break
        lowest_left = component.copy()
        lowest_left[component[left]] = left
        candidate = np.where(lowest_left[component] != component, lowest_left[component], best)
    return best, is_off


def _when_known(moments: Floats, first: Floats, last: Floats) -> Choice:
    """Which moments count for which clock: those while it had messages, or the nearest one; shape (clocks, moments)."""
    near = _NEAR * float(np.ptp(moments)) + 1e-9
    within = (moments >= first[:, None] - near) & (moments <= last[:, None] + near)
    nearest = np.abs(moments - ((first + last) / 2)[:, None]).argmin(axis=1)
    within[np.arange(len(first)), nearest] |= ~within.any(axis=1)
    return np.asarray(within)


def _choose_moments(system: ClockSystem, first: Floats, last: Floats) -> Floats:
    span = np.linspace(float(first.min()), float(last.max()), _MOMENTS)
    is_cut = system.clocks["is_cut"].to_numpy()
    more = np.unique(np.concatenate([first[is_cut], last[is_cut]]))
    return np.unique(np.concatenate([span, more[:: max(1, len(more) // _MOST_MOMENTS)]]))


def _number_hosts(names: np.ndarray, separate: set[str]) -> Numbers:
    """Clocks that are one: those of a host; every other is one of its own."""
    lowest: dict[str, int] = {}
    units = [lowest.setdefault(name, clock) if name and name not in separate else clock for clock, name in enumerate(names)]
    return np.array(units, np.int64)


def _edges_of_hosts(system: ClockSystem, names: np.ndarray, separate: set[str], error_ns: int) -> Edges:
    """Processes of one host read one clock."""
    units = _number_hosts(names, separate)
    follower = np.flatnonzero(units != np.arange(len(units)))
    leader = units[follower]
    distance = (system.rough[follower] - system.rough[leader]).astype(np.float64)
    return Edges(
        np.concatenate([follower, leader]),
        np.concatenate([leader, follower]),
        np.concatenate([distance, -distance]) + error_ns,
    )


def _explain_disagreement(pairs: Pairs, disagree: Choice, units: Numbers) -> Choice:
    """As few clocks as explain all pairs that disagree."""
    is_off = np.zeros(len(units), bool)
    first, second = units[pairs.first], units[pairs.second]
    left = disagree & (first != second)
    while left.any():
        counts = np.bincount(np.concatenate([first[left], second[left]]), minlength=len(units))
        unit = len(counts) - 1 - int(np.argmax(counts[::-1]))
        is_off |= units == unit
        left &= (first != unit) & (second != unit)
    return is_off


def _choose_lines(
    system: ClockSystem,
    moments: Floats,
    interval: tuple[Floats, Floats],
    within: Choice,
    life: tuple[Floats, Floats],
    *,
    to_middle: bool,
) -> Lines:
    """Lines of the slope that the middles of the intervals have, as high as makes collectives end together.

    Where that lies outside the intervals, the ends tell of something else than the clocks, and the lines are those in the middle
    (``to_middle``), which are off the least at most, or else the nearest ones. Where a level line keeps within the intervals,
    there is no reason to claim a drift.
    """
    low, high = interval
    with np.errstate(invalid="ignore"):
        middle, half = (high + low) / 2, (high - low) / 2
    is_bounded = within & np.isfinite(half)
    lines = fit_lines(moments, middle, np.where(is_bounded, half, np.inf), *life)
    mutual = system.parts.filter("is_awaited", "has_waited")
    clock = mutual["clock"].to_numpy()
    at = mutual["leave"].to_numpy()
    ends = mutual.select("message", "clock").with_columns(end=pl.Series(at + lines.offset_at(clock, at / 1e9)))
    later = compare_ends(ends, system.clocks.height)
    clocks = np.arange(system.clocks.height)
    line_values = np.stack([lines.offset_at(clocks, np.full(len(clocks), moment)) for moment in moments], axis=1)
    shift, _ = _raise_lines(line_values, interval, is_bounded, -later, to_middle=to_middle)
    # the rough offsets are the medians of the ends
    height, is_level = _raise_lines(np.zeros_like(line_values), interval, is_bounded, np.zeros_like(later), to_middle=to_middle)
    begin, end = (np.where(is_level, height, side + shift) for side in (lines.begin, lines.end))
    return Lines(lines.first, lines.last, begin, end)


def _raise_lines(
    line_values: Floats, interval: tuple[Floats, Floats], is_bounded: Choice, wanted: Floats, *, to_middle: bool
) -> tuple[Floats, Choice]:
    """By how much lines are to be raised, and which then keep within the intervals.

    Args:
        line_values: of each clock at each moment, ns, shape (clocks, moments).
        interval: low and high ends of the intervals there.
        is_bounded: which of them count.
        wanted: by how much each line is raised where that keeps within them, shape (clocks,).
        to_middle: whether the others come to the middle, rather than as near as may be.

    Returns:
        Arrays of shape (clocks,).
    """
    low, high = interval
    with np.errstate(invalid="ignore"):
        room_above, room_below = high - line_values, line_values - low
        highest, lowest = (np.where(is_bounded, room, -np.inf).max(axis=1) for room in (room_above, room_below))
        middle = (highest - lowest) / 2
    most, least = np.where(is_bounded, room_above, np.inf).min(axis=1), -np.where(is_bounded, room_below, np.inf).min(axis=1)
    fits = least <= most
    is_inside = (wanted >= least) & (wanted <= most)
    shift = np.where(fits, np.minimum(np.maximum(middle if to_middle else wanted, least), most), middle)
    return np.where(is_inside | ~is_bounded.any(axis=1), wanted, shift), fits


def _keep_messages(system: ClockSystem, lines: Lines, bounds: PairBounds, is_fixed: Choice, denied: Numbers) -> tuple[Lines, int]:
    """Lines on which no message is received before it was sent, and how many still are.

    Of large groups not every pair is among the bounds: what the lines break is added to them until they break nothing.
    """
    for _ in range(_ADDED):
        # as if times were not rounded, as far as that is possible
        lines, _ = keep_bounds(lines, bounds.tighten_by(system.resolution_ns + _WHOLE_NS), is_fixed, passes=_TRIED)
        lines, still_broken = keep_bounds(lines, bounds, is_fixed)
        more = system.broken_bounds(lines, denied)
        if not len(more):
            return lines, still_broken
        bounds = PairBounds.join_all([bounds, more])
    return lines, still_broken + len(more)


def _describe_pieces(system: ClockSystem, lines: Lines, reference: Numbers, error: Floats, messages: Numbers) -> pl.DataFrame:
    """The table ``PIECES``: lines against that of the reference, on the rank's own clock."""
    begin = lines.begin - lines.offset_at(reference, lines.first)
    end = lines.end - lines.offset_at(reference, lines.last)
    begin_ns = system.origin + np.round(lines.first * 1e9).astype(np.int64) + system.rough
    _, last, _ = system.message_span()
    is_known = np.isfinite(error)
    columns = {
        "rank": system.clock_ranks,
        "piece": system.clocks["piece"],
        "reference": system.clock_ranks[reference],
        "first_message_ns": begin_ns,
        "last_message_ns": system.origin + np.round(last * 1e9).astype(np.int64) + system.rough,
        "offset_ns": np.round(begin).astype(np.int64) - (system.rough - system.rough[reference]),
        "drift_ppm": (end - begin) / (lines.last - lines.first) / 1e3,
        "error_ns": pl.Series(np.round(np.where(is_known, error, 0.0)).astype(np.int64)).set(pl.Series(~is_known), None),
        "messages": messages,
    }
    return pl.DataFrame(columns, schema=PIECES).sort("rank", "piece")


def _errors_of_pairs(
    system: ClockSystem, pairs: Pairs, interval: tuple[Floats, Floats], moments: Floats, within: Choice, line_values: Floats
) -> PairErrors:
    """What the messages between two ranks alone say of the error of their difference, ns."""
    lowest, highest = interval
    difference = line_values[pairs.first] - line_values[pairs.second]
    counted = within[pairs.first] & within[pairs.second]
    with np.errstate(invalid="ignore"):
        farthest = np.maximum(highest - difference, difference - lowest)
    error = np.where(counted, farthest, 0.0).max(axis=1, initial=0.0)
    is_known = counted.any(axis=1) & np.isfinite(error)
    ranks = system.clock_ranks
    return PairErrors.of_pieces(ranks[pairs.first[is_known]], ranks[pairs.second[is_known]], error[is_known])
