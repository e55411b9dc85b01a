"""Which steps are skipped, warmed up and recorded."""

from __future__ import annotations

from steplens.collect.common import log
from steplens.collect.pytorch.actions import ProfilerAction
from steplens.common import options


class schedule:
    """Maps a step number to what the profiler does in it.

    After ``skip_first`` steps, cycles of ``wait`` + ``warmup`` + ``active`` steps follow, ``repeat`` times or
    until the end. Every cycle leaves one run directory. Wrong values are reset with a warning.

    All arguments may be keywords. By position the order is that of the Ascend PyTorch Profiler, where
    ``active`` is the second; ``torch.profiler.schedule`` takes keywords only, so scripts written for it
    are not affected.

    Args:
        wait: steps to skip at the start of every cycle.
        active: steps to record in every cycle.
        warmup: steps to warm up before recording.
        repeat: number of cycles; 0 means until the end.
        skip_first: steps to skip before the first cycle.
        skip_first_wait: if not 0, the first cycle skips its ``wait``.
    """

    def __init__(
        self, wait: int, active: int, warmup: int = 0, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
    ) -> None:
        values, warnings = options.resolve_options(options.SCHEDULE, options.call_arguments(locals()))
        self.wait: int = values["wait"]
        self.active: int = values["active"]
        self.warmup: int = values["warmup"]
        self.repeat: int = values["repeat"]
        self.skip_first: int = values["skip_first"]
        self.skip_first_wait: int = values["skip_first_wait"]
        for warning in warnings:
            log.warning(warning)
        if self.warmup == 0:
            log.warning("The schedule has no warmup step, the first recorded step may be slower than the others; use warmup=1.")

    def __call__(self, step: int) -> ProfilerAction:
        """The action of a step.

        Raises:
            ValueError: the step is negative.
        """
        if step < 0:
            raise ValueError(f"Invalid parameter step, which must be not less than 0, got {step}.")
        if step < self.skip_first:
            return ProfilerAction.NONE
        step -= self.skip_first
        if self.skip_first_wait != 0:
            step += self.wait
        cycle = self.wait + self.warmup + self.active
        if self.repeat > 0 and step // cycle >= self.repeat:
            return ProfilerAction.NONE
        position = step % cycle
        if position < self.wait:
            return ProfilerAction.NONE
        if position < self.wait + self.warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if position == cycle - 1 else ProfilerAction.RECORD
