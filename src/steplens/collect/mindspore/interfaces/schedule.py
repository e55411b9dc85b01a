"""``mindspore.profiler.schedule``: which steps are skipped, warmed up and recorded."""

from __future__ import annotations

import enum

from steplens.collect.common import log


class ProfilerAction(enum.Enum):
    """What the profiler does in a step."""

    NONE = 0
    WARM_UP = 1
    RECORD = 2
    #: the last recorded step of a cycle
    RECORD_AND_SAVE = 3


#: the least of every value, and what a schedule with a wrong value becomes
_LEAST = {"wait": 0, "active": 1, "warmup": 0, "repeat": 0, "skip_first": 0}


class schedule:
    """Maps a step number to what the profiler does in it.

    After ``skip_first`` steps, cycles of ``wait`` + ``warmup`` + ``active`` steps follow, ``repeat`` times or until the end (0).
    With a wrong value every value is reset to its default, with a warning.

    Args:
        wait: steps to skip at the start of every cycle.
        active: steps to record in every cycle.
        warmup: steps to warm up before recording.
        repeat: number of cycles; 0 means until the end.
        skip_first: steps to skip before the first cycle.
    """

    def __init__(self, *, wait: int, active: int, warmup: int = 0, repeat: int = 0, skip_first: int = 0) -> None:
        values = {"wait": wait, "active": active, "warmup": warmup, "repeat": repeat, "skip_first": skip_first}
        for name, value in values.items():
            if type(value) is not int or value < _LEAST[name]:
                log.warning(f"{name} should be a whole number not below {_LEAST[name]}, not {value!r}; the schedule is reset.")
                values = dict(_LEAST)
                break
        self.wait, self.active, self.warmup = values["wait"], values["active"], values["warmup"]
        self.repeat, self.skip_first = values["repeat"], values["skip_first"]

    def __call__(self, step: int) -> ProfilerAction:
        """The action of a step.

        Raises:
            ValueError: the step is negative.
        """
        if step < 0:
            raise ValueError(f"step should not be negative, got {step}")
        step -= self.skip_first
        cycle = self.wait + self.warmup + self.active
        if step < 0 or (self.repeat and step // cycle >= self.repeat):
            return ProfilerAction.NONE
        position = step % cycle
        if position < self.wait:
            return ProfilerAction.NONE
        if position < self.wait + self.warmup:
            return ProfilerAction.WARM_UP
        return ProfilerAction.RECORD_AND_SAVE if position == cycle - 1 else ProfilerAction.RECORD
