"""Stacks of Python in a recording, sampled at a rate: which function of which line each thread is in, without recording calls.

It is in ``native/recorder/python_sampling.h``.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
from typing import Any

from steplens.collect.recorder import python_calls
from steplens.collect.recorder.python_calls import PythonCallsError
from steplens.formats.recorder import SAMPLING_RATE as SAMPLING_RATE

#: the names of threads of steplens begin so: they are no part of the program
_OWN_THREADS = b"steplens"
_ERROR_BYTES = 256


class _Objects(ctypes.Structure):
    _fields_ = (
        ("prefixes", ctypes.c_char_p),
        ("module_call", ctypes.c_void_p),
        ("threads", ctypes.c_void_p),
        ("left_out", ctypes.c_char_p),
    )


class _State:
    """What stays from recording to recording.

    Attributes:
        library: what samples, to be called without Python's lock; None until the first time.
        held_objects: objects whose addresses the library has.
        process: that samples; 0 where none does.
    """

    library: ctypes.CDLL | None = None
    held_objects: tuple[Any, ...] = ()
    process = 0


def start_sampling(library: ctypes.CDLL, rate_hz: float) -> None:
    """Sample the stacks of all threads of this interpreter from now on.

    Args:
        library: the recorder, which records already.
        rate_hz: how often a second.

    Raises:
        PythonCallsError: this Python does not offer what that takes.
    """
    if reason := python_calls.why_not_recorded():
        raise PythonCallsError(reason)
    if _State.library is None:
        threads: Any = importlib.import_module("threading")
        _State.held_objects = (python_calls.module_call(), threads._active)
        _State.library = library
        # a thread that asks for the lock of a Python that ends is ended by it
        atexit.register(stop_sampling)
    addresses = (id(each) if each is not None else None for each in _State.held_objects)
    prefixes = "\n".join(python_calls.file_prefixes()).encode(errors="surrogateescape")
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    with_lock = ctypes.PyDLL(library._name, handle=library._handle)
    with_lock.steplens_recorder_start_sampling.argtypes = (
        ctypes.c_void_p, ctypes.c_double, ctypes.c_char_p, ctypes.c_size_t,
    )  # fmt: skip
    objects = _Objects(prefixes, *addresses, _OWN_THREADS)
    if with_lock.steplens_recorder_start_sampling(ctypes.byref(objects), rate_hz, error, _ERROR_BYTES):
        raise PythonCallsError(error.value.decode(errors="replace"))
    _State.process = os.getpid()


def stop_sampling() -> None:
    """End that, after the recording has ended; waits for the sample that is being taken."""
    if _State.library is not None and _State.process == os.getpid():
        _State.process = 0
        _State.library.steplens_recorder_stop_sampling()
