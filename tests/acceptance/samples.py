"""The shared samples of MindSpore, opened as a user opens them."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import polars as pl

import steplens
from steplens.run import Run

from ..shared_data import shared


def sample(*parts: str) -> Path:
    """A file or folder of the samples; skips the test where they are absent."""
    return shared("mindspore", *parts)


@functools.cache
def opened(*parts: str) -> Run:
    """``steplens.open`` of a sample, which no test changes."""
    return steplens.open(sample(*parts))


def table(run: Run, name: str, rank: int | None = None) -> pl.DataFrame:
    """A table that the source keeps."""
    found = run.trace(rank).source_table(name)
    assert found is not None
    return found


def pipeline_of_csv(folder: Path) -> Run:
    """``profiler/minddata_pipeline_raw_0.csv`` by itself: the pipeline_profiling_0.json beside it is of another run, and is
    what steplens reads where both are there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(sample("profiler", "minddata_pipeline_raw_0.csv"), folder / "minddata_pipeline_raw_0.csv")
    return steplens.open(folder)


def flat_profiler(folder: Path) -> Path:
    """A copy of the files of rank 0 in ``profiler`` as the acceptance list sees them: no device data, which is of another job
    and is read in their place where it is there, and no queue samples of another pipeline (see ``pipeline_of_csv``).
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in sample("profiler").iterdir():
        if path.is_file() and path.name != "pipeline_profiling_0.json" and "_0" in path.name:
            shutil.copyfile(path, folder / path.name)
    return folder
