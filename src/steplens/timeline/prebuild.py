"""Laying out the timeline of a trace when it is read, so that the first look at it is as quick as every other."""

from __future__ import annotations

from pathlib import Path

from steplens.timeline import presence, timeline_file
from steplens.timeline.layout import build_timeline
from steplens.timeline.pyramid import Pyramid
from steplens.timeline.sources import SOURCES
from steplens.timeline.time_origin import trace_origins
from steplens.trace.building.extents import table_extents
from steplens.trace.trace import Trace


def lay_out(trace: Trace, origin_ns: int | None = None) -> Path | None:
    """Keep the timeline of a trace beside its tables.

    Args:
        trace: one rank.
        origin_ns: Unix time from which its times count: what ``trace_origins`` says of all ranks; of this one alone by default.

    Returns:
        the file; None where it is there already, cannot be written, or where laying out takes no noticeable time.
    """
    if trace.kept is None or _count_lane_events(trace) < presence.LEAST_EVENTS or timeline_file.is_there(trace.kept):
        return None
    origin = trace_origins([trace])[0] if origin_ns is None else origin_ns
    return timeline_file.save_timeline(Pyramid(build_timeline(trace, origin)), trace.kept)


def _count_lane_events(trace: Trace) -> int:
    """Rows of the tables that become lanes."""
    tables = {source.table for source in SOURCES} - {""}
    return sum(extent.rows for table, extent in table_extents(trace).items() if table in tables)
