"""Which reader reads what: the visible list of formats, the choice among them, and the way through the cache."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from steplens import rundir
from steplens.errors import DefectError, InputError, SteplensError
from steplens.readers import conflicts
from steplens.readers.ascend.capture import ascend_raw, kineto_ascend
from steplens.readers.ascend.database import ascend_db
from steplens.readers.ascend.text import ascend_text
from steplens.readers.contents import EXPORT_DIRECTORY, Contents, contents_of, find, head, is_ascend_timeline
from steplens.readers.kineto import kineto
from steplens.readers.mindspore import mindspore_find
from steplens.readers.mindspore.mindspore_find import MindSporeSource
from steplens.readers.steplens_run import run_directory
from steplens.readers.unread import Unread, grouped, listed
from steplens.trace.cache import store
from steplens.trace.trace import Trace

_REMEDY = (
    "steplens reads Kineto and Chrome traces (.json, .json.gz), its own run directories, and what the Ascend PyTorch "
    "Profiler and MindSpore's write (FRAMEWORK, PROF_*, ASCEND_PROFILER_OUTPUT, .db, profiler/, raw device logs)"
)

_LOG = logging.getLogger("steplens.readers")

_ANALYSIS_DATABASE = "analysis.db"
#: of so many files that are not read a message says why
_NAMED_UNREAD = 200


@dataclass(frozen=True)
class Format:
    """One kind of source.

    Attributes:
        name: what it is called in front of users.
        read: gives the trace of a folder's contents or a file; the second argument allows running CANN's ``msprof``.
        sources: the files whose change makes a cached trace stale.
        in_place: whether results are made from it, so that they belong into its run directory.
        told: what it reads in the names of folders that hold the sources, which a change of these names makes stale too.
        timeline: the JSON file that holds nearly all of its events, and what reads such a file alone; None where there is none.
    """

    name: str
    read: Callable[[Any, bool], Trace]
    sources: Callable[[Any], list[Path]]
    in_place: bool = False
    told: Callable[[Any], Sequence[int]] = lambda _: ()
    timeline: tuple[Callable[[Any], Path], Callable[[Path], Trace]] | None = None


@dataclass(frozen=True)
class Found:
    """One trace that a path holds, before it is read.

    Attributes:
        path: the run directory, the result folder that lies alone, or the file.
        format: how it is read.
        reason: why this way, in one sentence for the user.
        ignored: what else it holds and is not read.
        part: which rank or device of a folder that several share; empty where there is only one trace.
    """

    path: Path
    format: Format
    reason: str
    ignored: tuple[str, ...]
    where: Contents | Path | MindSporeSource
    part: str = ""


def _kineto_reader(where: Contents) -> Any:
    """What reads a run that Kineto recorded: CANN may have recorded an NPU beside it."""
    return kineto_ascend if where.prof else run_directory


def _read_kineto_run(where: Contents, allow_msprof: bool) -> Trace:
    return kineto_ascend.read(where.path, allow_msprof=allow_msprof) if where.prof else run_directory.read(where.path)


def _number(number: int | None) -> tuple[int, ...]:
    return () if number is None else (number,)


def _output(where: Contents) -> Path:
    assert where.output is not None
    return where.output


KINETO_RUN = Format(
    "steplens run",
    _read_kineto_run,
    lambda where: _kineto_reader(where).sources(where.path),
    in_place=True,
    timeline=(lambda where: where.path / rundir.RAW_DIRECTORY / rundir.RAW_TRACE, kineto.read),
)
ASCEND_RAW = Format(
    "Ascend raw data",
    lambda where, allow_msprof: ascend_raw.read_trace(where.path, allow_msprof=allow_msprof),
    lambda where: ascend_raw.sources(where.path),
    in_place=True,
)
ASCEND_DATABASE = Format(
    "Ascend database",
    lambda where, _: ascend_db.read_trace(_output(where), where.path),
    lambda where: ascend_db.sources(_output(where), where.path),
)
ASCEND_TEXT = Format(
    "Ascend result files",
    lambda where, _: ascend_text.read_trace(_output(where), where.path),
    lambda where: ascend_text.sources(_output(where), where.path),
    told=lambda where: _number(ascend_text.rank_of_folder(where.path)),
    timeline=(lambda where: _output(where) / ascend_text.TIMELINE, ascend_text.read_timeline_trace),
)
KINETO_FILE = Format(
    "Kineto trace", lambda path, _: kineto.read(path), lambda path: [path], timeline=(lambda path: path, kineto.read)
)
ASCEND_TIMELINE = Format(
    "Ascend timeline",
    lambda path, _: ascend_text.read_timeline_trace(path),
    lambda path: [path],
    timeline=(lambda path: path, ascend_text.read_timeline_trace),
)
ASCEND_FILE = Format("Ascend database", lambda path, _: ascend_db.read_file_trace(path), lambda path: [path])
MINDSPORE = {
    mindspore_find.WINDOWS: Format("MindSpore run", lambda where, _: where.read(), lambda where: where.sources()),
    mindspore_find.LEGACY: Format("MindSpore device logs", lambda where, _: where.read(), lambda where: where.sources()),
    mindspore_find.PROF: Format("MindSpore device data", lambda where, _: where.read(), lambda where: where.sources()),
    mindspore_find.FLAT: Format("MindSpore results", lambda where, _: where.read(), lambda where: where.sources()),
}


def find_traces(path: Path, unread: list[Unread] | None = None) -> list[Found]:
    """Every trace at or below ``path``, with the way it will be read.

    Args:
        path: what to open.
        unread: gets what lies there and is no part of any of them.

    Raises:
        InputError: the path does not exist or holds nothing that steplens reads.
    """
    rest: list[Unread] = [] if unread is None else unread
    found = [choose(where) for where in find(path, mindspore_find.find, rest)]
    if not found:
        groups = [f"{listed(names)} ({reason})" for _, reason, names in grouped(rest[:_NAMED_UNREAD])]
        raise InputError(path, f"holds no run and no trace{', only ' if groups else ''}{'; '.join(groups)}", _REMEDY)
    return found


def choose(where: Contents | Path | MindSporeSource) -> Found:
    """How a run directory, result folder or file is read.

    What lies nearest to the measurement wins, because everything else was made from it: raw data with everything it
    needs, then the database (exact to the ns, with the links between events), then text, then raw data that lacks its
    device part. So complete results that steplens made of device data come before what data simplification left of it. Of
    results that steplens itself wrote, text comes before the database: it is as exact, and has Python's callers, modules and
    floating-point operations as well.

    Raises:
        InputError: the file is of no known format.
    """
    if isinstance(where, Path):
        return _choose_file(where)
    if isinstance(where, MindSporeSource):
        return Found(where.path, MINDSPORE[where.kind], where.reason, where.ignored, where, str(where.number))
    folder = where.output.name if where.output is not None else ""
    text = (f"text files of {folder}",) if where.text else ()
    databases = tuple(f"{folder}/{name}" for name in where.databases)
    raw = ("FRAMEWORK", *where.prof) if where.framework else where.prof
    if where.simplified:
        return _choose_results(where, (rundir.RAW_DIRECTORY, *raw) if where.kineto else raw, text, databases)
    return _choose_raw_or_results(where, raw, text, databases)


def raw_of(found: Found) -> Found:
    """What the results that ``found`` reads were made from, where data simplification left raw data that CANN can export."""
    where = found.where
    if not isinstance(where, Contents) or not where.simplified or found.format.in_place:
        return found
    form = KINETO_RUN if where.kineto else ASCEND_RAW
    return Found(where.path, form, "its raw data is there and CANN can export it", (), where)


def _choose_results(where: Contents, raw: tuple[str, ...], text: tuple[str, ...], databases: tuple[str, ...]) -> Found:
    why = "its results are complete, and the device data that they were made from can be read only where CANN exports it again"
    if _reads_database(where):
        return Found(where.path, ASCEND_DATABASE, why, (*raw, *text), where)
    return Found(where.path, ASCEND_TEXT, why, raw, where)


def _reads_database(where: Contents) -> bool:
    """Whether the result database is read and not the text files: those of steplens are exact too, and hold more."""
    return any(name != _ANALYSIS_DATABASE for name in where.databases) and not (where.own and where.text)


def _choose_raw_or_results(where: Contents, raw: tuple[str, ...], text: tuple[str, ...], databases: tuple[str, ...]) -> Found:
    if where.kineto:
        return Found(where.path, KINETO_RUN, "its raw data is there", (*text, *databases), where)
    if where.exported:
        what = "raw framework data and exported device data are" if where.framework else "exported device data is"
        return Found(where.path, ASCEND_RAW, f"its {what} there", (*text, *databases), where)
    if raw and where.own:
        return Found(
            where.path, ASCEND_RAW, "its raw data is there, which the results were made from", (*text, *databases), where
        )
    if _reads_database(where):
        why = "it holds a database, which is exact to the nanosecond and keeps the links between events"
        return Found(where.path, ASCEND_DATABASE, why, (*raw, *text), where)
    if where.text:
        why = "it holds the result files of " + ("steplens" if where.own else "another analysis")
        if raw:
            why += f" and no exported device data (no {EXPORT_DIRECTORY})"
        return Found(where.path, ASCEND_TEXT, why, raw, where)
    if raw:
        why = "its raw data is there, the device part not exported" if where.prof else "its raw framework data is there"
        return Found(where.path, ASCEND_RAW, why, (), where)
    return Found(where.path, ASCEND_TEXT, "it holds what another analysis has computed", (), where)


def _choose_file(path: Path) -> Found:
    start = head(path)
    if start[:16] == b"SQLite format 3\0" or path.suffix == ".db":
        whole = path.resolve().parent
        whole = whole.parent if whole.name == rundir.OUTPUT_DIRECTORY else whole
        contents = contents_of(whole)
        if contents.output is not None and path.name == _ANALYSIS_DATABASE and path.name in contents.databases:
            return Found(path, ASCEND_TEXT, "what another analysis has computed; what lies beside it completes it", (), contents)
        if contents.output is not None and path.name in contents.databases and path.name != _ANALYSIS_DATABASE:
            return Found(path, ASCEND_DATABASE, "a result database; what lies beside it completes it", (), contents)
        return Found(path, ASCEND_FILE, "a database on its own", (), path)
    if not kineto.detect(path):
        raise InputError(path, "is not a trace steplens knows", _REMEDY)
    if is_ascend_timeline(path, start):
        return Found(path, ASCEND_TIMELINE, "an array of events with Ascend's processes", (), path)
    return Found(path, KINETO_FILE, "a trace file", (), path)


def load(found: Found, *, allow_msprof: bool = False) -> Trace:
    """The trace of what was found, from its cache or read anew.

    Args:
        found: what to read.
        allow_msprof: whether CANN's ``msprof`` may be run on device data that was not exported; it writes beside that data.

    Raises:
        InputError: nothing can be read; the message says why. A ``DefectError`` where reading failed as nobody foresaw, so
            that it costs no other file of the same folder.
    """
    try:
        return _load(found, allow_msprof)
    except (SteplensError, OSError, MemoryError):
        raise
    except (Exception, pl.exceptions.PanicException) as error:  # the boundary between files, for what readers did not foresee
        # where nobody set up logging nothing below a warning is shown: a command prints one sentence, no traceback
        _LOG.info("%s could not be read", found.path, exc_info=True)
        raise DefectError(found.path, error) from error


def _load(found: Found, allow_msprof: bool) -> Trace:
    where = found.where

    def read() -> Trace:
        trace = found.format.read(where, allow_msprof)
        if isinstance(where, Contents) and where.text and found.format in (ASCEND_RAW, ASCEND_DATABASE):
            return conflicts.with_findings(trace, _output(where))
        return trace

    if allow_msprof and found.format.in_place and isinstance(where, Contents) and where.prof and not where.exported:
        # a cached trace of before the export would hide that there is something to export
        return read()
    return store.cached(cache_of(found), found.format.sources(where), read, told=found.format.told(where))


def is_kept(found: Found) -> bool:
    """Whether ``load`` will most likely not read it anew; damage of the cache shows only then."""
    return store.is_kept(cache_of(found), found.format.sources(found.where), told=found.format.told(found.where))


def cache_of(found: Found) -> Path:
    """The folder that its tables are kept in, there or not."""
    inside = found.path.is_dir()
    cache = (found.path if inside else found.path.parent) / rundir.CACHE_DIRECTORY
    return cache / (f"{found.format.name} {found.part}".strip().replace(" ", "_").lower() if inside else found.path.name)


def sources(found: Found) -> list[Path]:
    """The files whose change makes what was made of ``found`` stale."""
    return found.format.sources(found.where)


def find_one(path: Path) -> Found:
    """The only trace at or below ``path``, or that which ``path`` itself is, whatever else it holds.

    Raises:
        InputError: as ``find_traces``; or there are several.
    """
    found = find_traces(path)
    if len(found) == 1:
        return found[0]
    itself = [item for item in found if item.path == path]
    if len(itself) != 1:
        raise InputError(path, f"holds {len(found)} traces, one is wanted here", "Give one of its run directories")
    return itself[0]


def load_trace(path: Path) -> Trace:
    """The trace of one run directory or trace file.

    Raises:
        InputError: the path does not exist, is of no known format, or holds none or several traces.
    """
    return load(find_one(path))
