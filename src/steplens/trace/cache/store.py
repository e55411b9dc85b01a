"""The Parquet cache of a trace: opening a run a second time costs milliseconds.

It lies beside the data, in ``.steplens/``: the small tables together in one file of Arrow, which is read whole at once (to make a
file takes longer than to write a small table), each large one in a Parquet file of its own, of which only the columns that
somebody asks for are read and which lacks those that are null throughout, and a manifest with the schema version, what every raw
file is known by, and a digest of every file. The manifest bears the seal of this user (``steplens.trace.cache.seal``). A cache
that does not match all of them, or that somebody else made, is rebuilt, never trusted.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast

import polars as pl

from steplens.common import json_text, partial, rundir
from steplens.common.storage import user_cache
from steplens.trace.cache import manifest as manifests
from steplens.trace.cache import seal
from steplens.trace.kept_tables import KeptTables
from steplens.trace.schema import SCHEMA
from steplens.trace.trace import Table, Trace

_PARQUET = "parquet"
#: a line of JSON, which has the length of each table by its name, and behind it the Arrow streams of these tables
_SMALL = "small.arrow"
_COMPRESSION_LEVEL = 1
#: of a table in memory: Parquet takes several times as long as Arrow for so few rows, whatever is asked of them.
#: A thousand of them take a few hundred MB at most
_SMALL_BYTES = 256 << 10
#: of all small tables of a trace, compressed
_SMALL_FILE_BYTES = 64 << 20
#: of which the first line takes at most
_INDEX_BYTES = 4 << 10
#: whether tables are read when somebody asks for them
_LATER: ContextVar[bool] = ContextVar("tables are read later", default=False)
#: takes what keeps tables that were read anew; None where they are kept at once
_AFTERWARDS: ContextVar[list[Callable[[], None]] | None] = ContextVar("tables are kept afterwards", default=None)
#: tables that take no more memory than this stay in it when they were just built
_KEPT_BYTES = 256 << 20


def cached_trace(
    cache: Path,
    sources: Sequence[Path],
    build: Callable[[], Trace],
    *,
    told: Sequence[int | str] = (),
    beside: Path | None = None,
) -> Trace:
    """The trace in ``cache`` if it is of exactly these sources, else a new one, cached where that is possible.

    Args:
        cache: directory of this trace's cache; need not exist.
        sources: the raw files the trace depends on.
        build: reads the raw files.
        told: what else it depends on, as the rank in the name of the folder around them.
        beside: the folder that they are seen from; that in which the folder around the cache lies by default.
    """
    if not seal.is_possible():
        return build()
    cache = seal.own_place(cache)
    folder = beside or cache.parent.parent
    key = manifests.cache_key(folder, sources, told)
    loaded = _load_trace(cache, folder, key, sources, build)
    if loaded is not None:
        return loaded
    marks = [] if key is None else seal.file_change_marks(sources)
    trace = build()

    def keep_tables() -> None:
        # a read-only or full disk makes the next opening slower, and nothing else
        with contextlib.suppress(OSError, pl.exceptions.ComputeError):
            if key is None or manifests.cache_key(folder, sources, told) != key or seal.file_change_marks(sources) != marks:
                return
            trace.kept = _save_trace(trace, cache, folder, {"key": key, "marks": marks, "rank": trace.rank})
            size = sum(frame.estimated_size() for name in trace if (frame := trace.table(name)) is not None)
            if _LATER.get() or size > _KEPT_BYTES:
                # from now on only the columns that somebody asks for take memory
                loaded = _load_trace(cache, folder, key, sources, build)
                if loaded is not None:
                    trace.replace_tables(loaded)

    afterwards = _AFTERWARDS.get()
    if afterwards is None:
        keep_tables()
    else:
        afterwards.append(keep_tables)
    return trace


def _load_trace(
    cache: Path, beside: Path, key: dict[str, Any] | None, sources: Sequence[Path], build: Callable[[], Trace]
) -> Trace | None:
    """The trace that is kept there; None where there is none of ours of these sources."""
    try:
        with seal.cache_folder(cache) as folder:
            raw = manifests.read_manifest(folder)
            manifest = manifests.checked_manifest(raw)
            if not manifests.is_of(manifest, key, sources):
                return None
            tables = _read_later(cache, manifest, build) if _LATER.get() else _read_now(cache, folder, manifest)
            if tables is None or not set(tables) <= set(SCHEMA):
                return None
        return Trace(_source_of(manifest["source"], beside), tables, KeptTables(cache, manifests.manifest_fingerprint(raw)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pl.exceptions.PolarsError):
        return None


@contextlib.contextmanager
def tables_read_later() -> Iterator[None]:
    """Within this, of traces that are kept nothing is read before somebody asks for it: for so many that most are never asked."""
    token = _LATER.set(True)
    try:
        yield
    finally:
        _LATER.reset(token)


@contextlib.contextmanager
def tables_kept_afterwards() -> Iterator[list[Callable[[], None]]]:
    """Within this, tables that are read anew stay in memory, and what keeps them is given: to be called once, by the caller.

    For one trace of which somebody waits for more than its tables: writing them takes the processors for a second.
    """
    waiting: list[Callable[[], None]] = []
    token = _AFTERWARDS.set(waiting)
    try:
        yield waiting
    finally:
        _AFTERWARDS.reset(token)


@contextlib.contextmanager
def tables_kept_at_once() -> Iterator[None]:
    """Within this, tables are kept as they are read, whatever the caller wants: for several, which would fill the memory."""
    token = _AFTERWARDS.set(None)
    try:
        yield
    finally:
        _AFTERWARDS.reset(token)


def _read_now(cache: Path, folder: int, manifest: dict[str, Any]) -> dict[str, Table | Callable[[], Table]] | None:
    """The tables, the small ones read; None where their files are not those that were written."""
    tables: dict[str, Table | Callable[[], Table]] = {}
    for file, digest in manifest["tables"].items():
        # their columns are those of the key, as they were written; looking at them would take most of the time
        read = _read_small_tables(folder, digest) if file == _SMALL else _scan_large_table(cache / file, folder, digest)
        if read is None:
            return None
        tables |= read
    return tables


def _read_later(cache: Path, manifest: dict[str, Any], build: Callable[[], Trace]) -> dict[str, Table | Callable[[], Table]]:
    """What reads each table."""
    files = _Files(cache, manifest["tables"], build)
    names = [*manifest["small"], *(file.partition(".")[0] for file in manifest["tables"] if file != _SMALL)]
    return {name: functools.partial(files.read_table, name) for name in names}


class _Files:
    """The files of a trace that is kept; where they are not those that were written, its sources are read again.

    Args:
        cache: the folder that they lie in.
        digests: of each, as the manifest says.
        build: reads the sources.
    """

    def __init__(self, cache: Path, digests: dict[str, list[str | int]], build: Callable[[], Trace]) -> None:
        self._cache = cache
        self._digests = digests
        self._build = build

    def read_table(self, name: str) -> Table:
        """A table, of which a large one is not read yet."""
        try:
            with seal.cache_folder(self._cache) as folder:
                # their columns are those of the key, as they were written; looking at them would take most of the time
                file = f"{name}.{_PARQUET}"
                if file in self._digests:
                    read: dict[str, Any] | None = _scan_large_table(self._cache / file, folder, self._digests[file])
                else:
                    read = _read_small_tables(folder, self._digests[_SMALL])
            if read is not None:
                return cast(Table, read[name])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, pl.exceptions.PolarsError):
            pass
        frame = self._read_sources().table(name)
        return pl.DataFrame(schema=SCHEMA[name]) if frame is None else frame

    @functools.cache  # noqa: B019 - as long as the trace that has it
    def _read_sources(self) -> Trace:
        return self._build()


def _read_small_tables(inside: int, digest: list[str | int]) -> dict[str, pl.DataFrame] | None:
    """The small tables; None where their file is not the one that was written."""
    content = seal.read_file(_SMALL, inside, _SMALL_FILE_BYTES)
    # the very bytes that are decoded are the ones that were looked at
    if [len(content), hashlib.sha256(content).hexdigest()] != digest:
        return None
    lengths, _, streams = content.partition(b"\n")
    tables, start = {}, 0
    for name, length in json_text.loads_stored(lengths).items():
        tables[name] = pl.read_ipc_stream(streams[start : start + length])
        start += length
    return tables


def _scan_large_table(file: Path, inside: int, digest: list[str | int]) -> dict[str, pl.LazyFrame] | None:
    """A large table, of which nothing is read yet; None where its file is not the one that was written."""
    name, _, kind = file.name.partition(".")
    if kind != _PARQUET or seal.file_digest(file.name, inside) != digest:
        return None
    return {name: pl.scan_parquet(file, schema=SCHEMA[name], missing_columns="insert")}


def _source_of(recorded: str, folder: Path) -> Path:
    """Where the source lies now: the folder that it is seen from may have been moved.

    Raises:
        ValueError: the manifest leads elsewhere than into that folder or to the one around it.
    """
    relative_path = Path(recorded)
    if recorded == os.pardir:
        return folder.parent
    if relative_path.is_absolute() or os.pardir in relative_path.parts:
        raise ValueError(recorded)
    return folder / relative_path


def _is_text(path: Path) -> bool:
    """Whether polars can map files under a path: the folder's name may be in another encoding than that of the system, as GBK."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        return False
    return True


