"""What a window of the timeline looks like at a width in pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steplens.timeline.items import Items, events_as_items, merge_items
from steplens.timeline.pyramid import LAST_SHIFT, Level, Pyramid
from steplens.timeline.rows import Int64Array

#: an answer has no more items than this; a window that would need more is answered more coarsely
MOST_ITEMS = 400_000


@dataclass(frozen=True)
class Tile:
    """The items of a window.

    Attributes:
        start_ns, end_ns: what the items cover, from the origin: the window that was asked for, widened to whole buckets and one
            bucket more on the left, where a short event that reaches into the window may begin. Every event that overlaps the
            window is one of the items or counted in exactly one of them.
        shift: buckets are 2**shift ns wide.
        rows: rows of the timeline in the order asked for, shape (r,).
        offsets: first item of each of them, and the number of items, shape (r + 1,).
        items: sorted by (place of the row, start).
    """

    start_ns: int
    end_ns: int
    shift: int
    rows: Int64Array
    offsets: Int64Array
    items: Items


def shift_of(start_ns: int, end_ns: int, pixels: int) -> int:
    """The resolution at which a bucket is no wider than a pixel."""
    return min(max((max(end_ns - start_ns, 1) // max(pixels, 1)).bit_length() - 1, 0), LAST_SHIFT)


def build_tile(pyramid: Pyramid, rows: Sequence[int], start_ns: int, end_ns: int, pixels: int) -> Tile:
    """The items of some rows that overlap ``[start_ns, end_ns)`` at a width of ``pixels``.

    Args:
        pyramid: of a trace.
        rows: of its timeline.
        start_ns: from the origin.
        end_ns: from the origin.
        pixels: width of the window on the screen.
    """
    shift = shift_of(start_ns, end_ns, pixels)
    while True:
        drawn = _tile_at_shift(pyramid, rows, start_ns, end_ns, shift)
        if len(drawn.items.start) <= MOST_ITEMS or shift >= LAST_SHIFT:
            return drawn
        shift = min(shift + 2, LAST_SHIFT)


def _tile_at_shift(pyramid: Pyramid, rows: Sequence[int], start_ns: int, end_ns: int, shift: int) -> Tile:
    low = ((start_ns >> shift) - 1) << shift
    high = -(-end_ns >> shift) << shift
    level = pyramid.level_for(shift)
    row_events = [_find_items_inside(pyramid, level, row, low, high, shift) for row in rows]
    index = np.concatenate([np.empty(0, dtype=np.int64), *row_events])
    row = np.repeat(np.arange(len(rows)), [len(found) for found in row_events])
    timeline = pyramid.timeline
    items = events_as_items(timeline, index) if level.items is None else level.items.take(index)
    places = np.asarray(rows, dtype=np.int64)
    items, row = merge_items(items, row, shift, crossing=bool(timeline.crossing[places].any()))
    return Tile(low, high, shift, places, np.searchsorted(row, np.arange(len(rows) + 1)), items)


def _find_items_inside(pyramid: Pyramid, level: Level, row: int, low: int, high: int, shift: int) -> Int64Array:
    """Places of the items of a row that begin in ``[low, high)``, and of those before them that reach into it.

    Only an item that is wider than a bucket can begin before ``low`` and matter: what is shorter ends before the window.
    """
    first, last = int(level.offsets[row]), int(level.offsets[row + 1])
    start = pyramid.timeline.start if level.items is None else level.items.start
    begin, stop = first + np.searchsorted(start[first:last], [low, high], side="left")
    before = np.arange(first, begin) if pyramid.timeline.crossing[row] else np.arange(max(begin - 1, first), begin)
    items = events_as_items(pyramid.timeline, before) if level.items is None else level.items.take(before)
    reaching = (items.count == 1) & (items.end > low) & (items.busy >= 1 << shift)
    return np.concatenate((before[reaching], np.arange(begin, stop)))
