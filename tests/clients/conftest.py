"""Jobs shared by the tests of this folder."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from steplens.writers.exports.export import export

from ..once import once, run_ranks
from ..shared_data import shared
from . import runs

#: the rank of the largest job that sleeps before each forward pass
SLOW_RANK = 2


def record(ranks: int, job: str, folder: Path, *arguments: str) -> None:
    """Run a job of this folder as so many processes."""
    pytest.importorskip("torch")
    run_ranks(ranks, runs.JOBS / job, folder, *arguments, folder=folder)


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """A data-parallel job of some number of ranks: a folder with one folder per form of result ("text", "db", "both")."""

    def run(ranks: int) -> Path:
        def make(folder: Path) -> None:
            slow = ["--slow-rank", str(SLOW_RANK)] if ranks > SLOW_RANK else []
            record(ranks, "train.py", folder, "--steps", str(len(runs.steps_of(ranks))), *slow)
            runs.analysed(folder)

        return once(tmp_path_factory, f"train{ranks}", make)

    return run


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline of two ranks: a folder with "pipeline", and "groups" where there is a second process group."""

    def make(folder: Path) -> None:
        record(2, "pipeline.py", folder)
        runs.analysed(folder)

    return once(tmp_path_factory, "pipeline", make)


@pytest.fixture(scope="session")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded CUDA traces of two ranks: "original" holds them, "text" and "db" their run directories, as exported."""
    recorded = shared("kineto")

    def make(folder: Path) -> None:
        original = folder / "original"
        original.mkdir()
        for source in sorted(recorded.glob("cuda_sampled_rank*.json.gz")):
            (original / source.stem).write_bytes(gzip.decompress(source.read_bytes()))
        for form in ("text", "db"):
            export(original, form, folder / form)

    return once(tmp_path_factory, "cuda", make)
