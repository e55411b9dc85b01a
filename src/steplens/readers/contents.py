"""What a path holds: run directories of every kind, result folders, trace files; nested, mixed, many.

Finding looks at names and first bytes only; nothing is read. Every source claims the entries of its folder that are parts of
it; the search goes on through all others, so that no source hides what lies beside it. What nobody claims is named
(``steplens.readers.unread``). Links are not followed, hidden folders are left out, and the search is bounded, so that a path
such as ``/`` ends in a sentence and not in an hour.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from steplens import expansion, rundir
from steplens.errors import InputError, check_exists
from steplens.formats.ascend_capture import EXPORT_DIRECTORY as EXPORT_DIRECTORY
from steplens.formats.ascend_capture import FRAMEWORK_DIRECTORY, PROF_NAME
from steplens.readers.unread import CLOSED, LINK, TOO_DEEP, Unread

#: files that make a folder a result folder, whatever it is called
_TEXT_RESULTS = (
    *("trace_view.json", "kernel_details.csv", "step_trace_time.csv", "operator_details.csv"),
    *("communication.json", "communication_matrix.json"),
)
#: files that are parts of a result folder
_RESULT_NAMES = frozenset(
    (
        *_TEXT_RESULTS,
        *("op_statistic.csv", "api_statistic.csv", "memory_record.csv", "operator_memory.csv", "npu_module_mem.csv"),
        *("l2_cache.csv", "nic.csv", "roce.csv", "pcie.csv", "hccs.csv", "data_preprocess.csv", "soc_pmu.csv", "aicpu.csv"),
        *(rundir.STATUS_FILE, rundir.COMPLETION_MARKER),
    )
)
#: what describes a run beside its parts
_SIDE_FILE = re.compile(rf"^(?:{rundir.INFO_PREFIX}(?:_\d{{1,9}})?|{Path(rundir.METADATA_FILE).stem})\.json$")
_RESULT_DATABASE = re.compile(r"^(ascend_(pytorch|mindspore)_profiler(_\d+)?|analysis)\.db$")
_CANN_DATABASE = re.compile(r"^msprof_\d+\.db$")
_TRACE_FILE = (".json", ".json.gz")

_ASCEND_MARKS = (b'"Ascend Hardware"', b'"Overlap Analysis"', b'"async_task_queue"', b'"base_time_ns"', b'"HostToDevice')

_DEPTH = 8
_ENTRIES = 200_000
_HEAD = 1 << 16


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
            return frozenset(_names(self.path))
        files = {name for name in _names(self.path) if _SIDE_FILE.match(name)}
        if self.output == self.path:
            files |= {name for name in _names(self.path) if name in _RESULT_NAMES or _RESULT_DATABASE.match(name)}
        return frozenset(folders | files)

    @property
    def simplified(self) -> bool:
        """Whether the results hold device data that cannot be read without CANN any more: data simplification removed it."""
        return bool(self.prof) and not self.exported and self.complete and (self.text or self.databases != ("analysis.db",))

    def __bool__(self) -> bool:
        return bool(self.kineto or self.framework or self.prof or self.text or self.databases)


class Source(Protocol):
    """What a search finds in a folder."""

    @property
    def claimed(self) -> frozenset[str]:
        """Names in its folder that are parts of it."""


def contents_of(path: Path, without: Collection[str] = ()) -> Contents:
    """What the folder ``path`` holds; false where it is no run directory and no result folder.

    Args:
        path: a folder; a ``PROF_*`` directory is device data alone.
        without: names in it that are parts of other sources.
    """
    names = _names(path) - set(without)
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
    results = (names if output == path else _names(output)) if output is not None else set()
    return Contents(
        path=path,
        kineto=rundir.RAW_DIRECTORY in names and _is_directory(path / rundir.RAW_DIRECTORY),
        # an empty one holds nothing that could be read in place of results
        framework=FRAMEWORK_DIRECTORY in names
        and _is_directory(path / FRAMEWORK_DIRECTORY)
        and bool(_names(path / FRAMEWORK_DIRECTORY)),
        prof=prof,
        exported=exported,
        output=output if _result_names(results) else None,
        text=any(name in results for name in _TEXT_RESULTS),
        databases=tuple(sorted(name for name in results if _RESULT_DATABASE.match(name))),
        own=rundir.STATUS_FILE in results,
        complete=rundir.STATUS_FILE in results and rundir.COMPLETION_MARKER in results,
    )


def _sources_of(folder: Path, without: Collection[str]) -> list[Contents]:
    """The run directory or result folder that ``folder`` is, or the captures of devices that it only collects."""
    contents = contents_of(folder, without)
    # device data that another reader takes is taken as a whole
    if not contents or (PROF_NAME.match(folder.name) and without):
        return []
    parts = contents.kineto or contents.framework or contents.output is not None
    is_run = parts or any(_SIDE_FILE.match(name) for name in _names(folder))
    if is_run or len(contents.prof) < 2:
        return [contents]
    return [contents_of(folder / name) for name in contents.prof]


def _nothing_else(path: Path) -> Sequence[Any]:
    return ()


def find(
    path: Path, others: Callable[[Path], Sequence[Source]] = _nothing_else, unread: list[Unread] | None = None
) -> Iterator[Any]:
    """Every run directory, lone result folder and trace file at or below ``path``, in order of path.

    A part of a run directory (its result folder, its raw data of the host) stands for the whole; a ``PROF_*`` directory is
    opened alone.

    Args:
        path: where to look.
        others: what a folder holds of other kinds of sources, which come first there.
        unread: gets what lies there and is no part of any source.

    Yields:
        ``Contents`` of a folder, the ``Path`` of a file, or what ``others`` gives.

    Raises:
        InputError: the path does not exist, cannot be reached, or holds more folders than a search should walk through.
    """
    check_exists(path)
    if path.is_file():
        yield path
        return
    if _is_part(path):
        whole = path.resolve().parent
        if sources := others(whole) or _sources_of(whole, ()):
            yield from sources
            return
    yield from _Search(path, others, [] if unread is None else unread).below(path, 0)


class _Search:
    """One way through the folders below a path."""

    def __init__(self, top: Path, others: Callable[[Path], Sequence[Source]], unread: list[Unread]) -> None:
        self.top = top
        self.others = others
        self.unread = unread
        self.entries = 0

    def below(self, folder: Path, depth: int) -> Iterator[Any]:
        """The sources of a folder, then those of its entries that are no parts of them."""
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            if depth == 0:
                raise InputError(folder, f"cannot be listed ({error.strerror})", "Check its permissions") from error
            self.unread.append(Unread(folder, CLOSED))
            return
        self.entries += len(entries)
        if self.entries > _ENTRIES:
            raise InputError(self.top, f"holds more than {_ENTRIES} files and folders", "Give a folder nearer to the runs")
        claimed: set[str] = set()
        for source in self.others(folder):
            claimed |= source.claimed
            yield source
        for contents in _sources_of(folder, claimed):
            claimed |= contents.claimed if contents.path == folder else {contents.path.name}
            yield contents
        for entry in entries:
            if entry.name in claimed or entry.name.startswith("."):
                continue
            yield from self._entry(entry, depth)

    def _entry(self, entry: os.DirEntry[str], depth: int) -> Iterator[Any]:
        child = Path(entry.path)
        if entry.is_symlink():
            self.unread.append(Unread(child, LINK))
        elif entry.is_dir():
            if depth + 1 < _DEPTH:
                yield from self.below(child, depth + 1)
            else:
                self.unread.append(Unread(child, TOO_DEEP))
        elif is_trace_file(child):
            yield child
        else:
            self.unread.append(Unread(child))


def is_trace_file(path: Path) -> bool:
    """Whether a file that was not named by the user looks like a trace or a profiler's database."""
    name = path.name
    if _RESULT_DATABASE.match(name) or _CANN_DATABASE.match(name):
        return True
    if not name.endswith(_TRACE_FILE):
        return False
    start = head(path)
    return b'"traceEvents"' in start or (start.lstrip()[:1] == b"[" and b'"ph"' in start)


