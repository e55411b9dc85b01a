"""Whether the results beside a capture are those that this user's steplens made of it: others are made again, not handed on.

A capture may come with results that somebody wrote, and with every mark of complete ones. So an analysis leaves a seal in
``.steplens/`` over the results and over what they were made of.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

from steplens.common import json_text, rundir
from steplens.trace.cache import seal

_KIND = "results"
_SUFFIX = ".seal"
_MOST_BYTES = 1 << 20


def remember_results(folder: Path, name: str, files: Sequence[Path]) -> None:
    """Remember results as ours; where that cannot be written they are made again the next time.

    Args:
        folder: of the capture.
        name: of these results among those of the folder.
        files: the results, and what they were made of.
    """
    with contextlib.suppress(OSError):
        marks = json.dumps(seal.file_change_marks(files)).encode()
        mark = seal.compute_seal(_KIND, _results_identity(folder, name, files) + marks)
        if mark is not None:
            rundir.make_directory(folder / rundir.CACHE_DIRECTORY)
            with seal.open_folder(folder / rundir.CACHE_DIRECTORY, ours=False) as cache_folder:
                rundir.write_bytes(seal.path_of(cache_folder) / f"{name}{_SUFFIX}", mark + marks)


def are_ours(folder: Path, name: str, files: Sequence[Path]) -> bool:
    """Whether ``keep`` was called with exactly these files, and none of them has changed since."""
    try:
        with seal.open_folder(folder / rundir.CACHE_DIRECTORY, ours=False) as cache_folder:
            content = seal.read_file(f"{name}{_SUFFIX}", cache_folder, _MOST_BYTES)
        mark, marks = content[: seal.SIZE], content[seal.SIZE :]
        is_ours = seal.is_sealed(_KIND, _results_identity(folder, name, files) + marks, mark)
        return is_ours and not seal.is_changed_in_place(files, json_text.loads_stored(marks))
    except OSError:
        return False


def _results_identity(folder: Path, name: str, files: Sequence[Path]) -> bytes:
    # not the name alone: two devices of a capture have files of one name, and results of the one are none of the other
    identities = sorted(([seal.relative_place(file, folder), *seal.source_identity(file)[1:]] for file in files), key=str)
    return json.dumps([name, identities]).encode()
