"""A command lists every folder once, however many ranks lie in it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import steplens
from steplens.cli.main import main
from steplens.common.listings import list_folder, listed_once, remember_once

from .conftest import small_trace

_LISTED: list[Counter[str]] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _LISTED and event in ("os.listdir", "os.scandir"):
        _LISTED[-1][os.fsdecode(arguments[0] if not isinstance(arguments[0], int) else str(arguments[0]))] += 1


sys.addaudithook(_note)


@contextmanager
def listed_folders() -> Iterator[Counter[str]]:
    """How often each folder is listed meanwhile."""
    _LISTED.append(Counter())
    try:
        yield _LISTED[-1]
    finally:
        _LISTED.pop()


def job_of(folder: Path, ranks: int) -> Path:
    """Ranks as run directories, as flat files and as windows that were lost."""
    trace = small_trace()
    for rank in range(ranks):
        window = folder / f"host_{rank}_20260101000000000_ascend_pt"
        (window / "KINETO").mkdir(parents=True)
        (window / "KINETO" / "trace.json").write_text(trace)
        (window / f"profiler_info_{rank}.json").write_text(f'{{"config": {{}}, "rank_id": {rank}}}')
        lost = folder / f"host_{rank}_20260101000000001_ascend_pt"
        (lost / "KINETO").mkdir(parents=True)
        (lost / "KINETO" / "state.json").write_text(f'{{"state": "failed", "pid": {rank}, "health": []}}')
        (folder / f"rank{rank}.json").write_text(trace)
    return folder


@pytest.mark.parametrize("command", [["summary"], ["table", "ops"]])
def test_once(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # no other process, which would list it, too
    monkeypatch.setenv("STEPLENS_WORKER", "1")
    folder = job_of(tmp_path / "job", 5)
    for _ in range(2):
        with listed_folders() as counts:
            assert main([command[0], str(folder), *command[1:]]) == 0, capsys.readouterr().err
        inside = {name: count for name, count in counts.items() if name.startswith(str(folder)) and ".steplens" not in name}
        there = {name: count for name, count in inside.items() if Path(name).is_dir()}
        assert set(there.values()) == {1} and str(folder) in there
    capsys.readouterr()


def test_opening_lists_once_and_sees_what_is_new(tmp_path: Path) -> None:
    folder = job_of(tmp_path / "job", 2)
    with listed_folders() as counts:
        assert len(steplens.open(folder).traces) == 4
    assert counts[str(folder)] == 1
    job_of(tmp_path / "more", 3)
    (tmp_path / "more" / "rank2.json").rename(folder / "rank2.json")
    assert len(steplens.open(folder).traces) == 5


def test_listings(tmp_path: Path) -> None:
    (tmp_path / "b").touch()
    (tmp_path / "a").mkdir()
    made = []
    with listed_once():
        listing = list_folder(tmp_path)
        assert [path.name for path in listing.entry_paths] == ["a", "b"] and listing.entry_names == {"a", "b"}
        (tmp_path / "c").touch()
        with listed_once():
            assert list_folder(tmp_path) is listing
        assert [remember_once("x", lambda: made.append(1)) for _ in range(2)] == [None, None]
        with pytest.raises(FileNotFoundError):
            list_folder(tmp_path / "none")
    assert made == [1]
    assert list_folder(tmp_path).entry_names == {"a", "b", "c"}
