"""What somebody could put in place of a cache: manifests with other contents, and seals of this user or of another one."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from steplens.trace.cache import seal

MANIFEST = "manifest.json"
#: the file of the small tables
SMALL = "small.arrow"
#: endings of the files of tables: of small ones, and of large ones
TABLES = (".arrow", ".parquet")


def manifest_of(cache: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((cache / MANIFEST).read_bytes())["manifest"]
    return found


def write_manifest(cache: Path, manifest: Any, mark: str) -> None:
    content = json.dumps(manifest)
    (cache / MANIFEST).write_text(f'{{"seal":"{mark}","manifest":{content}}}')


def reseal(cache: Path, change: Callable[[dict[str, Any]], Any], secret: bytes | None = None) -> None:
    """Change what a manifest says, with a seal that fits: ours, or that of another secret."""
    manifest = manifest_of(cache)
    change(manifest)
    content = json.dumps(manifest).encode()
    mark = seal.compute_seal("tables", content) if secret is None else hmac.digest(secret, b"tables\0" + content, "sha256")
    assert mark is not None
    write_manifest(cache, manifest, mark.hex())


def table_file(cache: Path, name: str) -> Path:
    """The file of a table: its own if it is large, else that of all small ones."""
    large = cache / f"{name}.parquet"
    return large if large.exists() else cache / SMALL


def change_table(cache: Path, name: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Write a table anew, in the form that it has."""
    file = table_file(cache, name)
    if file.name != SMALL:
        change(pl.read_parquet(file)).write_parquet(file)
        return
    index, _, rest = file.read_bytes().partition(b"\n")
    streams = {}
    for table, length in json.loads(index).items():
        streams[table], rest = rest[:length], rest[length:]
    changed = io.BytesIO()
    change(pl.read_ipc_stream(streams[name])).write_ipc_stream(changed, compression="zstd")
    streams[name] = changed.getvalue()
    lengths = json.dumps({table: len(stream) for table, stream in streams.items()})
    file.write_bytes(b"".join((lengths.encode(), b"\n", *streams.values())))


def table_files(cache: Path) -> list[Path]:
    """The files of all tables."""
    return sorted(file for file in cache.iterdir() if file.suffix in TABLES)


def digests(cache: Path) -> dict[str, list[Any]]:
    """What a manifest has to say of the tables as they are now."""
    raw = {file.name: file.read_bytes() for file in table_files(cache)}
    return {name: [len(data), hashlib.sha256(data).hexdigest()] for name, data in raw.items()}
