"""Names, permissions and atomic writes of a run directory; knows nothing of what the files hold.

A run directory is what one recorded window of one process leaves on disk. Its layout::

    <worker>_<timestamp>_ascend_pt/
        KINETO/trace.json           raw result, saved by Kineto's C++ writer
        KINETO/operators.rec        the same of the host, written by steplens' own recorder in its place
        KINETO/device.json          what Kineto saw of a GPU beside that: its tasks, the calls that launched them, memory
        KINETO/host_events.json     what Kineto does not see: garbage collections, collection health
        KINETO/marks.bin, .json     marks and ranges of the user: rows of numbers, and their texts
        KINETO/loaders.bin, .json   batches of data loaders: rows of numbers, and what loaders and workers there were
        KINETO/host_samples.json    samples of the host: processors, memory, disk, network
        KINETO/collectives.json     PyTorch's flight recorder of collectives on the CPU: sizes, types, groups
        KINETO/system_calls.txt     calls to the operating system, as strace writes them
        KINETO/state.json           "recording" while the window is open, "collected" once raw data is safe
        profiler_info[_<rank>].json configuration and clocks
        profiler_metadata.json      user metadata, environment variables, base_time_ns
        ASCEND_PROFILER_OUTPUT/     results, with analyse.done when every output that was due exists
        logs/                       analysis logs
        .steplens/                  Parquet cache of the tables
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steplens.common import partial
from steplens.common.links import dead_link

DIRECTORY_MODE = 0o750
FILE_MODE = 0o640
#: a folder that nobody may write to was closed on purpose; that root could write all the same is no invitation
ANYBODY_WRITES = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
_DEVICES = Path("/dev")
#: where a process finds the folders that it has open by their numbers
_OPEN_FILES = Path("/proc/self/fd")

#: what a file system gives away at once
_BLOCK_BYTES = 4096

RUN_SUFFIX = "_ascend_pt"
MINDSPORE_RUN_SUFFIX = "_ascend_ms"
RAW_DIRECTORY = "KINETO"
RAW_TRACE = "trace.json"
#: of the recorder of operators (``formats.recorder``), which takes Kineto's place
RAW_OPERATORS = "operators.rec"
#: of Kineto, beside that of the recorder: the half of the device
RAW_DEVICE = "device.json"
HOST_EVENTS = "host_events.json"
MARKS = "marks.bin"
MARK_TEXTS = "marks.json"
LOADER_ROWS = "loaders.bin"
LOADERS = "loaders.json"
HOST_SAMPLES = "host_samples.json"
COLLECTIVES = "collectives.json"
SYSTEM_CALLS = "system_calls.txt"
STATE_FILE = "state.json"
OUTPUT_DIRECTORY = "ASCEND_PROFILER_OUTPUT"
#: of MindSpore's flat files
PROFILER_DIRECTORY = "profiler"
COMPLETION_MARKER = "analyse.done"
STATUS_FILE = "analyse_status.json"
LOG_DIRECTORY = "logs"
CACHE_DIRECTORY = ".steplens"
METADATA_FILE = "profiler_metadata.json"
INFO_PREFIX = "profiler_info"

STATE_RECORDING = "recording"
STATE_COLLECTED = "collected"

#: Bytes of a worker's name: a folder's has 255, and process id, time, suffix and the underscores between need the rest.
WORKER_BYTES = 255 - len("_4194304_20260101000000000") - len(RUN_SUFFIX)


def worker_part(worker_name: str) -> str:
    """What of a worker's name begins the name of a run directory: as much as there is room for, without what no name holds."""
    possible = worker_name.replace(os.sep, "_").replace("\0", "_").encode(errors="replace")
    # a character that is cut in two is left out
    return possible[:WORKER_BYTES].decode(errors="ignore")


def run_directory_name(worker_name: str | None = None, *, now_ns: int | None = None, suffix: str = RUN_SUFFIX) -> str:
    """Name of a new run directory: ``<worker or hostname>_<pid>_<YYYYmmddHHMMSSmmm>_ascend_pt``.

    Args:
        worker_name: replaces the host name, as far as there is room for it.
        now_ns: Unix time in ns, for tests; local time is used for the text.
        suffix: which framework recorded it.
    """
    now = time.time_ns() if now_ns is None else now_ns
    stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(now // 1_000_000_000))
    worker = worker_part(worker_name or socket.gethostname())
    return f"{worker}_{os.getpid()}_{stamp}{now // 1_000_000 % 1000:03d}{suffix}"


def make_directory(path: Path, mode: int = DIRECTORY_MODE) -> Path:
    """Create ``path`` and its missing parents with one mode, whatever the umask is."""
    missing = []
    current = path
    while not current.exists():
        missing.append(current)
        current = current.parent
    for directory in reversed(missing):
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=mode)
            directory.chmod(mode)
    return path


def create_run_directory(parent: Path, worker_name: str | None = None, *, suffix: str = RUN_SUFFIX) -> Path:
    """Create a new, empty run directory below ``parent``; two windows in one millisecond still differ."""
    make_directory(parent)
    while True:
        path = parent / run_directory_name(worker_name, suffix=suffix)
        try:
            path.mkdir(mode=DIRECTORY_MODE)
        except FileExistsError:
            time.sleep(0.001)
            continue
        path.chmod(DIRECTORY_MODE)
        return path


