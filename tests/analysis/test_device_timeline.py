"""The whole time line of devices, against another tool's tables, raw files in plain Python, and time painted ns by ns."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import steplens
from steplens.analysis.device.device_timeline import (
    BUSY,
    COMMUNICATION,
    COMPUTING,
    COPY,
    EXPOSED_COMMUNICATION,
    EXPOSED_COPY,
    IDLE,
    TOTAL,
    device_timeline,
)
from steplens.trace.building.classify import MEMSET
from steplens.trace.schema import KIND_COMMUNICATION, KIND_COMPUTE, KIND_COPY, KIND_OTHER
from steplens.trace.trace import Trace

from ..shared_data import shared
from ..writers.builder import build

#: as TraceLens calls them
THEIRS = {
    COMPUTING: "computation_time",
    EXPOSED_COMMUNICATION: "exposed_comm_time",
    EXPOSED_COPY: "exposed_memcpy_time",
    BUSY: "busy_time",
    IDLE: "idle_time",
    TOTAL: "total_time",
    COMMUNICATION: "total_comm_time",
    COPY: "total_memcpy_time",
}
MODEL = "Falconsai_nsfw_image_detection__1016002"
RECORDED = [
    "kineto/cuda_alexnet.json.gz",
    "kineto/cuda_nccl_distributed.json.gz",
    "kineto/cuda_ns_resolution_rank0.json.gz",
    "kineto/cuda_sampled_rank0.json.gz",
    "kineto/cuda_sampled_rank1.json.gz",
    "kineto/rocm_mi250_minitoy.json.gz",
    f"tracelens/h100/{MODEL}/trace.json.gz",
    f"tracelens/mi300/{MODEL}/trace.json.gz",
    "tracelens/mi300_resnet_act_checkpoint.json.gz",
    "tracelens/vllm_graph_execution.json.gz",
]


def of_trace(trace: Trace) -> dict[str, int]:
    return dict(device_timeline(trace).select("part", "time_ns").iter_rows())


def painted(tasks: list[tuple[int, int, str]]) -> dict[str, int]:
    """The definition, ns by ns: ``tasks`` begin, end and are of a kind; of what counts only."""
    first, last = min(begin for begin, _, _ in tasks), max(end for _, end, _ in tasks)
    parts = dict.fromkeys(THEIRS, 0)
    for moment in range(first, last):
        running = {kind for begin, end, kind in tasks if begin <= moment < end}
        parts[COMMUNICATION] += KIND_COMMUNICATION in running
        parts[COPY] += KIND_COPY in running
        if KIND_COMPUTE in running:
            parts[COMPUTING] += 1
        elif KIND_COMMUNICATION in running:
            parts[EXPOSED_COMMUNICATION] += 1
        elif KIND_COPY in running:
            parts[EXPOSED_COPY] += 1
        parts[BUSY if running else IDLE] += 1
        parts[TOTAL] += 1
    return parts


TASKS = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(0, 25),
        st.sampled_from([KIND_COMPUTE, KIND_COMMUNICATION, KIND_COPY, KIND_OTHER, MEMSET]),
        st.booleans(),
    ),
    min_size=1,
    max_size=14,
)


@given(TASKS)
def test_parts_are_what_is_painted(drawn: list[tuple[int, int, str, bool]]) -> None:
    rows = [
        {
            "name": kind,
            "start_ns": start,
            "end_ns": start + length,
            "kind": KIND_COPY if kind == MEMSET else kind,
            "category": kind,
            "core": "CUDA",
            "launch_ns": start - 1 if launched else None,
            "device": number % 2,
            "stream": number % 3,
        }
        for number, (start, length, kind, launched) in enumerate(drawn)
    ]
    busy = [one for one in drawn if one[2] != KIND_OTHER]
    # where no launch is known at all, every task counts
    counted = [one for one in busy if one[3]] or busy
    tasks = [(start, start + length, KIND_COMPUTE if kind == MEMSET else kind) for start, length, kind, _ in counted]
    found = device_timeline(build(kernels=rows))
    assert dict(found.select("part", "time_ns").iter_rows()) == (painted(tasks) if tasks else {})
    for _, time, share in found.iter_rows():
        total = of_trace(build(kernels=rows))[TOTAL]
        assert share == (pytest.approx(100 * time / total) if total else None)


@pytest.mark.parametrize("device", ["h100", "mi300"])
def test_figures_are_those_of_tracelens(device: str, tmp_path: Path) -> None:
    folder = shared("tracelens", device, MODEL)
    with (folder / "gpu_timeline.csv").open(newline="") as handle:
        theirs = {row["type"]: row for row in csv.DictReader(handle)}
    capture = shutil.copyfile(folder / "trace.json.gz", tmp_path / "trace.json.gz")
    for part, time, share in steplens.open(capture).device_timeline().iter_rows():
        their = theirs.pop(THEIRS[part])
        assert time / 1e6 == pytest.approx(float(their["time ms"]), rel=1e-5), part
        assert share == pytest.approx(float(their["percent"]), rel=1e-5), part
    assert theirs == {}


def union_us(intervals: list[tuple[float, float]]) -> float:
    length, behind = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        if end > behind:
            length += end - max(begin, behind)
            behind = end
    return length


@pytest.mark.parametrize("name", RECORDED)
def test_figures_of_recorded_traces_are_those_of_their_events(name: str, tmp_path: Path) -> None:
    """By inclusion and exclusion of unions, in microseconds, over what the raw file calls a task and a launch."""
    capture = Path(shutil.copyfile(shared(*name.split("/")), tmp_path / "trace.json.gz"))
    events: list[dict[str, Any]] = [
        event for event in json.loads(gzip.decompress(capture.read_bytes()))["traceEvents"] if event.get("ph") == "X"
    ]
    launched = {
        event["args"].get("correlation")
        for event in events
        if str(event.get("cat")).lower() in ("cuda_runtime", "cuda_driver", "runtime", "hip_runtime")
    } - {None, 0}
    sets: dict[str, list[tuple[float, float]]] = {KIND_COMPUTE: [], KIND_COMMUNICATION: [], KIND_COPY: []}
    for event in events:
        category = str(event.get("cat")).lower()
        if category not in ("kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset"):
            continue
        if event["args"].get("correlation") not in launched:
            continue
        communicates = category == "kernel" and ("nccl" in event["name"].lower() or "rccl" in event["name"].lower())
        copies = category.endswith("memcpy") or event["name"].startswith(("__amd_rocclr_copyBuffer", "CopyBuffer"))
        kind = KIND_COMMUNICATION if communicates else KIND_COPY if copies else KIND_COMPUTE
        sets[kind].append((float(event["ts"]), float(event["ts"]) + float(event["dur"])))
    computing, communication, copies_of = (sets[kind] for kind in (KIND_COMPUTE, KIND_COMMUNICATION, KIND_COPY))
    every = computing + communication + copies_of
    together = union_us(computing + communication)
    expected = {
        COMPUTING: union_us(computing),
        EXPOSED_COMMUNICATION: together - union_us(computing),
        EXPOSED_COPY: union_us(every) - together,
        BUSY: union_us(every),
        TOTAL: max(end for _, end in every) - min(begin for begin, _ in every),
        COMMUNICATION: union_us(communication),
        COPY: union_us(copies_of),
    }
    expected[IDLE] = expected[TOTAL] - expected[BUSY]
    found = of_trace(steplens.open(capture).traces[0])
    # doubles of Unix microseconds are 0.25 us apart, and unions have many borders
    slack = dict.fromkeys(expected, 0.001 * expected[TOTAL] * 1000)
    for part, time in expected.items():
        assert found[part] == pytest.approx(time * 1000, rel=1e-3, abs=min(slack[part], 50_000)), part


def test_a_trace_without_tasks_has_no_time_line() -> None:
    assert device_timeline(build()).is_empty()
    lost = {"name": "sum", "start_ns": 5, "end_ns": 5, "kind": KIND_COMPUTE, "core": "CUDA"}
    assert device_timeline(build(kernels=[lost]))["percent"].to_list() == [None] * 8
