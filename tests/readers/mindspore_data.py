"""Where the shared test data of MindSpore lies, and small raw logs made here."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from pathlib import Path

from .. import shared_data


def shared(*parts: str) -> Path:
    """A file or folder of the shared test data of MindSpore."""
    return shared_data.shared("mindspore", *parts)


def step_record(tag: int, stream: int, tick: int, task: int = 0) -> bytes:
    """One record of a training_trace."""
    return struct.pack("<QHHQ", tag, task, stream, tick)


def track_record(tag: int, step: int, model: int, tick: int, stream: int = 0, type_: int = 10) -> bytes:
    """One record of a ts_track."""
    return struct.pack("<BBHIQQQHHHH", 0, type_, 40, 0, tick, step, model, stream, 0, tag, 0)


def task_record(kind: int, task: int, stream: int, tick: int, *, overflow: bool = False, counter: int = 0) -> bytes:
    """One record of an HWTS log; of kind 4 the time lies elsewhere."""
    head = kind | overflow << 3 | (counter & 15) << 4
    if kind == 4:
        return struct.pack("<BBHHHIIIIQ", head, 0, 27603, 0, task, 1, 2, stream, 4, tick).ljust(64, b"\0")
    return struct.pack("<BBHHHQI", head, 0, 27603, 0, task, tick, stream).ljust(64, b"\0")


def sliced(folder: Path, name: str, data: bytes, cuts: Sequence[int]) -> None:
    """Write a log as slices that end at the given places."""
    bounds = [0, *cuts, len(data)]
    for number, (start, end) in enumerate(itertools.pairwise(bounds)):
        (folder / f"{name}.slice_{number}").write_bytes(data[start:end])
        (folder / f"{name}.slice_{number}.done").write_bytes(b"")
