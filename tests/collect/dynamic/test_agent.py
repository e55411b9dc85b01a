"""One process and a framework that records nothing: when captures begin and end, and what is said about it."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from steplens.collect.dynamic import agent, client, configuration
from steplens.collect.dynamic.agent import Agent
from steplens.collect.dynamic.job import job_folder, process
from steplens.collect.dynamic.job.agreement import Decision
from steplens.collect.dynamic.job.ledger import Request
from steplens.collect.dynamic.job.shared_board import STEP, Board
from steplens.collect.dynamic.plan import EDIT, Plan
from steplens.common.errors import InputError

from . import fake_job
from .jobs import PATIENCE_S, until


class Run:
    """An agent in this process, stepped by the test."""

    def __init__(self, folder: Any, form: Any) -> None:
        self.folder = folder
        self.form = form
        self.agent = Agent(folder.path, form, "test", "step()")
        self.step_number = 0

    def steps(self, count: int = 1) -> None:
        for _ in range(count):
            self.agent.step()
            self.step_number += 1

    def steps_until(self, condition: Callable[[], Any]) -> None:
        limit = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < limit
            self.steps()
            time.sleep(0.005)

    def seen(self) -> list[str]:
        return [request["state"] for request in self.requests()]

    def requests(self) -> list[dict[str, Any]]:
        return self.agent.record()["requests"]

    def see(self, count: int) -> None:
        """Wait until the watching thread has seen so many requests, without a step."""
        limit = time.monotonic() + PATIENCE_S
        while len(self.requests()) < count:
            assert time.monotonic() < limit, self.requests()
            time.sleep(0.005)

    def captured(self) -> list[tuple[int, int]]:
        """First and last step plus one of every capture that was saved."""
        return [(capture.begun, capture.ended) for capture in self.form.captures if not capture._open]


@pytest.fixture
def run(folder: Any) -> Iterator[Callable[..., Run]]:
    started: list[Run] = []

    def start(**fields: Any) -> Run:
        form = fake_job.FakeForm()
        for name, value in fields.items():
            setattr(form, name, value)
        started.append(Run(folder, form))
        return started[-1]

    yield start
    for item in started:
        item.agent.close()


def test_makes_the_documented_file_and_captures_nothing_by_it(folder: Any, run: Any) -> None:
    job = run()
    text = folder.file.read_text()
    assert text.startswith('{\n    "activities": [\n        "CPU",\n        "NPU"\n    ],\n    "prof_dir": "./",\n')
    assert json.loads(text)["start_step"] == 0
    job.steps(20)
    time.sleep(0.3)
    job.steps(20)
    assert job.requests() == [] and job.captured() == []


def test_leaves_an_existing_file_alone_and_follows_it_from_the_first_step(folder: Any, run: Any) -> None:
    folder.edit(start_step=1, active=2)
    before = folder.file.read_bytes()
    job = run()
    job.steps(5)
    assert folder.file.read_bytes() == before
    assert job.captured() == [(1, 3)]


def test_who_decides_while_a_process_joins_counts_on_its_first_step(folder: Any, run: Any, monkeypatch: Any) -> None:
    joining = run(group="job")
    put, decided = Board.put, []

    def seen_by_another(self: Board, word: int, value: int) -> None:
        put(self, word, value)
        if self.words[self.row + STEP] >= 0 and not decided:
            decided.append(value)
            # rank 1 of the same job gets to its first step at just this moment
            other = Board(joining.agent.job_folder, "job", process.process_of_pid(os.getppid()), 1)
            document = {**configuration.TEMPLATE, "start_step": 1, "active": 2, "prof_dir": str(folder.results)}
            other.decide("early", EDIT, document, Plan(1, 2), 1, 0)
            other.close()

    monkeypatch.setattr(Board, "put", seen_by_another)
    joining.steps(4)
    assert decided
    assert joining.captured() == [(1, 3)]


def test_begins_at_the_next_step(folder: Any, run: Any) -> None:
    job = run()
    job.steps(3)
    folder.edit(active=2, warmup=1)
    job.see(1)
    job.steps(6)
    assert job.captured() == [(4, 7)]
    (request,) = job.requests()
    assert (request["state"], request["start_step"], request["warmup"], request["stop_step"]) == ("done", 4, 1, 7)
    assert json.loads((Path(request["result"]) / "steps.json").read_text())[:2] == [4, 7]


def test_waits_for_the_step_that_is_asked_for(folder: Any, run: Any) -> None:
    job = run()
    folder.edit(start_step=9)
    job.see(1)
    job.steps(8)
    record = job.agent.record()
    assert (record["state"], record["profiler_status"]) == ("ready", "2")
    assert (record["current_step"], record["start_step"], record["stop_step"]) == ("8", "9", "10")
    job.steps(1)
    assert job.agent.record()["profiler_status"] == "1"
    job.steps(1)
    assert job.agent.record()["profiler_status"] == "0"
    assert job.captured() == [(9, 10)]


def test_a_step_that_has_passed_has_no_effect(folder: Any, run: Any, capfd: Any) -> None:
    job = run()
    job.steps(5)
    folder.edit(start_step=4)
    job.see(1)
    job.steps(10)
    (request,) = job.requests()
    assert request["state"] == "refused"
    assert "start_step 4 is not after the step that runs, which is 6" in request["reason"]
    assert "start_step 4" in capfd.readouterr().err and "start_step 4" in folder.log()
    assert job.captured() == []


def test_a_new_save_replaces_one_that_waits(folder: Any, run: Any) -> None:
    job = run()
    folder.edit(start_step=1000)
    job.see(1)
    job.steps(3)
    folder.edit(start_step=6)
    job.see(2)
    job.steps(10)
    assert job.seen() == ["superseded", "done"]
    assert job.requests()[0]["reason"] == "the configuration was saved again before it began"
    assert job.captured() == [(6, 7)]


def test_a_request_too_many_is_told_how_many_wait(folder: Any, run: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(agent, "_LARGEST_QUEUE", 1)
    job = run()
    for number in (1, 2):
        folder.edit(start_step=1000 + number)
        job.see(number)
    assert [(item["state"], item["reason"]) for item in job.requests()][1] == ("refused", "1 requests are waiting already")


def test_what_a_process_misses_it_misses_for_a_reason(run: Any) -> None:
    """It heard too late, the others had been there before its first step, or its count went past."""
    job = run()
    job.steps(10)
    document: dict[str, Any] = {}
    job.agent._obey(Decision(1, "late", EDIT, document, 4, 5), 10)
    job.agent._over.add(2)
    job.agent._ledger.add(Request("past", EDIT, document))
    job.agent._obey(Decision(2, "past", EDIT, document, 4, 5), 10)
    job.agent._obey(Decision(3, "jumped", EDIT, document, 12, 13), 10)
    job.agent._begin_due(20)
    reasons = {item["id"]: (item["state"], item["reason"]) for item in job.requests()}
    assert reasons["late"] == ("missed", "this process was at step 10 already when it heard of a start at 4")
    assert reasons["past"] == ("missed", "the other processes were past it before this one stepped")
    assert reasons["jumped"] == ("missed", "this process went past step 12 without coming here")


def test_a_capture_that_runs_keeps_others_from_their_first_step(folder: Any, run: Any) -> None:
    job = run()
    folder.edit(active=50)
    job.see(1)
    job.steps(3)
    assert job.agent.capturing
    job.agent._obey(Decision(99, "second", EDIT, {}, 5, 6), 3)
    job.agent._begin_due(5)
    (second,) = [item for item in job.requests() if item["id"] == "second"]
    assert (second["state"], second["reason"]) == ("missed", "another capture was running at its first step")


def test_a_save_with_step_0_takes_a_waiting_one_back(folder: Any, run: Any) -> None:
    job = run()
    folder.edit(start_step=10)
    job.see(1)
    job.steps(2)
    folder.edit(start_step=0)
    job.see(2)
    job.steps(20)
    assert job.seen() == ["superseded", "refused"]
    assert job.requests()[1]["reason"] == "start_step is 0, so nothing is captured"
    assert job.captured() == []


def test_of_the_saves_during_a_capture_the_last_one_follows_it(folder: Any, run: Any) -> None:
    job = run()
    folder.edit(active=5)
    job.see(1)
    job.steps(2)
    for number, active in ((2, 1), (3, 2), (4, 3)):
        folder.edit(active=active)
        job.see(number)
    job.steps(10)
    assert job.seen() == ["done", "superseded", "superseded", "done"]
    assert job.captured() == [(1, 6), (6, 9)]


def test_every_trigger_during_a_capture_gets_its_turn(folder: Any, run: Any) -> None:
    job = run()
    job.steps(1)
    results = str(folder.results)
    for number, active in enumerate((3, 1, 2), start=1):
        client.send_request(folder.path, {"start_step": -1, "active": active, "prof_dir": results})
        job.see(number)
    job.steps(12)
    assert job.seen() == ["done"] * 3
    assert job.captured() == [(2, 5), (5, 6), (6, 8)]


def test_a_trigger_from_before_the_start_is_not_for_this_job(folder: Any, run: Any) -> None:
    folder.path.mkdir()
    client.send_request(folder.path, {"start_step": -1})
    job = run()
    time.sleep(0.3)
    job.steps(10)
    assert job.requests() == []


def test_start_captures_from_here_on_whatever_the_file_says(folder: Any, run: Any, capfd: Any) -> None:
    job = run()
    job.steps(3)
    document = {"active": 2, "start_step": 100, "prof_dir": str(folder.results)}
    job.agent.start(document)
    job.agent.start(document)
    assert "start() has no effect, a capture is running" in capfd.readouterr().err
    job.steps(5)
    job.agent.start(document)
    job.steps(5)
    assert job.captured() == [(3, 5), (8, 10)]


def test_start_obeys_the_list_of_ranks(folder: Any, run: Any) -> None:
    job = run(rank=1, world_size=2)
    job.agent.start({"is_rank": True, "rank_list": [0, 2], "prof_dir": str(folder.results)})
    job.agent.start({"is_rank": True, "rank_list": [1], "prof_dir": str(folder.results)})
    job.steps(3)
    assert job.seen() == ["refused", "done"]
    assert job.requests()[0]["reason"] == "rank 1 is not in rank_list"


def test_a_save_during_start_follows_it(folder: Any, run: Any) -> None:
    job = run()
    job.steps(1)
    job.agent.start({"active": 3, "prof_dir": str(folder.results)})
    folder.edit(active=2)
    job.see(2)
    job.steps(10)
    assert job.captured() == [(1, 4), (4, 6)]


def test_steps_can_be_counted_from_elsewhere(folder: Any, run: Any, capfd: Any) -> None:
    job = run()
    job.steps(1)
    job.agent.set_step(500)
    folder.edit(start_step=503, active=2)
    job.see(1)
    job.steps(4)
    job.agent.set_step(0)
    assert "set_state() has no effect while a capture is running" in capfd.readouterr().err
    job.steps(1)
    assert job.captured() == [(503, 505)]


@pytest.mark.parametrize("when", ["begin", "step", "finish"])
def test_a_capture_that_fails_leaves_the_training_and_the_next_capture_alone(folder: Any, run: Any, when: str) -> None:
    job = run()
    folder.edit(active=4, metadata={"fail": when})
    job.see(1)
    job.steps(8)
    folder.edit(active=2)
    job.see(2)
    job.steps(8)
    failed, done = job.requests()
    assert (failed["state"], failed["reason"]) == ("failed", f"RuntimeError: cannot {when}")
    assert done["state"] == "done"
    assert job.captured()[-1] == (9, 11)
    assert f"cannot {when}" in folder.log()


def test_an_obstacle_is_a_reason(folder: Any, run: Any) -> None:
    job = run()
    job.steps(1)
    job.form.hindrance = "another profiler is recording"
    assert job.agent.record()["why_not"] == "another profiler is recording"
    folder.edit()
    job.see(1)
    job.steps(2)
    assert job.requests()[0]["reason"] == "another profiler is recording"


def test_the_end_of_the_program_closes_the_capture(folder: Any, run: Any, capfd: Any) -> None:
    job = run()
    folder.edit(active=10)
    job.see(1)
    job.steps(4)
    job.agent.close()
    assert job.captured() == [(1, 4)]
    (participant,) = folder.processes()
    (request,) = participant.requests
    assert participant.state == "exited"
    assert (request["state"], request["start_step"], request["stop_step"]) == ("done", 1, 5)
    assert "7 steps early: the program ends" in request["reason"]
    assert "the program ends" in capfd.readouterr().err


def test_a_request_that_waits_at_the_end_of_the_program(folder: Any, run: Any) -> None:
    job = run()
    folder.edit(start_step=1000)
    job.see(1)
    job.steps(2)
    job.agent.close()
    assert [(item["state"], item["reason"]) for item in job.requests()] == [("missed", "the program ended")]


def test_a_program_that_captured_nothing_leaves_nothing_to_meet_at(folder: Any, run: Any) -> None:
    job = run()
    job.steps(3)
    assert len(folder.processes()) == 1
    job.agent.close()
    assert folder.processes() == []
    assert list(job.agent.job_folder.iterdir()) == []
    until(lambda: not any(thread.name == "steplens dynamic" for thread in threading.enumerate()), "for the thread to end")


def test_a_bad_file_is_a_problem_until_it_is_a_good_one(folder: Any, run: Any, capfd: Any) -> None:
    job = run()
    folder.file.write_text("{")
    job.steps_until(lambda: job.agent.record()["problem"])
    until(lambda: "profiler_config.json is not valid JSON" in folder.processes()[0].problem, folder.describe)
    job.steps(5)
    folder.edit()
    job.see(1)
    job.steps(3)
    assert job.agent.record()["problem"] == ""
    assert job.captured() == [(job.captured()[0][0], job.captured()[0][0] + 1)]
    assert capfd.readouterr().err.count("is not valid JSON") == 1
    assert folder.log("monitor_dp_").count("is not valid JSON") == 1
    assert "Dynamic profiler process load json success: request" in folder.log("monitor_dp_")
    assert "Dynamic profiler process done" not in folder.log("monitor_dp_")
    job.agent.close()
    assert folder.log("monitor_dp_").rstrip().endswith("Dynamic profiler process done")


def test_a_step_that_fails_again_and_again_gives_up_and_never_raises(run: Any, monkeypatch: Any, capfd: Any) -> None:
    job = run()
    job.steps(1)

    def broken(*_: object) -> None:
        raise ZeroDivisionError("mine")

    monkeypatch.setattr(job.agent, "_hear", broken)
    job.agent._attention = True
    for _ in range(5):
        job.agent._attention = True
        job.agent.step()
    assert job.agent.record()["why_not"] == "its dynamic profile failed, see its log"
    said = capfd.readouterr().err
    assert said.count("ZeroDivisionError") == 1
    assert "dynamic_profile: its steps fail, so it does nothing more in this process." in said


def test_without_a_place_to_meet_it_captures_alone(folder: Any, run: Any, monkeypatch: Any, tmp_path: Path, capfd: Any) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(job_folder.DIRECTORY_VARIABLE, str(tmp_path / "file"))
    job = run()
    folder.edit(active=2)
    job.see(1)
    job.steps(5)
    assert job.captured() == [(1, 3)]
    assert "there is no folder to meet in" in capfd.readouterr().err


def test_a_place_that_belongs_to_somebody_else_is_not_used(run: Any, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv(job_folder.DIRECTORY_VARIABLE, str(tmp_path))
    job_folder.state_root().mkdir(mode=0o777)
    job_folder.state_root().chmod(0o777)
    assert run().agent.job_folder is None


def foreign_owner(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    os.chown(path, 65534, 65534)


def state_folder(case: str, folder: Path) -> None:
    """Make ``folder`` as ``case`` says."""
    if case == "a link":
        (folder.parent / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(folder.parent / "elsewhere")
        return
    folder.mkdir(mode=0o700)
    if case == "somebody else's":
        foreign_owner(folder)
    elif case == "open":
        folder.chmod(0o777)


@pytest.mark.parametrize("at", ["chosen", "below"])
@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("a link", "is a symbolic link"),
        ("somebody else's", "belongs to another user (uid 65534)"),
        ("open", "other users (mode 777)"),
    ],
)
def test_a_state_directory_that_others_can_change_is_refused(
    case: str, reason: str, at: str, folder: Any, run: Any, monkeypatch: Any, tmp_path: Path, capfd: Any
) -> None:
    """The job says so in one line and captures all the same; a command says so instead of believing what lies there."""
    monkeypatch.setenv(job_folder.DIRECTORY_VARIABLE, str(tmp_path / "state"))
    if at == "below":
        (tmp_path / "state").mkdir(mode=0o700)
    wrong = tmp_path / "state" if at == "chosen" else job_folder.state_root()
    state_folder(case, wrong)
    job = run()
    assert job.agent.job_folder is None
    assert list(wrong.iterdir()) == []
    said = [line for line in capfd.readouterr().err.splitlines() if str(wrong) in line]
    assert (
        len(said) == 1
        and "so nothing in it is used" in said[0]
        and reason in said[0]
        and job_folder.DIRECTORY_VARIABLE in said[0]
    )
    with pytest.raises(InputError) as refused:
        job_folder.find_folders(folder.path)
    assert (
        refused.value.path == wrong and reason in refused.value.problem and job_folder.DIRECTORY_VARIABLE in refused.value.remedy
    )
    folder.edit(active=2)
    job.see(1)
    job.steps(5)
    assert job.captured() == [(1, 3)]


def test_a_shared_folder_with_the_sticky_bit_will_do(run: Any, monkeypatch: Any, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setenv(job_folder.DIRECTORY_VARIABLE, str(shared))
    assert run().agent.job_folder == job_folder.create_folder(run().agent.directory)


def test_a_state_directory_that_is_made_is_private_whatever_the_umask(run: Any, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv(job_folder.DIRECTORY_VARIABLE, str(tmp_path / "a" / "state"))
    before = os.umask(0)
    try:
        assert run().agent.job_folder is not None
    finally:
        os.umask(before)
    for made in (tmp_path / "a", tmp_path / "a" / "state"):
        assert made.stat().st_mode & 0o777 == 0o700


def test_folders_and_files_are_private(run: Any) -> None:
    job = run()
    job.steps(1)
    assert job.agent.job_folder.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 or path.is_socket() for path in job.agent.job_folder.iterdir())


def test_a_folder_that_cannot_be_made_is_an_error_for_the_caller(tmp_path: Path, run: Any) -> None:
    (tmp_path / "config").write_text("a file")
    with pytest.raises(NotADirectoryError):
        Agent(tmp_path / "config" / "folder", fake_job.FakeForm(), "test", "step()")


def test_logs_are_kept_to_200_kib_and_one_older_file(folder: Any, run: Any) -> None:
    job = run()
    for number in range(3000):
        job.agent._ledger.logs.actions.info("line %05d %s", number, "x" * 150)
    files = sorted(path for path in (folder.path / "log").iterdir() if path.name.startswith("dp_"))
    assert [path.name.endswith(".log.1") for path in files] == [False, True]
    assert all(150 * 1024 < path.stat().st_size <= 200 * 1024 for path in files[1:])
    assert files[0].stat().st_size <= 200 * 1024
    assert "line 02999" in files[0].read_text()
    assert oct(files[0].stat().st_mode & 0o777) == "0o640"
    assert files[0].name == f"dp_{os.uname().nodename}_{os.getpid()}_rank_-1.log"
    line = files[0].read_text().splitlines()[-1]
    assert f"[INFO] [{os.getpid()}] " in line and line[4] == "-" and ".py: line 02999" in line


def test_questions_that_make_no_sense_are_survived(folder: Any, run: Any) -> None:
    import socket

    job = run()
    (path,) = job.agent.job_folder.glob("*.sock")
    for question in (b"", b"\n", b"[]\n", b"{" * 70_000, b"\xff\n", b'{"ask": "look"}\n'):
        with socket.socket(socket.AF_UNIX) as connection, job_folder.socket_address(path) as address:
            connection.connect(address)
            connection.sendall(question)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(PATIENCE_S)
            with contextlib.suppress(ConnectionResetError):  # of a question that is too long the rest is not read
                while connection.recv(1 << 16):
                    pass
    until(lambda: [item.answered for item in folder.processes()] == [True], folder.describe)


def test_a_forked_child_does_not_answer_for_its_parent(folder: Any, run: Any) -> None:
    job = run()
    job.steps(1)
    child = os.fork()
    if child == 0:
        try:
            job.agent.abandon()
            job.agent.step()
            job.agent.close()
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    until(lambda: [item.answered for item in folder.processes()] == [True], folder.describe)
    (participant,) = folder.processes()
    assert participant.alive and participant.step == 1
    folder.edit()
    job.see(1)
    job.steps(3)
    assert job.captured() == [(2, 3)]
