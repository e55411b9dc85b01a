from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from steplens.collect.dynamic.watched_file import LARGEST_BYTES, Change, WatchedFile


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file.json"
    path.write_text('{"a": 1}')
    return path


def settled(watched: WatchedFile, looks: int = 40) -> list[Change]:
    """Every change that so many looks report, 5 ms apart: by number, for a busy machine may leave a process waiting for long."""
    found = []
    for _ in range(looks):
        change = watched.poll()
        if change is not None:
            found.append(change)
        time.sleep(0.005)
    return found


def test_reports_a_save_once(file: Path) -> None:
    watched = WatchedFile(file)
    assert watched.poll(settle=False).document == {"a": 1}
    assert settled(watched) == []
    file.write_text('{"a": 2}')
    assert [change.document for change in settled(watched)] == [{"a": 2}]


def test_sees_two_saves_within_a_second(file: Path) -> None:
    watched = WatchedFile(file)
    watched.poll(settle=False)
    seen = []
    for value in range(2, 7):
        file.write_text(json.dumps({"a": value}))
        seen += settled(watched, 20)
    assert [change.document["a"] for change in seen] == [2, 3, 4, 5, 6]
    assert len({change.id for change in seen}) == 5


def test_saving_the_same_content_again_is_a_save(file: Path) -> None:
    watched = WatchedFile(file)
    first = watched.poll(settle=False)
    time.sleep(0.02)
    file.write_text('{"a": 1}')
    (again,) = settled(watched)
    assert again.document == first.document
    assert again.id != first.id


def test_other_permissions_or_another_name_for_the_same_save_are_none(file: Path) -> None:
    watched = WatchedFile(file)
    watched.poll(settle=False)
    file.chmod(0o600)
    file.rename(file.with_suffix(".moved"))
    os.link(file.with_suffix(".moved"), file)
    assert settled(watched) == []


def test_sees_a_change_that_leaves_size_and_time_as_they_were(file: Path) -> None:
    watched = WatchedFile(file)
    first = watched.poll(settle=False)
    before = os.stat(file)
    with file.open("r+") as handle:
        handle.write('{"a": 7}')
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert os.stat(file).st_mtime_ns == before.st_mtime_ns
    (second,) = settled(watched)
    assert second.document == {"a": 7}
    assert second.id != first.id


def test_every_process_names_a_save_alike(file: Path) -> None:
    assert WatchedFile(file).poll(settle=False) == WatchedFile(file).poll(settle=False)


def test_waits_for_the_writer(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = WatchedFile(file)
    watched.poll(settle=False)
    # a busy machine may leave more than the time in which a save settles between two looks, so none passes here
    with monkeypatch.context() as stopped, file.open("w") as handle:
        now = time.monotonic()
        stopped.setattr(time, "monotonic", lambda: now)
        handle.write('{"a": ')
        handle.flush()
        assert watched.poll() is None
        now += 0.01
        assert watched.poll() is None
        handle.write("9}")
    assert [change.document for change in settled(watched)] == [{"a": 9}]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "is not valid JSON"),
        (b"", "is not valid JSON"),
        (b"\xff\xfe{}", "is not valid JSON"),
        (b"[" * 200_000, "is not valid JSON"),
        (b"[]", "does not hold a JSON object"),
        (b"NaN", "does not hold a JSON object"),
        (b" " * (LARGEST_BYTES + 1), "is larger than 1 MiB"),
    ],
)
def test_a_bad_file_has_a_problem_and_a_later_good_one_is_read(file: Path, content: bytes, problem: str) -> None:
    watched = WatchedFile(file)
    watched.poll(settle=False)
    file.write_bytes(content)
    (bad,) = settled(watched)
    assert bad.document is None
    assert bad.problem.startswith(problem)
    file.write_text('{"a": 3}')
    assert [change.document for change in settled(watched)] == [{"a": 3}]


def test_a_missing_file_is_reported_once_and_again_when_it_is_gone_again(file: Path) -> None:
    watched = WatchedFile(file)
    watched.poll(settle=False)
    file.unlink()
    (gone,) = settled(watched)
    assert gone.document is None and "No such file" in gone.problem
    file.write_text('{"a": 4}')
    assert [change.document for change in settled(watched)] == [{"a": 4}]
    file.unlink()
    assert len(settled(watched)) == 1


def test_what_is_no_file_is_never_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        seen = WatchedFile(path).poll(settle=False)
        assert seen.document is None and seen.problem.endswith(f"{path.name} is not a file")
