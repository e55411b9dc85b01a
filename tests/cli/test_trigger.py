"""``steplens trigger`` and ``steplens status`` on jobs that only step, see ``tests/collect/dynamic/fake_job.py``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from steplens.cli.recording.trigger import exit_code, merge_configuration
from steplens.collect.dynamic.configuration import TEMPLATE
from steplens.collect.dynamic.job import job_folder

from ..collect.dynamic.jobs import FAKE_JOB, Folder, Jobs, until


@pytest.fixture(autouse=True)
def _own_meeting_place(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv(job_folder.DIRECTORY_VARIABLE, str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "config")


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    started = Jobs(tmp_path)
    yield started
    started.end()


def start(jobs: Jobs, folder: Folder, *arguments: object, stepping: int = 1, known: int | None = None) -> Any:
    job = jobs.fake(folder, *arguments)

    def ready() -> bool:
        found = folder.processes()
        return sum(item.alive and item.step is not None for item in found) >= stepping and len(found) >= (known or stepping)

    until(ready, folder.describe)
    return job


def steps(request: dict[str, Any]) -> list[int]:
    return json.loads((Path(request["result"]) / "steps.json").read_text())[:2]


def test_a_request_is_followed_to_its_results(cli: Any, folder: Folder, jobs: Jobs) -> None:
    start(jobs, folder, "--ranks", 3, "--stuck", 2, stepping=2, known=3)
    before = folder.file.read_bytes()
    done = cli.run("trigger", "config", "--steps", "2", "--warmup", "1", "--prof-dir", "results", "--with-stack")
    assert folder.file.read_bytes() == before
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"request \w{12} to 3 processes that watch .*/config", lines[0])
    assert sum("recorded steps" in line for line in lines) == 2
    assert any(line.startswith("rank 2 ") and line.endswith("seen, but step() was never called") for line in lines)
    assert lines[-1].startswith("next: steplens analyse ")
    first, second, _ = (item.requests[-1] for item in folder.processes())
    assert steps(first) == steps(second)
    assert first["stop_step"] - first["start_step"] == 3
    assert Path(first["result"]).parent == folder.results


def test_the_document_holds_every_process(cli: Any, folder: Folder, jobs: Jobs) -> None:
    start(jobs, folder, "--ranks", 4, stepping=4)
    found = cli.json("trigger", "config", "--rank", "1", "--rank", "3", "--prof-dir", "results")
    assert found["exit_code"] == 0
    requests = [item["requests"][-1] for item in found["processes"]]
    assert [request["id"] for request in requests] == [found["request"]] * 4
    assert [request["state"] for request in requests] == ["refused", "done", "refused", "done"]
    assert [item["rank"] for item in found["processes"]] == [0, 1, 2, 3]


#: a job that stands before step 100 until a file says that it may go on
GATED = """
import sys, time
from pathlib import Path
from steplens.collect.dynamic.agent import Agent
sys.path.insert(0, sys.argv[1])
from fake_job import FakeForm
folder, gate = map(Path, sys.argv[2:])
agent = Agent(folder, FakeForm(0), "test", "step()")
for step in range(1, 10**6):
    while step == 100 and not gate.exists():
        time.sleep(0.01)
    agent.step()
    time.sleep(0.002)
