"""What is made once per test session, whatever the number of workers: recorded trainings and captures that nobody changes."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from .warm_python import run_warm, run_warm_ranks

_LIMIT_S = 600


def session_folder(factory: pytest.TempPathFactory) -> Path:
    """The folder that all workers of the session share."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that ``make`` has filled, once for all worker processes of the session; ``make`` gets it while it is empty."""
    folder = session_folder(factory) / f"once-{name}"
    # a lock of the system is given back even by a worker that crashes
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder.with_suffix(".done")
        if not done.exists():
            # one that failed may have left something
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


def run_training(*arguments: str | Path, folder: Path) -> None:
    """Run a script that has to succeed in a folder."""
    outside = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    done = run_warm(*arguments, folder=folder, env=outside, timeout=_LIMIT_S)
    assert done.returncode == 0, done.stderr[-3000:]


def run_ranks(ranks: int, *arguments: str | Path, folder: Path) -> None:
    """Run a script that has to succeed as so many processes of one job."""
    done = run_warm_ranks(ranks, *arguments, folder=folder, timeout=_LIMIT_S)
    assert done.returncode == 0, done.stderr[-3000:]
