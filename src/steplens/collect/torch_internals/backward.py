"""What has to wait until PyTorch's backward pass is over: the beginning and the end of windows.

The engine of autograd keeps what belongs to a thread, the profiler's state included, when a backward pass begins, and puts it
back when the pass ends. A window that a hook of a gradient closes is open again afterwards, and PyTorch refuses every later one;
so do windows whose steps an optimizer takes inside of backward. On an accelerator hooks also run on threads of the engine,
which cannot close what the training's thread has opened.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from typing import Any

#: runs a backward pass, whoever asks for it in Python
_ENGINE = "_engine_run_backward"
_MODULES = ("torch.autograd.graph", "torch.autograd")
_OUTSIDE = -1

#: what waits, with the thread that asked for it
_waiting: list[tuple[int, Callable[[], None]]] = []
#: threads inside of a backward pass that they asked for
_callers: set[int] = set()
_lock = threading.Lock()
_watched: Any = None
_current: Callable[[], int] = functools.partial(int, _OUTSIDE)


def watch_backward() -> None:
    """Notice the ends of backward passes from now on. PyTorch has been imported before; nothing happens a second time."""
    global _current, _watched
    modules = [importlib.import_module(name) for name in _MODULES]
    engine = getattr(modules[0], _ENGINE, None)
    current = getattr(importlib.import_module("torch._C"), "_current_graph_task_id", None)
    if engine is None or current is None or engine is _watched:
        return

    @functools.wraps(engine)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        thread = threading.get_ident()
        # a backward pass inside a backward pass, as of activation checkpoints, is not the end
        outermost = thread not in _callers
        _callers.add(thread)
        try:
            return engine(*args, **kwargs)
        finally:
            if outermost:
                _callers.discard(thread)
                if _waiting:
                    _run_waiting_calls(thread)

    for module in modules:
        setattr(module, _ENGINE, run_backward)
    _watched, _current = run_backward, current


def backward_number() -> int:
    """The number of the backward pass that the calling thread works on; -1 outside of one."""
    return _current()


def is_running() -> bool:
    """Whether the calling thread works on a backward pass."""
    return _current() != _OUTSIDE


def call_after_backward(call: Callable[[], None]) -> None:
    """Call when the backward pass is over that the calling thread works on; at once outside of one.

    Args:
        call: gets no arguments and must not raise. It is called on the thread that asked for the backward pass.
    """
    thread = threading.get_ident()
    with _lock:
        _waiting.append((thread, call))
    _run_waiting_calls(thread)


def _run_waiting_calls(thread: int) -> None:
    """Make the calls that wait for this thread, where it is outside of backward now."""
    if is_running():
        return
    with _lock:
        # the engine's own threads work for whoever asked for the pass
        ready = [waiting for waiting in _waiting if waiting[0] == thread or waiting[0] not in _callers]
        _waiting[:] = [waiting for waiting in _waiting if waiting not in ready]
    for _, call in ready:
        call()
