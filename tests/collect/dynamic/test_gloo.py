"""A job of torchrun with gloo: three ranks train together, a fourth never steps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from steplens.collect.dynamic.job import job_folder

from ... import light_optimizer
from .jobs import Folder, Job, Jobs, until
from .test_pytorch import profiler_steps

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

TRAIN = f"""
import os, pathlib, time, torch
import torch.distributed as dist
{light_optimizer.SGD}
torch.set_num_threads(1)
dist.init_process_group("gloo")
trainers = dist.new_group([0, 1, 2])
if dist.get_rank() == 3:
    from steplens import dynamic_profile as dp
    dp.init(os.environ["PROF_CONFIG_PATH"])
    while True:
        time.sleep(1)
model = torch.nn.Linear(8, 4, bias=False)
optimizer = SGD(model.parameters(), lr=0.1)
while True:
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    dist.all_reduce(model.weight.grad, group=trainers)
    optimizer.step()
    time.sleep(0.01)
"""


@pytest.fixture
def job(tmp_path: Path, jobs: Jobs, folder: Folder) -> Job:
    (tmp_path / "train.py").write_text(TRAIN)
    torchrun = Path(sys.executable).with_name("torchrun")
    # with a port that torchrun finds itself: one that was free a moment ago may be taken
    command = (sys.executable, torchrun, "--standalone", "--nproc_per_node", 4, "train.py")
    started = jobs.start(*command, env={"PROF_CONFIG_PATH": str(folder.path)})

    def ready() -> bool:
        found = folder.processes()
        return sum(item.step is not None for item in found) == 3 and len(found) == 4

    until(ready, lambda: f"for three ranks\n{folder.describe()}\n{started.output()}")
    return started


def steplens(*arguments: object, expect: int = 0) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "steplens", *map(str, arguments), "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_trigger_and_status(job: Job, folder: Folder) -> None:
    before = steplens("status", folder.path)["processes"]
    assert [(item["rank"], item["world_size"], item["eligible"]) for item in before] == [
        (0, 4, True),
        (1, 4, True),
        (2, 4, True),
        (3, 4, False),
    ]
    assert before[3]["why_not"] == "dp.step() was never called"
    # the launcher imports PyTorch too, and is none of them
    assert job.pid not in [item["pid"] for item in before]

    sets, delays_ns = [], []
    for steps, warmup in ((3, 0), (2, 1)):
        found = steplens("trigger", folder.path, "--steps", steps, "--warmup", warmup, "--prof-dir", folder.results)
        id = found["request"]
        # who never steps is not waited for, and looks at the request in its own time
        until(
            lambda id=id: len(folder.processes()) == 4 and all(item.request(id) for item in folder.processes()), folder.describe
        )
        requests = [item.request(id) for item in folder.processes()]
        assert [request["state"] for request in requests] == ["done", "done", "done", "seen"]
        recorded = [profiler_steps(request["result"]) for request in requests[:3]]
        assert recorded[0] == recorded[1] == recorded[2]
        assert len(recorded[0]) == steps
        asked_ns = json.loads((folder.path / job_folder.REQUEST_FILE).read_text())["time_ns"]
        delays_ns.append(max(request["began_ns"] for request in requests) - asked_ns)
        sets.append(recorded[0])
    # the better one of two: a busy machine may hold up one
    assert min(delays_ns) < 10e9
    assert sets[0][-1] < sets[1][0]

    id = steplens("trigger", folder.path, "--rank", "1-2", "--prof-dir", folder.results)["request"]
    expected = ["refused", "done", "done", "refused"]
    until(lambda: [(item.request(id) or {}).get("state") for item in folder.processes()] == expected, folder.describe)


def test_a_killed_rank_leaves_no_process_and_no_stuck_state(job: Job, folder: Folder) -> None:
    folder.edit(active=10**6)
    until(lambda: [item.state for item in folder.processes()] == ["recording"] * 3 + ["waiting"], folder.describe)
    pids = [item.process.pid for item in folder.processes()]
    os.kill(pids[1], signal.SIGKILL)
    job.process.wait(timeout=180)
    until(lambda: not any(item.alive for item in folder.processes()), lambda: f"for the end\n{folder.describe()}")
    found = folder.processes()
    assert found[1].state == "killed"
    # the others end with the broken connection, or torchrun ends them, whichever comes first
    assert {item.state for item in found} <= {"killed", "exited"}
    for item in found[:3]:
        run = Path(item.requests[0]["result"])
        saved = json.loads((run / "KINETO" / "state.json").read_text())["state"]
        assert saved == "collected" if item.requests[0]["state"] == "done" else saved in ("collected", "recording")
