"""Steps of a script that runs a model and trains nothing: one step ends when the next call of the model begins.

The model is the outermost ``torch.nn.Module`` that is called first, as the first optimizer that steps leads a training. A step
thus holds one call of it and what the program does with the result until it calls again.

Until the model is known the call of all modules is extended, then that of its class alone. Hooks of modules would not do: they
make every call of every module slower, ``torch.compile`` warns of them, and ranges of modules are opened by other hooks, so that
a range could begin in one step and end in the next.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from steplens.collect.dynamic.steps.after_import import after_import
from steplens.collect.torch_internals import backward, other_profilers

MODULES_MODULE = "torch.nn.modules.module"


class ForwardSteps:
    """Calls ``on_step`` before each call of the model but the first, in the process that created this object.

    Calls on other threads than that of the first do not count: a step is one turn of one loop. When the model no longer exists,
    the next module that is called takes its place.

    Args:
        on_step: called without arguments on the thread that calls the model; must not raise.
        on_model: called without arguments when the model is known; must not raise.
    """

    def __init__(self, on_step: Callable[[], None], on_model: Callable[[], None] | None = None) -> None:
        self._on_step = on_step
        self._on_model = on_model
        self._model: weakref.ref[Any] | None = None
        self._extended: set[type] = set()
        #: ends looking for the model
        self._found: Callable[[], None] = lambda: None
        self.follow_fork()

    def install(self) -> None:
        """Look for the model from now on, or from the moment PyTorch is imported."""
        after_import(MODULES_MODULE, self._watch_models)

    def follow_fork(self) -> None:
        """Count in the calling process, a forked child of the one that counted so far."""
        self._process = os.getpid()
        self._thread = threading.get_ident()
        self._called = self._running = False
        self.count = 0

    def _watch_models(self, module: ModuleType) -> None:
        every = module.Module
        original = every.__call__

        @functools.wraps(original)
        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_gone():
                self._follow_model(model, module)
                return original(model, *args, **kwargs)
            # somebody keeps the method, as loops that generate text do
            current = type(model).__call__
            return (original if current is call else current)(model, *args, **kwargs)

        def restore_call() -> None:
            if every.__call__ is call:
                every.__call__ = original

        self._found()
        self._found = restore_call
        every.__call__ = call

    def _is_gone(self) -> bool:
        return self._model is None or self._model() is None

    def _follow_model(self, model: Any, module: ModuleType) -> None:
        backward.watch_backward()
        other_profilers.watch_other_profilers()
        self._model = weakref.ref(model, lambda _: None if sys.is_finalizing() else self._watch_models(module))
        self._thread = threading.get_ident()
        self._found()
        # this call has begun already
        self._called = True
        self._extend_class(type(model), module)
        if self._on_model is not None:
            self._on_model()

    def _extend_class(self, kind: Any, module: ModuleType) -> None:
        if kind in self._extended:
            return
        self._extended.add(kind)
        original = kind.__call__

        @functools.wraps(original)
        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_gone():
                self._follow_model(model, module)
                return original(model, *args, **kwargs)
            if not self._is_step_begin(model):
                return original(model, *args, **kwargs)
            if self._called:
                self.count += 1
                self._on_step()
            self._called = self._running = True
            try:
                return original(model, *args, **kwargs)
            finally:
                self._running = False

        kind.__call__ = call

    def _is_step_begin(self, model: Any) -> bool:
        """Whether this call of a module is the beginning of a step; a model that calls itself is one call."""
        if self._running or self._model is None or self._model() is not model:
            return False
        if threading.get_ident() != self._thread or os.getpid() != self._process:
            return False
        # neither what torch.compile traces is a real call, nor what is calculated again inside of backward a new turn
        return not sys.modules["torch"].compiler.is_compiling() and not backward.is_running()
