"""Profiles a training with MindSpore on a CPU, under the interfaces of MindSpore's own profilers.

    from steplens.mindspore import Profiler          # in place of: from mindspore import Profiler

Where ``MS_PROFILER_OPTIONS`` is to count, import this before MindSpore, which would start its own profiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steplens.mindspore import environment, mstx
from steplens.mindspore.experimental import _ExperimentalConfig
from steplens.mindspore.names import AicoreMetrics, ExportType, HostSystem, ProfilerActivity, ProfilerLevel
from steplens.mindspore.profile import analyse, profile, tensorboard_trace_handler
from steplens.mindspore.profiler import Profiler
from steplens.mindspore.schedule import ProfilerAction, schedule

if TYPE_CHECKING:
    from steplens.mindspore.dynamic import DynamicProfilerMonitor

__all__ = [
    "AicoreMetrics",
    "DynamicProfilerMonitor",
    "ExportType",
    "HostSystem",
    "Profiler",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilerLevel",
    "_ExperimentalConfig",
    "analyse",
    "mstx",
    "profile",
    "schedule",
    "tensorboard_trace_handler",
]

environment.on_import()


def __getattr__(name: str) -> Any:
    """``DynamicProfilerMonitor`` is one of MindSpore's callbacks, so MindSpore is imported when it is asked for."""
    if name == "DynamicProfilerMonitor":
        from steplens.mindspore.dynamic import DynamicProfilerMonitor

        return DynamicProfilerMonitor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
