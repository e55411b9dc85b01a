"""What a path holds: run directories of every kind, result folders, trace files; nested, mixed, many.

Finding looks at names and first bytes only; nothing is read. Links are not followed, hidden folders are left out, and
the search is bounded, so that a path such as ``/`` ends in a sentence and not in an hour.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steplens import rundir
from steplens.errors import InputError, check_exists

FRAMEWORK_DIRECTORY = "FRAMEWORK"
EXPORT_DIRECTORY = "mindstudio_profiler_output"
PROF_NAME = re.compile(r"^PROF_\d+_\d+_[0-9A-Za-z]+$")

#: files that make a folder a result folder, whatever it is called
_TEXT_RESULTS = ("trace_view.json", "kernel_details.csv", "step_trace_time.csv", "operator_details.csv")
_RESULT_DATABASE = re.compile(r"^(ascend_pytorch_profiler(_\d+)?|analysis)\.db$")
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
    def simplified(self) -> bool:
        """Whether the results hold device data that cannot be read without CANN any more: data simplification removed it."""
        return bool(self.prof) and not self.exported and self.complete and (self.text or self.databases != ("analysis.db",))

    def __bool__(self) -> bool:
        return bool(self.kineto or self.framework or self.prof or self.text or self.databases)


def contents_of(path: Path) -> Contents:
    """What the folder ``path`` holds; false where it is no run directory and no result folder."""
    names = _names(path)
    prof = tuple(sorted(name for name in names if PROF_NAME.match(name) and _is_directory(path / name)))
    output = path / rundir.OUTPUT_DIRECTORY if _is_directory(path / rundir.OUTPUT_DIRECTORY) else None
    if output is None and not prof and (_result_names(names)):
        output = path
    results = _names(output) if output is not None else set()
    return Contents(
        path=path,
        kineto=_is_directory(path / rundir.RAW_DIRECTORY),
        framework=_is_directory(path / FRAMEWORK_DIRECTORY),
        prof=prof,
        exported=any(_is_exported(path / name) for name in prof),
        output=output if _result_names(results) else None,
        text=any(name in results for name in _TEXT_RESULTS),
        databases=tuple(sorted(name for name in results if _RESULT_DATABASE.match(name))),
        own=rundir.STATUS_FILE in results,
        complete=rundir.STATUS_FILE in results and rundir.COMPLETION_MARKER in results,
    )


def _nothing_else(path: Path) -> Sequence[Any]:
    return ()


def find(path: Path, others: Callable[[Path], Sequence[Any]] = _nothing_else) -> Iterator[Any]:
    """Every run directory, lone result folder and trace file at or below ``path``, in order of path.

    A part of a run directory (its result folder, its raw data) stands for the whole.

    Args:
        path: where to look.
        others: what a folder holds of other kinds of sources, which win there; a folder that holds some is not walked through.

    Yields:
        ``Contents`` of a folder, the ``Path`` of a file, or what ``others`` gives.

    Raises:
        InputError: the path does not exist, cannot be reached, or holds more folders than a search should walk through.
    """
    check_exists(path)
    if path.is_file():
        yield path
        return
    whole = path.resolve().parent if _is_part(path) else path
    if other := others(whole) or others(path):
        yield from other
        return
    found = contents_of(whole) or contents_of(path)
    if found:
        yield found
        return
    yield from _below(path, others)


def _below(top: Path, others: Callable[[Path], Sequence[Any]]) -> Iterator[Any]:
    pending: list[tuple[Path, int]] = [(top, 0)]
    seen = 0
    while pending:
        folder, depth = pending.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            if depth == 0:
                raise InputError(folder, f"cannot be listed ({error.strerror})", "Check its permissions") from error
            continue
        seen += len(entries)
        if seen > _ENTRIES:
            raise InputError(top, f"holds more than {_ENTRIES} files and folders", "Give a folder nearer to the runs")
        deeper = []
        for entry in entries:
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            child = Path(entry.path)
            if entry.is_dir():
                found = contents_of(child)
                if other := others(child):
                    yield from other
                elif found:
                    yield found
                elif depth + 1 < _DEPTH:
                    deeper.append((child, depth + 1))
            elif is_trace_file(child):
                yield child
        pending.extend(reversed(deeper))


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
        with path.open("rb") as handle:
            raw = handle.read(_HEAD)
            if raw[:2] != b"\x1f\x8b":
                return raw
        return zlib.decompressobj(wbits=31).decompress(raw, _HEAD)
    except (OSError, zlib.error, gzip.BadGzipFile, EOFError):
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
    name = path.resolve().name
    return name in (rundir.OUTPUT_DIRECTORY, FRAMEWORK_DIRECTORY, rundir.RAW_DIRECTORY) or bool(PROF_NAME.match(name))


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
