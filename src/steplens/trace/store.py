"""The Parquet cache of a trace: opening a run a second time costs milliseconds.

It lies beside the data, in ``.steplens/``, one zstd file per table and a manifest with the schema version and the name,
size and modification time of every raw file, and a checksum of every table. A cache that does not match all of them is rebuilt,
never trusted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from steplens import expansion, json_text, partial, rundir
from steplens.trace.schema import SCHEMA, SCHEMA_VERSION
from steplens.trace.trace import Kept, Trace

_MANIFEST = "manifest.json"
_COMPRESSION_LEVEL = 1
_CHUNK_BYTES = 4 << 20
#: tables that take no more memory than this stay in it when they were just built
_KEPT_BYTES = 256 << 20
_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def cached(cache: Path, sources: Sequence[Path], build: Callable[[], Trace]) -> Trace:
    """The trace in ``cache`` if it is of exactly these sources, else a new one, cached where that is possible.

    Args:
        cache: directory of this trace's cache; need not exist.
        sources: the raw files the trace depends on.
        build: reads the raw files.
    """
    key = _key(sources)
    found = _load(cache, key)
    if found is not None:
        return found
    trace = build()
    # a read-only or full disk makes the next opening slower, and nothing else
    with contextlib.suppress(OSError, pl.exceptions.ComputeError):
        if _key(sources) == key:
            trace.kept = _save(trace, cache, key)
            if sum(frame.estimated_size() for name in trace if (frame := trace.table(name)) is not None) > _KEPT_BYTES:
                # from now on only the columns that somebody asks for take memory
                return _load(cache, key) or trace
    return trace


def is_kept(cache: Path, sources: Sequence[Path]) -> bool:
    """Whether there is a cache of exactly these sources; whether its tables are whole is not looked at."""
    try:
        return bool(json_text.loads((cache / _MANIFEST).read_bytes())["key"] == _key(sources))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _key(sources: Sequence[Path]) -> dict[str, Any]:
    files = []
    for path in sources:
        status = path.stat()
        files.append([path.name, status.st_size, status.st_mtime_ns])
    # another version may read the same files better, or check them more
    versions = {"schema_version": SCHEMA_VERSION, "steplens": sys.modules["steplens"].__version__, "polars": pl.__version__}
    versions |= expansion.setting()
    return {**versions, "sources": sorted(files)}


def _load(cache: Path, key: dict[str, Any]) -> Trace | None:
    try:
        if cache.is_symlink() or cache.parent.is_symlink():
            return None
        raw = (cache / _MANIFEST).read_bytes()
        manifest = json_text.loads(raw)
        if manifest["key"] != key:
            return None
        tables: dict[str, pl.DataFrame | pl.LazyFrame] = {}
        for name, checksum in manifest["tables"].items():
            file = cache / f"{name}.parquet"
            if name not in SCHEMA or file.is_symlink() or _checksum(file) != checksum:
                return None
            frame = pl.scan_parquet(file)
            if frame.collect_schema().names() != list(SCHEMA[name]):
                return None
            tables[name] = frame
        return Trace(_source_of(manifest["source"], cache), tables, Kept(cache, _fingerprint(raw)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pl.exceptions.PolarsError):
        return None


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
    """Of a manifest, which holds a checksum of every table."""
    return hashlib.sha256(manifest).hexdigest()


def _checksum(file: Path) -> list[int]:
    """Size and CRC of a file: a damaged table would fail, or lie, much later, when somebody asks it something."""
    crc = size = 0
    with file.open("rb") as handle:
        while part := handle.read(_CHUNK_BYTES):
            crc = zlib.crc32(part, crc)
            size += len(part)
    return [size, crc]


def _is_text(path: Path) -> bool:
    """Whether polars can map files under a path: the folder's name may be in another encoding than that of the system, as GBK."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        return False
    return True


def _save(trace: Trace, cache: Path, key: dict[str, Any]) -> Kept | None:
    """Write the tables; where they lie then, None where they may not be written."""
    if cache.is_symlink() or cache.parent.is_symlink() or not _is_text(cache):
        return None
    folder = cache.parent.parent
    if not folder.stat().st_mode & _WRITABLE:
        # somebody closed it to everybody; that root could write all the same is no invitation
        return None
    rundir.make_directory(cache.parent)
    temporary = partial.beside(cache)
    temporary.mkdir(mode=0o700)
    try:
        checksums = {}
        for name in trace:
            file = temporary / f"{name}.parquet"
            frame = trace.table(name)
            assert frame is not None
            frame.write_parquet(file, compression="zstd", compression_level=_COMPRESSION_LEVEL, statistics=False)
            file.chmod(rundir.FILE_MODE)
            checksums[name] = _checksum(file)
        source = os.path.relpath(trace.source, folder)
        manifest = json.dumps({"key": key, "source": source, "tables": checksums}).encode()
        rundir.write_bytes(temporary / _MANIFEST, manifest)
        temporary.chmod(rundir.DIRECTORY_MODE)
        if cache.exists():
            old = partial.beside(cache)
            os.replace(cache, old)
            shutil.rmtree(old, ignore_errors=True)
        os.replace(temporary, cache)
        return Kept(cache, _fingerprint(manifest))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
