"""Runs CANN's ``msprof`` to export the device data of a ``PROF_*`` directory; only when a user asked for it.

The command is an executable that lies on PATH and works on data of the user, so it is checked to belong to a CANN
installation, gets no shell, has a time limit, and what it prints is kept in the run's ``logs/``.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from steplens.common import rundir
from steplens.common.errors import InputError
from steplens.formats.ascend_capture import MSPROF

#: where a CANN installation has the program behind the command
_PROGRAM = Path("tools/profiler/profiler_tool/analysis/msprof/msprof.py")
#: in ``msprof --help``: knows databases; makes one along with the text files
_TYPE_OPTION = "--type"
_ALSO_DATABASE = "will also export the database"

_HELP_SECONDS = 60.0
#: the reference warns of 30 minutes from 1 GiB of raw data on
_SECONDS_PER_GIB = 1800.0
_GIB = 1 << 30
_LOG_BYTES = 10 << 20
_CHUNK = 1 << 16

TEXT = "text"
DATABASE = "db"


@dataclass(frozen=True)
class Export:
    """What became of an export.

    Attributes:
        commands: the commands that ran.
        duration: their wall time.
        log: what they printed.
        notes: what a user should know, one sentence each.
    """

    commands: tuple[str, ...]
    duration: datetime.timedelta
    log: Path
    notes: tuple[str, ...] = ()


def export_commands(prof: Path, exports: Sequence[str], *, communication: bool, also_database: bool = False) -> list[list[str]]:
    """The arguments of every ``msprof`` call that an export takes.

    Args:
        prof: the ``PROF_*`` directory.
        exports: "text", "db" or both.
        communication: whether collectives are to be analysed too.
        also_database: whether the text export makes the database along the way.
    """
    output = f"--output={prof}"
    actions = ("--export=on", *(("--analyze=on",) if communication else ()))
    types: list[list[str]] = [[]] if TEXT in exports else []
    if DATABASE in exports and not (types and also_database):
        types.append(["--type=db"])
    return [[action, *type_, output] for type_ in types for action in actions]


def export_device_data(run_directory: Path, prof: Path, exports: Sequence[str], *, communication: bool = True) -> Export:
    """Export the device data of ``prof`` with the ``msprof`` of PATH.

    Args:
        run_directory: its ``logs/`` gets what the command prints.
        prof: the ``PROF_*`` directory; msprof writes its files there.
        exports: "text", "db" or both.
        communication: whether collectives are to be analysed too.

    Raises:
        InputError: there is no usable ``msprof``, or exporting failed; a failed analysis of collectives is a note.
    """
    command, notes = find_msprof()
    if os.fspath(prof).startswith("-"):
        prof = prof.absolute()
    begin = time.monotonic()
    with _open_log(run_directory) as (path, log):
        capabilities = _run_command([str(command), "--help"], log, _HELP_SECONDS, prof, path)
        if DATABASE in exports and _TYPE_OPTION not in capabilities:
            raise InputError(command, "cannot export databases", "Export text, or use a newer CANN")
        raw_bytes = _raw_bytes(prof)
        if raw_bytes >= _GIB:
            notes.append(f"{raw_bytes / _GIB:.1f} GiB of raw device data may take {MSPROF} more than 30 minutes")
        limit = _SECONDS_PER_GIB * (1 + raw_bytes / _GIB)
        commands = export_commands(prof, exports, communication=communication, also_database=_ALSO_DATABASE in capabilities)
        for arguments in commands:
            try:
                _run_command([str(command), *arguments], log, limit, prof, path)
            except InputError as error:
                # without the analysis of collectives everything else can still be read
                if not arguments[0].startswith("--analyze"):
                    raise
                notes.append(error.problem)
        duration = datetime.timedelta(seconds=time.monotonic() - begin)
        log.write(f"CANN profiling data parsed in a total time of {duration}\n".encode())
    return Export(tuple(" ".join([MSPROF, *arguments]) for arguments in commands), duration, path, tuple(notes))


def find_msprof() -> tuple[Path, list[str]]:
    """The ``msprof`` of PATH as a real path, and what to note about it.

    Raises:
        InputError: there is none, or it belongs to no CANN installation.
    """
    program = shutil.which(MSPROF)
    if program is None:
        raise InputError(MSPROF, "is not on PATH", "Source CANN's set_env.sh, or export on a machine with CANN")
    command = Path(program).resolve()
    if "tools" not in command.parts:
        raise InputError(program, "belongs to no CANN installation", "Source CANN's set_env.sh")
    installation = Path(*command.parts[: command.parts.index("tools")])
    if not (installation / _PROGRAM).is_file():
        raise InputError(program, f"belongs to no whole CANN installation: {_PROGRAM} is missing", "Source CANN's set_env.sh")
    owner = command.stat().st_uid
    if owner not in (0, os.getuid()):
        return command, [f"{command} belongs to user {owner}, neither to root nor to you"]
    return command, []


def _run_command(command: Sequence[str], log: IO[bytes], seconds: float, prof: Path, path: Path) -> str:
    """Run one command; what it printed (its beginning).

    Raises:
        InputError: it failed or took too long.
    """
    log.write(f"$ {' '.join(command)}\n".encode())
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        raise InputError(command[0], f"cannot be run ({error.strerror or error})", "Check the CANN installation") from error
    printed = bytearray()
    reader = threading.Thread(target=_copy_to_log, args=(process.stdout, log, printed), daemon=True)
    reader.start()
    try:
        status = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise InputError(
            prof, f"{MSPROF} was stopped after {seconds:.0f} s", f"Run `{' '.join(command)}` yourself, then analyse again"
        ) from None
    finally:
        # whatever it started ends with it, also when this process is interrupted
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join(timeout=10)
    if status:
        raise InputError(prof, f"{MSPROF} failed with status {status}", f"See {path}")
    return printed.decode("utf-8", "replace")


def _copy_to_log(stream: IO[bytes] | None, log: IO[bytes], printed: bytearray) -> None:
    """Copy a stream to the log until the log is full; the rest is read and dropped, so that the writer never waits."""
    assert stream is not None
    left = _LOG_BYTES
    with stream:
        while data := os.read(stream.fileno(), _CHUNK):
            beginning = data[:left]
            log.write(beginning)
            printed += beginning[: max(_CHUNK - len(printed), 0)]
            left -= len(beginning)
            if left == 0 and beginning:
                log.write(b"\n(the rest of the output was not kept)\n")


@contextlib.contextmanager
def _open_log(run_directory: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """A new log file in the run directory: (path, handle)."""
    folder = run_directory / rundir.LOG_DIRECTORY
    if folder.is_symlink():
        raise InputError(folder, "is a link, so the log could end anywhere", "Remove it and analyse again")
    rundir.make_directory(folder)
    path = folder / f"profiler_{time.strftime('%Y%m%d%H%M%S')}_{os.getpid()}_{MSPROF}.log"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, rundir.FILE_MODE), "wb", buffering=0) as log:
        # whatever umask this process has
        os.fchmod(log.fileno(), rundir.FILE_MODE)
        log.write(f"exporting below {run_directory.absolute()}\n".encode())
        yield path, log


def _raw_bytes(prof: Path) -> int:
    """Size of the data that msprof reads."""
    total = 0
    for folder in (prof / "host" / "data", *sorted(prof.glob("device_*/data"))):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            total += sum(entry.stat(follow_symlinks=False).st_size for entry in entries if entry.is_file(follow_symlinks=False))
    return total
