"""What a folder holds of one recorded window, and what a file is: by names and first bytes only, nothing is read."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from steplens.common import expansion, rundir
from steplens.common.listings import entry_names
from steplens.common.storage.files import open_file
from steplens.formats import recorder, trace_view
from steplens.formats.ascend_capture import CANN_DATABASE, EXPORT_DIRECTORY, FRAMEWORK_DIRECTORY, PROF_NAME
from steplens.formats.ascend_database import ANALYSIS_DATABASE, SQLITE_START, is_result_database
from steplens.formats.ascend_results import RESULT_FILES, RESULT_MARKS, TIME_BASE_KEY

#: why results come before the raw data that they were made of, of ``Contents.simplified``
SIMPLIFIED_REASON = (
    "its results are complete, and the device data that they were made from can be read only where CANN exports it again"
)

#: files that are parts of a result folder, besides databases
_RESULT_NAMES = RESULT_FILES | {rundir.STATUS_FILE, rundir.COMPLETION_MARKER}
#: what describes a run beside its parts
_SIDE_FILE = re.compile(rf"^(?:{rundir.INFO_PREFIX}(?:_\d{{1,9}})?|{Path(rundir.METADATA_FILE).stem})\.json$")
#: words of Ascend's timelines; the last one may go on with a number
_ASCEND_NAMES = (trace_view.HARDWARE, trace_view.OVERLAP, trace_view.TASK_QUEUE, TIME_BASE_KEY)
_ASCEND_MARKS = (*(f'"{name}"'.encode() for name in _ASCEND_NAMES), f'"{trace_view.HOST_TO_DEVICE}'.encode())

_HEAD = 1 << 16
#: what Kineto writes in front of its events: of a job of 10,000 ranks, whose process groups it lists, more than ``_HEAD``
_KINETO_MARKS = (b'"schemaVersion"', b'"deviceProperties"', b'"distributedInfo"')
#: but never more than this: a group of 100,000 ranks takes less than a megabyte
_KINETO_HEAD = 1 << 24
_EVENTS = b'"traceEvents"'


@dataclass(frozen=True)
class Contents:
    """What one folder holds of one recorded window.

    Attributes:
        path: the run directory, or the result folder itself where it lies alone.
        kineto: raw data recorded by steplens.
        framework: raw framework data of the Ascend PyTorch Profiler.
        prof: raw device data (``PROF_*``) by name.
        exported: whether the device data has been exported, so that it can be read without CANN.
        output: the result folder; None where there is none.
        text: whether the result folder holds text files.
        databases: names of the result databases.
        own: whether steplens wrote the results.
        complete: whether these are complete, so that they hold everything that the raw data told.
    """

    path: Path
    kineto: bool = False
    framework: bool = False
    prof: tuple[str, ...] = ()
    exported: bool = False
    output: Path | None = None
    text: bool = False
    databases: tuple[str, ...] = ()
    own: bool = False
    complete: bool = False

    @property
    def claimed(self) -> frozenset[str]:
        """Names in its folder that are parts of it."""
        folders = {rundir.OUTPUT_DIRECTORY, FRAMEWORK_DIRECTORY, rundir.RAW_DIRECTORY, rundir.LOG_DIRECTORY, *self.prof}
        if PROF_NAME.match(self.path.name):
            # all of it is what CANN recorded and exported
            return frozenset(_entry_names(self.path))
        files = {name for name in _entry_names(self.path) if _SIDE_FILE.match(name)}
        if self.output == self.path:
            files |= {name for name in _entry_names(self.path) if name in _RESULT_NAMES or is_result_database(name)}
        return frozenset(folders | files)

    @property
    def simplified(self) -> bool:
        """Whether the results hold device data that cannot be read without CANN any more: data simplification removed it."""
        return bool(self.prof) and not self.exported and self.complete and (self.text or self.databases != (ANALYSIS_DATABASE,))

    @property
    def raw_names(self) -> tuple[str, ...]:
        """What it holds of raw data."""
        of_host = (*((rundir.RAW_DIRECTORY,) if self.kineto else ()), *((FRAMEWORK_DIRECTORY,) if self.framework else ()))
        return (*of_host, *self.prof)

    @property
    def text_names(self) -> tuple[str, ...]:
        """Its result files of text, in words."""
        return (f"text files of {self.output.name}",) if self.text and self.output is not None else ()

    @property
    def result_names(self) -> tuple[str, ...]:
        """All of its results."""
        folder = self.output.name if self.output is not None else ""
        return (*self.text_names, *(f"{folder}/{name}" for name in self.databases))

    @property
    def results(self) -> Path:
        """Its result folder, where it is known to have one."""
        assert self.output is not None
        return self.output

    @property
    def prefers_database(self) -> bool:
        """Whether the result database is read and not the text files: those of steplens are exact too, and hold more."""
        return any(name != ANALYSIS_DATABASE for name in self.databases) and not (self.own and self.text)

    def __bool__(self) -> bool:
        return bool(self.kineto or self.framework or self.prof or self.text or self.databases)


def contents_of(path: Path, without: Collection[str] = ()) -> Contents:
    """What the folder ``path`` holds; false where it is no run directory and no result folder.

    Args:
        path: a folder; a ``PROF_*`` directory is device data alone.
        without: names in it that are parts of other sources.
    """
    names = _entry_names(path).difference(without)
    if PROF_NAME.match(path.name) and not _is_directory(path / FRAMEWORK_DIRECTORY):
        prof: tuple[str, ...] = (path.name,)
        exported = _is_exported(path)
    else:
        prof = tuple(sorted(name for name in names if PROF_NAME.match(name) and _is_directory(path / name)))
        exported = any(_is_exported(path / name) for name in prof)
    has_output = rundir.OUTPUT_DIRECTORY in names and _is_directory(path / rundir.OUTPUT_DIRECTORY)
    output = path / rundir.OUTPUT_DIRECTORY if has_output else None
    if output is None and _result_names(names):
        output = path
    results = (names if output == path else _entry_names(output)) if output is not None else frozenset()
    return Contents(
        path=path,
        kineto=rundir.RAW_DIRECTORY in names and _is_directory(path / rundir.RAW_DIRECTORY),
        # an empty one holds nothing that could be read in place of results
        framework=FRAMEWORK_DIRECTORY in names
        and _is_directory(path / FRAMEWORK_DIRECTORY)
        and bool(_entry_names(path / FRAMEWORK_DIRECTORY)),
        prof=prof,
        exported=exported,
        output=output if _result_names(results) else None,
        text=not results.isdisjoint(RESULT_MARKS),
        databases=tuple(sorted(filter(is_result_database, results))),
        own=rundir.STATUS_FILE in results,
        complete=rundir.STATUS_FILE in results and rundir.COMPLETION_MARKER in results,
    )


def runs_in(folder: Path, without: Collection[str] = ()) -> list[Contents]:
    """The run directory or result folder that ``folder`` is, or the captures of devices that it only collects.

    Args:
        folder: the folder.
        without: names in it that are parts of other captures.
    """
    contents = contents_of(folder, without)
    # device data that another reader takes is taken as a whole
    if not contents or (PROF_NAME.match(folder.name) and without):
        return []
    parts = contents.kineto or contents.framework or contents.output is not None
    is_run = parts or any(_SIDE_FILE.match(name) for name in _entry_names(folder))
    if is_run or len(contents.prof) < 2:
        return [contents]
    return [contents_of(folder / name) for name in contents.prof]


def is_part(path: Path) -> bool:
    """Whether ``path`` is a folder inside a run directory that stands for it."""
    return path.resolve().name in (rundir.OUTPUT_DIRECTORY, FRAMEWORK_DIRECTORY, rundir.RAW_DIRECTORY)


def is_database(path: Path, start: bytes) -> bool:
    """Whether a file, which begins with ``start``, is a database, or is called one."""
    return start.startswith(SQLITE_START) or path.suffix == ".db"


def contents_around(database: Path) -> Contents | None:
    """What the run directory of a result database holds; None where the database lies alone."""
    folder = database.resolve().parent
    contents = contents_of(folder.parent if folder.name == rundir.OUTPUT_DIRECTORY else folder)
    return contents if contents.output is not None and database.name in contents.databases else None


def is_trace_file(path: Path) -> bool:
    """Whether a file that was not named by the user looks like a trace or a profiler's database."""
    name = path.name
    if is_result_database(name) or CANN_DATABASE.match(name):
        return True
    if name.endswith(recorder.SUFFIX):
        return is_recording(read_head(path))
    if not name.endswith((".json", ".json.gz")):
        return False
    start = read_head(path)
    if _EVENTS in start or (start.lstrip()[:1] == b"[" and b'"ph"' in start):
        return True
    if len(start) < _HEAD or not any(mark in start for mark in _KINETO_MARKS):
        return False
    with contextlib.suppress(OSError, ValueError):
        return expansion.head_holds(path, _EVENTS, _KINETO_HEAD)
    return False


