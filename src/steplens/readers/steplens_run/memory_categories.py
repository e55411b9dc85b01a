"""Reads the categories of memory that the collector leaves beside the raw trace (``KINETO/memory_categories.json``)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import polars as pl

from steplens.common import rundir
from steplens.common.errors import InputError
from steplens.common.storage.files import read_bytes
from steplens.formats.memory_categories import FILE, VERSION
from steplens.readers.common import json_decoder
from steplens.trace.trace import Trace

_LARGEST_BYTES = 1 << 30


class _Columns(msgspec.Struct):
    """The file: one entry per event; devices as positions in ``devices`` ("cpu", "cuda:0")."""

    version: int
    devices: list[str]
    time_ns: list[int]
    action: list[int]
    bytes: list[int]
    category: list[int]
    device: list[int]


_DECODER = json_decoder.Decoder[_Columns](_Columns)


def file_of(run_directory: Path) -> Path:
    """Where a run directory has the file."""
    return run_directory / rundir.RAW_DIRECTORY / FILE


def of_trace(trace: Trace) -> pl.DataFrame | None:
    """The events of the run directory that a trace lies in; as ``read``."""
    source = trace.source
    # the source of a recorded trace is the raw file, that of others a folder
    return read_categories(source.parent.parent if source.parent.name == rundir.RAW_DIRECTORY else source)


def read_categories(run_directory: Path) -> pl.DataFrame | None:
    """The events of a run, columns as in ``analysis.memory.memory_categories.EVENTS``; None where none were recorded.

    Raises:
        InputError: the file is damaged.
    """
    path = file_of(run_directory)
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise ValueError("larger than such a file can be")
        columns = _DECODER.decode(read_bytes(path))
        if columns.version != VERSION:
            raise ValueError(f"of version {columns.version}, which this steplens does not know")
        names = [name.partition(":") for name in columns.devices]
        frame = pl.DataFrame(
            {
                "time_ns": pl.Series(columns.time_ns, dtype=pl.Int64),
                "action": pl.Series(columns.action, dtype=pl.Int8),
                "bytes": pl.Series(columns.bytes, dtype=pl.Int64),
                "category": pl.Series(columns.category, dtype=pl.Int8),
                "place": pl.Series(columns.device, dtype=pl.UInt32),
            }
        )
        for column, bound in (("action", 4), ("category", 8), ("place", len(names))):
            if not frame[column].is_between(0, bound - 1).all():
                raise ValueError(f"its column {column} has values that mean nothing")
        types = pl.Series([kind.upper() for kind, _, _ in names], dtype=pl.String)
        numbers = pl.Series([int(number or 0) for _, _, number in names], dtype=pl.Int32)
    except (OSError, ValueError, TypeError, pl.exceptions.PolarsError, OverflowError) as error:
        problem = f"holds no categories of memory: {' '.join(str(error).split())}"
        raise InputError(path, problem, "Remove it; the timeline then has no categories") from error
    place = frame["place"]
    return frame.drop("place").with_columns(device_type=types.gather(place), device=numbers.gather(place))
