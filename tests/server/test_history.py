"""A folder of versions in the browser: its history, two of its versions opened, and a folder of baselines, which holds no run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import steplens
from steplens.comparison.baselines.baseline import encode_baseline
from steplens.comparison.measure import measure_side

from .conftest import DEADLINE_S, Start


def event(name: str, start_us: float, duration_us: float, category: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": 7, "ts": start_us, "dur": duration_us, "args": {}}


def write_version(folder: Path, mm_us: float, first_us: float) -> None:
    """Eight steps of forward and backward, of which a matrix product takes so long."""
    events, begin = [], first_us
    for step in range(8):
        length = 6000 + mm_us + step % 3
        events += [
            event(f"ProfilerStep#{step}", begin, length - 1, "user_annotation"),
            event("aten::mm", begin + 100, mm_us - 1),
            event("autograd::engine::evaluate_function: MmBackward0", begin + 200 + mm_us, 3000),
            event("Optimizer.step#SGD.step", begin + 3400 + mm_us, 1000, "user_annotation"),
            event("aten::add_", begin + 3450 + mm_us, 900),
        ]
        begin += length
    folder.mkdir(parents=True)
    (folder / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, "pid": first_us}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("versions")
    for number in range(9):
        write_version(top / f"v{number}", 5000 if number >= 4 else 4000 + number % 2, 1000 + 1_000_000 * number)
    return top


def test_the_history_of_a_folder(serve: Start, folder: Path) -> None:
    client = serve([folder])
    (run,) = client.get("/api/session")["runs"]
    assert run["versions"] == 9
    found = client.get("/api/runs/0/history")
    assert [version["name"] for version in found["versions"]] == [f"v{number}" for number in range(9)]
    step = found["figures"][0]
    assert step["figure"] == "step" and step["unit"] == "ns" and step["versions"] == list(range(9))
    assert [change["version"] for change in step["changes"]] == [4] and step["changes"][0]["ratio"] == pytest.approx(
        0.1, abs=0.002
    )

    pair = client.ask("/api/runs/0/history/opened?before=3&after=4", method="POST").json
    assert pair == {"before": 1, "after": 2}
    # opened once, however often
    assert client.ask("/api/runs/0/history/opened?before=4&after=3", method="POST").json == {"before": 2, "after": 1}
    deadline = time.monotonic() + DEADLINE_S
    while any(run["progress"]["state"] != "ready" for run in client.get("/api/session")["runs"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    steps = client.get("/api/compare/steps", before=1, after=2)
    parts = steps["before"]["parts"]
    mm = next(part for part in parts if part["name"] == "aten::mm")
    same = steps["after"]["parts"][mm["match"]]
    assert same["name"] == "aten::mm" and same["end_ns"] - same["start_ns"] == pytest.approx(
        mm["end_ns"] - mm["start_ns"] + 1e6, rel=0.01
    )
    phases = [part["name"] for part in parts if part["kind"] == "phase"]
    assert phases == ["forward", "backward", "optimizer"] and all(part["match"] >= 0 for part in parts)
    assert client.ask("/api/runs/0/history/opened?before=0&after=99", method="POST").status == 404


def test_a_folder_of_baselines_has_a_history_and_no_run(serve: Start, folder: Path, tmp_path: Path) -> None:
    for place in sorted(folder.iterdir()):
        if place.name.startswith("v"):
            (tmp_path / f"{place.name}.baseline").write_bytes(encode_baseline(measure_side(steplens.open(place))))
    client = serve([tmp_path])
    (run,) = client.get("/api/session")["runs"]
    assert (run["versions"], run["generation"], run["progress"]["state"]) == (9, 0, "ready")
    found = client.get("/api/runs/0/history")
    assert len(found["versions"]) == 9 and not any(version["openable"] for version in found["versions"])
    assert [change["version"] for change in found["figures"][0]["changes"]] == [4]
    refused = client.ask("/api/runs/0/history/opened?before=0&after=1", method="POST")
    assert refused.status == 409 and "only its figures" in refused.json["problem"]


def test_a_single_recording_has_no_history(serve: Start, folder: Path) -> None:
    client = serve([folder / "v0"])
    assert client.get("/api/session")["runs"][0]["versions"] == 0
    refused = client.ask("/api/runs/0/history")
    assert refused.status == 409 and "a history has 2 at least" in refused.json["problem"]
