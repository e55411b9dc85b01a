"""What the recorder must ask the framework: on which device it works, and to wait until the device is idle.

A framework is only asked when the program has imported it; it is never imported for its own sake.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from steplens.collect.ascend.device_session import DeviceSession
from steplens.collect.ascend.operator_arguments import OperatorArguments
from steplens.collect.ascend.settings import DeviceOptions
from steplens.collect.common.health import INFO, Health
from steplens.collect.common.recording_settings import RecordingSettings

#: environment variables that launchers of either framework set
_DEVICE_VARIABLES = ("DEVICE_ID", "ASCEND_DEVICE_ID")


def torch_npu_is_usable() -> bool:
    """Whether the program has imported ``torch_npu`` and it sees a device."""
    npu = _torch_npu()
    try:
        return npu is not None and bool(npu.is_available())
    except Exception:  # the boundary to a foreign package: an NPU that cannot be asked is not usable
        return False


def torch_device() -> int:
    """The current NPU of PyTorch.

    Asking also initialises the NPU in this process, which CANN wants before it is profiled.
    """
    npu = _torch_npu()
    return _device_of_environment() if npu is None else int(npu.current_device())


def torch_synchronize(device: int) -> None:
    """Wait until the NPU has done what PyTorch gave it."""
    npu = _torch_npu()
    if npu is not None:
        npu.synchronize(device)


def mindspore_device() -> int:
    """The NPU that MindSpore was told to use."""
    context = _mindspore_attribute("context")
    value = context.get_context("device_id") if context is not None else None
    return int(value) if value is not None else _device_of_environment()


def mindspore_synchronize(_: int) -> None:
    """Wait until the NPU has done what MindSpore gave it."""
    # The call moved from hal to runtime; MindSpore before 2.3 has neither.
    for name in ("runtime", "hal"):
        synchronize: Callable[[], Any] | None = getattr(_mindspore_attribute(name), "synchronize", None)
        if synchronize is not None:
            synchronize()
            return


def launches_from_queue() -> bool:
    """Whether ``torch_npu`` launches kernels from a thread of its own, where PyTorch's recorder sees no operator."""
    return _torch_npu() is not None and os.environ.get("TASK_QUEUE_ENABLE", "1") != "0"


def device_session(settings: RecordingSettings, health: Health) -> DeviceSession:
    """What records the NPU of a PyTorch program beside Kineto; ``health`` gets the findings."""
    if launches_from_queue():
        message = (
            "torch_npu launches kernels from a thread of its own, which PyTorch's recorder does not see: "
            "set TASK_QUEUE_ENABLE=0 to find the operator of a kernel."
        )
        health.report("task_queue", INFO, message, unsafe="device time per operator", configuration=True)
    return DeviceSession(
        DeviceOptions.of(settings.experimental, profile_memory=settings.profile_memory, record_shapes=settings.record_shapes),
        device=torch_device,
        synchronize=torch_synchronize,
        report=health.add,
        beside=OperatorArguments(health.add) if settings.experimental.record_op_args else None,
    )


def _torch_npu() -> Any:
    return getattr(sys.modules.get("torch"), "npu", None) if "torch_npu" in sys.modules else None


def _mindspore_attribute(name: str) -> Any:
    return getattr(sys.modules.get("mindspore"), name, None)


def _device_of_environment() -> int:
    texts = (os.environ.get(variable, "") for variable in _DEVICE_VARIABLES)
    return next((int(text) for text in texts if text.isdecimal()), 0)
