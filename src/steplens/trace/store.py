"""The Parquet cache of a trace: opening a run a second time costs milliseconds.

It lies beside the data, in ``.steplens/``, one zstd file per table (Arrow where it is small and read whole at once, Parquet where
only the columns that somebody asks for are read) and a manifest with the schema version, what every raw file is known by, and a
digest of every table. The manifest bears the seal of this user (``steplens.trace.seal``). A cache that does
not match all of them, or that somebody else made, is rebuilt, never trusted.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from steplens import expansion, json_text, partial, rundir
from steplens.trace import seal
from steplens.trace.schema import SCHEMA, SCHEMA_VERSION
from steplens.trace.trace import Kept, Trace

_MANIFEST = "manifest.json"
_ARROW, _PARQUET = "arrow", "parquet"
#: ``{"seal":"<hexadecimal>","manifest":{...}}``: nobody decodes what is sealed before the seal is known to be ours
_BEFORE_SEAL, _AFTER_SEAL, _END = b'{"seal":"', b'","manifest":', b"}"
_MANIFEST_BYTES = 64 << 20
_SEALED = "tables"
#: of the columns of all tables: a cache of others is stale, whether or not somebody changed the version for them
_COLUMNS = hashlib.sha256(repr([(name, [*columns.items()]) for name, columns in SCHEMA.items()]).encode()).hexdigest()[:16]
_COMPRESSION_LEVEL = 1
#: of a table in memory: Parquet takes several times as long as Arrow for so few rows, whatever is asked of them.
#: A thousand of them take a few hundred MB at most
_SMALL_BYTES = 256 << 10
_SMALL_FILE_BYTES = 64 << 20
#: tables that take no more memory than this stay in it when they were just built
_KEPT_BYTES = 256 << 20


def cached(cache: Path, sources: Sequence[Path], build: Callable[[], Trace], *, told: Sequence[int] = ()) -> Trace:
    """The trace in ``cache`` if it is of exactly these sources, else a new one, cached where that is possible.

    Args:
        cache: directory of this trace's cache; need not exist.
        sources: the raw files the trace depends on.
        build: reads the raw files.
        told: what else it reads, as the rank in the name of the folder around them.
    """
    if not seal.is_possible():
        return build()
    cache = seal.own_place(cache)
    key = _key(cache, sources, told)
    found = _load(cache, key, sources)
    if found is not None:
        return found
    marks = [] if key is None else seal.marks(sources)
    trace = build()
    # a read-only or full disk makes the next opening slower, and nothing else
    with contextlib.suppress(OSError, pl.exceptions.ComputeError):
        if key is not None and _key(cache, sources, told) == key and seal.marks(sources) == marks:
            trace.kept = _save(trace, cache, {"key": key, "marks": marks})
            if sum(frame.estimated_size() for name in trace if (frame := trace.table(name)) is not None) > _KEPT_BYTES:
                # from now on only the columns that somebody asks for take memory
                return _load(cache, key, sources) or trace
    return trace


def is_kept(cache: Path, sources: Sequence[Path], *, told: Sequence[int] = ()) -> bool:
    """Whether there is a cache of ours of exactly these sources (``cached``); whether its tables are whole is not looked at."""
    try:
        with seal.cache_folder(seal.own_place(cache)) as inside:
            raw = seal.read(_MANIFEST, inside, _MANIFEST_BYTES)
        return _is_of(_checked_manifest(raw), _key(cache, sources, told), sources)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _key(cache: Path, sources: Sequence[Path], told: Sequence[int]) -> dict[str, Any] | None:
    """What a cache has to be made of and by; None where a source cannot be read, as whoever reads it will say."""
    folder = cache.parent.parent
    try:
        # not the name alone: folders between tell devices and ranks, and hold files of one name
        files = sorted(([seal.place(path, folder), *seal.identity(path)[1:]] for path in sources), key=str)
    except OSError:
        return None
    # another version may read the same files better, or check them more
    versions = {"schema_version": SCHEMA_VERSION, "steplens": sys.modules["steplens"].__version__, "polars": pl.__version__}
    return {**versions, **expansion.setting(), "columns": _COLUMNS, "sources": files, "told": list(told)}


def _is_of(manifest: dict[str, Any], key: dict[str, Any] | None, sources: Sequence[Path]) -> bool:
    """Whether a manifest of ours is of these sources as they are now."""
    return key is not None and manifest["key"] == key and not seal.is_changed_in_place(sources, manifest["marks"])


def _load(cache: Path, key: dict[str, Any] | None, sources: Sequence[Path]) -> Trace | None:
    try:
        with seal.cache_folder(cache) as inside:
            raw = seal.read(_MANIFEST, inside, _MANIFEST_BYTES)
            manifest = _checked_manifest(raw)
            if not _is_of(manifest, key, sources):
                return None
            tables: dict[str, pl.DataFrame | pl.LazyFrame] = {}
            for file, digest in manifest["tables"].items():
                name, _, kind = file.partition(".")
                if name not in SCHEMA or kind not in (_ARROW, _PARQUET):
                    return None
                # its columns are those of the key, since it is what was written then; looking at them would take most of the time
                table = _small(file, inside, digest) if kind == _ARROW else _large(cache / file, inside, digest)
                if table is None:
                    return None
                tables[name] = table
        return Trace(_source_of(manifest["source"], cache), tables, Kept(cache, _fingerprint(raw)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pl.exceptions.PolarsError):
        return None


def _small(file: str, inside: int, digest: list[str | int]) -> pl.DataFrame | None:
    content = seal.read(file, inside, _SMALL_FILE_BYTES)
    # the very bytes that are decoded are the ones that were looked at
    if [len(content), hashlib.sha256(content).hexdigest()] != digest:
        return None
    return pl.read_ipc_stream(io.BytesIO(content))


def _large(file: Path, inside: int, digest: list[str | int]) -> pl.LazyFrame | None:
    return pl.scan_parquet(file) if seal.digest(file.name, inside) == digest else None


def _checked_manifest(raw: bytes) -> dict[str, Any]:
    """What a manifest says.

    Raises:
        ValueError: it does not bear our seal.
    """
    mark, _, content = raw.removeprefix(_BEFORE_SEAL).removesuffix(_END).partition(_AFTER_SEAL)
    if raw != _sealed_text(mark, content) or not seal.is_sealed(_SEALED, content, bytes.fromhex(mark.decode("ascii"))):
        raise ValueError("not a manifest of ours")
    found: dict[str, Any] = json_text.own(content)
    return found


def _sealed_text(mark: bytes, content: bytes) -> bytes:
    return _BEFORE_SEAL + mark + _AFTER_SEAL + content + _END


def _source_of(recorded: str, cache: Path) -> Path:
    """Where the source lies now: the folder with the cache inside may have been moved.

    Raises:
        ValueError: the manifest leads elsewhere than into that folder or to the one around it.
    """
    folder, inside = cache.parent.parent, Path(recorded)
    if recorded == os.pardir:
        return folder.parent
    if inside.is_absolute() or os.pardir in inside.parts:
        raise ValueError(recorded)
    return folder / inside


def _fingerprint(manifest: bytes) -> str:
    """Of a manifest, which holds a digest of every table."""
    return hashlib.sha256(manifest).hexdigest()


def _is_text(path: Path) -> bool:
    """Whether polars can map files under a path: the folder's name may be in another encoding than that of the system, as GBK."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        return False
    return True


