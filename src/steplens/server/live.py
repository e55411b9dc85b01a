"""What lies at a path, to see whether a running training has written more."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from steplens.common import rundir

Files = Mapping[str, tuple[int, int]]

#: a folder with more files is no folder of runs
_MOST_FILES = 100_000


def file_states(path: Path) -> Files:
    """Name -> (size, time of the last change in ns) of the files at a path, without what steplens itself keeps there.

    Links to folders are not followed; what vanishes meanwhile is left out.
    """
    sizes: dict[str, tuple[int, int]] = {}
    if not path.is_dir():
        _add_file_state(sizes, path, path.parent)
        return sizes
    for folder, inside, names in os.walk(path):
        inside[:] = [name for name in inside if name != rundir.CACHE_DIRECTORY]
        for name in names:
            _add_file_state(sizes, Path(folder, name), path)
            if len(sizes) >= _MOST_FILES:
                return sizes
    return sizes


def _add_file_state(found: dict[str, tuple[int, int]], file: Path, top: Path) -> None:
    try:
        status = file.lstat()
    except OSError:
        return
    found[str(file.relative_to(top))] = status.st_size, status.st_mtime_ns
