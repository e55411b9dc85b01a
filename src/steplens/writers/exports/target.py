"""Where an export ends up: atomic files and folders, and what is said when writing fails."""

from __future__ import annotations

import contextlib
import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import polars as pl

from steplens.common import partial, rundir
from steplens.common.errors import InputError

#: the highest levels double the time for a few percent of the size
_COMPRESSION_LEVEL = 3

#: what to do where a folder holds something
OTHER_FOLDER = "Remove it, or give another --out"


@contextlib.contextmanager
def translate_write_errors(target: Path) -> Iterator[None]:
    """Turn what goes wrong while ``target`` is written into an error that says so.

    Raises:
        InputError: in place of an OSError, or of what polars raises for one.
    """
    try:
        yield
    except (OSError, pl.exceptions.ComputeError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        remedy = "Nothing was left there; free some space or give another --out"
        raise InputError(target, f"cannot be written: {reason}", remedy) from error


@contextlib.contextmanager
def new_file(target: Path, *, compressed: bool) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of ``target`` once it is complete; missing folders are created.

    Raises:
        InputError: ``target`` is a folder or cannot be written; nothing of the new file is left.
    """
    with translate_write_errors(target):
        if target.is_dir():
            raise InputError(target, "is a folder, a file is to be written", "Give another --out")
        rundir.make_directory(target.absolute().parent)
        with rundir.atomic_path(target) as temporary, temporary.open("wb") as file:
            if not compressed:
                yield file
                return
            with gzip.GzipFile(filename="", mode="wb", compresslevel=_COMPRESSION_LEVEL, fileobj=file) as handle:
                yield handle  # type: ignore[misc]


@contextlib.contextmanager
def new_folder(target: Path, remedy: str = OTHER_FOLDER) -> Iterator[Path]:
    """A folder that becomes ``target`` once it is complete; missing folders above it are created.

    Args:
        target: the folder.
        remedy: what to do where it holds something.

    Raises:
        InputError: ``target`` exists and holds something, or cannot be written; nothing of the new folder is left.
    """
    with translate_write_errors(target):
        if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
            raise InputError(target, "exists already, a new folder is to be written", remedy)
        rundir.make_directory(target.absolute().parent)
        temporary = partial.partial_path(target)
        try:
            temporary.mkdir(mode=rundir.DIRECTORY_MODE)
            temporary.chmod(rundir.DIRECTORY_MODE)
            yield temporary
            temporary.replace(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
