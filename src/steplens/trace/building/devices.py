"""What the devices of a trace are called."""

from __future__ import annotations

from steplens.trace.schema import CORE_CPU, CORE_CUDA, CORE_ROCM
from steplens.trace.trace import Trace

NPU = "NPU"
#: key of ``meta``: what a trace calls an accelerator of another kind, such as "MTIA" or "XPU"
ACCELERATOR = "accelerator"


def device_kind(trace: Trace) -> str:
    """What the devices of the run are: "CPU", "CUDA", "ROCM", "NPU", or the name that another accelerator has in its trace.

    "CPU" for a run without device tasks.
    """
    accelerator_cores = list({core for core, _ in trace.used_devices if core is not None and core != CORE_CPU})
    if not accelerator_cores:
        return CORE_CPU
    named_accelerator = trace.meta_value(ACCELERATOR)
    if isinstance(named_accelerator, str) and accelerator_cores == [named_accelerator]:
        return named_accelerator
    return next((kind for kind in (CORE_CUDA, CORE_ROCM) if kind in accelerator_cores), NPU)


def cpu_is_device(trace: Trace) -> bool:
    """Whether the CPU's operator calls are the device tasks: rows of ``kernels`` and of ``ops`` are the same events then."""
    return trace.once(_cpu_is_device)


def _cpu_is_device(trace: Trace) -> bool:
    return "kernels" in trace and not trace.has_accelerator


def device_names(trace: Trace) -> list[str]:
    """Every device that ran something, such as "CUDA 0 (NVIDIA A100)", in order of number."""
    kind = device_kind(trace)
    used = sorted({device or 0 for _, device in trace.used_devices})
    products = product_names(trace)
    return [f"{kind} {device} ({products[device]})" if device in products else f"{kind} {device}" for device in used]


def product_names(trace: Trace) -> dict[int, str]:
    """Device number -> product name, where the source records it."""
    properties = trace.meta_value("deviceProperties")
    names = {}
    if isinstance(properties, list):
        for entry in properties:
            if isinstance(entry, dict) and isinstance(entry.get("id"), int) and isinstance(entry.get("name"), str):
                names[entry["id"]] = entry["name"]
    chip, devices = trace.meta_value("chip"), trace.meta_value("device_ids")
    if isinstance(chip, str) and isinstance(devices, list):
        names.update({device: chip for device in devices if isinstance(device, int)})
    return names