def _save(trace: Trace, cache: Path, made_of: dict[str, Any]) -> Kept | None:
    """Write the tables; where they lie then, None where they may not be written."""
    if not _is_text(cache):
        return None
    folder = cache.parent.parent
    if not folder.stat().st_mode & rundir.ANYBODY_WRITES:
        return None
    rundir.make_directory(cache.parent)
    # from here on by descriptors: who can write to the capture's folder might put links in place of what was looked at
    with seal.folder(cache.parent, ours=False) as around:
        place = seal.path_of(around)
        old = cache.name if _is_own_folder(cache.name, around) else None
        temporary = partial.beside(place / cache.name)
        temporary.mkdir(mode=0o700)
        try:
            with seal.folder(temporary.name, inside=around) as inside:
                manifest = _write(trace, inside, {**made_of, "source": os.path.relpath(trace.source, folder)})
                os.fchmod(inside, rundir.DIRECTORY_MODE)
            if old is not None:
                away = partial.beside(place / old)
                os.replace(place / old, away)
                shutil.rmtree(away, ignore_errors=True)
            os.replace(temporary, place / cache.name)
            return Kept(cache, _fingerprint(manifest))
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _is_own_folder(name: str, inside: int) -> bool:
    """Whether there is such a folder of ours already.

    Raises:
        OSError: there is something else, such as a link, in whose place nothing is put.
    """
    try:
        with seal.folder(name, inside=inside):
            return True
    except FileNotFoundError:
        return False


def _as_arrow(frame: pl.DataFrame) -> bytes | None:
    """A small table as it is kept; None for a larger one."""
    if frame.estimated_size() > _SMALL_BYTES:
        return None
    content = io.BytesIO()
    frame.write_ipc_stream(content, compression="zstd")
    # the texts of categories are not in the size of a frame
    return content.getvalue() if content.tell() <= _SMALL_FILE_BYTES else None


def _write(trace: Trace, inside: int, made_of: dict[str, Any]) -> bytes:
    """Write tables and manifest into an empty folder; the manifest.

    Raises:
        OSError: the disk is full, or nothing can be sealed any more.
    """
    place, digests = seal.path_of(inside), {}
    for name in trace:
        frame = trace.table(name)
        assert frame is not None
        arrow = _as_arrow(frame)
        file = place / f"{name}.{_PARQUET if arrow is None else _ARROW}"
        if arrow is None:
            frame.write_parquet(file, compression="zstd", compression_level=_COMPRESSION_LEVEL, statistics=False)
        else:
            file.write_bytes(arrow)
        file.chmod(rundir.FILE_MODE)
        digests[file.name] = seal.digest(file.name, inside)
    content = json.dumps({**made_of, "tables": digests}).encode()
    mark = seal.seal(_SEALED, content)
    if mark is None:
        raise OSError("there is no secret any more")
    manifest = _sealed_text(mark.hex().encode(), content)
    # not waiting until it is on the disk: of a manifest that a crash tore the seal is wrong, and all is made anew
    (place / _MANIFEST).write_bytes(manifest)
    (place / _MANIFEST).chmod(rundir.FILE_MODE)
    return manifest