def is_recording(start: bytes) -> bool:
    """Whether a file, which begins with ``start``, is one of the recorder of operators."""
    return start.startswith(recorder.MAGIC)


def read_head(path: Path) -> bytes:
    """The first 64 KiB of a file, decompressed; empty where it cannot be read."""
    try:
        return expansion.read_head(path, _HEAD)
    except (OSError, ValueError):
        return b""


def is_ascend_timeline(path: Path, start: bytes) -> bool:
    """Whether a JSON array of events (which begins with ``start``) is one of msprof or of the Ascend PyTorch Profiler."""
    if start.lstrip()[:1] != b"[":
        return False
    end = b""
    with contextlib.suppress(OSError), open_file(path) as handle:
        handle.seek(max(path.stat().st_size - _HEAD, 0))
        end = handle.read(_HEAD)
    return any(mark in part for mark in _ASCEND_MARKS for part in (start, end)) or re.search(rb'"ts": ?"', start) is not None


def _is_exported(prof: Path) -> bool:
    return any(map(CANN_DATABASE.match, _entry_names(prof))) or any(
        name.endswith((".json", ".csv", ".db")) for name in _entry_names(prof / EXPORT_DIRECTORY)
    )


def _result_names(names: Collection[str]) -> bool:
    return any(mark in names for mark in RESULT_MARKS) or any(map(is_result_database, names))


def _entry_names(folder: Path) -> frozenset[str]:
    try:
        return entry_names(folder)
    except OSError:
        return frozenset()


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir() and not path.is_symlink()
    except PermissionError:  # in a folder that is closed to this user, as another's run among ours
        return False
