"""Reads the columns of one trace file, with a second process for the first half of a large one.

The second process is this module with the arguments FILE END FOLDER: it reads the events before a byte offset and leaves their
columns as Arrow files in a folder.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import polars as pl

from steplens.common import json_text, parent
from steplens.common.errors import check_exists
from steplens.common.storage.files import is_remote
from steplens.common.worker_processes import is_worker, start_worker
from steplens.readers.common.json_events import JsonEventFile, kineto_split
from steplens.readers.common.reading import PARALLEL_BYTES
from steplens.readers.kineto.kineto_events import EventColumns

_COUNTS = "counts.json"


def read_columns(path: Path, *, parallel_bytes: int = PARALLEL_BYTES) -> tuple[EventColumns, JsonEventFile]:
    """All events of ``path`` as columns, and the file object with header, footer and truncation.

    Args:
        path: the trace file.
        parallel_bytes: from which size on a second process helps.

    Raises:
        InputError: the file is missing or no trace.
    """
    check_exists(path)
    split = None
    # of a file of elsewhere, reading takes less time than its way here
    if not is_remote(path) and path.stat().st_size >= parallel_bytes and (os.cpu_count() or 1) > 1 and not is_worker():
        split = kineto_split(path)
    columns = EventColumns()
    if split is None:
        file = JsonEventFile(path)
        columns.read(file)
        return columns, file
    first_end, second_start = split
    with tempfile.TemporaryDirectory(prefix="steplens-") as folder:
        try:
            helper = start_worker("steplens.readers.kineto.two_processes", str(path), str(first_end), folder)
        except OSError:  # there is no second process, so this one reads everything
            return read_columns(path, parallel_bytes=sys.maxsize)
        try:
            # this process takes the half with the end of the file, where header, footer and truncation are decided
            file = JsonEventFile(path, start=second_start)
            columns.read(file)
            failed = helper.wait() != 0
        finally:
            helper.kill()
            helper.wait()
        if failed:
            # whatever went wrong there shows, with its message, when this process reads everything itself
            columns, file = EventColumns(), JsonEventFile(path)
            columns.read(file)
            return columns, file
        columns.add_first(_load_columns(Path(folder)))
    return columns, file


def _load_columns(folder: Path) -> EventColumns:
    columns = EventColumns()
    counts = json_text.loads_stored((folder / _COUNTS).read_bytes())
    columns.count, columns.skipped, columns.damaged = counts["count"], counts["skipped"], counts["damaged"]
    columns.thread_names = {(pid, tid): name for pid, tid, name in counts["threads"]}
    columns.lane_names = {(pid, tid): name for pid, tid, name in counts["lanes"]}
    columns.lane_texts = dict(counts["texts"])
    columns.process_labels = dict(counts["labels"])
    for kind in columns.kinds:
        file = folder / f"{kind}.arrow"
        if file.exists():
            columns.parts[kind] = [pl.read_ipc(file)]
    return columns


def _write_columns(path: str, end: str, folder: str) -> None:
    columns = EventColumns()
    columns.read(JsonEventFile(Path(path), end=int(end)))
    for kind in columns.kinds:
        frame = columns.as_read(kind)
        if frame.height:
            frame.write_ipc(Path(folder) / f"{kind}.arrow")
    counts = {
        "count": columns.count,
        "skipped": columns.skipped,
        "damaged": columns.damaged,
        "labels": list(columns.process_labels.items()),
        "threads": [(pid, tid, name) for (pid, tid), name in columns.thread_names.items()],
        "lanes": [(pid, tid, name) for (pid, tid), name in columns.lane_names.items()],
        "texts": list(columns.lane_texts.items()),
    }
    (Path(folder) / _COUNTS).write_text(json.dumps(counts))


if __name__ == "__main__":
    parent.end_with_parent()
    _write_columns(*sys.argv[1:])
