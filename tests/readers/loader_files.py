"""Files of data loaders as the collector writes them, with figures that are known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from steplens.readers.steplens_run.loaders import BATCH_COLUMNS, STAGE_COLUMNS

START = 1_795_283_000_000_000_000
MS = 1_000_000
Row = dict[str, int]


def stage(batch: int, workers: int = 2) -> Row:
    """Batch by batch: 6 ms to fetch, 2 of them to transform, 3 ms to collate, 0.5 ms to pickle."""
    begin = START + 2 * MS + batch * 10 * MS
    worker = batch % workers if workers else -1
    return {
        "loader": 0, "epoch": 0, "batch": batch, "worker": worker, "start_ns": begin, "collate_ns": begin + 6 * MS,
        "end_ns": begin + 9 * MS, "transform_ns": 2 * MS, "transforms": 4, "failed": 0, "cpu_ns": (batch // 2 + 1) * 2 * MS,
        "pickle_start_ns": begin + 9 * MS if workers else 0, "pickle_end_ns": begin + 9 * MS + MS // 2 if workers else 0,
        "pid": 500 + max(worker, 0),
    }  # fmt: skip


def taken(batch: int, workers: int = 2) -> Row:
    """The loop asks every 10 ms, waits 1 ms for workers and receives for 0.25 ms."""
    asked = START + 11 * MS + batch * 10 * MS
    return {
        "loader": 0, "epoch": 0, "batch": batch, "next_start_ns": asked, "next_end_ns": asked + 2 * MS,
        "waited_ns": MS if workers else 0, "ready": batch % 3 if workers else -1,
        "receive_start_ns": asked + MS if workers else 0, "receive_end_ns": asked + MS + MS // 4 if workers else 0,
        "pin_end_ns": 0,
    }  # fmt: skip


def write(
    folder: Path, *, workers: int = 2, batches: int = 6, without: tuple[int, ...] = (), change: Callable[[Row], Row] | None = None
) -> None:
    """The two files.

    Args:
        folder: for them.
        workers: of the loader.
        batches: that the loop gets.
        without: batches of which nobody is known to have made them.
        change: of a row of a worker.
    """
    made = [stage(batch, workers) for batch in range(batches) if batch not in without]
    made = [change(row) for row in made] if change is not None else made
    got = [taken(batch, workers) for batch in range(batches)]
    numbers = [row[name] for row in made for name in STAGE_COLUMNS] + [row[name] for row in got for name in BATCH_COLUMNS]
    np.array(numbers, dtype="<i8").tofile(folder / "loaders.bin")
    loader = {
        "loader": 0, "dataset": "Images", "workers": workers, "batch_size": 4, "collate": "default_collate", "iterable": False,
        "persistent_workers": False, "pin_memory": False, "transform": False, "prefetch_factor": 2,
        "capacity": 2 * workers or None,
        "in_order": True, "start_method": "fork",
    }  # fmt: skip
    content = {
        "pid": 7, "begin_ns": START, "end_ns": START + 100 * MS, "stage_columns": STAGE_COLUMNS, "stages": len(made),
        "batch_columns": BATCH_COLUMNS, "batches": len(got), "loaders": [loader], "workers": [],
        "epochs": [[0, 0, START, START + 5 * MS, START + 12 * MS]],
    }  # fmt: skip
    (folder / "loaders.json").write_text(json.dumps(content))
