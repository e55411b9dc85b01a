"""The folder in which the processes of ``steplens run`` leave word; one that a killed command left is removed by the next."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "steplens_run_"

#: a folder may be younger than the lock on it
_LEAST_AGE_S = 60


@contextlib.contextmanager
def answers_folder() -> Iterator[Path]:
    """Create the folder for as long as this command runs; the kernel's lock on it says that it does."""
    _remove_abandoned_folders()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    process = os.getpid()
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        # a forked child may come back from the script
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _remove_abandoned_folders() -> None:
    """Remove the folders of this user's commands that have ended without doing so."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < _LEAST_AGE_S:
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
