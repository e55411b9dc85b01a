"""What the cache of a trace says of itself: of which sources it is, what its files hold, and of which rank the trace is.

Without polars, which takes longer to load than a manifest to read: whether a trace is kept, and of which rank it is, is known
without its tables. ``steplens.trace.cache.store`` keeps these.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steplens.common import expansion, json_text
from steplens.trace.cache import seal
from steplens.trace.kept_tables import KeptTables
from steplens.trace.names import SCHEMA_VERSION, TABLES

NAME = "manifest.json"
#: ``{"seal":"<hexadecimal>","manifest":{...}}``: nobody decodes what is sealed before the seal is known to be ours
_BEFORE_SEAL, _AFTER_SEAL, _END = b'{"seal":"', b'","manifest":', b"}"
_BYTES = 64 << 20
_SEALED = "tables"
#: of the columns of all tables: a cache of others is stale, whether or not somebody changed the version for them
_COLUMNS = hashlib.sha256(repr([(name, [*columns.items()]) for name, columns in TABLES.items()]).encode()).hexdigest()[:16]


def cache_key(folder: Path, sources: Sequence[Path], told: Sequence[int | str]) -> dict[str, Any] | None:
    """What a cache has to be made of and by; None where a source cannot be read, as whoever reads it will say.

    Args:
        folder: that the sources are seen from.
        sources: the raw files.
        told: what else it depends on.
    """
    try:
        # not the name alone: folders between tell devices and ranks, and hold files of one name
        files = sorted(([seal.relative_place(path, folder), *seal.source_identity(path)[1:]] for path in sources), key=str)
    except OSError:
        return None
    # another version may read the same files better, or check them more
    versions = {
        "schema_version": SCHEMA_VERSION,
        "steplens": sys.modules["steplens"].__version__,
        "polars": _polars_version(),
    }
    return {**versions, **expansion.limit_setting(), "columns": _COLUMNS, "sources": files, "told": list(told)}


@functools.cache
def _polars_version() -> str:
    return importlib.metadata.version("polars")


def is_of(manifest: dict[str, Any], key: dict[str, Any] | None, sources: Sequence[Path]) -> bool:
    """Whether a manifest of ours is of these sources as they are now."""
    return key is not None and manifest["key"] == key and not seal.is_changed_in_place(sources, manifest["marks"])


def kept_manifest(
    cache: Path, sources: Sequence[Path], *, told: Sequence[int | str] = (), beside: Path | None = None
) -> dict[str, Any] | None:
    """What a cache of ours of exactly these sources says; None where there is none. Its tables are not looked at.

    Args:
        cache: directory of the cache; need not exist.
        sources: the raw files that the trace depends on.
        told: what else it depends on, as for ``store.cached_trace``.
        beside: the folder that they are seen from, as there.
    """
    both = _find_manifest(cache, sources, told, beside)
    return None if both is None else both[1]


def find_kept(
    cache: Path, sources: Sequence[Path], *, told: Sequence[int | str] = (), beside: Path | None = None
) -> KeptTables | None:
    """Where the tables of exactly these sources are kept; None where they are not. They are not looked at.

    Args:
        cache: as for ``kept_manifest``, and so are the others.
        sources: the raw files.
        told: what else the trace depends on.
        beside: the folder that they are seen from.
    """
    both = _find_manifest(cache, sources, told, beside)
    return None if both is None else KeptTables(seal.own_place(cache), manifest_fingerprint(both[0]))


def _find_manifest(
    cache: Path, sources: Sequence[Path], told: Sequence[int | str], beside: Path | None
) -> tuple[bytes, dict[str, Any]] | None:
    """The manifest of a cache of exactly these sources, and what it says."""
    try:
        with seal.cache_folder(seal.own_place(cache)) as folder:
            raw = read_manifest(folder)
        manifest = checked_manifest(raw)
        return (raw, manifest) if is_of(manifest, cache_key(beside or cache.parent.parent, sources, told), sources) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_manifest(folder: int) -> bytes:
    """The manifest in an open folder, which is not believed yet.

    Raises:
        OSError: there is none.
        ValueError: it is no file of ours.
    """
    return seal.read_file(NAME, folder, _BYTES)


def checked_manifest(raw: bytes) -> dict[str, Any]:
    """What a manifest says.

    Raises:
        ValueError: it does not bear our seal.
    """
    mark, _, content = raw.removeprefix(_BEFORE_SEAL).removesuffix(_END).partition(_AFTER_SEAL)
    if raw != _sealed_text(mark, content) or not seal.is_sealed(_SEALED, content, bytes.fromhex(mark.decode("ascii"))):
        raise ValueError("not a manifest of ours")
    manifest: dict[str, Any] = json_text.loads_stored(content)
    return manifest


def sealed_manifest(content: bytes) -> bytes:
    """A manifest with our seal.

    Raises:
        OSError: nothing can be sealed any more.
    """
    mark = seal.compute_seal(_SEALED, content)
    if mark is None:
        raise OSError("there is no secret any more")
    return _sealed_text(mark.hex().encode(), content)


def manifest_fingerprint(manifest: bytes) -> str:
    """Of a manifest, which holds a digest of every table."""
    return hashlib.sha256(manifest).hexdigest()


def _sealed_text(mark: bytes, content: bytes) -> bytes:
    return _BEFORE_SEAL + mark + _AFTER_SEAL + content + _END
