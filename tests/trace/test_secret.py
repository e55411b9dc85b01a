"""The secret of a user: made once, closed to others, and never one that somebody else may know."""

from __future__ import annotations

import itertools
import json
import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from steplens.common import rundir
from steplens.common.storage import private_folder
from steplens.readers.kineto import kineto
from steplens.run import open_run
from steplens.trace.cache import seal, secret

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to somebody else")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that no secret was made in yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(secret, "_said", set())
    monkeypatch.setattr(private_folder, "MEMORY", tmp_path / "no such place" / "memory")
    return tmp_path / "state" / "steplens"


def trace_file(folder: Path) -> Path:
    folder.mkdir()
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::a", "pid": 1, "tid": 1, "ts": 5.0, "dur": 2.0}
    path = folder / "t.json"
    path.write_text(json.dumps({"traceEvents": [event]}))
    return path


def test_it_is_made_once_and_closed_to_others(state: Path) -> None:
    before = os.umask(0)
    try:
        made = secret.user_secret()
    finally:
        os.umask(before)
    assert made is not None and len(made) == 32 and made != bytes(32)
    assert secret.user_secret() == made == (state / secret.NAME).read_bytes()
    assert stat.S_IMODE((state / secret.NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert os.listdir(state) == [secret.NAME]


def test_folders_above_it_that_are_missing_are_closed_to_others(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    there.mkdir(mode=0o755)
    monkeypatch.setenv("XDG_STATE_HOME", str(there / "new" / "state"))
    before = os.umask(0)
    try:
        assert secret.user_secret() is not None
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(folder.stat().st_mode) for folder in (there, there / "new", there / "new" / "state")]
    assert modes == [0o755, 0o700, 0o700]


def test_processes_that_begin_at_once_agree(state: Path) -> None:
    code = "import sys; sys.stdin.read(); from steplens.trace.cache.secret import user_secret; print(user_secret().hex())"
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    told = {process.communicate(timeout=300)[0] for process in started}
    assert told == {(state / secret.NAME).read_bytes().hex() + "\n"}
    assert os.listdir(state) == [secret.NAME]


def test_who_comes_second_takes_what_the_first_made(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def slower(*arguments: object, **options: object) -> None:
        (state / secret.NAME).write_bytes(b"f" * 32)
        (state / secret.NAME).chmod(0o600)
        link(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", slower)
    assert secret.user_secret() == b"f" * 32
    assert os.listdir(state) == [secret.NAME]


def linked(state: Path) -> None:
    (state / secret.NAME).rename(state / "elsewhere")
    (state / secret.NAME).symlink_to(state / "elsewhere")


def pipe(state: Path) -> None:
    (state / secret.NAME).unlink()
    os.mkfifo(state / secret.NAME, 0o600)


def linked_folder(state: Path) -> None:
    state.rename(state.with_name("elsewhere"))
    state.symlink_to(state.with_name("elsewhere"))


REFUSED = {
    "a link": (linked, "is not a file of its own"),
    "a pipe": (pipe, "is not a file of its own"),
    "a linked folder": (linked_folder, "is not a folder of its own"),
    "readable by others": (lambda state: (state / secret.NAME).chmod(0o644), "is open to others"),
    "readable by its group": (lambda state: (state / secret.NAME).chmod(0o640), "is open to others"),
    "a folder that others write to": (lambda state: state.chmod(0o777), "others can write to it"),
    "half of one": (lambda state: (state / secret.NAME).write_bytes(b"x" * 16), "is damaged: it has 16 bytes"),
    "empty": (lambda state: (state / secret.NAME).write_bytes(b""), "is damaged: it has 0 bytes"),
    "of somebody else": (lambda state: os.chown(state / secret.NAME, NOBODY, NOBODY), "belongs to somebody else"),
    "in a folder of somebody else": (lambda state: os.chown(state, NOBODY, NOBODY), "belongs to somebody else"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_one_that_others_may_know_is_refused_and_said_once(
    what: str, state: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if "somebody" in what and os.geteuid():
        pytest.skip("only root gives files to somebody else")
    path = trace_file(tmp_path / "runs")
    before = secret.user_secret()
    assert before is not None
    change, words = REFUSED[what]
    change(state)
    with caplog.at_level(logging.WARNING):
        assert secret.user_secret() is None
        for _ in range(2):
            assert open_run(path).operators()["name"].to_list() == ["aten::a"]
    (said,) = [record.getMessage() for record in caplog.records]
    assert words in said and str(state) in said and "XDG_STATE_HOME" in said
    assert not (path.parent / rundir.CACHE_DIRECTORY).exists(), "what nobody can believe is not written"


def test_without_a_place_for_it_nothing_is_believed_and_nothing_written(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = trace_file(tmp_path / "runs")
    open_run(path)
    there = {file: file.stat().st_mtime_ns for file in path.parent.rglob("*")}
    assert len(there) > 3
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    read: list[Path] = []
    reader = kineto.read
    monkeypatch.setattr(kineto, "read", lambda path: (read.append(path), reader(path))[1])
    assert open_run(path).operators()["name"].to_list() == ["aten::a"]
    assert read == [path]
    assert {file: file.stat().st_mtime_ns for file in path.parent.rglob("*")} == there
    assert secret.user_secret() is None and seal.compute_seal("tables", b"") is None and not seal.is_sealed("tables", b"", b"")
    assert not caplog.records, "a container without a home is nothing to be alarmed by"


def test_without_a_home_it_is_in_memory(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "memory").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(private_folder, "MEMORY", tmp_path / "memory")
    made = secret.user_secret()
    assert made == (tmp_path / "memory" / f"steplens-{os.geteuid()}-state" / secret.NAME).read_bytes()
    assert secret.user_secret() == made


@pytest.mark.parametrize("chosen", [None, "", "relative/state"])
def test_it_lies_in_the_home_where_no_other_place_is_named(
    chosen: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chosen is None:
        monkeypatch.delenv("XDG_STATE_HOME")
    else:
        monkeypatch.setenv("XDG_STATE_HOME", chosen)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    made = secret.user_secret()
    assert made == (tmp_path / ".local" / "state" / "steplens" / secret.NAME).read_bytes()


@as_root
def test_the_home_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``sudo`` may leave it: a secret of root there would be in the user's way."""
    theirs, own = tmp_path / "theirs", tmp_path / "own"
    theirs.mkdir()
    own.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(theirs))
    monkeypatch.setattr(private_folder, "_home_in_accounts", lambda _: own)
    assert secret.user_secret() == (own / ".local" / "state" / "steplens" / secret.NAME).read_bytes()
    assert list(theirs.iterdir()) == []


# --- what a source is known by


def test_a_small_source_is_known_by_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(seal.WHOLE_BYTES))
    known = seal.source_identity(path)
    for at in (0, 1, 70_000, seal.WHOLE_BYTES - 1):
        raw = bytearray(seal.WHOLE_BYTES)
        raw[at] = 1
        path.write_bytes(raw)
        os.utime(path, ns=(0, int(known[2])))
        assert seal.source_identity(path)[:3] == known[:3] and seal.source_identity(path) != known
    path.write_bytes(bytes(seal.WHOLE_BYTES))
    os.utime(path, ns=(0, int(known[2])))
    assert seal.source_identity(path) == known, "a moved file is the same one"


@pytest.mark.parametrize("size", [seal.WHOLE_BYTES + 1, 1_000_000, 20_000_003])
def test_of_a_large_source_little_is_read_and_from_everywhere(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(size)
    read: list[tuple[int, int]] = []
    pread = os.pread

    def noting(descriptor: int, count: int, place: int) -> bytes:
        read.append((place, count))
        return pread(descriptor, count, place)

    monkeypatch.setattr(os, "pread", noting)
    seal.source_identity(path)
    assert sum(count for _, count in read) <= 200_000
    assert read == sorted(read) and read[0][0] == 0 and sum(read[-1]) == size
    assert all(place + count <= size for place, count in read)
    gaps = [after[0] - sum(before) for before, after in itertools.pairwise(read)]
    assert min(gaps) >= 0 and max(gaps) <= 2 * size / 32


def test_where_samples_lie_is_not_to_be_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = seal._sample_places(10_000_000)
    assert places == seal._sample_places(10_000_000) != seal._sample_places(10_000_001)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert places != seal._sample_places(10_000_000)


def test_a_seal_is_of_one_kind() -> None:
    mark = seal.compute_seal("tables", b"content")
    assert mark is not None and seal.is_sealed("tables", b"content", mark)
    assert not seal.is_sealed("timeline", b"content", mark)
    assert not seal.is_sealed("tables", b"content ", mark)
    assert not seal.is_sealed("tables", b"content", mark[:-1]) and not seal.is_sealed("tables", b"content", b"")
