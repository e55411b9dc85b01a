"""Environment variables that say that another profiler owns this process."""

from __future__ import annotations

import functools
import os

from steplens.collect.common import log

_VARIABLES = ("PROFILER_SAMPLECONFIG", "PROFILING_MODE")


def variables_of_other_profilers() -> list[str]:
    """The environment variables that are set and say that another profiler owns this process."""
    return [name for name in _VARIABLES if os.environ.get(name)]


@functools.cache
def disabled_by_environment() -> bool:
    """Whether another profiler owns this process; asked once per process, and said once."""
    names = variables_of_other_profilers()
    if names:
        log.warning(f"{' and '.join(names)} is set: another profiler is at work in this process, steplens records nothing.")
    return bool(names)
