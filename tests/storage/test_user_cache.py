"""The user's cache folder: bounded, the longest unused goes first, what is in use stays; and who keeps what there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import steplens
from steplens.common.errors import SteplensError
from steplens.common.storage import user_cache
from steplens.common.storage.user_cache import CONTENT, REMOTE, VARIABLE, cache_root, content_file, new_content, trim_cache

from .conftest import RUN

PIECE = 1 << 20


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    user_cache._process_list.cache_clear()


def filled(name: str, ago_s: float, size: int = PIECE) -> Path:
    with new_content(name, size) as target:
        target.write_bytes(os.urandom(size))
    path = cache_root() / CONTENT / name
    os.utime(path, (time.time() - ago_s,) * 2)
    return path


def unit(name: str, ago_s: float) -> Path:
    """A unit of another process, which lives or has ended."""
    folder = cache_root() / REMOTE / name
    (folder / "tree").mkdir(parents=True)
    (folder / "tree" / "table").write_bytes(os.urandom(PIECE))
    (folder / "used").touch()
    os.utime(folder / "used", (time.time() - ago_s,) * 2)
    return folder


def test_it_is_closed_to_others(tmp_path: Path) -> None:
    assert cache_root() == tmp_path / "cache" / "steplens"
    assert stat.S_IMODE(cache_root().stat().st_mode) == 0o700


def test_the_longest_unused_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(3.5 * PIECE / (1 << 30)))
    files = [filled("a", 300), filled("b", 500), filled("c", 400)]
    folder = unit("d", 1000)
    trim_cache()
    assert not folder.exists() and all(file.exists() for file in files)
    trim_cache(PIECE)
    assert [file.exists() for file in files] == [True, False, True]
    # what was asked for was used
    assert content_file("c") == files[2] and content_file("b") is None
    trim_cache(2 * PIECE)
    assert [file.exists() for file in files] == [False, False, True]


def test_what_is_in_use_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    idle = unit("idle", 500)
    own = user_cache.use_unit(REMOTE, "own")
    code = "import sys; from steplens.common.storage import user_cache; user_cache.use_unit('remote', 'theirs')"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"{code}; print(flush=True); sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None and holder.stdout is not None
    holder.stdout.readline()
    recent = filled("recent", 0, 0)
    theirs = cache_root() / REMOTE / "theirs"
    for folder in (own, theirs):
        os.utime(folder / "used", (time.time() - 500,) * 2)
    trim_cache()
    assert own.exists() and theirs.exists() and recent.exists() and not idle.exists()
    holder.kill()
    holder.wait()
    trim_cache()
    assert not theirs.exists() and own.exists()


def test_a_file_larger_than_all_that_may_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0.5")
    with pytest.raises(OSError, match=r"its 1 GiB are more than may be kept: STEPLENS_CACHE_LIMIT is 0.5"):
        filled("x", 0, 1 << 30)
    for text in ("much", "-1", "nan"):
        monkeypatch.setenv(VARIABLE, text)
        with pytest.raises(SteplensError, match="give how many GiB may be kept"):
            user_cache.limit_bytes()


def test_content_that_was_not_completed_is_none() -> None:
    def break_off() -> None:
        with new_content("x", 5) as target:
            target.write_bytes(b"12")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert content_file("x") is None and not list((cache_root() / CONTENT).iterdir())


def test_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    root = cache_root()
    assert root.is_dir() and tmp_path not in root.parents
    filled("x", 0, 5)


def test_others_may_not_write_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "open" / "steplens"
    place.mkdir(parents=True)
    place.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.parent))
    assert cache_root() != place and not list(place.iterdir())


def test_a_folder_that_is_closed_to_writing(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = local / RUN
    folder.chmod(0o555)
    try:
        first = steplens.open(folder)
        kept = first.traces[0].kept
        assert kept is not None and cache_root() in kept.folder.parents
        assert not (folder / ".steplens").exists()
        monkeypatch.setattr("steplens.readers.kineto.kineto.read", lambda *_, **__: pytest.fail("it is read again"))
        again = steplens.open(folder)
        assert again.steps().equals(first.steps()) and again.traces[0].source == first.traces[0].source
    finally:
        folder.chmod(0o755)


def test_what_lies_beside_is_used_where_nothing_new_can_be_written(local: Path) -> None:
    folder = local / RUN
    kept = steplens.open(folder).traces[0].kept
    assert kept is not None and folder in kept.folder.parents
    (folder / ".steplens").chmod(0o555)
    folder.chmod(0o555)
    try:
        again = steplens.open(folder).traces[0].kept
        assert again is not None and again.folder == kept.folder and again.fingerprint == kept.fingerprint
    finally:
        folder.chmod(0o755)
        (folder / ".steplens").chmod(0o755)
