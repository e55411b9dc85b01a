"""The recorder's library: built for the installed PyTorch, loaded, and called.

Its plain C interface is ``native/recorder/interface.cpp``. It is compiled against the headers that the installed PyTorch brings,
and kept under that version: another one has it built anew.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import importlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steplens.collect.recorder import python_calls, python_sampling
from steplens.common.native.build import BuildError, build_library, find_compiler, known_failure
from steplens.common.native.libraries import NativeLibrary, is_wanted, load_built
from steplens.common.storage.private_folder import RefusedError

#: how a program says that it wants the recorder (on), does not (off), or leaves it to steplens (auto): where it records all that
#: is wanted
VARIABLE = "STEPLENS_RECORDER"
OFF, AUTO, ON = "off", "auto", "on"

#: what is recorded of a call beside its name, thread and times; bits of ``Options`` in ``native/recorder/recorder.h``
WITH_SHAPES, WITH_MEMORY, WITH_FLOPS, WITH_PYTHON, WITH_SAMPLES = 1, 2, 4, 8, 16

#: records of all threads that wait for the disk take no more than this
MOST_WAITING_BYTES = 32 << 20
_ERROR_BYTES = 1024
_TAKEN = "the recorder records one window of a process at a time, and has another; nothing is recorded in this one"


class RecorderError(RuntimeError):
    """The recorder cannot record; its text says why."""


class _Totals(ctypes.Structure):
    _fields_ = (
        ("calls", ctypes.c_uint64),
        ("memory_events", ctypes.c_uint64),
        ("dropped_calls", ctypes.c_uint64),
        ("dropped_memory_events", ctypes.c_uint64),
        ("file_bytes", ctypes.c_uint64),
        ("error_number", ctypes.c_int64),
        ("python_calls", ctypes.c_uint64),
        ("dropped_python_calls", ctypes.c_uint64),
        ("refused_python_threads", ctypes.c_uint64),
        ("lost_python_threads", ctypes.c_uint64),
        ("python_samples", ctypes.c_uint64),
        ("dropped_python_samples", ctypes.c_uint64),
        ("stackless_python_samples", ctypes.c_uint64),
        ("cut_python_samples", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class RecordingTotals:
    """What became of a recording.

    Attributes:
        calls: records of calls in the file.
        memory_events: allocations and their ends in the file.
        dropped_calls: calls that found no room on their way to the disk.
        dropped_memory_events: likewise.
        file_bytes: size of the file.
        error_number: errno of what ended writing early; 0 where nothing did.
        python_calls: calls of Python in the file.
        dropped_python_calls: likewise, of those.
        refused_python_threads: threads whose calls of Python are not recorded, since a profiler of the program had them.
        lost_python_threads: threads that one took while recording went on.
        python_samples: records of sampled stacks in the file.
        dropped_python_samples: samples that found no room on their way to the disk, or could not be taken.
        stackless_python_samples: samples whose stack found no place, since there were too many different ones.
        cut_python_samples: samples of stacks so deep that their outermost frames are left out.
    """

    calls: int
    memory_events: int
    dropped_calls: int
    dropped_memory_events: int
    file_bytes: int
    error_number: int
    python_calls: int = 0
    dropped_python_calls: int = 0
    refused_python_threads: int = 0
    lost_python_threads: int = 0
    python_samples: int = 0
    dropped_python_samples: int = 0
    stackless_python_samples: int = 0
    cut_python_samples: int = 0


def wanted_recorder() -> str:
    """What the environment says: ``ON``, ``OFF`` or ``AUTO``, which is also what anything else counts as."""
    value = os.environ.get(VARIABLE, "").strip().lower()
    return {"on": ON, "1": ON, "off": OFF, "0": OFF}.get(value, AUTO)


def recorder_library() -> NativeLibrary:
    """The library for the PyTorch of this process.

    Raises:
        RecorderError: PyTorch brings no headers to build it against.
    """
    torch: Any = importlib.import_module("torch")
    home = Path(torch.__file__).parent
    if not (home / "include" / "ATen" / "record_function.h").is_file():
        raise RecorderError(f"this PyTorch has no C++ headers (in {home / 'include'}), which the recorder is built with")
    abi = int(bool(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True)))
    flags = (
        f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        "-isystem",
        str(home / "include"),
        f"-L{home / 'lib'}",
        "-ltorch_cpu",
        "-lc10",
        "-lpthread",
    )
    version = f"torch {torch.__version__} {getattr(torch.version, 'git_version', '')} abi {abi}"
    return NativeLibrary("recorder", flags, (version,))


@functools.lru_cache(maxsize=1)
def load_recorder() -> ctypes.CDLL:
    """The library, built where it is not yet: once for a PyTorch, in some ten seconds.

    Raises:
        RecorderError: it cannot be built or loaded.
    """
    if not is_wanted():
        raise RecorderError("STEPLENS_NATIVE=off forbids native libraries")
    library = recorder_library()
    try:
        build_library(library)
    except (BuildError, RefusedError) as error:
        raise RecorderError(f"the recorder cannot be built: {error}") from error
    loaded = load_built(library)
    if loaded is None:
        raise RecorderError("the recorder was built, and cannot be loaded")
    loaded.steplens_recorder_start.argtypes = (
        ctypes.c_char_p, ctypes.c_uint32, ctypes.c_int64, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t,
    )  # fmt: skip
    loaded.steplens_recorder_finish.argtypes = (ctypes.c_char_p, ctypes.POINTER(_Totals))
    loaded.steplens_recorder_watch_calls.argtypes = (ctypes.c_int,)
    loaded.steplens_recorder_bytes.restype = ctypes.c_uint64
    return loaded


def is_built() -> bool:
    """Whether the library need not be built first."""
    try:
        return is_wanted() and load_built(recorder_library()) is not None
    except RecorderError:
        return False


def will_be_built() -> bool:
    """Whether to load it begins with building it, which takes its time.

    Raises:
        RecorderError: PyTorch brings no headers to build it against.
    """
    compiler = find_compiler() if is_wanted() and not is_built() else None
    return compiler is not None and not known_failure(recorder_library(), compiler)


def start_recorder(path: Path, options: int, metadata: dict[str, Any], *, stack_sampling_hz: float = 0.0) -> None:
    """Record every thread of this process from now on.

    Args:
        path: the file, which must not exist.
        options: ``WITH_SHAPES`` and so on, added up.
        metadata: kept at the beginning of the file, for a process that is killed.
        stack_sampling_hz: how often a second the stacks of Python are looked at; 0: never.

    Raises:
        RecorderError: it records already, or the file cannot be made.
    """
    if is_recorder_recording():
        raise RecorderError(_TAKEN)
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    if stack_sampling_hz:
        options |= WITH_SAMPLES
        metadata = {**metadata, python_sampling.SAMPLING_RATE: stack_sampling_hz}
    text = json.dumps(metadata, default=str).encode()
    failed = load_recorder().steplens_recorder_start(os.fsencode(path), options, MOST_WAITING_BYTES, text, error, _ERROR_BYTES)
    if failed == errno.EBUSY:
        # another thread was faster, or its window is on its way to the disk
        raise RecorderError(_TAKEN)
    if failed:
        raise RecorderError(f"{path}: {error.value.decode(errors='replace')}")
    if options & (WITH_PYTHON | WITH_SAMPLES):
        try:
            if options & WITH_PYTHON:
                python_calls.start_python_calls(load_recorder())
            if options & WITH_SAMPLES:
                python_sampling.start_sampling(load_recorder(), stack_sampling_hz)
        except python_calls.PythonCallsError as exception:
            finish_recorder(metadata)
            raise RecorderError(f"{path}: {exception}") from exception


def stop_recorder() -> None:
    """End recording, at once: the file is complete after ``finish_recorder``."""
    load_recorder().steplens_recorder_stop()
    python_sampling.stop_sampling()
    python_calls.stop_python_calls()


def finish_recorder(metadata: dict[str, Any]) -> RecordingTotals:
    """Wait until everything is on its way to the disk, and close the file.

    Args:
        metadata: kept at the end of the file; its members count before those of the beginning.
    """
    totals = _Totals()
    stop_recorder()
    load_recorder().steplens_recorder_finish(json.dumps(metadata, default=str).encode(), ctypes.byref(totals))
    return RecordingTotals(**{name: getattr(totals, name) for name, _ in _Totals._fields_})


def watch_calls(watched: bool) -> None:
    """Record calls that begin from now on, or none of them, while a recording goes on; memory is recorded all the time."""
    load_recorder().steplens_recorder_watch_calls(int(watched))


def recorded_bytes() -> int:
    """What the file comes to with all that is recorded by now. Takes about a microsecond."""
    return int(load_recorder().steplens_recorder_bytes())


class RecorderRange:
    """A context manager around a call of this name, for the recorder and whoever else watches PyTorch's calls.

    PyTorch's ``_RecordFunctionFast`` does nothing unless Kineto records, and its ``record_function`` costs several times as much.
    """

    __slots__ = ("_name", "_opened")

    def __init__(self, name: str) -> None:
        self._name = name.encode(errors="replace")
        self._opened: int | None = None

    def __enter__(self) -> None:
        self._opened = _range_calls()[0](self._name)

    def __exit__(self, *_: object) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            _range_calls()[1](opened)


@functools.lru_cache(maxsize=1)
def _range_calls() -> tuple[Any, Any]:
    """What begins and ends a range. They are short, so that other threads of Python need not get a turn meanwhile."""
    library = load_recorder()
    with_lock = ctypes.PyDLL(library._name)
    begin, end = with_lock.steplens_recorder_begin_range, with_lock.steplens_recorder_end_range
    begin.argtypes, begin.restype = (ctypes.c_char_p,), ctypes.c_void_p
    end.argtypes, end.restype = (ctypes.c_void_p,), None
    return begin, end


def is_recorder_recording() -> bool:
    """Whether it records in this process."""
    return bool(load_recorder().steplens_recorder_is_recording())
