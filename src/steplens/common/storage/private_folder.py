"""Folders of this user that nobody else may write to, for what steplens has to believe later."""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import stat
from pathlib import Path

from steplens.common import rundir

#: folders directly below it are closed with the mode that they are made with; those above them are the system's
MEMORY = Path("/dev/shm")


class RefusedError(Exception):
    """There is something that others may have made, or may know."""


@functools.lru_cache(maxsize=4)
def _home_in_accounts(user: int) -> Path | None:
    """The home of a user as the system's list of accounts has it, which takes a millisecond to look at."""
    try:
        return Path(pwd.getpwuid(user).pw_dir)
    except KeyError:
        return None


def user_home() -> Path:
    """The user's home: with ``sudo`` the variable may still name that of another one."""
    listed_home = _home_in_accounts(os.geteuid())
    candidates = [Path(os.environ.get("HOME", "")), *([listed_home] if listed_home is not None else [])]
    for home in candidates:
        with contextlib.suppress(OSError):
            if home.is_absolute() and home.stat().st_uid == os.geteuid():
                return home
    # nothing can be made below it
    return Path(os.devnull)


def user_folder(variable: str, *below_home: str) -> Path:
    """One of the folders that the standard of desktops names.

    Args:
        variable: that may name it, such as ``XDG_CACHE_HOME``.
        below_home: where it lies where the variable does not.
    """
    named_folder = os.environ.get(variable, "")
    # the standard of these variables: what is not absolute does not count
    return Path(named_folder) if os.path.isabs(named_folder) else user_home().joinpath(*below_home)


def open_private_folder(place: Path) -> int:
    """A descriptor of a folder that only this user may write to, made where it is missing; whoever asks closes it.

    Raises:
        OSError: it can be neither opened nor made.
        RefusedError: it is not that of this user alone.
    """
    if place.parent != MEMORY:
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
