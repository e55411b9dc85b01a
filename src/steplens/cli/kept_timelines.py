"""What a command that read a large run leaves behind: its timelines laid out, so that ``steplens view`` shows them at once."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steplens.run import Run


def keep_timelines(run: Run) -> None:
    """Lay out the timelines that are not there yet, beside the tables of their traces; to be called when all is printed.

    It takes less than a tenth of what reading took, and nothing where a run is small or was laid out before.
    """
    from steplens.timeline.prebuild import lay_out
    from steplens.timeline.time_origin import trace_origins

    sys.stdout.flush()
    if all(trace.kept is None for trace in run.traces):
        return
    for trace, origin_ns in zip(run.traces, trace_origins(run.traces), strict=True):
        # the command has done what it was asked for; whoever shows the run is told what is wrong
        with contextlib.suppress(Exception):
            lay_out(trace, origin_ns)
