"""A callback for the Trainer of Hugging Face: ``Trainer(..., callbacks=[SteplensCallback("result")])``."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from steplens.integrations.recording import FollowedTraining


def _transformers() -> Any:
    try:
        return importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
    raise ImportError("steplens.integrations.huggingface needs Transformers: pip install transformers accelerate")


class SteplensCallback(_transformers().TrainerCallback):  # type: ignore[misc]
    """Records steps of a training by ``transformers.Trainer``.

    A step is an optimizer step: with ``gradient_accumulation_steps=4`` it holds four batches. Evaluation is the range
    ``validation``, in the step that follows it.

    Args:
        directory: folder or URL for run directories; not used with ``on_trace_ready``.
        schedule: maps a step to an action, see :class:`~steplens.schedule`; ``wait=1, warmup=1, active=3, repeat=1`` by default.
        on_trace_ready: called when a window is recorded; analyses it beside the training by default.
        options: other arguments of ``steplens.profile``.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] = "result",
        *,
        schedule: Callable[[int], Any] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._training = FollowedTraining(directory, schedule, on_trace_ready, options)

    @property
    def profiler(self) -> Any:
        """The profiler, for ``add_metadata`` and the export methods."""
        return self._training.profiler

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start."""
        self._training.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The optimizer has stepped."""
        self._training.step()
        self._look_for_evaluation(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An epoch has ended; an evaluation may follow."""
        self._look_for_evaluation(control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An evaluation has ended."""
        self._training.end_validation()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The training has ended."""
        self._training.end()

    def _look_for_evaluation(self, control: Any) -> None:
        # The Trainer tells when an evaluation has ended; that one comes it has decided by now.
        if control.should_evaluate:
            self._training.begin_validation()
