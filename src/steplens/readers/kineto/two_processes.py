"""Reads the columns of one trace file, with a second thread or process for the first half of a large one.

A thread is enough where the library decodes (``native_decoder``), since that needs no lock of Python. The second process is this
module with the arguments FILE END FOLDER: it reads the events before a byte offset and leaves their columns as Arrow files in a
folder.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl

from steplens.common import json_text, parent
from steplens.common.errors import check_exists
from steplens.common.native.build import build_in_background
from steplens.common.storage.files import is_remote
from steplens.common.worker_processes import is_worker, start_worker
from steplens.readers.common.json_events import JsonEventFile, kineto_split
from steplens.readers.common.reading import PARALLEL_BYTES
from steplens.readers.kineto.kineto_events import EventColumns
from steplens.readers.kineto.native_decoder import LIBRARY

_COUNTS = "counts.json"
#: where a file is cut for two processes: the one for the first part also has to start, and gets the longer events
_SHARE_OF_PROCESS = 0.42
_SHARE_OF_THREAD = 0.5


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
    columns = EventColumns()
    # of a file of elsewhere, reading takes less time than its way here
    if not is_remote(path) and path.stat().st_size >= parallel_bytes:
        if not columns.is_native:
            # for the next large file
            build_in_background(LIBRARY.name)
        if (os.cpu_count() or 1) > 1 and not is_worker():
            split = kineto_split(path, _SHARE_OF_THREAD if columns.is_native else _SHARE_OF_PROCESS)
    if split is None:
        return _read_alone(path)
    if columns.is_native:
        return _read_with_thread(path, columns, *split)
    return _read_with_process(path, *split)


def _read_with_thread(path: Path, columns: EventColumns, first_end: int, second_start: int) -> tuple[EventColumns, JsonEventFile]:
    first_columns = EventColumns()
    with ThreadPoolExecutor(1, thread_name_prefix="steplens-reader") as pool:
        try:
            first_half = pool.submit(first_columns.read, JsonEventFile(path, end=first_end))
        except RuntimeError:  # there is no second thread, so this one reads everything
            return _read_alone(path)
        # this thread takes the half with the end of the file, where header, footer and truncation are decided
        file = JsonEventFile(path, start=second_start)
        columns.read(file)
        failed = first_half.exception() is not None
    if failed:
        # whatever went wrong there shows, with its message, when this thread reads everything itself
        return _read_alone(path)
    columns.add_first(first_columns)
    return columns, file


def _read_alone(path: Path) -> tuple[EventColumns, JsonEventFile]:
    columns, file = EventColumns(), JsonEventFile(path)
    columns.read(file)
    return columns, file


def _read_with_process(path: Path, first_end: int, second_start: int) -> tuple[EventColumns, JsonEventFile]:
    columns = EventColumns()
    with tempfile.TemporaryDirectory(prefix="steplens-") as folder:
        try:
            helper = start_worker("steplens.readers.kineto.two_processes", str(path), str(first_end), folder)
        except OSError:  # there is no second process, so this one reads everything
            return _read_alone(path)
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
            return _read_alone(path)
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
