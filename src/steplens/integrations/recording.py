"""What the callbacks have in common: a profiler that follows the training of a framework."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from steplens.collect.handoff.handler import tensorboard_trace_handler
from steplens.collect.pytorch.profiler import profile
from steplens.collect.pytorch.schedule import schedule as make_schedule

#: name of the range around validation
VALIDATION = "validation"


class FollowedTraining:
    """Drives a profiler by what happens in a training. None of its methods raises; arguments as of :class:`FollowingCallback`."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        schedule: Callable[[int], Any] | None,
        on_trace_ready: Callable[..., Any] | None,
        quiet: bool,
        options: dict[str, Any],
    ) -> None:
        self.profiler = profile(
            schedule=schedule or make_schedule(wait=1, warmup=1, active=3, repeat=1),
            on_trace_ready=on_trace_ready or tensorboard_trace_handler(directory, async_mode=True, quiet=quiet),
            **options,
        )
        self._range: Any = None

    def step(self) -> None:
        """A step has ended."""
        self.end_validation()
        self.profiler.step()

    def begin_validation(self) -> None:
        """Validation begins, inside the step that runs."""
        if self._range is None:
            torch: Any = importlib.import_module("torch")
            self._range = torch.autograd.profiler.record_function(VALIDATION)
            self._range.__enter__()

    def end_validation(self) -> None:
        """It has ended."""
        opened, self._range = self._range, None
        if opened is not None:
            opened.__exit__(None, None, None)

    def end(self) -> None:
        """The training has ended, in whatever way."""
        self.end_validation()
        self.profiler.stop()


class FollowingCallback:
    """What the callbacks of all frameworks take and give; comes before the framework's own class.

    Args:
        directory: folder or URL for run directories; not used with ``on_trace_ready``.
        schedule: maps a step to an action, see :class:`~steplens.schedule`; ``wait=1, warmup=1, active=3, repeat=1`` by default.
        on_trace_ready: called when a window is recorded; analyses it beside the training by default.
        quiet: say nothing but what is wrong; else the program ends with a line that names the command which shows the results.
        options: other arguments of ``steplens.profile``.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] = "result",
        *,
        schedule: Callable[[int], Any] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        quiet: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self._training = FollowedTraining(directory, schedule, on_trace_ready, quiet, options)

    @property
    def profiler(self) -> Any:
        """The profiler, for ``add_metadata`` and the export methods."""
        return self._training.profiler
