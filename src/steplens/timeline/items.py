"""Items of the timeline: single events, and events that are too short to be seen alone, together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from steplens.timeline.layout import Timeline
from steplens.timeline.rows import Int64Array

BoolArray = npt.NDArray[np.bool_]
UInt32Array = npt.NDArray[np.uint32]

#: up to this resolution the length of a short event fits into half of a 64-bit number
_NARROW_SHIFT = 32


@dataclass(frozen=True)
class Items:
    """Items of one or more rows, sorted by (row, start); all of shape (n,).

    Attributes:
        start, end: ns from the origin: of the event, or the first start and the last end of a bucket's events.
        busy: sum of their durations, ns.
        peak: duration of the longest of them, ns.
        count: how many events it stands for.
        longest: id of the longest of them; of several the first.
        name: of the longest, place in ``Timeline.names``.
    """

    start: Int64Array
    end: Int64Array
    busy: Int64Array
    peak: Int64Array
    count: UInt32Array
    longest: UInt32Array
    name: UInt32Array

    def take(self, index: Int64Array | slice) -> Items:
        """The items at some places."""
        return Items(*(column[index] for column in self.columns))

    @property
    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """All of them, in order."""
        return tuple(getattr(self, field.name) for field in fields(self))

    @staticmethod
    def joined(parts: Sequence[Items]) -> Items:
        """Several of them, one after the other."""
        return Items(*(np.concatenate(columns) for columns in zip(*(part.columns for part in parts), strict=True)))


#: types of the columns
TYPES: dict[str, type[np.signedinteger[Any] | np.unsignedinteger[Any]]] = {
    "start": np.int64, "end": np.int64, "busy": np.int64, "peak": np.int64,
    "count": np.uint32, "longest": np.uint32, "name": np.uint32,
}  # fmt: skip


def events_as_items(timeline: Timeline, index: Int64Array | slice) -> Items:
    """Events as items of their own."""
    start, end = timeline.start[index], timeline.end[index]
    duration = end - start
    ids = np.arange(index.start, index.stop) if isinstance(index, slice) else index
    count = np.ones(len(start), dtype=np.uint32)
    return Items(start, end, duration, duration, count, ids.astype(np.uint32), timeline.name[index])


def mark_item_starts(items: Items, row: Int64Array, shift: int) -> BoolArray:
    """Which items are not merged with the one before them, where the events of a row follow one another.

    There the short events of a bucket are neighbours: a long one between two of them would have ended in a later bucket.
    """
    alone = _is_long_event(items, shift)
    bucket = items.start >> shift
    first = np.ones(len(row), dtype=bool)
    first[1:] = (bucket[1:] != bucket[:-1]) | (row[1:] != row[:-1]) | alone[1:] | alone[:-1]
    return first


def _is_long_event(items: Items, shift: int) -> BoolArray:
    alone: BoolArray = (items.count == 1) & (items.busy >= 1 << shift)
    return alone


def merge_items(items: Items, row: Int64Array, shift: int, *, crossing: bool) -> tuple[Items, Int64Array]:
    """Items at a coarser resolution, and their rows.

    Args:
        items: of resolutions no coarser than ``shift``, sorted by (row, start).
        row: of each item.
        shift: of the result.
        crossing: whether two events of a row may be at the same time.
    """
    if crossing:
        return _merged_across(items, row, shift)
    place = np.flatnonzero(mark_item_starts(items, row, shift))
    if len(place) == len(row):
        return items, row
    return _merge_stretches(items, place, shift), row[place]


def _merge_stretches(items: Items, place: Int64Array, shift: int) -> Items:
    """One item for each stretch of items that begins at one of the places."""
    leading = _places_of_longest(items.peak, place, shift)
    return Items(
        items.start[place],
        np.maximum.reduceat(items.end, place),
        np.add.reduceat(items.busy, place),
        items.peak[leading],
        np.add.reduceat(items.count, place, dtype=np.uint32),
        items.longest[leading],
        items.name[leading],
    )


def _places_of_longest(peak: Int64Array, place: Int64Array, shift: int) -> Int64Array:
    """The place of the first of the largest values of each stretch."""
    if shift <= _NARROW_SHIFT and len(peak) < 1 << 32:
        # the length above, the distance from the end below: one maximum finds both; what does not fit is alone in its stretch
        behind = np.arange(len(peak) - 1, -1, -1, dtype=np.uint64)
        most = np.maximum.reduceat((peak.astype(np.uint64) << np.uint64(32)) | behind, place)
        place_of: Int64Array = len(peak) - 1 - (most & np.uint64((1 << 32) - 1)).astype(np.int64)
        return place_of
    size = np.diff(np.r_[place, len(peak)])
    largest = np.flatnonzero(peak == np.repeat(np.maximum.reduceat(peak, place), size))
    longest: Int64Array = largest[np.searchsorted(largest, place)]
    return longest


def _merged_across(items: Items, row: Int64Array, shift: int) -> tuple[Items, Int64Array]:
    """The same where long events may lie between the short ones of a bucket."""
    alone = _is_long_event(items, shift)
    alone_at, short = np.flatnonzero(alone), np.flatnonzero(~alone)
    if not len(short):
        return items, row
    first = np.flatnonzero(mark_item_starts(items.take(short), row[short], shift))
    both = Items.joined([items.take(alone_at), _merge_stretches(items.take(short), first, shift)])
    # both are in order; a stable sort by place merges them
    place = np.concatenate((alone_at, short[first]))
    order = np.argsort(place, kind="stable")
    return both.take(order), row[place[order]]
