"""The secret of this user and machine: what steplens seals with it beside a capture, it knows again as its own.

32 random bytes in ``$XDG_STATE_HOME/steplens/cache_secret`` (``~/.local/state`` where that is not set), mode 0600, made at first
use. Where no such folder can be made, as in a container without a home, they are in memory, under ``/dev/shm``, until the machine
or the container starts again. Where there can be none at all, nothing is sealed, so that nothing is believed and nothing is kept.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pwd
import stat
from pathlib import Path

from steplens.common import rundir

NAME = "cache_secret"
SIZE = 32

_LOG = logging.getLogger("steplens")
_MEMORY = Path("/dev/shm")
_REMEDY = "nothing is kept beside captures until it is removed, or XDG_STATE_HOME names another folder"
_said: set[str] = set()


class RefusedError(Exception):
    """There is something that others may have made, or may know."""


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
    state_home = os.environ.get("XDG_STATE_HOME", "")
    # the standard of these variables: what is not absolute does not count
    state = Path(state_home) if os.path.isabs(state_home) else _user_home() / ".local" / "state"
    return [state / "steplens", _MEMORY / f"steplens-{os.geteuid()}-state"]


@functools.lru_cache(maxsize=4)
def _home_in_accounts(user: int) -> Path | None:
    """The home of a user as the system's list of accounts has it, which takes a millisecond to look at."""
    try:
        return Path(pwd.getpwuid(user).pw_dir)
    except KeyError:
        return None


def _user_home() -> Path:
    """The user's home: with ``sudo`` the variable may still name that of another one."""
    listed_home = _home_in_accounts(os.geteuid())
    candidates = [Path(os.environ.get("HOME", "")), *([listed_home] if listed_home is not None else [])]
    for home in candidates:
        with contextlib.suppress(OSError):
            if home.is_absolute() and home.stat().st_uid == os.geteuid():
                return home
    # nothing can be made below it
    return Path(os.devnull)


def open_private_folder(place: Path) -> int:
    """A descriptor of one of the folders, made where it is missing; whoever asks closes it.

    Raises:
        OSError: it can be neither opened nor made.
        RefusedError: it is not that of this user alone.
    """
    if place.parent != _MEMORY:
        # the folders above are the user's as they are; what is made is closed, as the standard of these variables asks
        rundir.make_directory(place.parent, 0o700)
    with contextlib.suppress(FileExistsError):
        place.mkdir(mode=0o700)
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise RefusedError(f"{place} is not a folder of its own")
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise RefusedError(f"{place} belongs to somebody else, or others can write to it")
    return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


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
