"""A recording that is thrown away: it tells how large a step becomes before the window opens."""

from __future__ import annotations

import importlib
from typing import Any

from steplens.collect.pytorch.size import TraceSize


class Probe:
    """Records from now until :meth:`end`.

    Args:
        kineto: PyTorch's object of a session, unused so far.
        size: gets what is found.
        step: the step that runs.
    """

    def __init__(self, kineto: Any, size: TraceSize, step: int) -> None:
        self._kineto = kineto
        self._size = size
        self._first_step = step
        kineto._prepare_trace()
        kineto._start_trace()
        size.window_opens()
        torch: Any = importlib.import_module("torch")
        with torch.autograd.profiler.record_function("steplens probe"):
            torch.empty(0)
        size.first_events()

    def end(self, step: int) -> None:
        """End it.

        Args:
            step: the step that runs; those before it are complete.
        """
        kineto, self._kineto = self._kineto, None
        if step > self._first_step:
            self._size.estimate(step - self._first_step)
        kineto.__exit__(None, None, None)
