"""What the overlap analysis of an Ascend timeline knows and its events do not: communication without an operation."""

from __future__ import annotations

import numpy as np
import polars as pl

from steplens.trace.health import COMMUNICATION_VOLUME, INFO, HealthLog
from steplens.trace.nesting import Int64Array
from steplens.trace.schema import COLLECTIVE, NAME

LANE = "Communication"

#: lanes and operations are rounded apart; a shorter rest is no communication
_ROUNDING_NS = 2


def unnamed_communication(operations: pl.DataFrame, overlap: pl.DataFrame, health: HealthLog) -> pl.DataFrame:
    """Rows of ``communication`` for times at which a device communicates and no operation says what.

    Args:
        operations: communication operations: device, start_ns, end_ns; may be empty.
        overlap: lanes of the overlap analysis: name, device, start_ns, end_ns; may be empty.
        health: gets their number.
    """
    lanes = overlap.filter(overlap["name"].cast(pl.String) == LANE) if overlap.height else overlap
    rows = []
    for (device,), part in lanes.partition_by("device", as_dict=True).items() if lanes.height else ():
        known = operations.filter(operations["device"] == device) if operations.height else part.clear()
        start, end = _outside(*_columns(part), *_columns(known))
        rows.append(pl.DataFrame({"start_ns": start, "end_ns": end}).with_columns(device=pl.lit(device, dtype=pl.Int32)))
    found = pl.concat(rows).filter(pl.col("end_ns") - pl.col("start_ns") > _ROUNDING_NS) if rows else pl.DataFrame()
    if not found.height:
        return pl.DataFrame()
    message = "stretches of communication are no part of any operation, so nothing says what was sent"
    health.add("unnamed_communication", INFO, found.height, message, COMMUNICATION_VOLUME)
    return found.with_columns(name=pl.lit(LANE, dtype=NAME), kind=pl.lit(COLLECTIVE, dtype=NAME))


def _columns(frame: pl.DataFrame) -> tuple[Int64Array, Int64Array]:
    return frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()


def _outside(start: Int64Array, end: Int64Array, other_start: Int64Array, other_end: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The stretches inside one of the first intervals and outside all of the others, in order."""
    time = np.concatenate((start, end, other_start, other_end))
    inside = np.repeat([1, -1, 0, 0], [len(start), len(end), len(other_start), len(other_end)])
    covered = np.repeat([0, 0, 1, -1], [len(start), len(end), len(other_start), len(other_end)])
    order = np.argsort(time, kind="stable")
    time = time[order]
    free = (np.cumsum(inside[order]) > 0) & (np.cumsum(covered[order]) <= 0)
    # from each border to the next one; borders at the same time leave nothing between them
    stretch = np.flatnonzero(free[:-1] & (time[1:] > time[:-1])) if len(time) else np.empty(0, dtype=np.int64)
    # neighbours join, unless they only meet
    first = np.r_[True, time[stretch[1:]] != time[stretch[:-1] + 1]] if len(stretch) else np.empty(0, dtype=bool)
    last = np.r_[first[1:], True] if len(stretch) else first
    return time[stretch[first]], time[stretch[last] + 1]
