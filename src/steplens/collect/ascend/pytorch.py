"""Recording an NPU for a PyTorch program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steplens.collect.ascend import frameworks
from steplens.collect.ascend.device_session import DeviceSession
from steplens.collect.ascend.operator_arguments import OperatorArguments
from steplens.collect.ascend.settings import DeviceOptions
from steplens.collect.common import log
from steplens.collect.common.health import INFO, Health

if TYPE_CHECKING:
    from steplens.collect.pytorch.window import Recording


def device_session(recording: Recording, health: Health) -> DeviceSession:
    """What records the NPU beside Kineto.

    Args:
        recording: what to record.
        health: gets the findings.
    """
    if frameworks.launches_from_queue():
        message = (
            "torch_npu launches kernels from a thread of its own, which PyTorch's recorder does not see: "
            "set TASK_QUEUE_ENABLE=0 to find the operator of a kernel."
        )
        log.info(message)
        health.add("task_queue", INFO, message, unsafe="device time per operator", configuration=True)
    return DeviceSession(
        DeviceOptions.of(recording.experimental, profile_memory=recording.profile_memory, record_shapes=recording.record_shapes),
        device=frameworks.torch_device,
        synchronize=frameworks.torch_synchronize,
        report=health.add,
        beside=OperatorArguments(health.add) if recording.experimental.record_op_args else None,
    )
