"""Steps of a script that knows nothing of steplens: one step ends when ``Optimizer.step`` of PyTorch returns.

PyTorch's own post hook for ``Optimizer.step`` is called while the annotation ``Optimizer.step#...`` is still open: a step
that ended there would leave the annotation half in one step and half in the next, and a window that ended there would
stop Kineto inside it. Therefore ``Optimizer.profile_hook_step``, which adds the annotation, is extended: the step ends
after it.

A program may take its optimizer steps inside of backward, from hooks of the parameters, so that a gradient lives no longer than
needed. A step then ends with the backward pass, however many optimizer steps it took.

PyTorch is not imported here. The extension waits until the script imports it, so that environment variables the
script sets before that still count.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from steplens.collect.dynamic.steps.after_import import after_import
from steplens.collect.marks import closures
from steplens.collect.torch_internals import backward, other_profilers

OPTIMIZER_MODULE = "torch.optim.optimizer"


class OptimizerSteps:
    """Calls ``on_step`` after each step of the leading optimizer, in the process that created this object.

    The leading optimizer is the first one that steps; with several of them (a GAN) only it counts, so a step is one
    turn of the training loop. When it no longer exists, the next one that steps leads.

    Args:
        on_step: called without arguments on the thread that trains; must not raise.
        on_optimizer: called without arguments when the first optimizer of a class is made; must not raise.
    """

    def __init__(self, on_step: Callable[[], None], on_optimizer: Callable[[], None] | None = None) -> None:
        self._on_step = on_step
        self._on_optimizer = on_optimizer
        self.follow_fork()

    def install(self) -> None:
        """Watch optimizers from now on, or from the moment PyTorch is imported."""
        after_import(OPTIMIZER_MODULE, self._extend_optimizer)

    def follow_fork(self) -> None:
        """Count in the calling process, a forked child of the one that counted so far."""
        self._process = os.getpid()
        self._leader: weakref.ref[Any] | None = None
        self._calls = _Calls()
        #: the step ends with the backward pass that runs
        self._ending = False
        self.count = 0

    def _extend_optimizer(self, module: ModuleType) -> None:
        backward.watch_backward()
        other_profilers.watch_other_profilers()
        optimizer = module.Optimizer
        original = optimizer.profile_hook_step

        def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
            if self._on_optimizer is not None:
                self._on_optimizer()
            return self._wrap_step(original(function))

        optimizer.profile_hook_step = staticmethod(profile_hook_step)

    def _wrap_step(self, hooked: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(hooked)
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            calls = self._calls
            calls.depth += 1
            args, kwargs = closures.with_range(args, kwargs)
            try:
                result = hooked(optimizer, *args, **kwargs)
            finally:
                calls.depth -= 1
            # a subclass that calls its parent's step is one step
            if calls.depth == 0:
                self._note_optimizer_step(optimizer)
            return result

        return step

    def _note_optimizer_step(self, optimizer: Any) -> None:
        leader = self._leader() if self._leader is not None else None
        if leader is None:
            leader = optimizer
            self._leader = weakref.ref(optimizer)
        if leader is optimizer and os.getpid() == self._process and not self._ending:
            self._ending = True
            backward.call_after_backward(self._end_step)

    def _end_step(self) -> None:
        self._ending = False
        if os.getpid() == self._process:
            self.count += 1
            self._on_step()


class _Calls(threading.local):
    """The calls of ``Optimizer.step`` that are open; of each thread, since several may train."""

    depth = 0