def head(path: Path) -> bytes:
    """The first 64 KiB of a file, decompressed; empty where it cannot be read."""
    try:
        return expansion.head(path, _HEAD)
    except (OSError, ValueError):
        return b""


def is_ascend_timeline(path: Path, start: bytes) -> bool:
    """Whether a JSON array of events (which begins with ``start``) is one of msprof or of the Ascend PyTorch Profiler."""
    if start.lstrip()[:1] != b"[":
        return False
    end = b""
    with contextlib.suppress(OSError), path.open("rb") as handle:
        handle.seek(max(path.stat().st_size - _HEAD, 0))
        end = handle.read(_HEAD)
    return any(mark in part for mark in _ASCEND_MARKS for part in (start, end)) or re.search(rb'"ts": ?"', start) is not None


def _is_part(path: Path) -> bool:
    """Whether ``path`` is a folder inside a run directory that stands for it."""
    return path.resolve().name in (rundir.OUTPUT_DIRECTORY, FRAMEWORK_DIRECTORY, rundir.RAW_DIRECTORY)


def _is_exported(prof: Path) -> bool:
    if any(_CANN_DATABASE.match(name) for name in _names(prof)):
        return True
    return any(name.endswith((".json", ".csv", ".db")) for name in _names(prof / EXPORT_DIRECTORY))


def _result_names(names: set[str]) -> bool:
    return any(name in names for name in _TEXT_RESULTS) or any(_RESULT_DATABASE.match(name) for name in names)


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except OSError:
        return set()


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir() and not path.is_symlink()
    except PermissionError:  # in a folder that is closed to this user, as another's run among ours
        return False
