"""What a profiler object records of PyTorch, resolved from its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steplens.collect.common.experimental_config import _ExperimentalConfig
from steplens.common import options
from steplens.common.options import ProfilerActivity


@dataclass(frozen=True)
class RecordingSettings:
    """What to record, checked.

    Attributes:
        activities: what Kineto observes.
        record_shapes: shapes and types of operator inputs.
        profile_memory: allocations and releases of tensor memory.
        with_stack: Python calls.
        with_flops: floating point operations.
        with_modules: module calls.
        experimental: extended options.
        schedule: the attributes of the schedule, for the record; None without one.
        stack_sampling_hz: how often a second Python stacks are sampled; 0: never.
    """

    activities: tuple[ProfilerActivity, ...]
    record_shapes: bool
    profile_memory: bool
    with_stack: bool
    with_flops: bool
    with_modules: bool
    experimental: _ExperimentalConfig
    schedule: Mapping[str, Any] | None
    stack_sampling_hz: float = 0.0

    @property
    def switches(self) -> dict[str, bool]:
        """The switches by name."""
        return {name: getattr(self, name) for name in options.SWITCHES}

    @property
    def categorises_memory(self) -> bool:
        """Whether enough is recorded to tell later what memory was used for."""
        return self.record_shapes and self.profile_memory and (self.with_stack or self.with_modules)

    def recorded(self) -> dict[str, Any]:
        """The configuration as ``profiler_info.json`` holds it."""
        sampled = {"stack_sampling_hz": self.stack_sampling_hz} if self.stack_sampling_hz else {}
        activities = [str(item) for item in self.activities]
        return {
            "common_config": {"activities": activities, "schedule": self.schedule, **self.switches, **sampled},
            "experimental_config": self.experimental.recorded(),
        }
