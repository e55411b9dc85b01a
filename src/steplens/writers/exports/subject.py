"""What is exported: one trace and where it comes from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from steplens.common import rundir
from steplens.run import Run
from steplens.trace.trace import Trace

#: ends of names that say what a source is and not which one
_ENDS = re.compile(r"(_ascend_pt|\.gz|\.json|\.trace|\.pt|\.db)$")


@dataclass(frozen=True)
class Subject:
    """One trace to export.

    Attributes:
        trace: its tables.
        path: the run directory or file that was opened.
    """

    trace: Trace
    path: Path

    @property
    def name(self) -> str:
        """What the source is called without the endings that say what it is: ``trace.3`` of ``trace.3.pt.trace.json.gz``."""
        name = self.path.resolve().name or "trace"
        while (shorter := _ENDS.sub("", name)) and shorter != name:
            name = shorter
        return name


def list_subjects(source: Trace | Run) -> list[Subject]:
    """The traces of a source."""
    if isinstance(source, Run):
        return [Subject(trace, found.path) for found, trace in zip(source.sources, source.traces, strict=True)]
    path = source.source
    if path.parent.name == rundir.RAW_DIRECTORY:
        # the raw trace of a run directory
        path = path.parent.parent
    return [Subject(source, path)]
