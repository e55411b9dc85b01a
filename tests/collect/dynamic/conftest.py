"""A folder and jobs for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from steplens.collect.dynamic.job import job_folder

from .jobs import Folder, Jobs


@pytest.fixture(autouse=True)
def _own_meeting_place(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv(job_folder.DIRECTORY_VARIABLE, str(tmp_path_factory.mktemp("state")))
    for name in ("PROF_CONFIG_PATH", "STEPLENS_CONFIG_PATH", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "config")


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    started = Jobs(tmp_path)
    yield started
    started.end()
