"""Whether steplens' own recorder records, or Kineto, and what is said of it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

from steplens.collect.common import log, metadata
from steplens.collect.common.health import INFO, WARNING, Health
from steplens.collect.common.recording_settings import RecordingSettings
from steplens.collect.recorder import python_calls, recorder_library
from steplens.collect.recorder.recorder_library import OFF, ON, RecorderError
from steplens.collect.torch_internals import device_profile
from steplens.common.native.libraries import is_wanted
from steplens.common.options import ProfilerActivity

#: modules of torch whose allocators tell PyTorch's profiler of the memory that they hand out
_DEVICE_MODULES = ("cuda", "npu", "xpu")

#: what has been said in this process
_said: set[str] = set()


def uses_recorder(
    settings: RecordingSettings, health: Health, *, observes: bool = False, exports: bool = True, beside_kineto: bool = True
) -> bool:
    """Whether the recorder records, by what is wanted and what the environment says of it; it is built where it is not yet.

    Args:
        settings: what is to be recorded.
        health: gets why Kineto records where the recorder was asked for, or could not be built.
        observes: an observer of PyTorch's execution trace runs beside it.
        exports: the methods of the profiler object may be called with a window.
        beside_kineto: whether Kineto may record a GPU beside it.
    """
    mode = recorder_library.wanted_recorder()
    samples = settings.stack_sampling_hz > 0
    if mode == OFF:
        if samples:
            _say_no_samples(f"{recorder_library.VARIABLE}=off forbids the recorder, which samples them", health)
        return False
    reason = why_not_recorder(settings, beside_kineto=beside_kineto)
    # nobody else samples stacks: who asks for them asks for it
    if mode != ON and not samples and (reason or _prefers_kineto(settings, observes, exports) or not is_wanted()):
        # as it should be, so nobody is told
        return False
    if not reason:
        reason = _why_not_loaded()
    if reason:
        _say_kineto(mode, reason, health)
        if samples:
            _say_no_samples(f"the recorder does not record, because {reason}", health)
    return not reason


def sampling_rate(values: Mapping[str, Any]) -> float:
    """How often a second stacks are sampled, by the resolved options of a profiler; 0 for never."""
    rate: float = values["stack_sampling_hz"]
    if rate and values["with_stack"]:
        log.warning("stack_sampling_hz is ignored: with_stack=True records every call of Python, which tells more than samples.")
        return 0.0
    return rate


def why_not_recorder(settings: RecordingSettings, *, beside_kineto: bool = True) -> str:
    """What of ``settings`` the recorder does not record; empty where it records all of it.

    Args:
        settings: what is to be recorded.
        beside_kineto: whether Kineto may record a GPU beside it.
    """
    activities = set(settings.activities)
    if ProfilerActivity.CPU not in activities:
        return "it records the host, which is not to be recorded"
    on_gpu = activities == {ProfilerActivity.CPU, ProfilerActivity.CUDA}
    if on_gpu and beside_kineto:
        if reason := device_profile.why_not_device_alone():
            return f"a GPU is to be recorded, and {reason}"
    elif activities != {ProfilerActivity.CPU}:
        return "it records the host alone, and a device is to be recorded"
    if (settings.with_stack or settings.stack_sampling_hz) and (reason := python_calls.why_not_recorded()):
        return reason
    if settings.profile_memory and not on_gpu and _has_device_memory():
        return "profile_memory=True asks for the memory of this machine's device too, and it sees that of the host alone"
    return ""


def _prefers_kineto(settings: RecordingSettings, observes: bool, exports: bool) -> bool:
    """Whether something is to be made of the window for which Kineto's own result is needed."""
    # an execution trace refers to calls by numbers that Kineto's file has; export_memory_timeline asks Kineto what memory was for
    if observes or (exports and settings.categorises_memory):
        return True
    return ProfilerActivity.CUDA not in settings.activities and _compiles()


def _compiles() -> bool:
    """Whether the program has called ``torch.compile``: what its compiler does it tells while Kineto records, and only then."""
    frames: Any = sys.modules.get("torch._dynamo.eval_frame")
    return any(backend is not None for backend in dict(getattr(frames, "cached_backends", {})).values())


def _why_not_loaded() -> str:
    """Let the recorder be loaded, and built first where it is not yet; why that is not possible, or empty."""
    try:
        if recorder_library.will_be_built():
            message = "the recorder is built for this version of PyTorch, once: the training waits ten seconds or more"
            log.report_progress(message, metadata.process_rank())
        recorder_library.load_recorder()
    except (RecorderError, OSError) as error:
        return str(error)
    return ""


def _say_kineto(mode: str, reason: str, health: Health) -> None:
    if mode == ON:
        message = f"Kineto records in place of the recorder that {recorder_library.VARIABLE}=on asks for: {reason}."
        log.warning(message)
    else:
        message = f"Kineto records in place of the recorder of steplens, at twice its price: {reason}."
        if message not in _said and metadata.process_rank() <= 0:
            log.info(f"{message} Where that is wanted, {recorder_library.VARIABLE}=off says no more of it.")
        _said.add(message)
    health.add("recorder", INFO, message, configuration=True)


def _say_no_samples(reason: str, health: Health) -> None:
    message = f"Python stacks are not sampled (stack_sampling_hz): {reason}."
    health.report("not_collected", WARNING, message, unsafe="call stacks", configuration=True)


def _has_device_memory() -> bool:
    """Whether there is a device whose allocator tells PyTorch's profiler what it hands out."""
    torch: Any = importlib.import_module("torch")
    names = {*_DEVICE_MODULES, torch._C._get_privateuse1_backend_name()}
    modules: list[Any] = [getattr(torch, name, None) for name in names]
    return any(module.is_available() for module in modules if hasattr(module, "is_available"))
