"""Where the processes of a job that share a configuration path meet: a private folder in memory, named by that path.

It holds, per process, a record (``<pid>-<start>.json``) and a socket (``.sock``), and per job a board (see ``shared_board``).
Nothing in it outlives its use: dead processes are recognised by process id and start time, and swept by the next one that
registers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from steplens.collect.dynamic.job import process
from steplens.collect.dynamic.job.process import Process
from steplens.common import json_text, partial, rundir
from steplens.common.errors import InputError

CONFIGURATION_FILE = "profiler_config.json"
REQUEST_FILE = "profiler_request.json"
LOG_DIRECTORY = "log"

RECORD_SUFFIX = ".json"
#: of a record that is being written, behind a point
_PARTIAL_SUFFIX = ".partial"
SOCKET_SUFFIX = ".sock"

#: sets another place than memory, for machines whose containers share no /dev/shm
DIRECTORY_VARIABLE = "STEPLENS_STATE_DIRECTORY"

_MODE = 0o700
_LARGEST_RECORD = 1 << 20
_SOCKET_PATH_LIMIT = 107
#: folders of jobs that ended this long ago are swept
_FORGET_AFTER_S = 24 * 3600.0


def configuration_directory(path: str | os.PathLike[str]) -> Path:
    """The folder that ``path`` means: itself, or the one around it if it is a configuration file."""
    directory = Path(path).expanduser()
    if directory.name in (CONFIGURATION_FILE, REQUEST_FILE) or directory.is_file():
        directory = directory.parent
    return Path(os.path.realpath(directory))


def create_configuration(directory: Path, content: Mapping[str, Any]) -> None:
    """Write ``profiler_config.json`` into a folder that has none; a file that somebody else makes meanwhile wins.

    Raises:
        OSError: there is no such file and none can be made.
    """
    rundir.make_directory(directory)
    target = directory / CONFIGURATION_FILE
    if target.exists():
        return
    temporary = partial.partial_path(target)
    try:
        rundir.write_bytes(temporary, json.dumps(content, indent=4).encode())
        with contextlib.suppress(FileExistsError):
            try:
                os.link(temporary, target)
            except FileExistsError:
                raise
            except OSError:  # a file system without hard links
                descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, rundir.FILE_MODE)
                with os.fdopen(descriptor, "wb") as handle:
                    handle.write(temporary.read_bytes())
    finally:
        temporary.unlink(missing_ok=True)


def folder_key(directory: Path) -> str:
    """The name of the meeting place for a configuration folder."""
    return hashlib.sha256(os.fsencode(directory)).hexdigest()[:20]


def state_root(uid: int | None = None) -> Path:
    """The folder of all meeting places of a user; the same for a job and for a command in another shell."""
    name = f"steplens-{os.geteuid() if uid is None else uid}"
    state_folder = os.environ.get(DIRECTORY_VARIABLE)
    if state_folder:
        return Path(state_folder) / name
    shared = Path("/dev/shm")
    return (shared if os.access(shared, os.W_OK | os.X_OK) else Path("/tmp")) / name


def create_folder(directory: Path) -> Path:
    """Make the meeting place for a configuration folder.

    Raises:
        OSError: it cannot be made, or somebody else could change what is in it.
    """
    top = state_root()
    _refuse_chosen(os.geteuid())
    # whatever the umask, nobody else gets to write into it
    rundir.make_directory(top.parent, _MODE)
    for folder in (top, top / folder_key(directory)):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=_MODE)
        _refuse_foreign(folder, os.geteuid())
    return top / folder_key(directory)


def find_folders(directory: Path) -> list[Path]:
    """The existing meeting places for a configuration folder: ours, and that of the folder's owner where we may look.

    Raises:
        InputError: somebody else could change what is in one of them.
    """
    owners = [os.geteuid()]
    with contextlib.suppress(OSError):
        owners.append(directory.stat().st_uid)
    folders = []
    for uid in dict.fromkeys(owners):
        folder = state_root(uid) / folder_key(directory)
        try:
            _refuse_chosen(uid)
            if folder.parent.is_symlink() or _is_directory(folder.parent):
                _refuse_foreign(folder.parent, uid)
            if folder.is_symlink() or _is_directory(folder):
                _refuse_foreign(folder, uid)
                folders.append(folder)
        except _Refused as error:
            raise InputError(error.folder, error.reason, error.remedy) from None
        except OSError:
            # not for this user to look into
            continue
    return folders


class _Refused(PermissionError):
    """A folder in which somebody else could put or replace what processes of this user believe."""

    def __init__(self, folder: Path, reason: str, remedy: str) -> None:
        self.folder, self.reason, self.remedy = folder, f"{reason}, so nothing in it is used", remedy
        super().__init__(f"{folder}: {self.reason}. {remedy}")


def _refuse_chosen(uid: int) -> None:
    """Refuse the folder that the environment chose, if there is one yet, unless only ``uid``, we and root can change it."""
    state_folder = os.environ.get(DIRECTORY_VARIABLE)
    # a slash at the end would look at what a link leads to
    folder = Path(state_folder) if state_folder else None
    if folder is None or not (folder.is_symlink() or folder.exists()):
        return
    status = folder.lstat()
    reason = _folder_problem(status, {uid, os.geteuid(), 0})
    # where the sticky bit is set, as in /tmp, nobody can replace what another user made
    if not reason and status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        reason = f"can be written by other users (mode {stat.S_IMODE(status.st_mode):o})"
    if reason:
        raise _Refused(folder, reason, f"Set {DIRECTORY_VARIABLE} to a folder of your own that only you can write (chmod 700)")


def _refuse_foreign(folder: Path, uid: int) -> None:
    """Refuse one of our own folders unless it is the user's and closed to all others."""
    status = folder.lstat()
    reason = _folder_problem(status, {uid})
    if not reason and status.st_mode & 0o077:
        reason = f"is open to other users (mode {stat.S_IMODE(status.st_mode):o})"
    if reason:
        raise _Refused(folder, reason, f"Remove it, or set {DIRECTORY_VARIABLE} to a folder of your own")


