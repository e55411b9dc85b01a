from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from steplens.collect.dynamic.job import process, shared_board
from steplens.collect.dynamic.job.process import Process
from steplens.collect.dynamic.job.shared_board import DECIDING, GENERATION, STEP, Board, BusyError, PrivateBoard
from steplens.collect.dynamic.plan import EDIT, NEXT, Plan


@pytest.fixture
def sleeper() -> object:
    """Another living process."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.process_of_pid(child.pid)
    child.kill()
    child.communicate()


def test_rows_are_seen_by_others_and_given_back(tmp_path: Path, sleeper: Process) -> None:
    ours, theirs = Board(tmp_path, "job", process.current_process(), 3), Board(tmp_path, "job", sleeper, 4)
    ours.put(STEP, 17)
    ours.put(DECIDING, 17)
    (seen,) = theirs.others()
    assert (seen.process, seen.rank, seen.step, seen.deciding) == (process.current_process(), 3, 17, 17)
    assert {seat.rank for seat in shared_board.read_seats(tmp_path, "job")} == {3, 4}
    assert shared_board.read_seats(tmp_path, "another job") == []
    ours.leave()
    assert theirs.others() == []
    theirs.leave()
    assert list(tmp_path.iterdir()) == []


def test_a_decision_is_made_once_and_heard_by_all(tmp_path: Path, sleeper: Process) -> None:
    ours, theirs = Board(tmp_path, "job", process.current_process(), 0), Board(tmp_path, "job", sleeper, 1)
    before = theirs.words[GENERATION]
    theirs.put(STEP, 5)
    theirs.put(shared_board.STEP_NS, time.monotonic_ns())
    ours.decide("a", EDIT, {"active": 2}, Plan(NEXT, 2), 5, 0)
    theirs.decide("a", EDIT, {"active": 9}, Plan(NEXT, 9), 6, 0)
    assert theirs.words[GENERATION] != before
    (heard,) = theirs.decisions_after(0)
    assert (heard.id, heard.start, heard.stop, heard.document) == ("a", 6, 8, {"active": 2})
    assert ours.decisions_after(heard.number) == []


def test_the_row_of_a_dead_process_is_used_again_and_does_not_count(tmp_path: Path) -> None:
    dead = Process(2**22 + 1, 1)
    left = Board(tmp_path, "job", dead, 7)
    left.put(STEP, 10_000)
    ours = Board(tmp_path, "job", process.current_process(), 0)
    assert ours.others() == []
    assert ours.row == left.row


def test_a_new_job_does_not_inherit_the_decisions_of_a_killed_one(tmp_path: Path) -> None:
    old = Board(tmp_path, "job", Process(2**22 + 1, 1), 0)
    old.decide("old", EDIT, {}, Plan(100, 1), 5, 0)
    old.close()
    new = Board(tmp_path, "job", process.current_process(), 0)
    assert new.decisions_after(0) == []
    assert new.words[GENERATION] == 0


def test_a_reused_process_id_is_another_process(sleeper: Process) -> None:
    assert sleeper.alive()
    assert not Process(sleeper.pid, sleeper.start + 1).alive()


def test_a_process_that_waits_to_be_buried_is_dead() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    found = process.process_of_pid(child)
    while process.process_of_pid(child).start and found.alive():
        time.sleep(0.01)
    assert not found.alive()
    os.waitpid(child, 0)


@pytest.mark.parametrize("content", [b"", b"garbage", b"\xff" * 5000, b"\0" * 40_000])
def test_a_damaged_board_is_made_new(tmp_path: Path, content: bytes) -> None:
    (tmp_path / shared_board.board_name("job")).write_bytes(content)
    (tmp_path / shared_board.board_name("job")).with_suffix(shared_board.DECISIONS_SUFFIX).write_bytes(content)
    ours = Board(tmp_path, "job", process.current_process(), 0)
    ours.decide("a", EDIT, {}, Plan(NEXT, 1), 5, 0)
    assert [item.start for item in ours.decisions_after(0)] == [5]


def test_a_lock_that_is_held_by_a_stopped_process_does_not_stop_the_training(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(shared_board, "_LOCK_S", 0.2)
    ours = Board(tmp_path, "job", process.current_process(), 0)
    path = str(tmp_path / shared_board.board_name("job"))
    code = f"import fcntl; f = open({path!r}); fcntl.flock(f, 2); print('held', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BusyError):
            ours.decide("a", EDIT, {}, Plan(NEXT, 1), 5, 0)
        # the holder still holds it: only the wait has ended
        assert holder.poll() is None
        holder.kill()
        holder.wait()
        # the system releases the lock of a killed process
        ours.decide("a", EDIT, {}, Plan(NEXT, 1), 5, 0)
    assert len(ours.decisions_after(0)) == 1


def test_no_room_is_an_error_and_not_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        Board(tmp_path, "job", process.current_process(), 0)


def test_a_process_without_a_board_decides_for_itself() -> None:
    alone = PrivateBoard(process.current_process(), 0)
    alone.put(STEP, 5)
    alone.decide("a", EDIT, {}, Plan(NEXT, 2), 5, 0)
    assert [(item.start, item.stop) for item in alone.decisions_after(0)] == [(5, 7)]
    assert alone.words[GENERATION] == 1
