"""Where a name occurs on the timeline: how often on each lane, the next one from here, and all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from steplens.timeline.layout import Lane, Timeline
from steplens.timeline.rows import Int64Array


def find_events(timeline: Timeline, text: str, *, whole: bool) -> Int64Array:
    """Ids of the events whose name is ``text`` (whole) or holds it, in either case of letters."""
    folded = text.casefold()
    names = (name == text if whole else folded in name.casefold() for name in timeline.names)
    is_match: npt.NDArray[np.bool_] = np.fromiter(names, dtype=bool, count=len(timeline.names))
    return np.flatnonzero(is_match[timeline.name]) if is_match.any() else np.empty(0, dtype=np.int64)


def find_on_lanes(timeline: Timeline, text: str, lanes: Sequence[Lane], *, whole: bool) -> tuple[Int64Array, dict[int, int]]:
    """Such events that lie on some lanes, in order of lane, and how many each of the lanes has; see ``find_events``."""
    events = find_events(timeline, text, whole=whole)
    parts = []
    counts = {}
    for lane in sorted(lanes, key=lambda lane: lane.first_row):
        bounds = timeline.offsets[[lane.first_row, lane.first_row + lane.rows]]
        low, high = np.searchsorted(events, bounds, side="left")
        parts.append(events[low:high])
        counts[lane.id] = int(high - low)
    return np.concatenate([np.empty(0, dtype=np.int64), *parts]), counts


def neighbouring_event(timeline: Timeline, events: Int64Array, from_ns: int, from_event: int, *, forward: bool) -> int | None:
    """The event that comes next (or before) in order of start, then of id; None behind the last one.

    Args:
        timeline: of a trace.
        events: ids to choose from.
        from_ns: time to start from.
        from_event: of the events at just this time those with a larger (before: smaller) id follow; -1 takes all of them when
            going forward.
        forward: whether to look for a later one.
    """
    start = timeline.start[events]
    tied = (start == from_ns) & ((events > from_event) if forward else (events < from_event))
    behind = (start > from_ns) if forward else (start < from_ns)
    left = events[behind | tied]
    if not len(left):
        return None
    times = timeline.start[left]
    nearest = left[times == (times.min() if forward else times.max())]
    return int(nearest.min() if forward else nearest.max())


def page_of_events(timeline: Timeline, events: Int64Array, by: str, offset: int, limit: int) -> list[dict[str, Any]]:
    """A page of events: in order of ``start``, or the longest first (``duration``)."""
    duration = timeline.end[events] - timeline.start[events]
    order = np.argsort(timeline.start[events] if by == "start" else -duration, kind="stable")[offset : offset + limit]
    return [brief_of_event(timeline, int(event)) for event in events[order]]


def brief_of_event(timeline: Timeline, event: int) -> dict[str, Any]:
    """One event in short: id, name, lane, depth, start_ns and end_ns (from the origin)."""
    lane = timeline.lane_of(event)
    row = int(np.searchsorted(timeline.offsets, event, side="right")) - 1
    return {
        "event": event,
        "name": timeline.names[timeline.name[event]],
        "lane": lane.id,
        "depth": row - lane.first_row,
        "start_ns": int(timeline.start[event]),
        "end_ns": int(timeline.end[event]),
    }
