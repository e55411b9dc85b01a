"""Several processes of one job: they agree on the steps, nobody waits for the stuck, and the dead leave nothing in the way."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from steplens.collect.dynamic import client
from steplens.collect.dynamic.job import job_folder, process

from .jobs import until

ENDED = ("done", "failed", "refused", "missed", "superseded")


def stepping(folder: Any, count: int) -> list[Any]:
    """Wait until so many living processes step, and return all processes."""

    def ready() -> Any:
        found = folder.processes()
        return sum(item.alive and item.step is not None and item.answered for item in found) >= count and found

    return until(ready, f"for {count} processes to step")


def over(folder: Any, id: str, count: int) -> list[dict[str, Any]]:
    """Wait until so many processes have ended a request."""

    def ready() -> Any:
        found = [item.request(id) for item in folder.processes()]
        known = [request for request in found if request is not None and request["state"] in ENDED]
        return len(known) >= count and known

    return until(ready, lambda: f"for {count} processes to end {id}\n{folder.describe()}")


def wait_for(folder: Any, id: str, pid: int) -> None:
    """Wait until one process has carried out a request."""

    def ready() -> bool:
        requests = [item.request(id) for item in folder.processes() if item.process.pid == pid]
        return any(request is not None and request["state"] == "done" for request in requests)

    until(ready, lambda: f"for process {pid} to end {id}\n{folder.describe()}")


def steps(request: dict[str, Any]) -> tuple[int, int, int]:
    """First step, end and rank, as the capture itself has seen them."""
    first, end, rank = json.loads((Path(request["result"]) / "steps.json").read_text())
    return first, end, rank


def send(folder: Any, **fields: Any) -> str:
    return client.send_request(folder.path, {"start_step": -1, "prof_dir": str(folder.results), **fields})[0]


def test_all_ranks_record_the_same_steps_every_time(folder: Any, jobs: Any) -> None:
    jobs.fake(folder, "--ranks", 4, "--pause", 0.002, "--save", 0.01)
    stepping(folder, 4)
    dice = random.Random(1)
    ids = []
    for number in range(12):
        ids.append(send(folder, active=dice.randint(1, 4), warmup=dice.randint(0, 2)))
        if number % 3 == 0:
            time.sleep(dice.uniform(0, 0.1))
    ends = []
    for id in ids:
        found = over(folder, id, 4)
        assert [request["state"] for request in found] == ["done"] * 4, found
        spans = {steps(request)[:2] for request in found}
        assert len(spans) == 1, spans
        assert sorted(steps(request)[2] for request in found) == [0, 1, 2, 3]
        ends.append(spans.pop())
    # one after the other, in the order they were asked for
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(ends))


def test_an_edited_file_does_the_same(folder: Any, jobs: Any) -> None:
    # 2 s until the step: the file is looked at every 0.2 s, and a busy machine may be late
    jobs.fake(folder, "--ranks", 3, "--pause", 0.02)
    found = stepping(folder, 3)
    folder.edit(start_step=found[0].step + 100, active=3)
    until(lambda: len(list(folder.results.glob("*/steps.json"))) == 3, folder.describe)
    ended = [json.loads(path.read_text()) for path in folder.results.glob("*/steps.json")]
    assert {tuple(item[:2]) for item in ended} == {(found[0].step + 100, found[0].step + 103)}


def test_a_first_step_that_the_file_names_before_the_start_is_met_by_all(folder: Any, jobs: Any) -> None:
    folder.edit(start_step=1, active=2)
    jobs.fake(folder, "--ranks", 3, "--pause", 0.01)
    until(lambda: len(list(folder.results.glob("*/steps.json"))) == 3, "for three results")
    assert {tuple(json.loads(path.read_text())[:2]) for path in folder.results.glob("*/steps.json")} == {(1, 3)}


def test_only_the_listed_ranks_record(folder: Any, jobs: Any) -> None:
    jobs.fake(folder, "--ranks", 4)
    stepping(folder, 4)
    found = over(folder, send(folder, is_rank=True, rank_list=[1, 3]), 4)
    assert [request["state"] for request in found] == ["refused", "done", "refused", "done"]
    assert found[0]["reason"] == "rank 0 is not in rank_list"
    assert len({steps(request)[:2] for request in found if request["state"] == "done"}) == 1


def test_a_rank_that_never_steps_holds_nobody_up(folder: Any, jobs: Any) -> None:
    jobs.fake(folder, "--ranks", 3, "--stuck", 1)
    stepping(folder, 2)
    until(lambda: len(folder.processes()) == 3, "for the stuck process")
    id = send(folder, active=2)
    # the stuck one never steps, so whoever waited for it would wait in vain
    found = over(folder, id, 2)
    assert len({steps(request)[:2] for request in found}) == 1
    # it looks at the file in its own time
    until(lambda: folder.processes()[1].request(id), lambda: f"for the stuck process to see {id}\n{folder.describe()}")
    stuck = folder.processes()[1]
    assert (stuck.rank, stuck.state, stuck.step, stuck.eligible) == (1, "waiting", None, False)
    assert stuck.why_not == "step() was never called"
    assert stuck.request(id)["state"] == "seen"


def test_a_stopped_process_is_said_to_be_silent(folder: Any, jobs: Any) -> None:
    stuck = jobs.fake(folder, "--ranks", 2, "--stuck", 1).ranks()[1]
    stepping(folder, 1)
    until(lambda: len(folder.processes()) == 2 and folder.processes()[1].answered, "for the other process")
    os.kill(stuck, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{stuck}/stat").read_text().rpartition(")")[2].split()[0] == "T", "for it to stop")
    try:
        # on a busy machine the living one may take longer to answer than a question waits
        said = [(True, True), (True, False)]
        until(lambda: [(item.alive, item.answered) for item in folder.processes()] == said, folder.describe)
        assert over(folder, send(folder), 1)[0]["state"] == "done"
    finally:
        os.kill(stuck, signal.SIGCONT)


def test_jobs_that_have_nothing_to_do_with_each_other_begin_by_themselves(folder: Any, jobs: Any) -> None:
    jobs.fake(folder, "--pause", 0.001)
    stepping(folder, 1)
    until(lambda: folder.processes()[0].step > 200, "for the first job to be ahead")
    jobs.fake(folder, "--pause", 0.02)
    stepping(folder, 2)
    found = over(folder, send(folder, active=2), 2)
    assert [request["state"] for request in found] == ["done", "done"]
    first, second = (steps(request)[0] for request in found)
    assert abs(first - second) > 50


def test_ranks_that_do_not_step_together_each_begin_by_themselves(folder: Any, jobs: Any) -> None:
    jobs.fake(folder, "--pause", 0.001, "--group", "one")
    stepping(folder, 1)
    until(lambda: folder.processes()[0].step > 200, "for the first process to be ahead")
    jobs.fake(folder, "--pause", 0.02, "--group", "one")
    stepping(folder, 2)
    found = over(folder, send(folder, active=2), 2)
    assert [request["state"] for request in found] == ["done", "done"]
    first, second = (steps(request)[0] for request in found)
    assert abs(first - second) > 50


@pytest.mark.parametrize("moment", ["idle", "ready", "recording"])
def test_a_killed_job_leaves_nothing_in_the_way_of_the_next(folder: Any, jobs: Any, moment: str) -> None:
    job = jobs.fake(folder, "--ranks", 3, "--group", "same", "--pause", 0.005)
    ranks = job.ranks()
    stepping(folder, 3)
    if moment != "idle":
        folder.edit(active=10**6, start_step=-1 if moment == "recording" else 10**6)
        until(lambda: {item.state for item in folder.processes()} == {moment}, f"for all to be {moment}")
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
    job.process.wait(timeout=180)
    found = folder.processes()
    assert [(item.state, item.why_not) for item in found] == [
        ("killed", "it ended without a word (killed, crashed or by os._exit)")
    ] * 3
    assert all(item.step is not None and item.step >= 0 for item in found)

    # the file still asks for what the killed job was doing; a new job of the same name begins with a clean sheet
    folder.edit(start_step=0)
    jobs.fake(folder, "--ranks", 3, "--group", "same")
    found = stepping(folder, 3)
    assert not {item.process.pid for item in found} & set(ranks)
    assert [item.requests for item in found] == [()] * 3
    found = over(folder, send(folder, active=2), 3)
    assert [request["state"] for request in found] == ["done"] * 3
    assert len({steps(request)[:2] for request in found}) == 1
    (meeting,) = job_folder.find_folders(folder.path)
    # the whole number: the digits of a small process id are part of many a name
    assert not {str(pid) for pid in ranks} & {path.name.lstrip(".").partition("-")[0] for path in meeting.iterdir()}


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    writing = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    dead, living = process.process_of_pid(writing.pid), process.current_process()
    writing.kill()
    writing.wait()
    for owner in (dead, living):
        (tmp_path / f".{owner.name}.partial").write_text("{")
    (tmp_path / ".something.partial").write_text("not ours")
    job_folder.remove_dead_processes(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f".{living.name}.partial", ".something.partial"}


def test_killing_one_rank_leaves_no_lock_and_the_others_see_it(folder: Any, jobs: Any) -> None:
    first = jobs.fake(folder, "--group", "one")
    jobs.fake(folder, "--group", "one")
    stepping(folder, 2)
    dice = random.Random(2)
    for _ in range(8):
        # every time at another moment of deciding and recording
        id = send(folder, active=3)
        time.sleep(dice.uniform(0, 0.03))
        first.kill()
        found = folder.processes()
        survivors = [item for item in found if item.alive]
        assert len(survivors) == 1
        wait_for(folder, id, survivors[0].process.pid)
        first = jobs.fake(folder, "--group", "one")
        stepping(folder, 2)
