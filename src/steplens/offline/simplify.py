"""Data simplification: what CANN leaves beside the raw device data is removed once a run has its results.

Of a ``PROF_*`` directory the raw data stays (``host/data``, ``device_*/data``, the clocks).
``FRAMEWORK``, ``KINETO``, ``ASCEND_PROFILER_OUTPUT``, ``logs`` and the ``profiler_*.json`` files stay in any case: the option is
about what can be made again, and the raw data of the host cannot. A run without ``PROF_*`` consists of nothing else, so nothing
of it is removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from steplens.common import rundir
from steplens.common.errors import InputError
from steplens.formats.ascend_capture import ANALYSIS_DIRECTORY, EXPORT_DIRECTORY, FRAMEWORK_DIRECTORY
from steplens.readers.ascend.msprof_command import find_msprof
from steplens.readers.ascend.prof_directory import find_prof
from steplens.readers.common.run_info import info_files
from steplens.readers.common.side_files import read_json
from steplens.trace.recorded_options import options_of

#: what msprof works with, in ``host`` and ``device_*``: removed in any case; removed by simplification
_WORKING = ("sqlite",)
_WORKING_TOO = ("summary", "timeline")
#: what an export leaves: it can be made again from the raw data, with CANN
_EXPORTED = (EXPORT_DIRECTORY, ANALYSIS_DIRECTORY)
_EXPORTED_DATABASE = "msprof_*.db"
_LOG_DIRECTORY = "mindstudio_profiler_log"
_LOGS = "msprof_analysis_*.log"

#: raw data of the host: without it there is nothing that a newer version, another export or an open question could be read from
_RAW = (rundir.RAW_DIRECTORY, FRAMEWORK_DIRECTORY)

_OPTION = "_data_simplification"


@dataclass(frozen=True)
class Simplified:
    """What became of a run.

    Attributes:
        removed: paths below the run directory.
        kept: what was left although the option asks to remove it, one sentence each.
        raw: folders with raw data of the host, which the option never removes, and their size in bytes.
    """

    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    raw: dict[str, int] = field(default_factory=dict)


def simplify(run_directory: Path, wanted: bool | None = None) -> Simplified:
    """Remove what the option ``data_simplification`` of a run asks to remove; to be called once its results are complete.

    True removes everything that can be made again from the raw data; False removes only msprof's working databases. Exported
    data goes only where CANN is there to export the raw data again, and the raw data as well: a run can be analysed again as
    long as it exists. Nothing outside the run directory is touched, and no link is followed.

    Args:
        run_directory: the run.
        wanted: the option; by default as recorded in ``profiler_info*.json``, and nothing is removed without that file.

    Returns:
        what was removed and what was not; a file that cannot be removed is kept and said.
    """
    result = Simplified()
    if wanted is None:
        wanted = recorded_option(run_directory)
    if wanted is None or run_directory.is_symlink():
        return result
    for prof in (found.path for found in find_prof(run_directory)):
        # a PROF directory that is opened on its own, or a link, is not part of this run
        if prof.parent != run_directory or prof.is_symlink():
            continue
        for path in _surplus_paths(prof, wanted, result.kept):
            try:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            except OSError as error:
                result.kept.append(f"{path.relative_to(run_directory)} cannot be removed ({error.strerror})")
                continue
            result.removed.append(str(path.relative_to(run_directory)))
    if wanted:
        result.raw.update({path.name: _size_in_bytes(path) for name in _RAW if _is_own(path := run_directory / name)})
    return result


def recorded_option(run_directory: Path) -> bool | None:
    """``data_simplification`` of a run; None where its ``profiler_info*.json`` does not say."""
    files = info_files(run_directory)
    value = options_of(read_json(files[0]).get("config")).experimental.get(_OPTION) if files else None
    return value if isinstance(value, bool) else None


def _surplus_paths(prof: Path, wanted: bool, kept: list[str]) -> Iterator[Path]:
    names = (*_WORKING, *_WORKING_TOO) if wanted else _WORKING
    for part in ("host", *sorted(path.name for path in prof.glob("device_*"))):
        # a link could lead to somebody else's data
        if not (prof / part).is_symlink():
            yield from (path for name in names if _is_own(path := prof / part / name))
    if not wanted:
        return
    yield from (path for path in (prof / _LOG_DIRECTORY, *sorted(prof.glob(_LOGS))) if _is_own(path))
    exported = [path for path in (*(prof / name for name in _EXPORTED), *sorted(prof.glob(_EXPORTED_DATABASE))) if _is_own(path)]
    if exported and (why := _why_not_again(prof)):
        kept.append(f"{', '.join(path.name for path in exported)} of {prof.name}: {why}, so it could not be exported again")
        return
    yield from exported


def _is_own(path: Path) -> bool:
    return path.exists() and not path.is_symlink()


def _why_not_again(prof: Path) -> str:
    """Why what was exported could not be made again; empty when it could."""
    if not any(_size_in_bytes(path) for path in (prof / "host" / "data", *prof.glob("device_*/data"))):
        return "there is no raw device data"
    try:
        find_msprof()
    except InputError as error:
        return f"{error.path} {error.problem}"
    return ""


def _size_in_bytes(path: Path) -> int:
    """Bytes in a file or below a folder, links not followed."""
    with contextlib.suppress(OSError):
        if not path.is_dir():
            return path.lstat().st_size
        return sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(path) for name in names)
    return 0
