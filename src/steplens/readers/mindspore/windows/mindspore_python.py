"""Reads the calls of Python that ``steplens.mindspore`` records with ``with_stack``, of one window."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from steplens.common.storage.files import open_file, read_bytes
from steplens.readers.ascend.capture.python_replay import replay_calls
from steplens.readers.common import json_decoder
from steplens.readers.mindspore.legacy_files import read_up_to
from steplens.trace.health import CALL_STACKS, WARNING, HealthLog
from steplens.trace.schema import NAME

#: pairs of 8 byte numbers, little endian: Unix ns, and twice the index of a name, one more for a return; -1 ends the recording
CALLS_FILE = "python_calls.bin"
#: the names, a JSON list of texts
NAMES_FILE = "python_names.json"
_RECORD = np.dtype([("time", "<i8"), ("what", "<i8")])
_NAMES = json_decoder.Decoder[list[str]](list[str])
_END = -1
_LATEST_NS = 1 << 61
_SIZE_LIMIT_BYTES = 4 << 30


def read_calls(folder: Path, pid: int, tid: int, health: HealthLog) -> pl.DataFrame:
    """Rows of ``python``, in order of their starts; ids count them from 0. Empty where no calls were recorded.

    Args:
        folder: of the window.
        pid: the process that recorded.
        tid: its thread, on which the calls were.
        health: gets what is damaged.
    """
    file = folder / CALLS_FILE
    if not file.is_file():
        return pl.DataFrame()
    try:
        names = _NAMES.decode(read_bytes(folder / NAMES_FILE))
        with open_file(file) as handle:
            data = read_up_to(handle, _SIZE_LIMIT_BYTES)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its names are no JSON list of texts"
        health.add("damaged_side_file", WARNING, 1, f"{CALLS_FILE} of {folder.name} cannot be read: {reason}", CALL_STACKS)
        return pl.DataFrame()
    records = np.frombuffer(data, _RECORD, len(data) // _RECORD.itemsize)
    time, call_names = records["time"], records["what"]
    good = (time >= 0) & (time < _LATEST_NS) & (call_names >= _END) & (call_names < 2 * len(names))
    if lost := int((~good).sum()) + (len(data) % _RECORD.itemsize > 0):
        health.add("damaged_records", WARNING, lost, f"records in {CALLS_FILE} of {folder.name} are damaged", CALL_STACKS)
    time, call_names = time[good].astype(np.int64), call_names[good].astype(np.int64)
    same = np.zeros(len(time), dtype=np.int64)
    calls = replay_calls(time, same + pid, same + tid, call_names // 2, call_names % 2 == 0, skipped=call_names == _END)
    for count, sentence in (
        (calls.cut_short, "calls have no return of their own and end with their caller"),
        (calls.unmatched, "returns have no call and were left out"),
    ):
        if count:
            health.add("unbalanced_python_calls", WARNING, count, f"Python {sentence}, so records were lost", CALL_STACKS)
    if not len(calls.code):
        return pl.DataFrame()
    return pl.DataFrame(
        {
            "id": np.arange(len(calls.code), dtype=np.int64),
            "name": pl.Series(names, dtype=pl.String).cast(NAME).gather(calls.code),
            "start_ns": calls.start,
            "end_ns": calls.end,
            "pid": calls.pid,
            "tid": calls.tid,
            "parent": pl.Series(calls.parent).set(pl.Series(calls.parent < 0), None),
        }
    )