def remove_new(directory: Path) -> None:
    """Remove the run directory of a window that could not open, without opening anything: there may be no file left for that."""
    raw = directory / RAW_DIRECTORY
    for remove in ((raw / STATE_FILE).unlink, raw.rmdir, directory.rmdir):
        with contextlib.suppress(OSError):
            remove()
    shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling of ``path``; on success fsync it, set mode 0640 and rename it to ``path``.

    On any exception the temporary file is removed and ``path`` stays as it was; where the process is killed, the next one that
    writes to this folder removes it.

    Raises:
        OSError: ``path`` is a device, a pipe or a socket, or a link of ``/dev`` such as ``/dev/stdout``: a file would take its
            place, for root even that of ``/dev/null``.
    """
    if (path.exists() and not path.is_file() and not path.is_dir()) or (path.is_symlink() and path.absolute().parent == _DEVICES):
        raise OSError(errno.EINVAL, "it is a device or a pipe, whose place a file would take", str(path))
    temporary = partial.partial_path(path)
    try:
        yield temporary
        publish_file(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def publish_file(temporary: Path, path: Path) -> None:
    """Give a complete file its name: fsync it, set mode 0640 and rename it to ``path``."""
    with temporary.open("rb") as handle:
        os.fsync(handle.fileno())
    temporary.chmod(FILE_MODE)
    temporary.replace(path)


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically, mode 0640."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_json(path: Path, value: Any, *, indent: int | None = None) -> None:
    """Write ``value`` as JSON to ``path`` atomically, mode 0640."""
    # names of files and texts of exceptions may hold half of a pair (a lone surrogate): for JSON its escape is the same text
    write_bytes(path, json.dumps(value, ensure_ascii=False, indent=indent).encode(errors="backslashreplace"))


def absolute_path(path: str | os.PathLike[str]) -> Path:
    """A path from the root on, with the home of a user in place of ``~``; never raises, since a training goes on without it.

    A ``~`` of a user whom nobody knows stays, as in a shell, and so does what is relative to a working directory that was
    deleted: whoever writes there is told then.
    """
    place = Path(os.path.expanduser(path))
    try:
        return place.absolute()
    except OSError:
        return place


def why_unusable(folder: Path) -> tuple[Path, str] | None:
    """Why run directories cannot be written below ``folder``, which need not exist; nothing of the look stays there.

    Returns:
        what is in the way, and what is the matter with it; None where they can be written.
    """
    try:
        if (dead := dead_link(folder)) is not None:
            return dead
        there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        if not there.is_dir():
            return there, "is a file, and run directories need a folder"
        longest = os.pathconf(there, "PC_NAME_MAX")
        missing = folder.absolute().relative_to(there.absolute()).parts
        if any(len(os.fsencode(name)) > longest for name in missing):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        try_to_write(there)
        _check_name_for_kineto(folder.absolute())
    except OSError as error:
        return folder, f"cannot hold what is recorded ({error.strerror or error})"
    return None


def _is_plain(path: Path) -> bool:
    """Whether Kineto takes the name of a file as it is.

    It makes ``/`` of a backslash, leaves out a newline, takes no bytes that are no text, and writes the name into its file
    without regard to the rules of JSON.
    """
    text = str(path)
    return text.isprintable() and "\\" not in text and '"' not in text


def _check_name_for_kineto(path: Path) -> None:
    """Raise OSError if there is no name of ``path`` that Kineto takes."""
    if not _is_plain(path) and not _OPEN_FILES.is_dir():
        message = f"Kineto cannot write below such a name, and there is no {_OPEN_FILES} to name it otherwise"
        raise OSError(errno.EINVAL, message, str(path))


@contextlib.contextmanager
def name_for_kineto(path: Path) -> Iterator[str]:
    """Yield a name by which Kineto can write the file ``path``: its own, or if that is odd, one by the number of its open folder.

    Raises:
        OSError: the folder is not there, or there is no such name.
    """
    _check_name_for_kineto(path)
    if _is_plain(path):
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield str(_OPEN_FILES / str(folder) / path.name)
    finally:
        os.close(folder)


def try_to_write(folder: Path) -> None:
    """Write something in a folder that does not stay, for the exception of a system that cannot."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(_BLOCK_BYTES))


def free_bytes(path: Path) -> int:
    """Bytes the current user may still write on the file system of ``path`` or its nearest existing parent."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def raw_recording(directory: Path) -> Path | None:
    """The file of a run directory with what the framework did: Kineto's, else the recorder's; None where there is neither."""
    raw = directory / RAW_DIRECTORY
    return next((path for name in (RAW_TRACE, RAW_OPERATORS) if (path := raw / name).is_file()), None)


def raw_device(directory: Path) -> Path | None:
    """The file of a run directory that holds the device's half beside the recorder's file; None where there is none."""
    path = directory / RAW_DIRECTORY / RAW_DEVICE
    return path if path.is_file() and raw_recording(directory) == directory / RAW_DIRECTORY / RAW_OPERATORS else None


def is_run_directory(path: Path) -> bool:
    """Whether ``path`` looks like a run directory that steplens wrote (raw data may be missing)."""
    return (path / RAW_DIRECTORY).is_dir()


def find_run_directories(path: Path) -> list[Path]:
    """``path`` itself if it is a run directory, else its direct children that are, sorted by name."""
    if is_run_directory(path):
        return [path]
    return sorted(child for child in path.iterdir() if child.is_dir() and not child.is_symlink() and is_run_directory(child))
