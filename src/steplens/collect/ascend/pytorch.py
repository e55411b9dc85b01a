"""Recording an NPU for a PyTorch program."""

from __future__ import annotations

from steplens.collect.ascend import frameworks
from steplens.collect.ascend.device_session import DeviceSession
from steplens.collect.ascend.operator_arguments import OperatorArguments
from steplens.collect.ascend.settings import DeviceOptions
from steplens.collect.common import log
from steplens.collect.common.health import INFO, Health
from steplens.collect.common.recording_settings import RecordingSettings


def device_session(settings: RecordingSettings, health: Health) -> DeviceSession:
    """What records the NPU beside Kineto.

    Args:
        settings: what to record.
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
        DeviceOptions.of(settings.experimental, profile_memory=settings.profile_memory, record_shapes=settings.record_shapes),
        device=frameworks.torch_device,
        synchronize=frameworks.torch_synchronize,
        report=health.add,
        beside=OperatorArguments(health.add) if settings.experimental.record_op_args else None,
    )