"""


def test_beginning_at_a_step(process_cli: Any, folder: Folder, jobs: Jobs) -> None:
    gate = process_cli.folder / "gate"
    jobs.start(sys.executable, process_cli.write("gated.py", GATED), FAKE_JOB.parent, folder.path, gate)
    until(lambda: [item.step for item in folder.processes()] == [99], folder.describe)
    with ThreadPoolExecutor(1) as pool:
        # however long the command takes to start, the job is not past the step when it asks
        command = pool.submit(process_cli.run, "trigger", "config", "--at-step", "120", "--steps", "4", "--prof-dir", "results")
        try:
            until(folder.requests, folder.describe)
        finally:
            gate.touch()
        command.result()
    # one step before it warms up
    assert steps(folder.requests()[-1]) == [119, 124]
    said = process_cli.run("trigger", "config", "--at-step", "1", expect=2).stdout
    assert "refused: start_step 1 is not after the step that runs" in said


def test_a_capture_that_fails_is_an_exit_code(cli: Any, folder: Folder, jobs: Jobs) -> None:
    folder.edit(start_step=0, metadata={"fail": "begin"})
    start(jobs, folder)
    done = cli.run("trigger", "config", expect=2)
    assert "failed: RuntimeError: cannot begin" in done.stdout


def test_a_step_that_takes_long_is_not_waited_for_for_ever(cli: Any, folder: Folder, jobs: Jobs) -> None:
    start(jobs, folder, "--pause", 0.1)
    job = jobs.fake(folder, "--pause", 1000)
    until(lambda: len(folder.processes()) == 2, folder.describe)
    # one that has never stepped is not waited for at all
    cli.run("trigger", "config", "--prof-dir", "results")
    job.kill()
    # of the time that is waited, the job needs that to the end of its step
    done = cli.run("trigger", "config", "--prof-dir", "results", "--at-step", "1000000", "--timeout", "10", expect=2)
    assert re.search(r"will record step 1000000, step \d+ runs", done.stdout)
    assert re.search(r"not waited for any longer: pid \d+, ready in step \d+, which has run for ", done.stdout)


def test_without_waiting_the_request_is_left_for_whoever_watches(cli: Any, folder: Folder) -> None:
    folder.edit(start_step=7, with_stack=True, experimental_config={"profiler_level": "Level1", "l2_cache": True})
    said = cli.run("trigger", "config", "--no-wait", "--steps", "3", "--no-with-stack", "--no-l2-cache", "--analyse").stdout
    assert "to 0 processes" in said
    request = json.loads((folder.path / job_folder.REQUEST_FILE).read_text())
    assert said.startswith(f"request {request['id']} ")
    configuration = request["configuration"]
    expected = {"start_step": -1, "active": 3, "with_stack": False, "analyse": True, "is_rank": False, "rank_list": []}
    assert {name: configuration[name] for name in expected} == expected
    assert configuration["experimental_config"] == {"profiler_level": "Level1", "l2_cache": False}
    assert configuration["prof_dir"] == str(folder.results)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "there is no such folder"),
        (("empty",), "there is no profiler_config.json"),
        (("damaged",), "is not a JSON object"),
        (("config",), "no process on this machine watches this folder"),
        (("config", "--no-wait", "--rank", "one"), "--rank takes ranks such as"),
        (("config", "--no-wait", "--rank", "3-1"), "--rank takes ranks such as"),
        (("config", "--no-wait", "--rank", "0-99999999"), "--rank takes ranks such as"),
    ],
)
def test_what_cannot_be_done_is_said(cli: Any, folder: Folder, arguments: tuple[str, ...], said: str) -> None:
    folder.edit(start_step=0)
    (cli.folder / "empty").mkdir()
    cli.write("damaged/profiler_config.json", "{")
    assert said in cli.refused("trigger", *arguments)


def test_ranks_are_read_from_lists_and_ranges(cli: Any, folder: Folder) -> None:
    folder.edit(start_step=0)
    cli.run("trigger", "config", "--no-wait", "--rank", "0,4-6", "--rank", "9")
    configuration = json.loads((folder.path / job_folder.REQUEST_FILE).read_text())["configuration"]
    assert (configuration["is_rank"], configuration["rank_list"]) == (True, [0, 4, 5, 6, 9])


def test_fields_of_extended_options_are_changed_one_by_one() -> None:
    base = {**TEMPLATE, "experimental_config": {"mstx": True, "l2_cache": False}}
    found = merge_configuration(base, {"active": 2, "experimental_config": {"l2_cache": True}})
    assert found["experimental_config"] == {"mstx": True, "l2_cache": True}
    assert {**found, "active": 1, "experimental_config": None} == {**base, "experimental_config": None}
    assert merge_configuration({"experimental_config": 3}, {"experimental_config": {"mstx": True}})["experimental_config"] == {
        "mstx": True
    }


# --- status


def test_status_of_a_job(cli: Any, folder: Folder, jobs: Jobs) -> None:
    def answers() -> list[dict[str, Any]]:
        found = cli.json("status", "config")["processes"]
        return found if all(item["answered"] for item in found) else []

    start(jobs, folder, "--ranks", 3, "--stuck", 1, stepping=2, known=3)
    folder.edit(start_step=10**6, active=5, warmup=2)
    until(lambda: [item.state for item in folder.processes()] == ["ready", "waiting", "ready"], folder.describe)
    text = cli.run("status", "config").stdout
    assert re.search(r"\n +0 +\d+ +\d+ +[\d.]+ \w+ +ready +yes", text)
    assert re.search(r"\n +1 +\d+ +- +- +waiting +no: step\(\) was never called", text)
    assert re.search(r"rank 0 pid \d+: will record steps 1000002 to 1000006, step \d+ runs", text)
    assert re.search(r"rank 1 pid \d+: seen, but step\(\) was never called", text)
    found = until(answers, "for every process to answer in time, which a busy machine may keep it from")
    assert [(item["eligible"], item["answered"], item["progress"]) for item in found] == [
        (True, True, None),
        (False, True, None),
        (True, True, None),
    ]
    status = found[0]["status"]
    assert (status["profiler_status"], status["start_step"], status["stop_step"]) == ("2", "1000000", "1000007")
    assert 0 < int(status["current_step"]) <= found[0]["step"]


def test_status_shows_progress(cli: Any, folder: Folder, jobs: Jobs) -> None:
    folder.edit(start_step=1, active=10**6, warmup=10**6)
    start(jobs, folder, "--pause", 0.01)
    assert "warming up" in cli.run("status", "config").stdout
    folder.edit(start_step=1, active=10**6)
    jobs.end()
    start(jobs, folder, "--pause", 0.01)
    assert re.search(r"recording \d+/1000000", cli.run("status", "config").stdout)
    (_, total) = cli.json("status", "config")["processes"][-1]["progress"]
    assert total == 10**6


def test_status_of_the_dead(cli: Any, folder: Folder, jobs: Jobs) -> None:
    folder.edit(start_step=1, active=2)
    jobs.fake(folder, "--steps", 5).finish()
    text = cli.run("status", "config").stdout
    assert re.search(r"exited +no: the program has ended", text)
    assert "recorded steps 1 to 2 in " in text
    folder.edit(start_step=1, active=10**6)
    job = start(jobs, folder)
    until(lambda: "recording" in [item.state for item in folder.processes()], folder.describe)
    job.kill()
    text = cli.run("status", "config").stdout
    assert re.search(r"killed +no: it ended without a word \(killed,", text)
    assert "killed while recording, what there is lies in " in text
    assert "next: steplens trigger" not in text


def test_status_without_any_process(cli: Any, folder: Folder) -> None:
    folder.path.mkdir()
    assert "no process on this machine watches this folder" in cli.run("status", "config").stdout
    assert cli.json("status", "config")["processes"] == []
    assert "there is no such folder" in cli.refused("status", "nowhere")


def test_what_a_record_says_cannot_move_the_cursor(cli: Any, folder: Folder, jobs: Jobs) -> None:
    start(jobs, folder)
    (meeting,) = job_folder.find_folders(folder.path)
    evil = "\x1b[2J[red]\u202e"
    record = {
        "why_not": evil,
        "state": evil,
        "problem": evil,
        "rank": evil,
        "step": [evil],
        "requests": [{"id": evil, "seen_ns": 1, "state": evil, "result": evil, "reason": {}, "warnings": [evil, 3]}, 7],
    }
    # a process that lives and does not answer: this one's parent
    (meeting / "1-0.json").write_text(json.dumps(record))
    (meeting / "2-0.json").write_text("[" * 100_000)
    (meeting / "not-a-process.json").write_text("{}")
    text = cli.run("status", "config").stdout
    assert "\x1b" not in text and "\u202e" not in text and "[red]" in text


def test_exit_codes() -> None:
    class Item:
        def __init__(self, state: str | None, step: int | None = 3) -> None:
            self.step = step
            self._state = state

        def request(self, id: str) -> dict[str, Any] | None:
            return None if self._state is None else {"state": self._state}

    found: Any = [Item("done"), Item("refused"), Item(None), Item("seen", None)]
    assert exit_code("", found) == 0
    assert exit_code("", [*found, Item("failed")]) == 3
    assert exit_code("", [*found, Item("seen")]) == 3
    assert exit_code("", found[1:]) == 2


@pytest.mark.parametrize("command", ["status", "trigger"])
def test_a_state_directory_that_others_can_write_is_refused_in_one_sentence(
    command: str, cli: Any, folder: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder.file.parent.mkdir(exist_ok=True)
    folder.file.write_text("{}")
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o777)
    monkeypatch.setenv(job_folder.DIRECTORY_VARIABLE, str(state))
    said = cli.refused(command, "config")
    assert str(state) in said and "can be written by other users" in said and job_folder.DIRECTORY_VARIABLE in said
