"""Profiles a training with MindSpore on a CPU, under the interfaces of MindSpore's own profilers.

    from steplens.mindspore import Profiler          # in place of: from mindspore import Profiler

Where ``MS_PROFILER_OPTIONS`` is to count, import this before MindSpore, which would start its own profiler. The public names are
loaded on first use; ``DynamicProfilerMonitor`` is one of MindSpore's callbacks, so MindSpore is imported when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from steplens.collect.mindspore.interfaces import environment

if TYPE_CHECKING:
    from steplens.collect.mindspore.dynamic.monitor import DynamicProfilerMonitor
    from steplens.collect.mindspore.interfaces.experimental import _ExperimentalConfig
    from steplens.collect.mindspore.interfaces.names import AicoreMetrics, ExportType, HostSystem, ProfilerActivity, ProfilerLevel
    from steplens.collect.mindspore.interfaces.profile import analyse, profile, tensorboard_trace_handler
    from steplens.collect.mindspore.interfaces.profiler import Profiler
    from steplens.collect.mindspore.interfaces.schedule import ProfilerAction, schedule
    from steplens.mindspore import mstx

#: module below ``steplens.collect.mindspore`` -> the public names that it defines
_EXPORTS = {
    "dynamic.monitor": ("DynamicProfilerMonitor",),
    "interfaces.experimental": ("_ExperimentalConfig",),
    "interfaces.names": ("AicoreMetrics", "ExportType", "HostSystem", "ProfilerActivity", "ProfilerLevel"),
    "interfaces.profile": ("analyse", "profile", "tensorboard_trace_handler"),
    "interfaces.profiler": ("Profiler",),
    "interfaces.schedule": ("ProfilerAction", "schedule"),
}

# spelled out for type checkers; a test compares it with the table
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
    if name in ("mstx", "r2_2"):
        return importlib.import_module(f"steplens.mindspore.{name}")
    for module, names in _EXPORTS.items():
        if name in names:
            value = globals()[name] = getattr(importlib.import_module(f"steplens.collect.mindspore.{module}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "r2_2"})
