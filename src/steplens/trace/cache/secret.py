"""The secret of this user and machine: what steplens seals with it beside a capture, it knows again as its own.

32 random bytes in ``$XDG_STATE_HOME/steplens/cache_secret`` (``~/.local/state`` where that is not set), mode 0600, made at first
use. Where no such folder can be made, as in a container without a home, they are in memory, under ``/dev/shm``, until the machine
or the container starts again. Where there can be none at all, nothing is sealed, so that nothing is believed and nothing is kept.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from pathlib import Path

from steplens.common.storage import private_folder
from steplens.common.storage.private_folder import RefusedError, open_private_folder

NAME = "cache_secret"
SIZE = 32

_LOG = logging.getLogger("steplens")
_REMEDY = "nothing is kept beside captures until it is removed, or XDG_STATE_HOME names another folder"
_said: set[str] = set()


def user_secret() -> bytes | None:
    """The secret, made where there is none yet; None where there can be none, or, which is said, where others may know it."""
    try:
        for place in private_folders():
            with contextlib.suppress(OSError):
                return _read_or_make(place)
    except RefusedError as refused:
        if str(refused) not in _said:
            _said.add(str(refused))
            _LOG.warning("steplens: %s; %s", refused, _REMEDY)
    return None


def private_folders() -> list[Path]:
    """Folders for what only this user may read, the first choice first; none need exist."""
    state = private_folder.user_folder("XDG_STATE_HOME", ".local", "state")
    return [state / "steplens", private_folder.MEMORY / f"steplens-{os.geteuid()}-state"]


def _read_or_make(place: Path) -> bytes:
    """The secret in a folder.

    Raises:
        OSError: it can be neither read nor made.
        RefusedError: the folder or the file is not that of this user alone.
    """
    folder = open_private_folder(place)
    try:
        try:
            return _read_secret(folder, place / NAME)
        except FileNotFoundError:
            _create_secret(folder)
            return _read_secret(folder, place / NAME)
    finally:
        os.close(folder)


def _read_secret(folder: int, path: Path) -> bytes:
    # a link, or a pipe that would make this wait, is looked at and not opened
    if not stat.S_ISREG(os.stat(NAME, dir_fd=folder, follow_symlinks=False).st_mode):
        raise RefusedError(f"{path} is not a file of its own")
    descriptor = os.open(NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise RefusedError(f"{path} belongs to somebody else")
        if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077:
            raise RefusedError(f"{path} is open to others")
        content = file.read(SIZE + 1)
    if len(content) != SIZE:
        raise RefusedError(f"{path} is damaged: it has {status.st_size} bytes, not {SIZE}")
    return content


def _create_secret(folder: int) -> None:
    """Write a secret under another name and link it to its own: whoever is first wins, and nobody ever sees half of one."""
    name = f".{NAME}-{os.getpid()}-{os.urandom(4).hex()}"
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(os.urandom(SIZE))
            file.flush()
            os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(name, NAME, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    finally:
        os.unlink(name, dir_fd=folder)
