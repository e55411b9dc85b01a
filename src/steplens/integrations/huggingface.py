"""A callback for the Trainer of Hugging Face: ``Trainer(..., callbacks=[SteplensCallback("result")])``."""

from __future__ import annotations

import importlib
from typing import Any

from steplens.integrations.recording import FollowingCallback


def _import_transformers() -> Any:
    try:
        return importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
    raise ImportError("steplens.integrations.huggingface needs Transformers: pip install transformers accelerate")


class SteplensCallback(FollowingCallback, _import_transformers().TrainerCallback):  # type: ignore[misc]
    """Records steps of a training by ``transformers.Trainer``.

    A step is an optimizer step: with ``gradient_accumulation_steps=4`` it holds four batches. Evaluation is the range
    ``validation``, in the step that follows it.

    Takes what :class:`~steplens.integrations.recording.FollowingCallback` takes.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start."""
        self._training.profiler.start()

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
