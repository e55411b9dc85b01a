"""What each tensor of a window was used for: parameter, gradient, activation ...

It follows from which operators read, wrote and created a tensor, which Kineto keeps in memory and does not save. PyTorch's
own analysis of it (``torch.profiler._memory_profiler``) runs here, in the training process and only when somebody asks,
because it takes about 0.2 ms per recorded event; its result goes to a file beside the raw trace.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from steplens.common import rundir
from steplens.formats.kineto import MEMORY_ACTIONS, MEMORY_CATEGORIES

FILE = "memory_categories.json"

_VERSION = 1


def write_categories(results: Any, run_directory: Path) -> int:
    """Compute the memory events of a window with their categories and write them.

    Args:
        results: Kineto's result of the window, recorded with shapes, memory, and stacks or modules.
        run_directory: where the window's raw data lies.

    Returns:
        how many events there are.
    """
    torch_memory: Any = importlib.import_module("torch.profiler._memory_profiler")
    profile = torch_memory.MemoryProfile(results)
    numbers = {name: number for number, name in enumerate(MEMORY_CATEGORIES)}
    unknown = numbers["UNKNOWN"]
    actions = {name: number for number, name in enumerate(MEMORY_ACTIONS)}
    destroyed, changed = actions["DESTROY"], actions["INCREMENT_VERSION"]
    devices: dict[str, int] = {}
    columns: dict[str, list[int]] = {name: [] for name in ("time_ns", "action", "bytes", "category", "device")}

    def category_number(key: Any, version: int) -> int:
        category_number = profile._categories.get(key, version) if isinstance(key, torch_memory.TensorKey) else None
        return unknown if category_number is None else numbers.get(category_number.name, unknown)

    def add_event(time: int, action: int, size: int, kind: int, device: int) -> None:
        for name, value in zip(columns, (time, action, size, kind, device), strict=True):
            columns[name].append(value)

    for time, torch_action, (key, version), size in profile.timeline:
        action = actions[torch_action.name]
        device = devices.setdefault(_device_name(key.device), len(devices))
        if action == changed:
            add_event(time, action, -size, category_number(key, version), device)
            add_event(time, action, size, category_number(key, version + 1), device)
        else:
            add_event(time, action, -size if action == destroyed else size, category_number(key, version), device)
    value = {"version": _VERSION, "torch": str(importlib.import_module("torch").__version__), "devices": list(devices), **columns}
    rundir.write_json(run_directory / rundir.RAW_DIRECTORY / FILE, value)
    return len(columns["time_ns"])


def _device_name(device: Any) -> str:
    """``cpu``, ``cuda:0``; a device without a number is the first of its kind."""
    return "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"
