"""The real jobs that the clients are given: each is run and analysed once per test session, whatever the number of workers."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from steplens import offline

JOBS = Path(__file__).with_name("jobs")

_LIMIT_S = 600


def steps_of(ranks: int) -> list[int]:
    """Numbers of the steps that a job of some number of ranks records: one waits, one warms up."""
    return [2] if ranks == 1 else [2, 3, 4]


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that ``make`` has filled, once for all worker processes of the session; ``make`` gets it while it is empty."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"clients-{name}"
    # a lock of the system is given back even by a worker that crashes
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder.with_suffix(".done")
        if not done.exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            done.touch()
    return folder


def torchrun(ranks: int, job: str, *arguments: str | Path) -> None:
    """Run a job of this folder as ``ranks`` processes."""
    pytest.importorskip("torch")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    done = subprocess.run(
        [*launcher, str(JOBS / job), *map(str, arguments)],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def analysed(folder: Path) -> None:
    """Write the results of every recorded run below ``folder``."""
    results = offline.analyse(folder, 2)
    assert results and all(result.ok for result in results), results
    text_alone(folder / "text")


def text_alone(folder: Path) -> None:
    """Take the databases away that lie beside text results: clients prefer them, and the text has to suffice as well."""
    for run in run_directories(folder):
        databases = list(output(run).glob("*.db"))
        assert databases
        for database in databases:
            database.unlink()


def run_directories(folder: Path) -> list[Path]:
    """The run directories in ``folder``, in order of rank."""
    return sorted(folder.glob("*_ascend_pt"), key=rank_of)


def rank_of(run: Path) -> int:
    """The rank of a run directory, by the only name that tells the clients."""
    (info,) = run.glob("profiler_info_*.json")
    return int(info.stem.rpartition("_")[2])


def output(run: Path) -> Path:
    """The result folder of a run directory."""
    return run / "ASCEND_PROFILER_OUTPUT"
