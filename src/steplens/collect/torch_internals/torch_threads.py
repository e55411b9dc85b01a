"""The functions by which a thread joins and leaves a recording of Kineto; PyTorch has them in C++ only.

``torch/csrc/autograd/profiler_kineto.h`` offers them to threads "that have no control over how the profiler was
enabled". They take and return nothing, so that calling them needs no knowledge of C++ beyond their names.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_IS_RECORDING = "_ZN5torch8autograd8profiler29isProfilerEnabledInMainThreadEv"
_JOIN = "_ZN5torch8autograd8profiler27enableProfilerInChildThreadEv"
_LEAVE = "_ZN5torch8autograd8profiler28disableProfilerInChildThreadEv"
_FORGET = "_ZN2at25clearThreadLocalCallbacksEv"

_LOG_LEVEL = "FLAGS_caffe2_log_level"
_ERRORS_ONLY = 2


class ThreadCalls:
    """What a thread can do about a recording that another thread has started.

    Every call holds the interpreter's lock, so that no two of them run at once. None of them may raise in C++, which
    would end the process: each first asks whether it can be done.

    Args:
        library: PyTorch's library, loaded with ``ctypes.PyDLL``.
        log_level: PyTorch's threshold for its own log lines, where it can be reached.
    """

    def __init__(self, library: ctypes.PyDLL, log_level: ctypes.c_int | None) -> None:
        self._is_recording = _bind_function(library, _IS_RECORDING, ctypes.c_bool)
        self._join = _bind_function(library, _JOIN, None)
        self._leave = _bind_function(library, _LEAVE, None)
        self._forget = _bind_function(library, _FORGET, None)
        self._log_level = log_level
        self._enabled_here: Any = importlib.import_module("torch.autograd")._profiler_enabled

    def join(self) -> bool:
        """Let the calling thread be recorded; False when nothing records, or this thread is recorded already."""
        if self._enabled_here() or not self._is_recording():
            return False
        with self.quietly():
            self._join()
        return True

    def leave(self) -> None:
        """Let the calling thread no longer be recorded, if it is."""
        if self._enabled_here():
            with self.quietly():
                self._leave()
            self.forget_callbacks()

    def forget_callbacks(self) -> None:
        """Remove what observes the operators of the calling thread.

        The threads of a recording share one place to remember what to remove at the end, so that all but the last one
        to join would keep their observer; it would record everything twice in the next recording.
        """
        self._forget()

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """Without PyTorch's warnings about the shared place."""
        if self._log_level is None:
            yield
            return
        before = self._log_level.value
        self._log_level.value = max(before, _ERRORS_ONLY)
        try:
            yield
        finally:
            self._log_level.value = before


def _bind_function(library: ctypes.PyDLL, name: str, result: Any) -> Any:
    function = getattr(library, name)
    function.argtypes = ()
    function.restype = result
    return function


@functools.cache
def load_thread_calls() -> ThreadCalls | None:
    """The functions of the PyTorch that is running; None where it has none, or not under these names."""
    try:
        folder = Path(importlib.import_module("torch").__file__ or "").parent / "lib"
        suffix = "dylib" if sys.platform == "darwin" else "so"
        # Only what is loaded already: a second copy of the library would know nothing of this recording.
        mode = os.RTLD_NOLOAD | os.RTLD_LAZY
        library = ctypes.PyDLL(str(folder / f"libtorch_cpu.{suffix}"), mode=mode)
        return ThreadCalls(library, _log_level(folder / f"libc10.{suffix}", mode))
    except (OSError, AttributeError):
        return None


def _log_level(path: Path, mode: int) -> ctypes.c_int | None:
    try:
        return ctypes.c_int.in_dll(ctypes.CDLL(str(path), mode=mode), _LOG_LEVEL)
    except (OSError, ValueError):
        return None
