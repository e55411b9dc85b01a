"""Compiles a library of C++ into the user's cache folder, once for all processes that want it at the same time.

As a program, ``python -m steplens.common.native.build NAME``, it builds a library that needs no PyTorch; what reads large files
starts that in the background, for the next time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from steplens.common.errors import SteplensError
from steplens.common.native.libraries import COMMON_FLAGS, NativeLibrary, build_folder, find_built, is_wanted, open_build_folder
from steplens.common.storage.private_folder import RefusedError

#: the compiler, before those that are looked for
COMPILER_VARIABLE = "CXX"
COMPILERS = ("g++", "clang++", "c++")
LIMIT_S = 120.0
#: how long another process is waited for that builds the same library
_WAIT_S = 150.0
_PAUSE_S = 0.05
#: how long a failure is believed, where the compiler is the same
_FAILURE_S = 24 * 3600.0
_MOST_TEXT = 2000


class BuildError(SteplensError):
    """A library could not be built; its text says why, and what would help."""


def find_compiler() -> str | None:
    """The path of a C++ compiler; None where there is none."""
    user_choice = os.environ.get(COMPILER_VARIABLE, "").split()
    for name in (*user_choice[:1], *COMPILERS):
        if (path := shutil.which(name)) is not None:
            return path
    return None


def build_library(library: NativeLibrary, folder: Path | None = None) -> Path:
    """Build a library, unless it is built; a second process that asks meanwhile waits for the first.

    Args:
        library: what to build.
        folder: where, an existing one; by default the user's cache folder.

    Raises:
        BuildError: there is no compiler, it failed, or there is no place for what it makes.
    """
    if not is_wanted():
        raise BuildError("STEPLENS_NATIVE=off forbids native libraries. Unset it to have them built")
    if (built := _find_in(library, folder)) is not None:
        return built
    compiler = find_compiler()
    if compiler is None:
        raise BuildError("there is no C++ compiler (g++, clang++, or the one that CXX names). Install one, such as g++")
    try:
        target = (open_build_folder() if folder is None else folder) / library.file_name()
        with _hold_lock(target.with_suffix(".lock")):
            if (built := _find_in(library, folder)) is not None:
                return built
            _raise_known_failure(target.with_suffix(".failed"), compiler)
            return _compile_library(library, compiler, target)
    except (OSError, RefusedError) as error:
        raise BuildError(f"the library {library.name} cannot be kept: {error}. Make the folder writable for you alone") from error


def _find_in(library: NativeLibrary, folder: Path | None) -> Path | None:
    """A library that is built, anywhere or in one folder."""
    if folder is None:
        return find_built(library)
    path = folder / library.file_name()
    return path if path.is_file() else None


def build_in_background(name: str) -> None:
    """Start to build a library that needs no PyTorch, in a process that outlives this one; whatever fails is left."""
    if is_wanted() and find_compiler() is not None:
        command = [sys.executable, "-m", "steplens.common.native.build", name]
        no_stream = subprocess.DEVNULL
        with contextlib.suppress(OSError):
            subprocess.Popen(command, stdin=no_stream, stdout=no_stream, stderr=no_stream, start_new_session=True, close_fds=True)


def _compile_library(library: NativeLibrary, compiler: str, target: Path) -> Path:
    sources = [str(path) for path in library.source_files() if path.suffix == ".cpp"]
    unfinished = target.with_name(f".{target.name}-{os.getpid()}.partial")
    command = [compiler, *COMMON_FLAGS, "-o", str(unfinished), *sources, *library.flags]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False)
        if done.returncode != 0:
            raise BuildError(_keep_failure(target, compiler, _first_error(done.stderr, compiler)))
        unfinished.chmod(0o555)
        os.replace(unfinished, target)
    except subprocess.TimeoutExpired:
        raise BuildError(_keep_failure(target, compiler, f"{compiler} took more than {LIMIT_S:g} s")) from None
    finally:
        unfinished.unlink(missing_ok=True)
    target.with_suffix(".failed").unlink(missing_ok=True)
    return target


def _first_error(output: bytes, compiler: str) -> str:
    """What a compiler complained of first."""
    lines = output.decode("utf-8", "replace").splitlines()
    error = next((line for line in lines if "error" in line), lines[0] if lines else "it did not say why")
    return f"{compiler} failed: {error.strip()[:_MOST_TEXT]}"


def _compiler_stamp(compiler: str) -> str:
    """Stands for a compiler: another one may succeed where this one failed."""
    real = os.path.realpath(compiler)
    return f"{real} {os.stat(real).st_mtime_ns}"


def _keep_failure(target: Path, compiler: str, reason: str) -> str:
    """Leave the reason for the next process, which need not try for seconds what fails; returns it."""
    with contextlib.suppress(OSError):
        target.with_suffix(".failed").write_text(f"{_compiler_stamp(compiler)}\n{reason}", encoding="utf-8")
    return reason


def known_failure(library: NativeLibrary, compiler: str) -> str:
    """Why a library could not be built lately with this compiler; empty where that is not known."""
    try:
        _raise_known_failure((build_folder() / library.file_name()).with_suffix(".failed"), compiler)
    except BuildError as error:
        return str(error)
    return ""


def _raise_known_failure(path: Path, compiler: str) -> None:
    try:
        is_recent = time.time() - path.stat().st_mtime < _FAILURE_S
        stamp, _, reason = path.read_text(encoding="utf-8", errors="replace").partition("\n")
    except OSError:
        return
    if is_recent and stamp == _compiler_stamp(compiler):
        raise BuildError(f"{reason} (remove {path} to have it tried again before tomorrow)")


@contextlib.contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    """Hold a lock file, which is released with the process however it ends.

    Raises:
        BuildError: another process has held it for too long.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    message = f"another process has been building {path.stem} for {_WAIT_S:g} s. End it, or remove {path}"
                    raise BuildError(message) from None
                time.sleep(_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def build_named_library() -> int:
    """Build the library that the command line names."""
    with contextlib.suppress(OSError):
        os.nice(10)
    try:
        build_library(NativeLibrary(sys.argv[1]))
    except BuildError as error:
        print(f"steplens: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(build_named_library())
