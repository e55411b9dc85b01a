"""Writes a tile as the server encodes it, in bytes and as JSON, for the test of the decoder."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import polars as pl

from steplens.server.timeline import tile_format
from steplens.server.timeline.tiles import build_tile
from steplens.timeline.layout import build_timeline
from steplens.timeline.pyramid import Pyramid
from steplens.trace.schema import SCHEMA
from steplens.trace.trace import Trace

ORIGIN = 1_700_000_000_000_000_000
NAMES = ("aten::mm", "卷积 <b>", "AllReduce", "")

# long tasks on their own, a crowd of short ones that share buckets, and a nested pair
events = [(number * 5000, 4000, 0, NAMES[number % 4]) for number in range(40)]
events += [(number * 7, 3, 1, NAMES[number % 3]) for number in range(20_000)]
events += [(100_000, 50_000, 2, "outer"), (110_000, 20_000, 2, "inner")]
rows = [
    {"id": place, "name": name, "stream": stream, "start_ns": ORIGIN + start, "end_ns": ORIGIN + start + length}
    for place, (start, length, stream, name) in enumerate(events)
]
frame = pl.DataFrame(rows, schema={**SCHEMA["kernels"]}, orient="row")
frame = frame.with_columns(device=pl.lit(0, pl.Int32), core=pl.lit("CUDA"), kind=pl.lit("compute")).cast(SCHEMA["kernels"])
pyramid = Pyramid(build_timeline(Trace(Path("made"), {"kernels": frame}), ORIGIN))
found = build_tile(pyramid, range(len(pyramid.timeline.offsets) - 1), 20_000, 150_000, 1024)
document = tile_format.tile_as_json(found, pyramid.timeline)
encoded = base64.b64encode(tile_format.encode_tile(found, pyramid.timeline)).decode()
print(json.dumps({"document": document, "bytes": encoded}))
