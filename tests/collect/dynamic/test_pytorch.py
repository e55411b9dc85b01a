"""Real training loops in other processes, controlled by editing their file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steplens.cli.main import main
from steplens.collect.dynamic import client
from steplens.collect.dynamic.job import job_folder

from ... import light_optimizer
from .. import conftest
from .jobs import Folder, Job, Jobs, until

pytest.importorskip("torch")

NETWORK = f"""
import pathlib, sys, time, torch
{light_optimizer.SGD}
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
optimizer = SGD(model.parameters(), lr=0.1)
def train():
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.002)
"""
LOOP = """
from steplens import dynamic_profile as dp
dp.init("config")
while not pathlib.Path("stop").exists():
    train()
    dp.step()
print("trained")
"""
#: knows nothing of steplens
PLAIN = NETWORK + "while not pathlib.Path('stop').exists(): train()\nprint('trained')\n"


def raw(run: str | Path) -> list[dict[str, Any]]:
    """The events of a run that have a time, in its order."""
    events = conftest.raw(Path(run))["traceEvents"]
    return sorted((event for event in events if "ts" in event), key=lambda event: event["ts"])


def profiler_steps(run: str | Path) -> list[int]:
    names = [event["name"] for event in raw(run) if event["name"].startswith("ProfilerStep#")]
    return sorted({int(name.removeprefix("ProfilerStep#")) for name in names})


def info(run: str | Path) -> dict[str, Any]:
    (file,) = Path(run).glob("profiler_info*.json")
    return json.loads(file.read_text())


class Training(Folder):
    """A running training and its configuration folder."""

    def __init__(self, path: Path, job: Job) -> None:
        super().__init__(path)
        self.job = job

    def ask(self, **fields: Any) -> dict[str, Any]:
        """Save the file with some fields changed, and wait for what becomes of that."""
        known = {request["id"] for request in self.requests()}
        self.edit(**fields)

        def over() -> Any:
            found = [request for request in self.requests() if request["id"] not in known]
            return next((item for item in found if item["state"] in ("done", "failed", "refused", "missed")), None)

        return until(over, lambda: f"for the request to end\n{self.describe()}\n{self.job.output()}")


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(autouse=True)
def _own_meeting_place(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(job_folder.DIRECTORY_VARIABLE, str(state))


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory, state: Path) -> Iterator[Training]:
    """One training for the tests that only edit its file; it must outlive all of them."""
    folder = tmp_path_factory.mktemp("training")
    jobs = Jobs(folder)
    job = jobs.start(sys.executable, "-c", NETWORK + LOOP, env={job_folder.DIRECTORY_VARIABLE: str(state)})
    found = Training(folder / "config", job)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(job_folder.DIRECTORY_VARIABLE, str(state))
            until(lambda: any(item.step for item in found.processes()), lambda: f"for the first step\n{job.output()}")
        yield found
        (folder / "stop").touch()
        assert "trained\n" in job.finish()
    finally:
        jobs.end()


# --- editing the file of a running training


def test_a_capture_is_what_the_file_says(training: Training) -> None:
    metadata = {"distributed_args": {"tp": 2, "pp": 4}, "name": "mine"}
    request = training.ask(active=3, warmup=1, record_shapes=True, metadata=metadata)
    assert request["state"] == "done", request
    run = Path(request["result"])
    assert run.parent == training.results
    first = request["start_step"] + 1
    assert profiler_steps(run) == [first, first + 1, first + 2]
    events = raw(run)
    assert sum(event["name"] == "Optimizer.step#SGD.step" for event in events) == 3
    assert any("Input Dims" in event.get("args", {}) for event in events)
    found = json.loads((run / "profiler_metadata.json").read_text())
    assert {name: found[name] for name in metadata} == metadata
    state = json.loads((run / "KINETO" / "state.json").read_text())
    assert (state["state"], state["first_step"], state["health"]) == ("collected", first, [])
    assert not (run / "ASCEND_PROFILER_OUTPUT").exists()


@pytest.mark.parametrize(
    ("field", "value", "used"),
    [
        ("prof_dir", 123, "./"),
        ("analyse", "true", False),
        ("record_shapes", "true", False),
        ("profile_memory", 1, False),
        ("with_stack", None, False),
        ("with_flops", [], False),
        ("with_modules", {}, False),
        ("is_rank", "true", False),
        ("rank_list", "0", None),
        ("profiler_level", "Level9", "Level0"),
        ("aic_metrics", "Pipe", "ACL_AICORE_PIPE_UTILIZATION"),
        ("l2_cache", "true", False),
        ("data_simplification", "true", True),
        ("record_op_args", "true", False),
        ("export_type", ["xml"], ["text"]),
    ],
)
def test_an_invalid_field_is_reset_and_the_training_goes_on(training: Training, field: str, value: Any, used: Any) -> None:
    extended = ("profiler_level", "aic_metrics", "l2_cache", "data_simplification", "record_op_args", "export_type")
    if field in extended:
        level = {"profiler_level": "Level1"} if field == "aic_metrics" else {}
        fields: dict[str, Any] = {"experimental_config": {**level, field: value}}
    else:
        fields = {field: value}
    if field == "rank_list":
        fields["is_rank"] = True
    request = training.ask(**fields)
    assert len(request["warnings"]) == 1 and field in request["warnings"][0]
    assert training.log().count(request["warnings"][0]) >= 1
    if field == "rank_list":
        assert (request["state"], request["reason"]) == ("refused", "is_rank is true and rank_list is empty")
    else:
        assert request["state"] == "done", request
        run = Path(request["result"])
        config = info(run)["config"]
        common, experimental = config["common_config"], config["experimental_config"]
        assert run.parent == (training.path.parent if field == "prof_dir" else training.results)
        assert (run / "ASCEND_PROFILER_OUTPUT").exists() is False
        found = {**common, **{name.removeprefix("_"): value for name, value in experimental.items()}}
        assert found.get(field, used) == used
    (participant,) = training.processes()
    before = participant.step
    until(lambda: training.processes()[0].step > before + 3, "for the training to go on")


def test_ranks_in_and_out_of_the_list(training: Training) -> None:
    assert training.ask(is_rank=True, rank_list=[0, 1])["state"] == "done"
    out = training.ask(is_rank=True, rank_list=[1])
    assert (out["state"], out["reason"]) == ("refused", "rank 0 is not in rank_list")


def test_analysis_of_a_capture(training: Training, capsys: pytest.CaptureFixture[str]) -> None:
    request = training.ask(analyse=True)
    assert (Path(request["result"]) / "ASCEND_PROFILER_OUTPUT" / "analyse.done").is_file()
    # of a listed rank, only beside the training; the command follows it to the results
    asked = ["trigger", str(training.path), "--rank", "0", "--analyse", "--async-mode", "--out", str(training.results)]
    assert main(asked) == 0, capsys.readouterr()
    lines = capsys.readouterr().out.replace("\n/", "/").splitlines()
    assert "which is being analysed" in lines[-4] and "(raw)" not in lines[-3], lines
    assert lines[-2].startswith("next: steplens view ") and lines[-1].startswith("next: steplens summary "), lines
    assert (Path(lines[-1].rpartition(" ")[2]) / "ASCEND_PROFILER_OUTPUT" / "analyse.done").is_file()


def test_a_save_right_after_another_is_a_capture_of_its_own(training: Training) -> None:
    first = training.ask(active=1)
    second = training.ask(active=2)
    assert (first["state"], second["state"]) == ("done", "done")
    assert profiler_steps(second["result"]) == [second["start_step"], second["start_step"] + 1]
    # the same content once more
    assert training.ask(active=2)["state"] == "done"


def test_a_folder_that_cannot_be_written_fails_and_the_next_capture_does_not(training: Training) -> None:
    blocked = training.path.parent / "blocked"
    blocked.write_text("a file")
    failed = training.ask(prof_dir=str(blocked / "results"))
    assert failed["state"] == "failed" and "blocked" in failed["reason"]
    assert training.ask()["state"] == "done"


# --- trainings of their own


def test_the_environment_variable_alone_is_enough(tmp_path: Path, jobs: Jobs) -> None:
    (tmp_path / "train.py").write_text("import os, torch\nos.mkdir('elsewhere'); os.chdir('elsewhere')\n" + PLAIN)
    job = jobs.start(sys.executable, "train.py", env={"PROF_CONFIG_PATH": "config"})
    training = Training(tmp_path / "config", job)
    until(lambda: any(item.step for item in training.processes()), "for the first step")
    (participant,) = training.processes()
    assert (participant.how, participant.program, participant.eligible) == ("PROF_CONFIG_PATH", "train.py", True)
    request = training.ask(active=2)
    (tmp_path / "elsewhere" / "stop").touch()
    job.finish()
    first = request["start_step"]
    assert first >= 1
    assert profiler_steps(request["result"]) == [first, first + 1]
    # a step ends when Optimizer.step has returned, so each holds all of one
    steps = [event for event in raw(request["result"]) if event["name"].startswith("ProfilerStep#")]
    optimizers = [event for event in raw(request["result"]) if event["name"].startswith("Optimizer.step#")]
    for step, optimizer in zip(steps, optimizers, strict=True):
        assert step["ts"] <= optimizer["ts"] and optimizer["ts"] + optimizer["dur"] <= step["ts"] + step["dur"]


def test_a_process_that_builds_no_optimizer_is_shown_as_such(tmp_path: Path, jobs: Jobs) -> None:
    script = "import torch, time; time.sleep(600)"
    job = jobs.start(sys.executable, "-c", script, env={"PROF_CONFIG_PATH": str(tmp_path / "config")})
    (participant,) = until(lambda: client.find_participants(tmp_path / "config"), "for the process")
    assert (participant.alive, participant.step, participant.why_not) == (True, None, "it has built no torch.optim.Optimizer")
    # it has not asked for anything, so it gets no file, no thread and no log
    assert not (tmp_path / "config").exists()
    assert participant.bystander and not participant.watches
    # a killed one, such as a worker that loads data, is not shown at all
    job.kill()
    assert client.find_participants(tmp_path / "config") == []


def test_start_in_the_script(tmp_path: Path, jobs: Jobs) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "profiler_config.json").write_text(json.dumps({"active": 2, "prof_dir": "mine_results"}))
    Folder(tmp_path / "config").edit(start_step=0, active=1, prof_dir="init_results")
    script = """
