"""The Kineto reader on recorded traces of GPUs and of a distributed CPU job, against plain sums over their JSON."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.trace.run import open_run

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "kineto"
NAMES = [
    "cpu_only_rank34",
    "cuda_alexnet",
    "cuda_nccl_distributed",
    "cuda_ns_resolution_rank0",
    "cuda_rank_missing",
    "cuda_sampled_rank0",
    "cuda_sampled_rank1",
    "rocm_mi250_minitoy",
]


@pytest.fixture(params=NAMES)
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    source = SHARED / f"{request.param}.json.gz"
    if not source.is_file():
        pytest.skip("the shared test data is not beside this checkout")
    path = tmp_path / source.name
    shutil.copy(source, path)
    data = json.loads(gzip.decompress(source.read_bytes()))
    return path, data["traceEvents"] if isinstance(data, dict) else data


def test_calls_and_tasks_are_complete(recorded: tuple[Path, list[dict[str, Any]]]) -> None:
    path, events = recorded
    run = open_run(path)
    durations = [event for event in events if event.get("ph") == "X" and isinstance(event.get("pid"), int)]
    calls = [event for event in durations if event.get("cat") in ("cpu_op", "user_annotation", "Operator")]
    tasks = [
        event for event in durations if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
    ]
    trace = run.trace()
    assert (trace.ops.height if trace.ops is not None else 0) == len(calls)
    if tasks:
        assert trace.kernels.height == len(tasks)
        assert trace.has_accelerator
        total_us = float((trace.kernels["end_ns"] - trace.kernels["start_ns"]).sum()) / 1000
        assert total_us == pytest.approx(sum(event["dur"] for event in tasks), rel=1e-9, abs=len(tasks) * 5e-4)
    else:
        assert trace.kernels is None or not trace.has_accelerator
    if calls:
        self_ns = trace.ops["self_ns"].sum()
        roots = trace.ops.filter(pl.col("parent").is_null())
        # what is nested adds up to its root, exactly, wherever nesting is proper
        assert self_ns == (roots["end_ns"] - roots["start_ns"]).sum()


def test_every_question_has_an_answer(recorded: tuple[Path, list[dict[str, Any]]]) -> None:
    path, _ = recorded
    run = open_run(path)
    steps = run.steps()
    phases = ["data_wait_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns"]
    assert (steps.select(pl.sum_horizontal(phases)).to_series() == steps["duration_ns"]).all()
    assert steps.select(pl.all_horizontal(pl.col(*phases, "computing_ns", "communication_ns", "free_ns") >= 0).all()).item()
    for by in ("name", "shape", "stack", "module"):
        run.operators(by=by)
    run.memory()
    assert set(run.health()["severity"].to_list()) <= {"info", "warning", "error"}


def test_device_times_equal_brute_force(recorded: tuple[Path, list[dict[str, Any]]]) -> None:
    path, _ = recorded
    run = open_run(path)
    trace = run.trace()
    if not trace.has_accelerator or trace.steps is None:
        assert run.steps().height == (0 if trace.steps is None else trace.steps.height)
        return
    tasks = trace.kernels.select("start_ns", "end_ns", "step", pl.col("name", "type").cast(pl.String)).rows(named=True)
    for row in run.steps().iter_rows(named=True):
        computing, communication = [], []
        for task in tasks:
            if task["step"] == row["step"] and not (task["type"] or "").startswith("Mem"):
                (communication if "nccl" in task["name"].lower() else computing).append((task["start_ns"], task["end_ns"]))
        assert row["computing_ns"] == covered(computing)
        assert row["communication_ns"] == covered(communication)
        assert row["overlapped_ns"] == covered(computing) + covered(communication) - covered(computing + communication)
    if "nccl" in path.name or "sampled" in path.name:
        assert run.steps()["communication_ns"].sum() > 0
    if "nccl" in path.name:
        size = {"Float": 4, "Int": 4, "Long": 8}
        sent = [event["args"] for event in recorded[1] if "nccl" in str(event.get("name")) and event.get("cat") == "kernel"]
        assert trace.communication["bytes"].sum() == sum(args["In msg nelems"] * size[args["dtype"]] for args in sent)
        assert set(trace.communication["ranks"]) == {2}
        assert set(trace.communication["kind"].cast(pl.String)) == {"collective"}


def covered(intervals: list[tuple[int, int]]) -> int:
    """Length of the union, by walking along the sorted intervals."""
    total, reach = 0, 0
    for start, end in sorted(intervals):
        total += max(end - max(start, reach), 0)
        reach = max(reach, end)
    return total