def _save_trace(trace: Trace, cache: Path, beside: Path, made_of: dict[str, Any]) -> KeptTables | None:
    """Write the tables; where they lie then, None where they may not be written."""
    if not _is_text(cache):
        return None
    folder = cache.parent.parent
    if not folder.stat().st_mode & rundir.ANYBODY_WRITES:
        return None
    rundir.make_directory(cache.parent)
    user_cache.note_written()
    # from here on by descriptors: who can write to the capture's folder might put links in place of what was looked at
    with seal.open_folder(cache.parent, ours=False) as around:
        place = seal.path_of(around)
        old = cache.name if _is_own_folder(cache.name, around) else None
        temporary = partial.partial_path(place / cache.name)
        temporary.mkdir(mode=0o700)
        try:
            with seal.open_folder(temporary.name, inside=around) as inside:
                manifest = _write_tables(trace, inside, {**made_of, "source": os.path.relpath(trace.source, beside)})
                os.fchmod(inside, rundir.DIRECTORY_MODE)
            if old is not None:
                away = partial.partial_path(place / old)
                os.replace(place / old, away)
                shutil.rmtree(away, ignore_errors=True)
            os.replace(temporary, place / cache.name)
            return KeptTables(cache, manifests.manifest_fingerprint(manifest))
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _is_own_folder(name: str, inside: int) -> bool:
    """Whether there is such a folder of ours already.

    Raises:
        OSError: there is something else, such as a link, in whose place nothing is put.
    """
    try:
        with seal.open_folder(name, inside=inside):
            return True
    except FileNotFoundError:
        return False


