"""How much memory each category held over time, from the events of ``analysis.memory.memory_categories``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.memory.memory_categories import BEFORE
from steplens.formats.memory_categories import CATEGORIES

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Timeline:
    """Sizes per category on one device.

    Attributes:
        time_us: whole µs since the Unix epoch, shape (n,). Events of one µs are one point; what was there before the window
            is a point of its own at the time of the first event.
        sizes: bytes per category after each point, shape (n, 8); columns as in ``CATEGORIES``.
    """

    time_us: Int64Array
    sizes: Int64Array


def category_timeline(events: pl.DataFrame) -> Timeline:
    """Add up the events of one device.

    Args:
        events: rows of ``memory_categories.EVENTS`` of one device, sorted by time.
    """
    time_ns = events["time_ns"].to_numpy()
    before = time_ns == BEFORE
    time = np.where(before, BEFORE, time_ns // 1000)
    last = np.flatnonzero(np.r_[time[1:] != time[:-1], True]) if len(time) else np.empty(0, dtype=np.int64)
    change = np.zeros((len(time), len(CATEGORIES)), dtype=np.int64)
    change[np.arange(len(time)), events["category"].to_numpy()] = events["bytes"].to_numpy()
    sizes = np.cumsum(change, axis=0)[last]
    points = time[last]
    if len(points) and points[0] == BEFORE:
        points = points.copy()
        points[0] = points[1] if len(points) > 1 else 0
    return Timeline(points.astype(np.int64), sizes)
