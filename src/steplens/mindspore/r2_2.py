"""``mindspore.Profiler`` as of r2.2: other defaults, and one window per object."""

from __future__ import annotations

from steplens.collect.mindspore.interfaces.profiler_r2_2 import Profiler

__all__ = ["Profiler"]