def _folder_problem(status: os.stat_result, owners: set[int]) -> str:
    if stat.S_ISLNK(status.st_mode):
        return "is a symbolic link"
    if not stat.S_ISDIR(status.st_mode):
        return "is no folder"
    return "" if status.st_uid in owners else f"belongs to another user (uid {status.st_uid})"


def _is_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


# --- records


def write_record(job_folder: Path, owner: Process, record: Mapping[str, Any]) -> None:
    """Write what a process says about itself."""
    write_private(job_folder / f"{owner.name}{RECORD_SUFFIX}", job_folder / f".{owner.name}{_PARTIAL_SUFFIX}", record)


def write_private(target: Path, temporary: Path, document: Mapping[str, Any]) -> None:
    """Replace a JSON file that only this user may read, in one piece and by way of another file."""
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(json.dumps(document, default=str).encode())
    os.replace(temporary, target)


def read_records(job_folder: Path) -> Iterator[tuple[Process, dict[str, Any]]]:
    """Every process with a readable record, dead ones too, ordered by process id."""
    owners = [process.from_name(path.name.removesuffix(RECORD_SUFFIX)) for path in _list_entries(job_folder, RECORD_SUFFIX)]
    for owner in sorted((owner for owner in owners if owner is not None), key=lambda owner: (owner.pid, owner.start)):
        record = read_json(job_folder / f"{owner.name}{RECORD_SUFFIX}")
        if record is not None:
            yield owner, record


def read_json(path: Path, limit: int = _LARGEST_RECORD) -> dict[str, Any] | None:
    """A JSON object in a file of at most ``limit`` bytes; None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as handle:
            text = handle.read(limit + 1)
        value = json_text.loads(text) if len(text) <= limit else None
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _list_entries(job_folder: Path, suffix: str) -> list[Path]:
    try:
        return [path for path in job_folder.iterdir() if path.name.endswith(suffix) and not path.name.startswith(".")]
    except OSError:
        return []


def remove_process_files(job_folder: Path, owner: Process, *, record: bool) -> None:
    """Remove the socket of a process, and its record if ``record``."""
    suffixes = (SOCKET_SUFFIX, RECORD_SUFFIX) if record else (SOCKET_SUFFIX,)
    for suffix in suffixes:
        with contextlib.suppress(OSError):
            (job_folder / f"{owner.name}{suffix}").unlink()


def remove_dead_processes(job_folder: Path) -> None:
    """Remove what processes have left that no longer live, where none of their job does."""
    records = list(read_records(job_folder))
    living = {str(record.get("group")) for owner, record in records if owner.alive()}
    for owner, record in records:
        if not owner.alive():
            remove_process_files(job_folder, owner, record=str(record.get("group")) not in living)
    names = {f"{owner.name}" for owner, _ in records}
    for path in _list_entries(job_folder, SOCKET_SUFFIX):
        left = process.from_name(path.name.removesuffix(SOCKET_SUFFIX))
        if left is not None and left.name not in names and not left.alive():
            remove_process_files(job_folder, left, record=True)
    with contextlib.suppress(OSError):
        for path in list(job_folder.glob(f".*{_PARTIAL_SUFFIX}")):
            # killed while it wrote its record
            writer = process.from_name(path.name.removeprefix(".").removesuffix(_PARTIAL_SUFFIX))
            if writer is not None and not writer.alive():
                path.unlink(missing_ok=True)


def remove_old_folders(keep: Path) -> None:
    """Remove the meeting places of jobs that ended a day ago; ``keep`` is ours."""
    limit = time.time() - _FORGET_AFTER_S
    try:
        places = [path for path in state_root().iterdir() if path != keep and _is_directory(path)]
    except OSError:
        return
    for job_folder in places:
        with contextlib.suppress(OSError):
            files = list(job_folder.iterdir())
            is_recent = any(path.lstat().st_mtime > limit for path in files)
            if is_recent or any(owner.alive() for owner, _ in read_records(job_folder)):
                continue
            for path in files:
                path.unlink()
            job_folder.rmdir()


# --- sockets


@contextlib.contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """An address for the socket ``path``; the system allows 107 bytes, a path may be longer."""
    if len(os.fsencode(path)) <= _SOCKET_PATH_LIMIT:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def peer_is_allowed(connection: socket.socket) -> bool:
    """Whether the other end belongs to this user or to root."""
    import struct

    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return uid in (os.geteuid(), 0)
