"""A tile as bytes: a short JSON header, then one little-endian column after the other (docs/view.md)."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from steplens.server.timeline.tiles import Tile
from steplens.timeline.layout import Timeline

MAGIC = b"SLT1"
MEDIA_TYPE = "application/vnd.steplens.tile"

#: columns start at multiples of this, so that a typed array can be laid over them
_ALIGNMENT = 8
#: a label on the screen needs no more; the details of an event have its whole name
_LABEL_CHARACTERS = 256


def tile_as_json(tile: Tile, timeline: Timeline) -> dict[str, Any]:
    """The tile as JSON: the header and the columns as lists."""
    return {**_tile_header(tile, timeline), "columns": {name: column.tolist() for name, column in _tile_columns(tile).items()}}


def encode_tile(tile: Tile, timeline: Timeline) -> bytes:
    """The tile in its binary form."""
    columns = _tile_columns(tile)
    offset = 0
    described = []
    for name, column in columns.items():
        described.append({"name": name, "type": column.dtype.str[1:], "offset": offset})
        offset += -(-column.nbytes // _ALIGNMENT) * _ALIGNMENT
    header = msgspec.json.encode({**_tile_header(tile, timeline), "columns": described})
    start = len(MAGIC) + 4
    header += b" " * (-(start + len(header)) % _ALIGNMENT)
    parts = [MAGIC, len(header).to_bytes(4, "little"), header]
    for column in columns.values():
        parts += [column.tobytes(), bytes(-column.nbytes % _ALIGNMENT)]
    return b"".join(parts)


def _tile_columns(tile: Tile) -> dict[str, npt.NDArray[Any]]:
    items = tile.items
    return {
        "start_ns": items.start.astype("<f8"),
        "end_ns": items.end.astype("<f8"),
        "busy_ns": items.busy.astype("<f8"),
        "event": items.longest.astype("<u4"),
        "name": items.name.astype("<u4"),
        "count": items.count.astype("<u4"),
    }


def _tile_header(tile: Tile, timeline: Timeline) -> dict[str, Any]:
    lane_of = np.repeat([lane.id for lane in timeline.lanes], [lane.rows for lane in timeline.lanes])
    rows = [
        {
            "lane": int(lane_of[row]),
            "depth": row - timeline.lanes[lane_of[row]].first_row,
            "first": int(tile.offsets[place]),
            "count": int(tile.offsets[place + 1] - tile.offsets[place]),
        }
        for place, row in enumerate(tile.rows.tolist())
    ]
    used = np.unique(tile.items.name)
    return {
        "start_ns": tile.start_ns,
        "end_ns": tile.end_ns,
        "bucket_ns": 1 << tile.shift,
        "items": len(tile.items.start),
        "events": int(tile.items.count.sum()),
        "rows": rows,
        "names": {str(place): timeline.names[place][:_LABEL_CHARACTERS] for place in used.tolist()},
    }
