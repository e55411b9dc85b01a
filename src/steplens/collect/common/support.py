"""What this machine can record, and whether the environment allows it."""

from __future__ import annotations

import functools
import os

from steplens.collect.ascend import frameworks, library
from steplens.collect.common import log
from steplens.options import AiCMetrics, ExportType, ProfilerActivity, ProfilerLevel

_OTHER_PROFILERS = ("PROFILER_SAMPLECONFIG", "PROFILING_MODE")


def supported_activities() -> set[ProfilerActivity]:
    """The activities that can be recorded on this machine, as far as the program has imported what they need."""
    import torch

    activities = {ProfilerActivity.CPU}
    if torch.cuda.is_available():
        activities.add(ProfilerActivity.CUDA)
    if frameworks.torch_npu_is_usable() and npu_problem() is None:
        activities.add(ProfilerActivity.NPU)
    return activities


def npu_problem() -> str | None:
    """Why the tasks of an NPU cannot be recorded here, in one sentence; None when CANN's profiling library is there."""
    try:
        library.load()
    except library.LibraryError as error:
        return str(error)
    return None


def supported_profiler_level() -> set[ProfilerLevel]:
    """The values of ``profiler_level``."""
    return set(ProfilerLevel)


def supported_ai_core_metrics() -> set[AiCMetrics]:
    """The values of ``aic_metrics``."""
    return set(AiCMetrics)


def supported_export_type() -> set[ExportType]:
    """The values of ``export_type``."""
    return set(ExportType)


def other_profilers() -> list[str]:
    """The environment variables that say that another profiler owns this process."""
    return [name for name in _OTHER_PROFILERS if os.environ.get(name)]


@functools.cache
def disabled_by_environment() -> bool:
    """Whether another profiler owns this process; asked once per process, and said once."""
    names = other_profilers()
    if names:
        log.warning(f"{' and '.join(names)} is set: another profiler is at work in this process, steplens records nothing.")
    return bool(names)
