"""A timeline in a file beside the tables it was made of, so that showing a run a second time costs nothing.

The file holds the columns of the events and of all resolutions, as they are in memory. It is mapped, not read: what nobody looks
at takes no memory. It names the tables it was made of, has a digest of every column, and bears the seal of this user
(``steplens.trace.cache.seal``); a file that does not fit, is damaged, of another version or somebody else's is ignored, made
anew and replaced as a whole.

Layout, little-endian: ``MAGIC``; length of the header in 64 bits; the seal of the header; the header, JSON in UTF-8; the columns,
each at a multiple of 64 bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from steplens.common import json_text, partial, rundir
from steplens.timeline import presence
from steplens.timeline.items import TYPES, Items
from steplens.timeline.layout import Lane, Timeline
from steplens.timeline.presence import MAGIC, NAME
from steplens.timeline.pyramid import Level, Pyramid
from steplens.timeline.rows import WORKERS
from steplens.timeline.sources import SOURCES
from steplens.trace.cache import seal
from steplens.trace.kept_tables import KeptTables

#: files of one trace: it has another origin alone than among other ranks
_MOST_FILES = 2
#: a larger file, or one that would leave less of the disk than itself, is not written
_MOST_BYTES = 4 << 30
_LENGTH = len(MAGIC) + 8
_PREFIX = _LENGTH + seal.SIZE
_SEALED = "timeline"
_ALIGNMENT = 64
_PIECE = 4 << 20

_COLUMNS = {
    "offsets": np.int64,
    "crossing": np.bool_,
    "start": np.int64,
    "end": np.int64,
    "name": np.uint32,
    "table_row": np.uint32,
}


def save_timeline(pyramid: Pyramid, kept: KeptTables) -> Path | None:
    """Write a timeline beside its tables; None where it is not worth it or cannot be written.

    Args:
        pyramid: of the trace whose tables are kept.
        kept: where they are.
    """
    timeline = pyramid.timeline
    columns = _columns_of(pyramid)
    size = sum(column.nbytes for column in columns)
    try:
        if len(timeline.start) < presence.LEAST_EVENTS or size > _MOST_BYTES or not seal.is_possible():
            return None
        with seal.cache_folder(kept.folder) as folder:
            place = seal.path_of(folder)
            # before there is counted what is free: what a killed server left can be large
            partial.remove_partial_files(place)
            if rundir.free_bytes(kept.folder) < 2 * size:
                return None
            path = _timeline_path(kept, timeline.origin_ns)
            with rundir.atomic_path(place / path.name) as temporary:
                _write_timeline(temporary, _build_header(pyramid, kept), columns)
            files = sorted(place.glob(f"{NAME}*.bin"), key=lambda file: file.lstat().st_mtime_ns)
            for old in files[:-_MOST_FILES]:
                old.unlink()
            return path
    except OSError:
        # showing it again takes longer, and nothing else
        return None


def is_there(kept: KeptTables) -> bool:
    """Whether there is a timeline of these tables, from whatever origin; whether its columns are whole is not looked at."""
    return any(_load_header(kept, origin_ns) is not None for origin_ns in _stored_origins(kept))


def load_timeline(kept: KeptTables, origin_ns: int) -> Pyramid | None:
    """The timeline that was made of these tables, with times from an origin; None where there is none that can be trusted.

    A trace has another origin alone than among other ranks: where its file has another one, the times of that are moved.
    """
    found = _load_with_origin(kept, origin_ns)
    for other in _stored_origins(kept) if found is None else ():
        if (its := _load_with_origin(kept, other)) is not None:
            return Pyramid(_shift_times(its.timeline, other - origin_ns))
    return found


def _load_with_origin(kept: KeptTables, origin_ns: int) -> Pyramid | None:
    found = _load_header(kept, origin_ns)
    if found is None:
        return None
    content, header = found
    try:
        columns = _map_columns(content, header)
        return None if columns is None else _build_pyramid(header, columns, origin_ns)
    except (OSError, ValueError, KeyError, TypeError, IndexError, StopIteration, msgspec.MsgspecError):
        return None


def _load_header(kept: KeptTables, origin_ns: int) -> tuple[npt.NDArray[np.uint8], dict[str, Any]] | None:
    """The mapped file of an origin, and its header; None where there is none that was made of these tables."""
    try:
        with (
            seal.cache_folder(kept.folder) as inside,
            open(seal.open_file(_timeline_path(kept, origin_ns).name, inside), "rb") as file,
        ):
            content = np.memmap(file, dtype=np.uint8, mode="r")
        header = _checked_header(content)
        return None if header is None or header["key"] != _provenance_key(kept, origin_ns) else (content, header)
    except (OSError, ValueError, KeyError, TypeError, IndexError, msgspec.MsgspecError):
        return None


def _timeline_path(kept: KeptTables, origin_ns: int) -> Path:
    return kept.folder / f"{NAME}{origin_ns}.bin"


def _stored_origins(kept: KeptTables) -> list[int]:
    """The origins that there are files for, as their names say."""
    texts = [path.stem.removeprefix(NAME) for path in sorted(kept.folder.glob(f"{NAME}*.bin"))]
    return [int(text) for text in texts if text.isascii() and text.removeprefix("-").isdigit()]


def _shift_times(timeline: Timeline, by_ns: int) -> Timeline:
    """The same with all times later; its resolutions are of no use then, since their buckets begin elsewhere."""
    return replace(
        timeline,
        origin_ns=timeline.origin_ns - by_ns,
        lanes=tuple(replace(lane, start_ns=lane.start_ns + by_ns, end_ns=lane.end_ns + by_ns) for lane in timeline.lanes),
        start=timeline.start + by_ns,
        end=timeline.end + by_ns,
    )


def _provenance_key(kept: KeptTables, origin_ns: int) -> dict[str, Any]:
    """What a file has to be made of and by."""
    version: str = sys.modules["steplens"].__version__
    return {"tables": kept.fingerprint, "origin_ns": str(origin_ns), "steplens": version, "byteorder": sys.byteorder}


def _columns_of(pyramid: Pyramid) -> list[npt.NDArray[Any]]:
    found: list[npt.NDArray[Any]] = [getattr(pyramid.timeline, name) for name in _COLUMNS]
    for level in pyramid.levels[1:]:
        assert level.items is not None
        found += [level.offsets.astype(np.int64), *level.items.columns]
    return found


def _column_types(levels: int) -> list[type[np.generic]]:
    return [*_COLUMNS.values(), *([np.int64, *TYPES.values()] * levels)]


def _build_header(pyramid: Pyramid, kept: KeptTables) -> dict[str, Any]:
    timeline = pyramid.timeline
    lanes = [
        {
            "source": lane.source.id, "label": lane.label, "key": dict(lane.key), "first_row": lane.first_row, "rows": lane.rows,
            "events": lane.events, "start_ns": lane.start_ns, "end_ns": lane.end_ns,
        }
        for lane in timeline.lanes
    ]  # fmt: skip
    return {
        "key": _provenance_key(kept, timeline.origin_ns),
        "lanes": lanes,
        "names": timeline.names,
        "unplaced": dict(timeline.unplaced),
        "shifts": [level.shift for level in pyramid.levels[1:]],
    }


def _write_timeline(path: Path, header: dict[str, Any], columns: list[npt.NDArray[Any]]) -> None:
    with ThreadPoolExecutor(WORKERS) as threads:
        digests = list(threads.map(_digest_column, columns))
    described = [{"count": len(column), "digest": digest} for column, digest in zip(columns, digests, strict=True)]
    text = msgspec.json.encode({**header, "columns": described})
    mark = seal.compute_seal(_SEALED, text)
    if mark is None:
        raise OSError("there is no secret any more")
    with path.open("wb") as file:
        file.write(MAGIC + len(text).to_bytes(8, "little") + mark + text)
        for column in columns:
            file.write(bytes(-file.tell() % _ALIGNMENT))
            for piece in _column_pieces(column):
                file.write(piece)


def _column_pieces(column: npt.NDArray[Any]) -> Iterator[memoryview]:
    """The bytes of a column in pieces, so that other threads come through."""
    raw = np.ascontiguousarray(column).view(np.uint8)
    return (raw[place : place + _PIECE].data for place in range(0, len(raw), _PIECE))


def _checked_header(content: npt.NDArray[np.uint8]) -> dict[str, Any] | None:
    prefix = content[:_PREFIX].tobytes()
    length = int.from_bytes(prefix[len(MAGIC) : _LENGTH], "little")
    if prefix[: len(MAGIC)] != MAGIC or length > len(content) - _PREFIX:
        return None
    text = content[_PREFIX : _PREFIX + length].tobytes()
    if not seal.is_sealed(_SEALED, text, prefix[_LENGTH:]):
        return None
    header = json_text.loads_stored(text)
    return {**header, "end": _PREFIX + length} if isinstance(header, dict) else None


def _map_columns(content: npt.NDArray[np.uint8], header: dict[str, Any]) -> list[npt.NDArray[Any]] | None:
    """The columns, laid over the file; None where one is damaged."""
    at = header["end"]
    columns = []
    for one, dtype in zip(header["columns"], _column_types(len(header["shifts"])), strict=True):
        at += -at % _ALIGNMENT
        size = int(one["count"]) * np.dtype(dtype).itemsize
        if size < 0 or at + size > len(content):
            return None
        columns.append(content[at : at + size].view(dtype))
        at += size
    with ThreadPoolExecutor(WORKERS) as threads:
        digests = list(threads.map(_digest_column, columns))
    return columns if digests == [one["digest"] for one in header["columns"]] else None


def _digest_column(column: npt.NDArray[Any]) -> str:
    return seal.digest_of(_column_pieces(column))


def _build_pyramid(header: dict[str, Any], columns: list[npt.NDArray[Any]], origin_ns: int) -> Pyramid | None:
    sources = {source.id: source for source in SOURCES}
    lanes = tuple(Lane(number, sources[one.pop("source")], **one) for number, one in enumerate(header["lanes"]))
    timeline = Timeline(
        origin_ns=origin_ns,
        lanes=lanes,
        names=tuple(header["names"]),
        unplaced=header["unplaced"],
        **dict(zip(_COLUMNS, columns, strict=False)),
    )
    levels = []
    rest = columns[len(_COLUMNS) :]
    for shift in header["shifts"]:
        levels.append(Level(int(shift), rest[0], Items(*rest[1 : 1 + len(TYPES)])))
        rest = rest[1 + len(TYPES) :]
    pyramid = Pyramid(timeline, levels)
    return pyramid if _is_whole(pyramid) else None


def _is_whole(pyramid: Pyramid) -> bool:
    """Whether lanes, rows and columns fit each other."""
    timeline = pyramid.timeline
    rows = sum(lane.rows for lane in timeline.lanes)
    if any(len(column) != len(timeline.start) for column in timeline.columns) or len(timeline.crossing) != rows:
        return False
    for level in pyramid.levels:
        count = len(timeline.start) if level.items is None else len(level.items.start)
        if level.items is not None and any(len(column) != count for column in level.items.columns):
            return False
        first, last = level.offsets[:-1], level.offsets[1:]
        if len(level.offsets) != rows + 1 or level.offsets[0] != 0 or level.offsets[-1] != count or np.any(last < first):
            return False
    return True
