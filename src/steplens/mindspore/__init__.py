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
    from steplens.collect.mindspore.dynamic.monitor import DynamicProfilerMonitor as DynamicProfilerMonitor
    from steplens.collect.mindspore.interfaces.experimental import _ExperimentalConfig as _ExperimentalConfig
    from steplens.collect.mindspore.interfaces.names import AicoreMetrics as AicoreMetrics
    from steplens.collect.mindspore.interfaces.names import ExportType as ExportType
    from steplens.collect.mindspore.interfaces.names import HostSystem as HostSystem
    from steplens.collect.mindspore.interfaces.names import ProfilerActivity as ProfilerActivity
    from steplens.collect.mindspore.interfaces.names import ProfilerLevel as ProfilerLevel
    from steplens.collect.mindspore.interfaces.profile import analyse as analyse
    from steplens.collect.mindspore.interfaces.profile import profile as profile
    from steplens.collect.mindspore.interfaces.profile import tensorboard_trace_handler as tensorboard_trace_handler
    from steplens.collect.mindspore.interfaces.profiler import Profiler as Profiler
    from steplens.collect.mindspore.interfaces.schedule import ProfilerAction as ProfilerAction
    from steplens.collect.mindspore.interfaces.schedule import schedule as schedule
    from steplens.mindspore import mstx as mstx
    from steplens.mindspore import r2_2 as r2_2

#: public modules, imported when they are first used
_MODULES = ("mstx", "r2_2")

#: public name -> the module below ``steplens.collect.mindspore`` that defines it
_EXPORTS = {
    "AicoreMetrics": "interfaces.names",
    "DynamicProfilerMonitor": "dynamic.monitor",
    "ExportType": "interfaces.names",
    "HostSystem": "interfaces.names",
    "Profiler": "interfaces.profiler",
    "ProfilerAction": "interfaces.schedule",
    "ProfilerActivity": "interfaces.names",
    "ProfilerLevel": "interfaces.names",
    "_ExperimentalConfig": "interfaces.experimental",
    "analyse": "interfaces.profile",
    "profile": "interfaces.profile",
    "schedule": "interfaces.schedule",
    "tensorboard_trace_handler": "interfaces.profile",
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
    if name in _MODULES:
        return importlib.import_module(f"steplens.mindspore.{name}")
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"steplens.collect.mindspore.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS, *_MODULES})