def _as_arrow(frame: pl.DataFrame, most_bytes: int) -> bytes | None:
    """A small table as it is kept; None for a larger one."""
    if frame.estimated_size() > _SMALL_BYTES:
        return None
    content = io.BytesIO()
    frame.write_ipc_stream(content, compression="zstd")
    # the texts of categories are not in the size of a frame
    return content.getvalue() if content.tell() <= most_bytes else None


def _write_tables(trace: Trace, inside: int, made_of: dict[str, Any]) -> bytes:
    """Write tables and manifest into an empty folder; the manifest.

    Raises:
        OSError: the disk is full, or nothing can be sealed any more.
    """
    place, digests = seal.path_of(inside), {}
    small: dict[str, bytes] = {}
    for name in trace:
        frame = trace.table(name)
        assert frame is not None
        stream = _as_arrow(frame, _SMALL_FILE_BYTES - _INDEX_BYTES - sum(map(len, small.values())))
        if stream is not None:
            small[name] = stream
            continue
        file = place / f"{name}.{_PARQUET}"
        _without_empty_columns(frame).write_parquet(
            file, compression="zstd", compression_level=_COMPRESSION_LEVEL, statistics=False
        )
        file.chmod(rundir.FILE_MODE)
        digests[file.name] = seal.file_digest(file.name, inside)
    if small:
        index = json.dumps({name: len(stream) for name, stream in small.items()}).encode()
        content = b"".join((index, b"\n", *small.values()))
        _write_file(place / _SMALL, content)
        digests[_SMALL] = [len(content), hashlib.sha256(content).hexdigest()]
    manifest = manifests.sealed_manifest(json.dumps({**made_of, "tables": digests, "small": [*small]}).encode())
    # not waiting until it is on the disk: of a manifest that a crash tore the seal is wrong, and all is made anew
    _write_file(place / manifests.NAME, manifest)
    return manifest


def _without_empty_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """A table without the columns that its source does not fill: of tasks they are half, and take as long to write as others."""
    columns = [column for column in frame.get_columns() if column.null_count() < frame.height]
    # without a column a file has no rows
    return pl.DataFrame(columns) if columns else frame


def _write_file(file: Path, content: bytes) -> None:
    """Write a new file that others may read if the folder allows it.

    Raises:
        OSError: the disk is full.
    """
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, rundir.FILE_MODE)
    with open(descriptor, "wb", buffering=0) as opened:
        os.fchmod(descriptor, rundir.FILE_MODE)
        view = memoryview(content)
        while view:
            view = view[opened.write(view) :]
