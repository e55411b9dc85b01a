"""What a schedule comes to, in words: which steps are recorded, in how many windows, and about how large they become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steplens.collect.pytorch.actions import RECORDING, ProfilerAction, to_action

#: how far a schedule is followed that does not say how it goes on
_STEPS = 10_000

_SHOWN_WINDOWS = 3


def schedule_windows(schedule: Callable[[int], Any], steps: int = _STEPS) -> list[tuple[int, int]]:
    """First and last step of the windows that a schedule opens.

    Args:
        schedule: maps a step to an action.
        steps: how many steps are looked at; a window that is open after them is left out.

    Raises:
        TypeError: the schedule returns something that is no action.
    """
    windows, first = [], None
    for step in range(steps):
        action = to_action(schedule(step))
        if action in RECORDING:
            first = step if first is None else first
        if first is not None and action is not ProfilerAction.RECORD:
            windows.append((first, step if action is ProfilerAction.RECORD_AND_SAVE else step - 1))
            first = None
    return windows


def describe_schedule(schedule: Callable[[int], Any] | None, offset: int = 0, bytes_per_step: float | None = None) -> str:
    """One sentence, such as ``records steps 12-14, 1 window, about 40 MB``.

    Args:
        schedule: of the profiler; None without one.
        offset: the number of the training's step that the schedule calls 0.
        bytes_per_step: of the trace; None when nothing is known yet.
    """
    if schedule is None:
        size = f", about {size_text(bytes_per_step)} per step" if bytes_per_step else ""
        return f"records until it is stopped, 1 window{size}"
    windows = schedule_windows(schedule)
    if not windows:
        return f"records nothing in the first {_STEPS} steps"
    listed = ", ".join(_format_steps(first + offset, last + offset) for first, last in windows[:_SHOWN_WINDOWS])
    endless = getattr(schedule, "repeat", None) == 0 or windows[-1][1] >= _STEPS // 2
    noun = "step" if len(windows) == 1 and windows[0][0] == windows[0][1] else "steps"
    if endless:
        text = f"records {noun} {listed} and so on, a window each"
    else:
        rest = f" and {len(windows) - _SHOWN_WINDOWS} more" if len(windows) > _SHOWN_WINDOWS else ""
        text = f"records {noun} {listed}{rest}, {len(windows)} window{'s' if len(windows) > 1 else ''}"
    if bytes_per_step is None:
        return text
    if endless:
        return f"{text} of about {size_text(bytes_per_step * (windows[0][1] - windows[0][0] + 1))}"
    return f"{text}, about {size_text(bytes_per_step * sum(last - first + 1 for first, last in windows))}"


def _format_steps(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def size_text(size: float) -> str:
    """A size in bytes for people: two digits are more than an estimate is worth."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            value = size / factor
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{size:.0f} bytes"
