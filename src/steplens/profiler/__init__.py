"""The names of ``torch_npu.profiler`` and ``torch.profiler`` where scripts import them from.

``from steplens import profiler`` in place of ``from torch_npu import profiler``, ``steplens.profiler.profile`` in place of
``torch_npu.profiler.profile``. Everything is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__") or name in ("profiler", "_profiler_path_creator"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("steplens"), name)
