"""What a killed writer leaves behind: the next one to write there removes it, and nothing of a process that lives."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from steplens.collect.handoff import upload
from steplens.common import partial, rundir
from steplens.writers.exports.target import new_folder

_FILE = "with rundir.atomic_path(path) as temporary:\n    temporary.write_text('half')\n"
_FOLDER = "with new_folder(path) as temporary:\n    (temporary / 'a').mkdir()\n    (temporary / 'a' / 'b').write_text('half')\n"
_WRITER = """
import sys, time
from pathlib import Path
from steplens.common import rundir
from steplens.writers.exports.target import new_folder
path = Path(sys.argv[1])
{write}
    print("written", flush=True)
    time.sleep(600)
"""


@contextlib.contextmanager
def writer(path: Path, write: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has written half of ``path``; it is dead afterwards."""
    command = [sys.executable, "-c", _WRITER.format(write=write), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "written\n"
            yield process
        finally:
            process.kill()


def unfinished(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{partial.SUFFIX}"))


def dead_name(path: Path) -> Path:
    """What a process of this machine that has ended would have called the unfinished ``path``."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    name = partial.partial_path(path)
    return name.with_name(name.name.replace(f"-{os.getpid()}-", f"-{ended.pid}-"))


@pytest.mark.parametrize("write", [_FILE, _FOLDER], ids=["file", "folder"])
def test_what_a_killed_process_began_is_removed_by_the_next_to_write_there(tmp_path: Path, write: str) -> None:
    with writer(tmp_path / "result", write) as process:
        (begun,) = unfinished(tmp_path)
        rundir.write_bytes(tmp_path / "other", b"while it lives")
        assert unfinished(tmp_path) == [begun]
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert unfinished(tmp_path) == [begun]
    rundir.write_bytes(tmp_path / "other", b"after its end")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_every_writer_sweeps(tmp_path: Path) -> None:
    run = tmp_path / "from" / "run"
    run.mkdir(parents=True)
    (tmp_path / "to").mkdir()

    def exported() -> None:
        with new_folder(tmp_path / "to" / "exported"):
            pass

    for write in (exported, lambda: rundir.write_json(tmp_path / "to" / "file", {})):
        left = dead_name(tmp_path / "to" / "result")
        left.write_bytes(b"half")
        write()
        assert not left.exists()


def test_a_run_that_moves_to_another_file_system_sweeps_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "from" / "run"
    run.mkdir(parents=True)
    (tmp_path / "to").mkdir()
    left = dead_name(tmp_path / "to" / "earlier")
    left.mkdir()
    rename = Path.rename

    def across(path: Path, target: Path) -> Path:
        if path == run:
            raise OSError("Invalid cross-device link")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", across)
    assert upload.move_run(run, str(tmp_path / "to")) == str(tmp_path / "to" / "run")
    assert [path.name for path in (tmp_path / "to").iterdir()] == ["run"]


def test_what_nobody_here_can_judge_stays(tmp_path: Path) -> None:
    dead, here = dead_name(tmp_path / "x"), partial.partial_path(tmp_path / "x")
    machine = here.name.split("-")[1]
    elsewhere = dead.with_name(dead.name.replace(machine, "0" * 12 if machine != "0" * 12 else "1" * 12))
    mine, users = here, [tmp_path / ".steplens-notes.partial", tmp_path / "film.partial"]
    for path in (elsewhere, mine, *users):
        path.write_bytes(b"")
    partial.remove_partial_files(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([elsewhere, mine, *users])


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_bytes(b"")
    folder = tmp_path / "folder"
    folder.mkdir()
    dead_name(folder / "x").symlink_to(elsewhere)
    partial.remove_partial_files(folder)
    assert not list(folder.iterdir())
    assert (elsewhere / "kept").exists()


def test_nothing_is_swept_where_nobody_can_tell_who_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = dead_name(tmp_path / "x")
    left.write_bytes(b"")

    def hidden(path: object) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "readlink", hidden)
    rundir.write_bytes(tmp_path / "result", b"whole")
    assert left.exists()
    assert (tmp_path / "result").read_bytes() == b"whole"
