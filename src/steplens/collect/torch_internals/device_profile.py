"""Kineto without operator calls: device tasks, the calls that launch them, ranges of the user, and memory.

PyTorch records memory and ranges of the user only where it records the host, and on the host every operator call with them, which
is where its price lies. Its own call to begin takes the scopes of what is recorded, which the profiler object does not hand on.
"""

from __future__ import annotations

import functools
import importlib
from types import FunctionType
from typing import Any

from steplens.collect.torch_internals import other_profilers

#: the call by which PyTorch's object begins to record
_BEGINS = "_enable_profiler"


def why_not_device_alone() -> str:
    """Why this PyTorch cannot record a device without the operator calls of the host; empty where it can."""
    begins = _begin_of(_profile_type())
    if not isinstance(begins, FunctionType) or _BEGINS not in begins.__code__.co_names:
        return "this version of PyTorch begins to record in another way"
    if "scopes" not in str(begins.__globals__[_BEGINS].__doc__):
        return "this version of PyTorch cannot leave out operator calls"
    return ""


def begin_device_profile(kineto: Any) -> None:
    """Begin to record, with ranges of the user as the only calls of the host.

    Args:
        kineto: PyTorch's object, prepared.

    Raises:
        RuntimeError: PyTorch refuses, as while another profiler records.
    """
    bindings: Any = importlib.import_module("torch._C._profiler")
    begins = _begin_of(type(kineto))
    names = dict(begins.__globals__)
    names[_BEGINS] = functools.partial(names[_BEGINS], scopes={bindings.RecordScope.USER_SCOPE})
    try:
        FunctionType(begins.__code__, names, begins.__name__, begins.__defaults__, begins.__closure__)(kineto)
    except Exception:  # handed on to whoever called PyTorch
        other_profilers.note_end()
        raise


def _profile_type() -> Any:
    profiler: Any = importlib.import_module("torch.autograd.profiler")
    return profiler.profile


def _begin_of(profile_type: Any) -> Any:
    """PyTorch's own function, below what ``other_profilers`` puts around it."""
    begins = profile_type._start_trace
    return getattr(begins, "steplens_original", begins)
