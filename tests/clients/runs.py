"""The real jobs that the clients are given: each is run and analysed once per test session, whatever the number of workers."""

from __future__ import annotations

from pathlib import Path

from steplens import offline

JOBS = Path(__file__).with_name("jobs")


def steps_of(ranks: int) -> list[int]:
    """Numbers of the steps that a job of some number of ranks records: one waits, one warms up."""
    return [2] if ranks == 1 else [2, 3, 4]


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
