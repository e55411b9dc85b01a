"""Which activities a profiler object records: those asked for that this machine has, or everything it has."""

from __future__ import annotations

from steplens.collect.ascend import frameworks, library
from steplens.collect.ascend.device_session import MISSING, NO_DEVICE
from steplens.collect.common import log
from steplens.collect.common.health import INFO, WARNING, Health
from steplens.common.options import ProfilerActivity


def supported_activities() -> set[ProfilerActivity]:
    """The activities that can be recorded on this machine, as far as the program has imported what they need."""
    import torch

    activities = {ProfilerActivity.CPU}
    if torch.cuda.is_available():
        activities.add(ProfilerActivity.CUDA)
    if frameworks.torch_npu_is_usable() and npu_problem() is None:
        activities.add(ProfilerActivity.NPU)
    return activities


def npu_problem() -> str | None:
    """Why the tasks of an NPU cannot be recorded here, in one sentence; None when CANN's profiling library is there."""
    try:
        library.load_cann()
    except library.LibraryError as error:
        return str(error)
    return None


def choose_activities(asked: list[ProfilerActivity] | None, use_cuda: bool | None, health: Health) -> list[ProfilerActivity]:
    """The activities to record, in the order asked for.

    Args:
        asked: what the caller wants; everything supported when None or empty.
        use_cuda: the deprecated way to ask for CUDA or against it.
        health: gets a finding for what is not available here.
    """
    supported = supported_activities()
    everything = [activity for activity in ProfilerActivity if activity in supported]
    if use_cuda is not None:
        log.warning("Parameter use_cuda is deprecated, use activities.")
        asked = list(asked or everything)
        if use_cuda and ProfilerActivity.CUDA not in asked:
            asked.append(ProfilerActivity.CUDA)
        elif not use_cuda and ProfilerActivity.CUDA in asked:
            asked.remove(ProfilerActivity.CUDA)
    if not asked:
        return everything
    missing = [str(activity) for activity in asked if activity not in supported and activity is not ProfilerActivity.NPU]
    if missing:
        not_collected(", ".join(missing), health)
    # Asked for by name, the NPU is also recorded when the program has not imported torch_npu yet.
    if ProfilerActivity.NPU in asked and ProfilerActivity.NPU not in supported:
        problem = npu_problem()
        if problem is None:
            supported.add(ProfilerActivity.NPU)
        else:
            health.report(MISSING, WARNING, f"No device data: {problem}.", unsafe=NO_DEVICE, configuration=True)
    activities = [activity for activity in asked if activity in supported] or everything
    if ProfilerActivity.NPU in activities and ProfilerActivity.CPU not in activities:
        log.info("ProfilerActivity.CPU is recorded as well, because steps are marked on the host.")
        activities.insert(0, ProfilerActivity.CPU)
    return activities


def not_collected(what: str, health: Health) -> None:
    """Say, and put on record for every window, what was asked for and is not available here."""
    health.report("not_collected", INFO, f"Not collected on this device: {what}.", configuration=True)
