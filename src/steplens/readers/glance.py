"""What can be refused without a reader: in a few milliseconds, where loading the readers takes half a second."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

from steplens.common import extensions
from steplens.common.errors import InputError, check_readable
from steplens.formats.kineto import SUFFIXES
from steplens.readers.contents import is_database, read_head

REMEDY = (
    "steplens reads Kineto and Chrome traces (.json, .json.gz), its own run directories, and what the Ascend PyTorch "
    "Profiler and MindSpore's write (FRAMEWORK, PROF_*, ASCEND_PROFILER_OUTPUT, .db, profiler/, raw device logs)"
)


def refuse_hopeless(path: Path) -> None:
    """Refuse what no reader would take; the readers say what is wrong with everything else.

    Raises:
        InputError: ``path`` does not exist, is no file or folder, is an empty folder or trace, or a file of no kind that is read.
    """
    check_readable(path)
    if path.is_dir():
        if _is_empty(path) and not _has_foreign_readers():
            raise InputError(path, "is an empty folder, so it holds no run and no trace", REMEDY)
    elif path.name.endswith(SUFFIXES):
        if path.stat().st_size == 0:
            raise InputError(path, "is empty", "Record the trace again")
    elif not is_database(path, read_head(path)) and not _has_foreign_readers():
        raise unknown_file(path)


def unknown_file(path: Path) -> InputError:
    """A file that no reader takes."""
    return InputError(path, "is not a trace steplens knows", REMEDY)


def _is_empty(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def _has_foreign_readers() -> bool:
    """Whether an installed package has readers, which may take anything."""
    return bool(importlib.metadata.entry_points(group=extensions.READERS))
