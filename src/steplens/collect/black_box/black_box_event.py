"""What the black box leaves of an event, beside the run directories: a folder and a file that says what happened."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steplens.collect.common import clock, metadata
from steplens.common import rundir

EVENT_FILE = "black_box.json"
EVENT_VERSION = 1

_MOST_IN_A_SECOND = 1000


def new_directory(parent: Path, step: int, kind: str) -> Path:
    """Create the folder of an event: ``<time>_<pid>[_rank<rank>]_step<step>_<kind>``.

    Args:
        parent: the folder of the black box.
        step: in which it happened.
        kind: of event.

    Raises:
        OSError: it cannot be created.
    """
    rank = metadata.process_rank()
    whose = f"{os.getpid()}_rank{rank}" if rank >= 0 else str(os.getpid())
    name = f"{time.strftime('%Y%m%d%H%M%S')}_{whose}_step{step}_{kind}"
    rundir.make_directory(parent)
    for number in range(1, _MOST_IN_A_SECOND):
        path = parent / (name if number == 1 else f"{name}_{number}")
        try:
            path.mkdir(mode=rundir.DIRECTORY_MODE)
        except FileExistsError:
            continue
        path.chmod(rundir.DIRECTORY_MODE)
        return path
    raise OSError(f"{parent} is full of events of one second")


def write_event(
    folder: Path, kind: str, message: str, step: int, median_ns: int, runs: Sequence[Path], rows: list[dict[str, Any]]
) -> None:
    """Write the file of an event.

    Args:
        folder: of the event.
        kind: of event.
        message: what happened, for people.
        step: in which it happened.
        median_ns: usual length of a step.
        runs: run directories in the folder, oldest first.
        rows: the last steps, oldest first, see :data:`steplens.collect.black_box.step_ring.COLUMNS`.

    Raises:
        OSError: it cannot be written.
    """
    document = {
        "version": EVENT_VERSION,
        "event": kind,
        "message": message,
        "step": step,
        "time_ns": clock.now_ns(),
        "pid": os.getpid(),
        "rank": metadata.process_rank(),
        "median_step_ns": median_ns,
        "run_directories": [run.name for run in runs],
        "steps": rows,
    }
    rundir.write_json(folder / EVENT_FILE, document)
