"""Whether a folder can take what is to be recorded: said before a training runs for hours."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from steplens.errors import InputError

#: what a file system gives away at once
_BLOCK_BYTES = 4096
_REMEDY = "Name another folder with --out"


def check_can_hold(folder: Path) -> None:
    """Check that run directories can be written below ``folder``, which need not exist; nothing of the check stays.

    Raises:
        InputError: a part of it is a file, a name is too long, or nothing can be written there; the message says which.
    """
    try:
        there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        if not there.is_dir():
            raise InputError(there, "is a file, and run directories need a folder", _REMEDY)
        longest = os.pathconf(there, "PC_NAME_MAX")
        missing = folder.absolute().relative_to(there.absolute()).parts
        if any(len(os.fsencode(name)) > longest for name in missing):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(_BLOCK_BYTES))
    except OSError as error:
        raise InputError(folder, f"cannot hold what is recorded ({error.strerror or error})", _REMEDY) from error
