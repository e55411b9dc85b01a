"""What happens at the end of a program whose profilers were not stopped."""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol

from steplens.collect.common import interrupts
from steplens.collect.handoff import handler


class StartedProfiler(Protocol):
    """A profiler object, as far as the end of the program is concerned."""

    def _end_of_program(self) -> None:
        """Close the window that is open."""

    def _remove_temporary(self) -> None:
        """Remove data that nobody asked to keep."""


#: profilers that were started, to be finished when the program ends
_started: weakref.WeakSet[StartedProfiler] = weakref.WeakSet()


def finish_at_exit(profiler: StartedProfiler) -> None:
    """Close the window of ``profiler`` when the program ends, if it is open then."""
    if not _started:
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)
    _started.add(profiler)


def _at_exit() -> None:
    """Close windows that are still open, then wait for the analyses, then remove data nobody asked to keep."""
    profilers = list(_started)
    try:
        with interrupts.hold_signals():
            for profiler in profilers:
                profiler._end_of_program()
        handler.wait_for_analyses()
    finally:
        for profiler in profilers:
            profiler._remove_temporary()
