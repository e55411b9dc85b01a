"""Compiles the stand-in for CANN's profiling library and reads its log."""

from __future__ import annotations

import ctypes
import functools
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).with_name("msprofiler.c")
NAME = "libmsprofiler.so"

_CALLS = {"begin_ns", "end_ns", "thread", "concurrent", "code", "call"}


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="steplens_ascend_")


DUMP_SOURCE = Path(__file__).with_name("ascend_dump.c")


@functools.cache
def compiled(*flags: str, source: Path = SOURCE) -> Path:
    """The library, compiled once per set of flags; the test is skipped without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("the stand-in for CANN's library needs a C compiler (cc or gcc)")
    folder = Path(tempfile.mkdtemp(dir=_folder().name))
    path = folder / NAME
    command = [compiler, "-shared", "-fPIC", "-O1", *flags, "-o", str(path), str(source), "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return path


class Log:
    """What a program called, from the log of the library."""

    def __init__(self, path: Path, library: Path) -> None:
        self.path = path
        self.library = library

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Every call in order."""
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    @property
    def calls(self) -> list[str]:
        """The names of the calls in order, without ``aclprof``; the list of features is not of interest here."""
        return [
            entry["call"].removeprefix("aclprof") for entry in self.entries if not entry["call"].startswith("aclprofGetSupported")
        ]

    @property
    def failed(self) -> dict[str, int]:
        """The calls that returned an error; creating a config returns 1 for a config and 0 for none."""
        return {
            entry["call"].removeprefix("aclprof"): entry["code"]
            for entry in self.entries
            if (entry["code"] != 0) != (entry["call"] == "aclprofCreateConfig")
        }

    def one(self, call: str) -> dict[str, Any]:
        """The arguments of the only call of this name."""
        (entry,) = self.all(call)
        return entry

    def all(self, call: str) -> list[dict[str, Any]]:
        """The arguments of every call of this name."""
        return [
            {name: value for name, value in entry.items() if name not in _CALLS}
            for entry in self.entries
            if entry["call"] == f"aclprof{call}"
        ]

    def times(self, call: str) -> list[tuple[int, int]]:
        """When calls of this name began and ended, in Unix ns."""
        return [(entry["begin_ns"], entry["end_ns"]) for entry in self.entries if entry["call"] == f"aclprof{call}"]

    def forget(self) -> None:
        """Begin a new log."""
        self.path.unlink(missing_ok=True)

    @property
    def leaks(self) -> int:
        """Configs that were created and not destroyed, in the library of this very process."""
        return int(ctypes.CDLL(str(self.library)).steplens_test_leaks())


class Stand:
    """Puts a variant of the library in place of CANN's for one test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._monkeypatch = monkeypatch
        self._folder = folder

    def __call__(self, *flags: str) -> Log:
        """Use the library compiled with these flags, in its first state."""
        path = compiled(*flags)
        ctypes.CDLL(str(path)).steplens_test_reset()
        self.set("STEPLENS_MSPROFILER_LIBRARY", str(path))
        log = Log(self._folder / "calls.log", path)
        log.forget()
        self.set("STEPLENS_TEST_LOG", str(log.path))
        return log

    def dump(self, *flags: str) -> None:
        """Put a variant of ``libascend_dump.so`` in place of CANN's."""
        self.set("STEPLENS_ASCEND_DUMP_LIBRARY", str(compiled(*flags, source=DUMP_SOURCE)))

    def set(self, name: str, value: str) -> None:
        """Set an environment variable for the test."""
        self._monkeypatch.setenv(name, value)

    def fail(self, **codes: int) -> None:
        """Let calls fail: ``Start=500005``, ``Stop__2=1`` for the second one only."""
        text = ",".join(f"aclprof{name.replace('__', '@')}={code}" for name, code in codes.items())
        self.set("STEPLENS_TEST_FAIL", text)
