"""Intervals of many groups at once: every group has a stretch of one time line, so that one pass handles all of them."""

from __future__ import annotations

import numpy as np
import polars as pl

from steplens.analysis.tools.overlap import Int64Array, Intervals, merge_intervals

#: no number of a step
_NO_STEP = -(1 << 63)
#: later than any time
_NEVER = (1 << 63) - 1


class GroupedTimeline:
    """A time line on which every step has a stretch of its own, so that one pass handles the intervals of all steps.

    Time t of group g lies at ``t - origin + g * stretch``; a stretch is longer than everything together, so the
    intervals of different steps never meet, even where a task runs on into the next step.
    """

    def __init__(self, frames: list[pl.DataFrame], groups: int) -> None:
        starts = [int(frame["start_ns"].min()) for frame in frames if frame.height]  # type: ignore[arg-type]
        ends = [int(frame["end_ns"].max()) for frame in frames if frame.height]  # type: ignore[arg-type]
        self.origin = min(starts, default=0)
        self.stretch = max(ends, default=0) - self.origin + 1
        self.groups = groups

    def intervals(self, frame: pl.DataFrame, steps: pl.Series) -> Intervals:
        """The intervals of the rows of a frame, each in the stretch of its step's place in ``steps`` (or in the only one's)."""
        start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
        if steps.null_count():
            return merge_intervals(start - self.origin, end - self.origin)
        if not len(steps):
            return merge_intervals(start[:0], end[:0])
        ids = steps.to_numpy()
        order = np.argsort(ids, kind="stable")
        step_numbers = frame["step"].fill_null(_NO_STEP).to_numpy()
        group = order[np.maximum(np.searchsorted(ids[order], step_numbers, side="right") - 1, 0)]
        keep = ids[group] == step_numbers
        offset = group * self.stretch - self.origin
        return merge_intervals((start + offset)[keep], (end + offset)[keep])

    def _group_borders(self, merged: Intervals) -> tuple[Int64Array, Int64Array]:
        """Where in a merged set every group begins and ends."""
        borders = np.searchsorted(merged.start, np.arange(self.groups + 1) * self.stretch)
        return borders[:-1], borders[1:]

    def lengths(self, merged: Intervals) -> Int64Array:
        """Total length per group, ns."""
        first, behind = self._group_borders(merged)
        total = np.r_[0, np.cumsum(merged.end - merged.start)]
        lengths: Int64Array = total[behind] - total[first]
        return lengths

    def bounds(self, *sets: Intervals) -> tuple[Int64Array, Int64Array]:
        """First start and last end per group in any of the merged sets, as Unix ns; 0 and 0 for a group without intervals."""
        start, end = np.full(self.groups, _NEVER), np.full(self.groups, -_NEVER)
        for merged in sets:
            first, behind = self._group_borders(merged)
            is_bound = behind > first
            back = self.origin - np.arange(self.groups)[is_bound] * self.stretch
            start[is_bound] = np.minimum(start[is_bound], merged.start[first[is_bound]] + back)
            end[is_bound] = np.maximum(end[is_bound], merged.end[behind[is_bound] - 1] + back)
        empty = start == _NEVER
        return np.where(empty, 0, start), np.where(empty, 0, end)
