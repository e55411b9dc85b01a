"""A callback for Lightning: ``Trainer(callbacks=[SteplensCallback("result")])``."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from steplens.collect.marks import closures
from steplens.integrations.recording import FollowingCallback

_MODULES = ("lightning.pytorch", "pytorch_lightning")


def _import_lightning() -> Any:
    """Lightning under the name that the program uses: the two packages do not know each other's classes."""
    for name in sorted(_MODULES, key=lambda name: name not in sys.modules):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in (name, name.partition(".")[0]):
                raise
    raise ImportError("steplens.integrations.lightning needs Lightning: pip install lightning")


class SteplensCallback(FollowingCallback, _import_lightning().Callback):  # type: ignore[misc]
    """Records steps of a training by Lightning.

    A step is an optimizer step: with ``accumulate_grad_batches=4`` it holds four batches. Validation is the range
    ``validation``, in the step that follows it. The sanity check comes before step 0.

    Takes what :class:`~steplens.integrations.recording.FollowingCallback` takes.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._hooks: list[Any] = []
        self._following = False
        self._steps = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start, behind the sanity check."""
        # Lightning runs forward and backward in a closure that it passes to the optimizer.
        self._hooks = [optimizer.register_step_pre_hook(closures.step_pre_hook) for optimizer in trainer.optimizers]
        self._steps = trainer.global_step
        self._following = True
        self._training.profiler.start()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """A batch has ended, and with it a step if the optimizer has stepped."""
        if trainer.global_step != self._steps:
            self._steps = trainer.global_step
            self._training.step()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Validation begins; outside a training it is not recorded."""
        if self._following:
            self._training.begin_validation()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Validation has ended."""
        self._training.end_validation()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The training has ended."""
        self._end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The training was interrupted; what was recorded is kept."""
        self._end()

    def _end(self) -> None:
        self._following = False
        self._training.end()
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook.remove()
