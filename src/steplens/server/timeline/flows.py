"""Arrows between events: from a launch to its task, and those that the source recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from steplens.server.timeline.nested import overlapping_events
from steplens.timeline.layout import Timeline
from steplens.trace.trace import Trace

LAUNCH = "launch"


@dataclass(frozen=True)
class Flows:
    """All arrows of a trace.

    Attributes:
        frame: kind, from_lane, from_ns, to_lane, to_ns (from the origin).
        unplaced: arrows whose ends lie on no lane.
    """

    frame: pl.DataFrame
    unplaced: int


_COLUMNS = {"kind": pl.String, "from_lane": pl.Int64, "from_ns": pl.Int64, "to_lane": pl.Int64, "to_ns": pl.Int64}


def find_flows(trace: Trace, timeline: Timeline) -> Flows:
    """Find the lanes of all arrows.

    A task's arrow starts on the thread of the operator that launched it, at the start of the runtime call, and ends where the
    task starts; a call of the CPU is its own task and has none. Recorded arrows that end on a device are left out: they say
    the same.
    """
    threads = _lanes_by_key(timeline, "operators", ("pid", "tid"))
    streams = _lanes_by_key(timeline, "kernels", ("device", "stream"))
    calls = trace.required("ops").select(op="id", pid="pid", tid="tid").collect()
    tasks = trace.required("kernels").select("op", "device", "stream", "launch_ns", "start_ns").drop_nulls(["launch_ns", "op"])
    launched = (
        tasks.collect()
        .join(calls, on="op", how="inner")
        .join(threads.rename({"lane": "from_lane"}), on=["pid", "tid"], how="inner", nulls_equal=True)
        .join(streams.rename({"lane": "to_lane"}), on=["device", "stream"], how="inner", nulls_equal=True)
        .select(
            pl.lit(LAUNCH).alias("kind"),
            "from_lane",
            pl.col("launch_ns").alias("from_ns"),
            "to_lane",
            pl.col("start_ns").alias("to_ns"),
        )
    )
    recorded = trace.required("flows").with_columns(pl.col("kind").cast(pl.String)).collect()
    placed = recorded.join(
        threads.select(from_pid="pid", from_tid="tid", from_lane="lane"), on=["from_pid", "from_tid"], how="inner"
    ).join(threads.select(to_pid="pid", to_tid="tid", to_lane="lane"), on=["to_pid", "to_tid"], how="inner")
    frame = pl.concat([part.select(pl.col(name).cast(dtype) for name, dtype in _COLUMNS.items()) for part in (launched, placed)])
    origin = timeline.origin_ns
    frame = frame.drop_nulls(["from_ns", "to_ns"]).with_columns(pl.col("from_ns") - origin, pl.col("to_ns") - origin)
    return Flows(frame, recorded.height - placed.height)


def _lanes_by_key(timeline: Timeline, source: str, keys: tuple[str, ...]) -> pl.DataFrame:
    """The keys of the lanes of a source, with the lane."""
    rows = [{**{key: lane.key[key] for key in keys}, "lane": lane.id} for lane in timeline.lanes if lane.source.id == source]
    types = {"device": pl.Int32}
    return pl.DataFrame(rows, schema={**{key: types.get(key, pl.Int64) for key in keys}, "lane": pl.Int64})


def in_window(
    found: Flows, timeline: Timeline, start_ns: int, end_ns: int, limit: int, event: int | None = None
) -> tuple[list[dict[str, Any]], int]:
    """The arrows that overlap a window in time, the longest first, at most ``limit``; and how many there are.

    With ``event`` only those that begin or end on its lane while it runs. Each end names the innermost event of its lane at that
    time, where there is one.
    """
    early, late = pl.min_horizontal("from_ns", "to_ns"), pl.max_horizontal("from_ns", "to_ns")
    crossing = found.frame.filter((early < end_ns) & (late >= start_ns))
    if event is not None:
        lane, start, end = timeline.lane_of(event).id, int(timeline.start[event]), int(timeline.end[event])
        sides = ("from", "to")
        crossing = crossing.filter(
            pl.any_horizontal((pl.col(f"{side}_lane") == lane) & pl.col(f"{side}_ns").is_between(start, end) for side in sides)
        )
    longest = crossing.with_columns(length=late - early).sort("length", "from_ns", descending=[True, False]).head(limit)
    arrows = []
    for kind, from_lane, from_ns, to_lane, to_ns, _ in longest.iter_rows():
        ends = {"start": _arrow_end(timeline, from_lane, from_ns), "end": _arrow_end(timeline, to_lane, to_ns)}
        arrows.append({"kind": kind, **ends})
    return arrows, crossing.height


def _arrow_end(timeline: Timeline, number: int, time_ns: int) -> dict[str, Any]:
    lane = timeline.lanes[number]
    for depth in reversed(range(lane.rows)):
        events = overlapping_events(timeline, lane.first_row + depth, time_ns, time_ns + 1)
        if len(events):
            return {"lane": number, "time_ns": time_ns, "event": int(events[0]), "depth": depth}
    return {"lane": number, "time_ns": time_ns, "event": None, "depth": 0}
