"""Which framework a trace was recorded of, as far as the trace tells."""

from __future__ import annotations

import polars as pl

from steplens.common import rundir
from steplens.trace.trace import Trace

PYTORCH, MINDSPORE = "PyTorch", "MindSpore"
#: of a trace that does not tell
UNKNOWN = ""

#: names that only one of the two has: operators and autograd of PyTorch, full names of MindSpore's graphs
_PYTORCH_NAMES = r"^(?:aten|torch|autograd|c10d|torchvision|torch_npu)::"
_MINDSPORE_NAMES = r"^(?:Default|Gradients)/"


def trace_framework(trace: Trace) -> str:
    """``PYTORCH``, ``MINDSPORE`` or ``UNKNOWN``: by what the recording says, else by its folder, else by operators' names."""
    return trace.once(_detect_framework)


#: what recorded a trace
STEPLENS, TORCH_PROFILER, TORCH_NPU_PROFILER, MINDSPORE_PROFILER = "steplens", "torch.profiler", "torch_npu.profiler", "MindSpore"
_KINETO = "Kineto trace"


def framework_version(trace: Trace) -> str:
    """The version of the framework, where the recording says it; what was built for which device is no part of it."""
    framework = trace_framework(trace)
    version = {PYTORCH: trace.meta_value("torch_version"), MINDSPORE: trace.meta_value("ms_version")}.get(framework)
    return version.partition("+")[0] if isinstance(version, str) else ""


def trace_recorder(trace: Trace, source_format: str) -> str:
    """Which profiler recorded a trace, or ``UNKNOWN``; ``source_format`` is what the source was read as."""
    meta = trace.meta_values()
    if "steplens_version" in meta:
        return STEPLENS
    if trace_framework(trace) == MINDSPORE:
        return MINDSPORE_PROFILER
    if str(meta.get("source_format", "")).startswith("ascend"):
        return TORCH_NPU_PROFILER
    return TORCH_PROFILER if source_format == _KINETO else UNKNOWN


def _detect_framework(trace: Trace) -> str:
    meta = trace.meta_values()
    if str(meta.get("source_format", "")).startswith("mindspore") or "ms_version" in meta:
        return MINDSPORE
    if "torch_version" in meta or "torch_npu_version" in meta:
        return PYTORCH
    for part in reversed(trace.source.parts):
        if part.endswith(rundir.MINDSPORE_RUN_SUFFIX):
            return MINDSPORE
        if part.endswith(rundir.RUN_SUFFIX):
            return PYTORCH
    for table in ("ops", "kernels"):
        names = trace.required(table).select(pl.col("name").cast(pl.String).unique()).collect()["name"].drop_nulls()
        for framework_name, pattern in ((PYTORCH, _PYTORCH_NAMES), (MINDSPORE, _MINDSPORE_NAMES)):
            if names.str.contains(pattern).any():
                return framework_name
    return UNKNOWN
