"""Whether the timeline of a trace is laid out already, or not worth it: known without what lays timelines out."""

from __future__ import annotations

from pathlib import Path

from steplens.trace.building.extents import table_extents
from steplens.trace.trace import Trace

#: the first bytes of a file, which change with its layout
MAGIC = b"SLTLINE4"
#: how the names of files begin
NAME = "timeline_"
#: fewer events are laid out sooner than somebody notices
LEAST_EVENTS = 200_000


def seems_there(folder: Path) -> bool:
    """Whether the folder of a cache has a timeline of whatever tables."""
    return any(folder.glob(f"{NAME}*.bin"))


def may_be_missing(trace: Trace) -> bool:
    """Whether a trace needs a timeline that its cache does not seem to have; ``timeline_file`` knows whether one is whole."""
    if trace.kept is None or any(map(_has_layout, trace.kept.folder.glob(f"{NAME}*.bin"))):
        return False
    return sum(extent.rows for extent in table_extents(trace).values()) >= LEAST_EVENTS


def _has_layout(file: Path) -> bool:
    try:
        with file.open("rb") as handle:
            return handle.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
