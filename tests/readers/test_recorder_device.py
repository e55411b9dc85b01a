"""Recordings in two halves, the recorder's of the host and Kineto's of a GPU: joined, they say what Kineto alone says.

The halves are made of traces that Kineto recorded on GPUs, whose numbers of operators (``External id``) are the truth: the halves
have none, and tasks find their operators by thread and time.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.common import rundir
from steplens.formats import recorder as layout
from steplens.readers.steplens_run import run_files
from steplens.trace.schema import SCOPE_USER
from steplens.trace.trace import Trace

from ..shared_data import shared
from . import recorder_files as files
from . import recorder_replay

CAPTURES = (
    "cuda_alexnet",
    "cuda_nccl_distributed",
    "cuda_ns_resolution_rank0",
    "cuda_sampled_rank0",
    "cuda_sampled_rank1",
    "rocm_mi250_minitoy",
)
#: traces of a Kineto that gave tasks the number of the range of the user around them as well
OF_RANGES = ("cuda_sampled_rank0", "cuda_sampled_rank1")


def tasks_of(trace: Trace) -> pl.DataFrame:
    """Device tasks with name, depth and start of the operator of each."""
    ops, kernels = (trace.required(name).collect() for name in ("ops", "kernels"))
    rows = kernels["op"]
    assert ops["id"].to_list() == list(range(ops.height))
    of_operator = pl.DataFrame(
        {f"op_{name}": ops[name].gather(rows) for name in ("name", "depth", "start_ns", "tid", "scope")}
    ).with_columns(pl.col("op_name").cast(pl.String))
    columns = kernels.select("id", pl.col("name", "kind").cast(pl.String), "start_ns", "end_ns", "stream", "correlation", "step")
    return pl.concat([columns, of_operator], how="horizontal")


def table(trace: Trace, name: str) -> pl.DataFrame | None:
    frame = trace.table(name)
    return None if frame is None else frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


@pytest.mark.parametrize("handles", [False, True], ids=["threads", "handles"])
@pytest.mark.parametrize("name", CAPTURES)
def test_both_halves_say_what_kineto_alone_says(name: str, handles: bool, tmp_path: Path) -> None:
    source = shared("kineto", f"{name}.json.gz")
    whole = steplens.open(shutil.copy(source, tmp_path)).trace()
    run = recorder_replay.replay(recorder_replay.load_trace(source), tmp_path / f"x{rundir.RUN_SUFFIX}", handles=handles)
    joined = steplens.open(run).trace()
    theirs, ours = tasks_of(whole), tasks_of(joined)
    of_range = (theirs["op_scope"] == SCOPE_USER) & (ours["op_scope"] != SCOPE_USER)
    # what is around such a range is an operator, whose number a later Kineto gives
    assert of_range.sum() == (10 if name in OF_RANGES else 0)
    # the replay leaves out the forward threads that tell calls of the backward pass
    theirs, ours = (tasks.filter(~of_range).drop("op_scope") for tasks in (theirs, ours))
    assert ours.height > 10 and ours.equals(theirs)
    for same in ("api", "communication", "marks", "steps"):
        left, right = table(whole, same), table(joined, same)
        assert (left is None) == (right is None), same
        if left is not None and right is not None:
            # numbers of operators and of calls are those of each reading
            columns = [
                column for column in left.columns if column not in ("external_id", "correlation", "op", "id", "launched_by")
            ]
            assert right.select(columns).equals(left.select(columns)), same
    assert joined.has_accelerator and joined.required("ops").collect().height == whole.required("ops").collect().height


def half_run(folder: Path, metadata: dict[str, Any]) -> Path:
    """A run directory with the host's half of a call of 9 us around another."""
    recording = files.Recording().add(
        files.metadata(metadata),
        files.clocks(0, 1_000_000),
        files.thread(1, 77, 5),
        files.signatures({"name": "aten::outer"}, {"name": "aten::inner"}),
        files.block(layout.THREAD_HANDLES, b"\x40\x52\x38\xf0", count=1, thread=1),
        files.calls(files.call(2_000, 5_000, 1), files.call(0, 9_000, 0)),
        files.end(2),
    )
    run = folder / f"x{rundir.RUN_SUFFIX}"
    recording.write(run / rundir.RAW_DIRECTORY / rundir.RAW_OPERATORS)
    return run


CUDA = {"config": {"common_config": {"activities": ["ProfilerActivity.CPU", "ProfilerActivity.CUDA"]}}}


def findings(run: Path) -> dict[str, str]:
    health = steplens.open(run).trace().table("health")
    return {} if health is None else dict(health.select("check", "message").rows())


def test_a_gpu_whose_half_was_not_written(tmp_path: Path) -> None:
    run = half_run(tmp_path, CUDA)
    assert "its half is not there" in findings(run)["device_not_recorded"]
    # the operators of the host are not the work of a device
    assert steplens.open(run).trace().table("kernels") is None
    assert "device_not_recorded" not in findings(half_run(tmp_path / "cpu", {}))


def test_a_half_that_cannot_be_read(tmp_path: Path) -> None:
    run = half_run(tmp_path, CUDA)
    (run / rundir.RAW_DIRECTORY / rundir.RAW_DEVICE).write_text("no JSON")
    trace = steplens.open(run).trace()
    assert "the device's half of the recording cannot be read" in findings(run)["device_not_recorded"]
    assert trace.required("ops").collect().height == 2


def device_event(category: str, at_us: float, length_us: float, *, tid: int, **args: Any) -> dict[str, Any]:
    names = {"cuda_runtime": "cudaLaunchKernel", "kernel": "gemm"}
    place = {"pid": files.PID if category == "cuda_runtime" else 0, "tid": tid, "ts": at_us, "dur": length_us}
    return {"ph": "X", "cat": category, "name": names[category], "args": args, **place}


def test_threads_by_their_handles_and_numbers_of_nobody(tmp_path: Path) -> None:
    run = half_run(tmp_path, CUDA)
    device = {"device": 0, "stream": 7}
    events = [
        # CUPTI names the thread by its handle, and a number of Kineto means another operator here
        device_event("cuda_runtime", 3, 1, tid=(1 << 32) - 0xF0385240, correlation=11, **{"External id": 1}),
        device_event("kernel", 4, 2, tid=7, correlation=11, **device, **{"External id": 1}),
        device_event("cuda_runtime", 6, 1, tid=77, correlation=12),
        device_event("kernel", 8, 2, tid=7, correlation=12, **device),
        device_event("cuda_runtime", 20, 1, tid=77, correlation=13),
        device_event("kernel", 21, 2, tid=7, correlation=13, **device),
    ]
    text = json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": files.BEGIN_NS, "traceEvents": events})
    (run / rundir.RAW_DIRECTORY / rundir.RAW_DEVICE).write_text(text)
    trace = steplens.open(run).trace()
    assert tasks_of(trace)["op_name"].to_list() == ["aten::inner", "aten::outer", None]
    assert trace.required("api").collect()["tid"].unique().to_list() == [77]
    # the file decides what the tables hold
    assert run / rundir.RAW_DIRECTORY / rundir.RAW_DEVICE in run_files.source_files(run)
