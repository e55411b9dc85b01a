"""Which reader reads what: the visible list of readers, the choice among them, and the way through the cache."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steplens.common import extensions
from steplens.common.errors import InputError
from steplens.common.storage.files import cache_place, fetch_whole
from steplens.readers.ascend.capture import raw_captures
from steplens.readers.ascend.database import database_captures
from steplens.readers.ascend.text import text_captures
from steplens.readers.contents import Contents
from steplens.readers.glance import nothing_found, unknown_file
from steplens.readers.kineto import kineto_captures
from steplens.readers.mindspore import mindspore_captures
from steplens.readers.reader import AnyCapture, AnyReader, Capture, Reader, guard_reader
from steplens.readers.recorder import recorder_captures
from steplens.readers.search import Search
from steplens.readers.steplens_run import run_captures
from steplens.readers.unread import Unread
from steplens.trace.cache import manifest
from steplens.trace.kept_tables import KeptTables

if TYPE_CHECKING:
    from steplens.trace.trace import Trace

#: The readers of steplens in order of precedence, behind which those of installed packages are asked.
#:
#: What lies nearest to the measurement wins, because everything else was made from it: raw data with everything it needs, then
#: the database (exact to the ns, with the links between events), then text, then raw data that lacks its device part. So complete
#: results that steplens made of device data come before what data simplification left of it. Of results that steplens itself
#: wrote, text comes before the database: it is as exact, and has Python's callers, modules and floating-point operations as well.
READERS: tuple[AnyReader, ...] = (
    mindspore_captures.READER,
    run_captures.READER,
    raw_captures.READER,
    database_captures.READER,
    text_captures.READER,
    kineto_captures.READER,
    recorder_captures.READER,
)


def find_traces(path: Path, unread: list[Unread] | None = None) -> list[AnyCapture]:
    """Every trace at or below ``path``, with the way it will be read.

    Args:
        path: what to open.
        unread: gets what lies there and is no part of any of them.

    Raises:
        InputError: the path does not exist or holds nothing that steplens reads.
    """
    search = Search(path, READERS, extensions.load_extensions(extensions.READERS, Reader), [] if unread is None else unread)
    captures = list(search.captures())
    if not captures and path.is_file():
        raise unknown_file(path)
    if not captures:
        raise nothing_found(path, search.unread)
    return captures


def raw_of(capture: AnyCapture) -> AnyCapture:
    """What the results of ``capture`` were made from, where data simplification left raw data that CANN can export."""
    contents = capture.where
    if not isinstance(contents, Contents) or not contents.simplified or capture.reader.in_place:
        return capture
    reader = run_captures.READER if contents.kineto else raw_captures.READER
    return Capture(contents.path, reader, contents, "its raw data is there and CANN can export it")


def load(capture: AnyCapture, *, allow_msprof: bool = False) -> Trace:
    """The trace of a capture, from its cache or read anew.

    Args:
        capture: what to read.
        allow_msprof: whether CANN's ``msprof`` may be run on device data that was not exported; it writes beside that data.

    Raises:
        InputError: nothing can be read; the message says why. A ``DefectError`` where reading failed as nobody foresaw, so
            that it costs no other file of the same folder.
    """
    from steplens.trace.cache import store

    reader, where = capture.reader, capture.where

    def read_capture() -> Trace:
        if extensions.package_of(reader):
            fetch_whole(reader.sources(where))
        return reader.read(where, allow_msprof=allow_msprof)

    with guard_reader(capture.path, reader):
        if allow_msprof and reader.exports(where):
            return reader.read(where, allow_msprof=True)
        return store.cached_trace(
            cache_of(capture),
            reader.sources(where),
            read_capture,
            told=_cache_dependencies(capture),
            beside=_folder_of(capture),
        )


def is_kept(capture: AnyCapture) -> bool:
    """Whether ``load`` will most likely not read it anew; damage of the cache shows only then."""
    try:
        return _kept_manifest(capture) is not None
    except InputError:  # reading it will say what is wrong
        return False


def kept_rank(capture: AnyCapture) -> int | None:
    """The rank of a trace that ``is_kept``, without its tables; None where it has to be read to tell."""
    try:
        content = _kept_manifest(capture)
    except InputError:
        return None
    rank: int | None = None if content is None else content["rank"]
    return rank


def find_kept(capture: AnyCapture) -> KeptTables | None:
    """Where the tables of a capture are kept; None where it has to be read."""
    try:
        depends_on = _cache_dependencies(capture)
        return manifest.find_kept(cache_of(capture), sources(capture), told=depends_on, beside=_folder_of(capture))
    except InputError:
        return None


def _kept_manifest(capture: AnyCapture) -> dict[str, Any] | None:
    depends_on = _cache_dependencies(capture)
    return manifest.kept_manifest(cache_of(capture), sources(capture), told=depends_on, beside=_folder_of(capture))


def cache_of(capture: AnyCapture) -> Path:
    """The folder that its tables are kept in, there or not."""
    if not capture.path.is_dir():
        return cache_place(capture.path.parent, capture.path.name)
    return cache_place(capture.path, re.sub(r"\W", "_", f"{capture.format} {capture.part}".strip()).lower())


def _folder_of(capture: AnyCapture) -> Path:
    """The folder that its sources are seen from."""
    return capture.path if capture.path.is_dir() else capture.path.parent


def sources(capture: AnyCapture) -> list[Path]:
    """The files whose change makes what was made of a capture stale.

    Raises:
        DefectError: its reader failed.
    """
    with guard_reader(capture.path, capture.reader):
        return capture.reader.sources(capture.where)


def _cache_dependencies(capture: AnyCapture) -> list[int | str]:
    """What else a kept trace depends on: another version of an installed package may read the same files better."""
    package = extensions.package_of(capture.reader)
    with guard_reader(capture.path, capture.reader):
        return [*capture.reader.dependencies(capture.where), *([package] if package else [])]


def find_one(path: Path) -> AnyCapture:
    """The only trace at or below ``path``, or that which ``path`` itself is, whatever else it holds.

    Raises:
        InputError: as ``find_traces``; or there are several.
    """
    captures = find_traces(path)
    if len(captures) == 1:
        return captures[0]
    itself = [capture for capture in captures if capture.path == path]
    if len(itself) != 1:
        raise InputError(path, f"holds {len(captures)} traces, one is wanted here", "Give one of its run directories")
    return itself[0]
