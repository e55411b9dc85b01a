"""The events of a timeline at coarser and coarser resolutions, so that a screen never costs more than it shows.

At *shift* s the time line is cut into buckets of 2**s ns. An event that takes at least a bucket's width is an item of its
own; the shorter ones that begin in a bucket of a row are one item together. So an item is exact where ``count`` is 1, and no
event is ever lost: the counts of the items of a resolution add up to the number of events.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from steplens.timeline.items import Items, events_as_items, mark_item_starts, merge_items
from steplens.timeline.layout import Timeline
from steplens.timeline.rows import WORKERS, Int64Array

#: a resolution is kept when it has this many times fewer items than the last one that was kept
_FEWER = 4
_LOOKED_AT = 100_000
_PIECES_LOOKED_AT = 16
#: items that a thread merges at a time: few enough for the processor's cache
_PIECE = 1 << 17
#: wider than any trace
LAST_SHIFT = 62


@dataclass(frozen=True)
class Level:
    """One kept resolution.

    Attributes:
        shift: its buckets are 2**shift ns wide.
        offsets: first item of each row, and the number of items, shape (rows + 1,).
        items: see ``Items``; None for the events themselves.
    """

    shift: int
    offsets: Int64Array
    items: Items | None


class Pyramid:
    """A timeline with its kept resolutions.

    Args:
        timeline: the events.
        levels: what was kept of them; made here by default.

    Attributes:
        timeline: the events.
        levels: from fine to coarse; the first holds the events themselves.
    """

    def __init__(self, timeline: Timeline, levels: Sequence[Level] | None = None) -> None:
        self.timeline = timeline
        self.levels = [Level(-1, timeline.offsets, None), *(_build_levels(timeline) if levels is None else levels)]

    def level_for(self, shift: int) -> Level:
        """The coarsest kept resolution that is as fine as ``shift`` or finer."""
        return next(level for level in reversed(self.levels) if level.shift <= shift)

    @property
    def size_bytes(self) -> int:
        """Memory of the timeline and of all resolutions; what is mapped from a file is the system's to forget."""
        columns = [*self.timeline.columns, *(column for level in self.levels if level.items for column in level.items.columns)]
        return sum(column.nbytes for column in columns if not isinstance(column.base, np.memmap))


def _build_levels(timeline: Timeline) -> list[Level]:
    levels = []
    level = Level(-1, timeline.offsets, None)
    rows = len(timeline.offsets) - 1
    shift = -1
    with ThreadPoolExecutor(WORKERS) as threads:
        while level.offsets[-1] > rows and (shift := _next_shift(timeline, level, shift)) <= LAST_SHIFT:
            pieces = _split_into_pieces(level.offsets, timeline)
            # some pieces tell whether a level is worth it, as all of them would
            some = pieces[:: -(-len(pieces) // _PIECES_LOOKED_AT)]
            left = sum(threads.map(lambda piece: _count_merged_items(timeline, level, shift, *piece), some))  # noqa: B023
            if left * _FEWER <= sum(high - low for low, high in some):
                level = _coarsen_level(timeline, level, shift, pieces, threads)
                levels.append(level)
    return levels


def _coarsen_level(
    timeline: Timeline, level: Level, shift: int, pieces: list[tuple[int, int]], threads: ThreadPoolExecutor
) -> Level:
    """A level at a coarser resolution."""
    borders = [_find_item_border(timeline, level, shift, low) for low, _ in pieces] + [int(level.offsets[-1])]
    whole = [piece for piece in itertools.pairwise(borders) if piece[0] < piece[1]]
    made = list(threads.map(lambda piece: _merge_piece(timeline, level, shift, *piece), whole))
    items = Items.joined([part for part, _ in made])
    first = np.concatenate([np.zeros(0, dtype=np.int64), *(row for _, row in made)])
    return Level(shift, np.searchsorted(first, np.arange(len(level.offsets))), items)


def _split_into_pieces(offsets: Int64Array, timeline: Timeline) -> list[tuple[int, int]]:
    """The items in pieces; a row whose events cross is in one piece."""
    pieces = []
    low = 0
    crossing = np.flatnonzero(timeline.crossing)
    stops = [*((int(offsets[row]), int(offsets[row + 1])) for row in crossing), (int(offsets[-1]), int(offsets[-1]))]
    for start, stop in stops:
        pieces += [(place, min(place + _PIECE, start)) for place in range(low, start, _PIECE)]
        if stop > start:
            pieces.append((start, stop))
        low = stop
    return pieces


def _items_in_range(timeline: Timeline, level: Level, low: int, high: int) -> tuple[Items, Int64Array]:
    """The items ``[low, high)`` of a level, and their rows."""
    items = events_as_items(timeline, slice(low, high)) if level.items is None else level.items.take(slice(low, high))
    first, last = np.searchsorted(level.offsets, [low, high - 1], side="right") - 1
    stops = np.clip(level.offsets[first : last + 2], low, high)
    row = np.repeat(np.arange(first, last + 1), stops[1:] - stops[:-1])
    return items, row


def _count_merged_items(timeline: Timeline, level: Level, shift: int, low: int, high: int) -> int:
    """Items that are left of a piece; one that reaches beyond it counts twice."""
    return int(np.count_nonzero(mark_item_starts(*_items_in_range(timeline, level, low, high), shift)))


def _find_item_border(timeline: Timeline, level: Level, shift: int, place: int) -> int:
    """The first item from a place on that is not merged with the one before it."""
    if place == 0:
        return 0
    last = int(level.offsets[-1])
    width = 64
    while True:
        stop = min(place + width, last)
        borders = np.flatnonzero(mark_item_starts(*_items_in_range(timeline, level, place - 1, stop), shift)[1:])
        if len(borders):
            return place + int(borders[0])
        if stop == last:
            return last
        width *= 8


def _merge_piece(timeline: Timeline, level: Level, shift: int, low: int, high: int) -> tuple[Items, Int64Array]:
    items, row = _items_in_range(timeline, level, low, high)
    return merge_items(items, row, shift, crossing=bool(timeline.crossing[row[0]]) or bool(timeline.crossing[row[-1]]))


def _next_shift(timeline: Timeline, level: Level, shift: int) -> int:
    """The finest resolution after ``shift`` that may have as few items as the next level needs.

    All but a quarter of the items have to share the bucket of the one before them, so they begin less than a bucket later.
    """
    start = timeline.start if level.items is None else level.items.start
    count = len(start)
    # some of them tell enough: a level more or less costs little
    look = np.arange(1, count) if count <= _LOOKED_AT else np.random.default_rng(0).integers(1, count, _LOOKED_AT)
    same = ~np.isin(look, level.offsets)
    apart = (start[look] - start[look - 1])[same]
    place = len(look) - len(look) // _FEWER - 1
    if place >= len(apart):
        return LAST_SHIFT + 1
    return max(int(np.partition(apart, place)[place]).bit_length(), shift + 1)
