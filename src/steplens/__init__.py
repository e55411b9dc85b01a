"""steplens: where the time of a training step goes, why, and what to change.

Public names are loaded on first use, so ``import steplens`` imports neither a framework nor polars.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from steplens import dynamic_profile as dynamic_profile
    from steplens import profiler as profiler
    from steplens.advice.table import advice_table as advise
    from steplens.collect.black_box.black_box import BlackBox as BlackBox
    from steplens.collect.common.experimental_config import _ExperimentalConfig as _ExperimentalConfig
    from steplens.collect.handoff.handler import tensorboard_trace_handler as tensorboard_trace_handler
    from steplens.collect.pytorch.actions import ProfilerAction as ProfilerAction
    from steplens.collect.pytorch.activities import supported_activities as supported_activities
    from steplens.collect.pytorch.profiler import _KinetoProfile as _KinetoProfile
    from steplens.collect.pytorch.profiler import profile as profile
    from steplens.collect.pytorch.schedule import schedule as schedule
    from steplens.common.options import AiCMetrics as AiCMetrics
    from steplens.common.options import ExportType as ExportType
    from steplens.common.options import HostSystem as HostSystem
    from steplens.common.options import ProfilerActivity as ProfilerActivity
    from steplens.common.options import ProfilerLevel as ProfilerLevel
    from steplens.common.options import supported_ai_core_metrics as supported_ai_core_metrics
    from steplens.common.options import supported_export_type as supported_export_type
    from steplens.common.options import supported_profiler_level as supported_profiler_level
    from steplens.comparison.comparison import compare_paths as compare
    from steplens.offline import analyse as analyse
    from steplens.run import open_run as open
    from steplens.viewer import view as view
    from steplens.writers.exports.export import export as export
    from steplens.writers.exports.export import export_chrome_trace as export_chrome_trace
    from steplens.writers.exports.export import export_memory_timeline as export_memory_timeline
    from steplens.writers.exports.export import export_stacks as export_stacks

#: public modules, imported when they are first used
_MODULES = ("dynamic_profile", "mstx", "profiler")

#: public name -> the module that defines it, or module:name where it is called differently there
_EXPORTS = {
    "AiCMetrics": "steplens.common.options",
    "BlackBox": "steplens.collect.black_box.black_box",
    "ExportType": "steplens.common.options",
    "HostSystem": "steplens.common.options",
    "ProfilerAction": "steplens.collect.pytorch.actions",
    "ProfilerActivity": "steplens.common.options",
    "ProfilerLevel": "steplens.common.options",
    "_ExperimentalConfig": "steplens.collect.common.experimental_config",
    "_KinetoProfile": "steplens.collect.pytorch.profiler",
    "advise": "steplens.advice.table:advice_table",
    "analyse": "steplens.offline",
    "compare": "steplens.comparison.comparison:compare_paths",
    "export": "steplens.writers.exports.export",
    "export_chrome_trace": "steplens.writers.exports.export",
    "export_memory_timeline": "steplens.writers.exports.export",
    "export_stacks": "steplens.writers.exports.export",
    "open": "steplens.run:open_run",
    "profile": "steplens.collect.pytorch.profiler",
    "schedule": "steplens.collect.pytorch.schedule",
    "supported_activities": "steplens.collect.pytorch.activities",
    "supported_ai_core_metrics": "steplens.common.options",
    "supported_export_type": "steplens.common.options",
    "supported_profiler_level": "steplens.common.options",
    "tensorboard_trace_handler": "steplens.collect.handoff.handler",
    "view": "steplens.viewer",
}

# spelled out for type checkers; a test compares it with the table
__all__ = [
    "AiCMetrics",
    "BlackBox",
    "ExportType",
    "HostSystem",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilerLevel",
    "_ExperimentalConfig",
    "_KinetoProfile",
    "advise",
    "analyse",
    "compare",
    "export",
    "export_chrome_trace",
    "export_memory_timeline",
    "export_stacks",
    "open",
    "profile",
    "schedule",
    "supported_activities",
    "supported_ai_core_metrics",
    "supported_export_type",
    "supported_profiler_level",
    "tensorboard_trace_handler",
    "view",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"steplens.{name}")
    try:
        module, _, attribute = _EXPORTS[name].partition(":")
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = getattr(importlib.import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # what this module imports for itself is nobody else's
    return sorted({*(name for name in globals() if name.startswith("__")), *_EXPORTS, *_MODULES})
