"""Runs ``steplens`` commands within the process of the tests: most of what a process of their own costs is its start.

A command gets the folder, environment, descriptors, streams and warnings that ``python -m steplens`` has, and has to leave the
process as it was. What ends with its process, or is one, belongs to ``run_process``: signals, pipes, terminals, recorded scripts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

# the first import of polars sets a variable of the environment, which a command must not
import polars  # noqa: F401

from steplens.cli.main import main

from .warm_python import run_warm

TIMEOUT_S = 600

Completed = subprocess.CompletedProcess[str]


def command_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command: that of the tests, for lines of 100 characters."""
    environment = {**os.environ, "COLUMNS": "100", **(changes or {})}
    environment.pop("PYTHONSAFEPATH", None)
    return environment


def run_process(*arguments: str | Path, folder: Path, env: Mapping[str, str] | None = None) -> Completed:
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "steplens", *map(str, arguments)],
        cwd=folder,
        env=command_environment(env),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def run_warm_process(*arguments: str | Path, folder: Path, env: Mapping[str, str] | None = None) -> Completed:
    """Run a command in a process of its own that has imported PyTorch before; see ``tests/warm_python.py``."""
    return run_warm("-m", "steplens", *arguments, folder=folder, env=command_environment(env), timeout=TIMEOUT_S)


def run_command(*arguments: str | Path, folder: Path, env: Mapping[str, str] | None = None) -> Completed:
    """Run a command in this process, and check that it leaves the process as it was.

    Args:
        arguments: the command line without the program's name.
        folder: the folder that the command works in.
        env: changes to the environment; none of them may be meant for Python itself, which runs already.
    """
    assert not any(name.startswith("PYTHON") for name in env or {}), "Python runs already: use a process"
    assert threading.current_thread() is threading.main_thread(), "folder, environment and descriptors belong to all threads"
    before = _process_state()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with _environment(command_environment(env)), _inside(folder), _descriptors(out, err), _streams(), _warnings():
            try:
                code = main([str(argument) for argument in arguments])
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except Exception:  # the boundary of the command: a process would show it and end with 1
                traceback.print_exc()
                code = 1
        assert _process_state() == before, "the command left something in the process"
        texts = [_text(file) for file in (out, err)]
    return subprocess.CompletedProcess(["steplens", *map(str, arguments)], code, *texts)


def _process_state() -> dict[str, object]:
    """What a command must not leave behind."""
    return {
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)],
        "logging": [list(logging.getLogger(name).handlers) for name in ("", "steplens")],
        "sys.path": list(sys.path),
        "sys.argv": list(sys.argv),
    }


@contextlib.contextmanager
def _environment(environment: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    for name in before.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    try:
        yield
        changed = {name for name, _ in os.environ.items() ^ environment.items()}
        assert not changed, f"the command changed its environment: {sorted(changed)}"
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    # the folder of the tests may have no name any more
    before = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(before)
        os.close(before)


@contextlib.contextmanager
def _descriptors(out: IO[bytes], err: IO[bytes]) -> Iterator[None]:
    """Everything that is written to 1 and 2 goes to these files, by libraries and child processes as well."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    kept = [os.dup(number) for number in (1, 2)]
    try:
        for number, file in ((1, out), (2, err)):
            os.dup2(file.fileno(), number)
        yield
    finally:
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)


@contextlib.contextmanager
def _streams() -> Iterator[None]:
    """Streams over the descriptors, as Python makes them where they are no terminals."""
    names = ("stdout", "stderr", "__stdout__", "__stderr__")
    before = {name: getattr(sys, name) for name in names}
    out, err = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
    err.reconfigure(errors="backslashreplace", line_buffering=True)
    for name, stream in zip(names, (out, err, out, err), strict=True):
        setattr(sys, name, stream)
    try:
        yield
    finally:
        for name, stream in before.items():
            setattr(sys, name, stream)
        for stream in (out, err):
            with contextlib.suppress(OSError, ValueError):
                stream.close()


@contextlib.contextmanager
def _warnings() -> Iterator[None]:
    """Those that Python shows on stderr when nobody sets anything."""
    with warnings.catch_warnings():
        warnings.resetwarnings()
        for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", category, append=True)
        warnings.filterwarnings("default", category=DeprecationWarning, module="__main__")
        warnings.showwarning = _show_warning
        yield


def _show_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
    sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8")
