"""The events of a window: what overlaps it, what of each lies inside, what is its self time, and what it lies below."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steplens.timeline.layout import Lane, Timeline
from steplens.timeline.rows import Int64Array
from steplens.timeline.sources import DEVICE


@dataclass(frozen=True)
class NestedRow:
    """The events of one row that overlap a window.

    Attributes:
        events: their ids, shape (n,).
        inside_ns: how long each runs inside the window.
        self_ns: what of that is left without the events of the next row that lie inside it.
        parent: place among the events of the row above of the one that it lies inside, -1 where there is none.
    """

    events: Int64Array
    inside_ns: Int64Array
    self_ns: Int64Array
    parent: Int64Array


def overlapping_events(timeline: Timeline, row: int, start_ns: int, end_ns: int) -> Int64Array:
    """Ids of the events of a row that overlap ``[start_ns, end_ns)``; a moment overlaps where it lies inside."""
    low, high = _overlap_bounds(timeline, row, start_ns, end_ns)
    if not timeline.crossing[row]:
        return np.arange(low, high)
    is_inside = (timeline.end[low:high] > start_ns) | (timeline.start[low:high] >= start_ns)
    return np.flatnonzero(is_inside) + low


def _overlap_bounds(timeline: Timeline, row: int, start_ns: int, end_ns: int) -> tuple[int, int]:
    """First and behind the last of the events of a row that may overlap a window; where none cross, all between do."""
    first, last = int(timeline.offsets[row]), int(timeline.offsets[row + 1])
    start = timeline.start[first:last]
    high = int(np.searchsorted(start, end_ns, side="left"))
    if timeline.crossing[row]:
        return first, first + high
    # the events of a row end in the order in which they begin, unless they cross
    ends_later = int(np.searchsorted(timeline.end[first : first + high], start_ns, side="right"))
    begins_later = int(np.searchsorted(start[:high], start_ns, side="left"))
    return first + min(ends_later, begins_later), first + high


def nested_rows(timeline: Timeline, lane: Lane, start_ns: int, end_ns: int) -> Iterator[NestedRow]:
    """The rows of a lane from the outermost one on.

    An event lies inside one of the row above that begins no later and ends no earlier. Tasks of a device that run at once share
    a lane without one being a part of the other: nothing lies inside them.
    """
    calls = lane.source.group != DEVICE
    events, inside_ns, parent = _read_row(timeline, lane, 0, start_ns, end_ns)
    for depth in range(1, lane.rows + 1):
        events_below, inside_ns_below, parent_below = _read_row(timeline, lane, depth, start_ns, end_ns)
        self_ns = inside_ns
        if calls and len(events) and len(events_below):
            parent_below = _find_parents(timeline, events, events_below)
            placed = parent_below >= 0
            sums = np.bincount(parent_below[placed], weights=inside_ns_below[placed], minlength=len(events))
            # sums of nanoseconds are whole numbers far below 2**53
            self_ns = inside_ns - sums.astype(np.int64)
        yield NestedRow(events, inside_ns, self_ns, parent)
        events, inside_ns, parent = events_below, inside_ns_below, parent_below


def _read_row(
    timeline: Timeline, lane: Lane, depth: int, start_ns: int, end_ns: int
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Events of a row that overlap the window, their time inside, and no parents; nothing below the last row."""
    if depth >= lane.rows:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, empty
    events = overlapping_events(timeline, lane.first_row + depth, start_ns, end_ns)
    inside_ns = np.minimum(timeline.end[events], end_ns) - np.maximum(timeline.start[events], start_ns)
    return events, inside_ns, np.full(len(events), -1, dtype=np.int64)


def _find_parents(timeline: Timeline, above: Int64Array, below: Int64Array) -> Int64Array:
    place = np.searchsorted(timeline.start[above], timeline.start[below], side="right") - 1
    holds: npt.NDArray[np.bool_] = (place >= 0) & (timeline.end[above[np.maximum(place, 0)]] >= timeline.end[below])
    return np.where(holds, place, -1)
