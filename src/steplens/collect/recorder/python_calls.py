"""Calls of Python in a recording: a profile function of C on the threads of this interpreter.

It is in ``native/recorder/python_calls.h``. A profiler of the program that has a thread keeps it, and one that comes later gets
it: what that costs, the recording says.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
import threading
from typing import Any

from steplens.collect.torch_internals import child_threads

_ERROR_BYTES = 256
#: what is known of versions and builds of CPython: since 3.14 no thread may look at the stack of another
_FIRST_UNKNOWN = (3, 14)
_OBJECT_HEAD_BYTES = 16


class PythonCallsError(RuntimeError):
    """Calls of Python cannot be recorded; its text says why."""


class _Objects(ctypes.Structure):
    _fields_ = (
        ("prefixes", ctypes.c_char_p),
        ("module_call", ctypes.c_void_p),
        ("partial", ctypes.c_void_p),
        ("join", ctypes.c_void_p),
        ("replaceable", ctypes.c_void_p),
    )


class _State:
    """What stays from recording to recording.

    Attributes:
        library: what records, with Python's lock held_objects while it is called; None until the first recording.
        held_objects: objects whose addresses the library has.
        is_on: whether this process records calls of Python.
    """

    library: ctypes.PyDLL | None = None
    held_objects: tuple[Any, ...] = ()
    is_on = False


def why_not_recorded() -> str:
    """What of this Python keeps its calls from being recorded; empty where nothing does."""
    is_locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.implementation.name == "cpython" and sys.version_info < _FIRST_UNKNOWN and is_locked:
        if object.__basicsize__ == _OBJECT_HEAD_BYTES:
            return ""
    return "calls of Python are recorded on CPython before 3.14 with its global lock"


def start_python_calls(library: ctypes.CDLL) -> None:
    """Record calls of Python from now on, on all threads of this interpreter.

    Args:
        library: the recorder, which records already.

    Raises:
        PythonCallsError: this Python does not offer what that takes.
    """
    if reason := why_not_recorded():
        raise PythonCallsError(reason)
    if _State.library is None:
        _State.library = ctypes.PyDLL(library._name, handle=library._handle)
        _State.held_objects = (module_call(), functools.partial, _join_thread, child_threads.profile_function())
    prefixes = "\n".join(file_prefixes()).encode(errors="surrogateescape")
    objects = _Objects(prefixes, *(id(each) if each is not None else None for each in _State.held_objects))
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    if _State.library.steplens_recorder_start_python(ctypes.byref(objects), error, _ERROR_BYTES):
        raise PythonCallsError(error.value.decode(errors="replace"))
    _State.is_on = True
    if threading.getprofile() in (None, _join_thread):
        threading.setprofile(_join_thread)


def stop_python_calls() -> None:
    """End that, after the recording has ended: threads notice it at their next call."""
    if _State.is_on and _State.library is not None:
        _State.is_on = False
        _State.library.steplens_recorder_stop_python()
    if threading.getprofile() is _join_thread:
        threading.setprofile(None)


def _join_thread(*_event: Any) -> None:
    """The first event of a thread that begins, or that a profiler of the program gives back."""
    library = _State.library
    if library is None or not library.steplens_recorder_join_python(1):
        sys.setprofile(None)


def module_call() -> Any:
    """The code of the calls of modules, which are named by their module."""
    modules: Any = importlib.import_module("torch.nn")
    return getattr(modules.Module.__call__, "__code__", None)


def file_prefixes() -> list[str]:
    """Beginnings of file names that PyTorch leaves out."""
    try:
        tracer: Any = importlib.import_module("torch.profiler.python_tracer")
        return [str(prefix) for prefix in tracer._prefix_regex()]
    except (ImportError, AttributeError):
        return []