from steplens import dynamic_profile as dp
dp.step(); dp.start(); dp.set_state({"cur_step": 3})
dp.init("config"); dp.init("config"); dp.init("other")
for step in range(20):
    if step == 5:
        dp.start("mine/profiler_config.json")
        dp.start("mine/profiler_config.json")
    if step == 10:
        dp.start("mine/no_such_file.json")
    if step == 13:
        dp.set_state({"cur_step": 1000}); dp.set_state({"cur_step": -1}); dp.set_state(None)
        dp.start()
    train()
    dp.step()
dp.init(3)
"""
    output = jobs.start(sys.executable, "-c", NETWORK + script).finish()
    captured = {folder.name: sorted(folder.glob("*_ascend_pt")) for folder in tmp_path.glob("*_results")}
    assert [profiler_steps(run) for run in captured["mine_results"]] == [[5, 6]]
    assert [profiler_steps(run) for run in captured["init_results"]] == [[10], [1000]]
    assert output.count("dynamic_profile.init was not called") == 1
    assert "is initialised already." in output and "is initialised already with" in output
    assert "start() has no effect, a capture is running" in output
    assert "no_such_file.json cannot be read" in output
    assert output.count("with n not negative") == 2
    assert "the path must be a string" in output


def test_the_call_takes_over_from_the_variable_and_the_end_of_the_program_saves_the_capture(tmp_path: Path, jobs: Jobs) -> None:
    script = "from steplens import dynamic_profile as dp\ndp.init('config')\nfor step in range(6): train(); dp.step()\n"
    folder = Folder(tmp_path / "config")
    folder.edit(start_step=3, active=100)
    output = jobs.start(sys.executable, "-c", NETWORK + script, env={"PROF_CONFIG_PATH": str(folder.path)}).finish()
    (run,) = folder.results.iterdir()
    assert json.loads((run / "KINETO" / "state.json").read_text())["state"] == "collected"
    # counted once per step, by dp.step
    assert profiler_steps(run) == [3, 4, 5, 6]
    assert "the capture ends 97 steps early: the program ends" in output
    (participant,) = folder.processes()
    assert (participant.how, participant.state, participant.requests[0]["state"]) == ("dp.init", "exited", "done")


def test_a_killed_training_leaves_nothing_in_the_way(tmp_path: Path, jobs: Jobs) -> None:
    folder = Folder(tmp_path / "config")
    folder.edit(start_step=5, active=10**6)
    first = jobs.start(sys.executable, "-c", NETWORK + LOOP)
    until(lambda: any(item.state == "recording" for item in folder.processes()), lambda: f"for the capture {first.output()}")
    first.kill()
    (killed,) = folder.processes()
    assert killed.state == "killed"
    assert Path(killed.requests[0]["result"]).is_dir()
    folder.edit(start_step=0)
    second = jobs.start(sys.executable, "-c", NETWORK + LOOP)
    training = Training(tmp_path / "config", second)
    until(lambda: any(item.alive and item.step for item in training.processes()), "for the next job")
    request = training.ask(active=2)
    assert request["state"] == "done"
    assert profiler_steps(request["result"]) == [request["start_step"], request["start_step"] + 1]


def test_a_killed_training_takes_its_analysis_with_it(tmp_path: Path, jobs: Jobs) -> None:
    folder = Folder(tmp_path / "config")
    folder.edit(start_step=3, active=1, analyse=True)
    job = jobs.start(sys.executable, "-c", NETWORK + LOOP)

    def analyses() -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                text = path.read_bytes()
            except OSError:
                continue
            if b"steplens.offline" in text and os.fsencode(tmp_path) in text:
                found.append(int(path.parent.name))
        return found

    until(analyses, lambda: f"for the analysis to begin {job.output()}")
    os.kill(job.pid, 9)
    until(lambda: not analyses(), "for the analysis to end")
    (run,) = folder.results.iterdir()
    assert json.loads((run / "KINETO" / "state.json").read_text())["state"] == "collected"


def test_a_forked_child_that_steps_watches_for_itself(tmp_path: Path, jobs: Jobs) -> None:
    script = """
import os, time
from steplens import dynamic_profile as dp
dp.init("config")
dp.step()
idle = os.fork()
if idle == 0:
    time.sleep(600)
child = os.fork()
for step in range(3 if child else 7):
    dp.step()
print(child, flush=True)
time.sleep(600)
"""
    jobs.start(sys.executable, "-c", script)
    folder = Folder(tmp_path / "config")
    until(lambda: [item.step for item in folder.processes() if item.answered] in ([4, 7], [7, 4]), folder.describe)
