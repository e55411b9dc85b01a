"""Asking a real training for a capture through the server: it records into the folder that is shown, and nowhere else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steplens.cli.view_captures import Trainings
from steplens.collect.dynamic.job import job_folder

from .conftest import DEADLINE_S, Client, Start

TRAIN = """
import sys, time
import torch
from steplens import dynamic_profile as dp

dp.init(sys.argv[1])
layer = torch.nn.Linear(8, 8)
ends = time.monotonic() + 240
while time.monotonic() < ends:
    layer(torch.randn(4, 8)).sum().backward()
    time.sleep(0.01)
    dp.step()
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, recorded: Path) -> Path:
    """A run, in whose folder a training looks for requests."""
    run = tmp_path_factory.mktemp("captured") / "run"
    shutil.copytree(recorded, run)
    (run / "requests").mkdir()
    return run


@pytest.fixture(scope="module")
def training(shown: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    script = tmp_path_factory.mktemp("training") / "train.py"
    script.write_text(TRAIN)
    state = tmp_path_factory.mktemp("state")
    kept = os.environ.get(job_folder.DIRECTORY_VARIABLE)
    os.environ[job_folder.DIRECTORY_VARIABLE] = str(state)
    running = subprocess.Popen([sys.executable, str(script), str(shown / "requests")], cwd=script.parent)
    yield running
    running.kill()
    running.wait()
    if kept is None:
        del os.environ[job_folder.DIRECTORY_VARIABLE]
    else:
        os.environ[job_folder.DIRECTORY_VARIABLE] = kept


@pytest.fixture(scope="module")
def client(serve: Start, shown: Path, recorded: Path) -> Client:
    return serve([shown, recorded])


def until(client: Client, path: str, condition: Any) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not condition(found := client.get(path)):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def test_a_capture_is_asked_for_and_arrives(client: Client, shown: Path, training: subprocess.Popen[bytes]) -> None:
    address = "/api/runs/0/captures"
    found = until(client, address, lambda one: one["processes"] and one["processes"][0]["eligible"])
    assert found["folder"] == str(shown / "requests")
    assert (found["processes"][0]["pid"], found["processes"][0]["rank"]) == (training.pid, -1)
    before = {path.name for path in shown.iterdir()}
    asked = client.post(address, {"steps": 3, "record": ["record_shapes"]})
    known = until(client, address, lambda one: _states(one, asked["request"]) == {"done"})
    (request,) = [one for one in known["processes"][0]["requests"] if one["id"] == asked["request"]]
    assert request["last_step"] - request["first_step"] == 3
    result = Path(request["result"])
    assert result.parent == shown and result.name not in before
    until(
        client,
        address,
        lambda one: [r["analysed"] for r in one["processes"][0]["requests"] if r["id"] == asked["request"]] == [True],
    )
    # the page sees that there is more, and reads it
    assert client.get("/api/runs/0/live")["changed"]
    traces = len(client.get("/api/runs/0/ranks"))
    client.post("/api/runs/0/reopen", {})
    until(client, "/api/runs/0/ranks", lambda one: len(one) == traces + 1)
    arrived = [one for one in client.get("/api/runs/0/ranks") if one["path"] == str(result)]
    assert arrived[0]["tables"]["steps"] == 3


def _states(found: Any, request: str) -> set[str]:
    return {one["state"] for process in found["processes"] for one in process["requests"] if one["id"] == request}


def test_a_folder_that_nobody_watches_is_left_alone(client: Client, recorded: Path) -> None:
    before = sorted(path.name for path in recorded.rglob("*"))
    assert client.get("/api/runs/1/captures") == {"folder": None, "processes": []}
    problem = client.ask("/api/runs/1/captures", method="POST", body=b"{}")
    assert problem.status == 409 and "PROF_CONFIG_PATH" in problem.json["remedy"]
    assert sorted(path.name for path in recorded.rglob("*")) == before


@pytest.mark.parametrize(
    "body",
    [{"steps": 0}, {"steps": 1001}, {"record": ["everything"]}, {"prof_dir": "/tmp"}, {"ranks": [-1]}, {"warmup": "many"}, []],
)
def test_wrong_wishes_are_refused(client: Client, body: Any) -> None:
    client.post("/api/runs/0/captures", body, expect=422)


def test_only_the_page_may_ask(client: Client, shown: Path) -> None:
    body = json.dumps({"steps": 1}).encode()
    request = shown / "requests" / job_folder.REQUEST_FILE
    before = request.read_bytes() if request.exists() else None
    assert client.ask("/api/runs/0/captures", method="POST", body=body, token=None).status == 401
    foreign = {"Origin": "http://example.com"}
    assert client.ask("/api/runs/0/captures", method="POST", body=body, headers=foreign).status == 403
    assert (request.read_bytes() if request.exists() else None) == before


def test_a_link_to_another_folder_is_not_followed(serve: Start, recorded: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / job_folder.CONFIGURATION_FILE).write_text("{}")
    run = tmp_path / "run"
    shutil.copytree(recorded, run)
    (run / "requests").symlink_to(elsewhere)
    assert Trainings().folder(run) is None
    (run / job_folder.CONFIGURATION_FILE).symlink_to(elsewhere / job_folder.CONFIGURATION_FILE)
    client = serve([run])
    assert client.ask("/api/runs/0/captures", method="POST", body=b"{}").status == 409
    assert sorted(path.name for path in elsewhere.iterdir()) == [job_folder.CONFIGURATION_FILE]
    assert not (run / job_folder.REQUEST_FILE).exists()
