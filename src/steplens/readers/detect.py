"""Which reader reads a path: the visible list of formats, and the way through the cache."""

from __future__ import annotations

from pathlib import Path

from steplens import rundir
from steplens.errors import InputError
from steplens.readers import kineto, run_directory
from steplens.trace import store
from steplens.trace.trace import Trace


def load_trace(path: Path) -> Trace:
    """The trace of one run directory or trace file, from its cache or read anew.

    Raises:
        InputError: the path does not exist, is of no known format, or holds nothing to read.
    """
    if not path.exists():
        raise InputError(path, "does not exist", "Check the path")
    if run_directory.detect(path):
        return store.cached(
            path / rundir.CACHE_DIRECTORY / "trace", run_directory.sources(path), lambda: run_directory.read(path)
        )
    if kineto.detect(path):
        cache = path.parent / rundir.CACHE_DIRECTORY / path.name
        return store.cached(cache, [path], lambda: kineto.read(path))
    if path.is_file():
        raise InputError(
            path, "is not a trace steplens knows", "It reads Kineto and Chrome traces (.json, .json.gz) and run directories"
        )
    raise InputError(
        path, "holds no run", "Give a run directory (its name ends in _ascend_pt), a folder of them, or a trace file"
    )


def find_traces(path: Path) -> list[Path]:
    """The run directories of ``path``, or ``path`` itself where it is a run directory or a file.

    Raises:
        InputError: the path does not exist, or is a folder without runs.
    """
    if not path.exists():
        raise InputError(path, "does not exist", "Check the path")
    if path.is_file():
        return [path]
    found = rundir.find_run_directories(path)
    if not found:
        raise InputError(
            path, "holds no run", "Give a run directory (its name ends in _ascend_pt), a folder of them, or a trace file"
        )
    return found
