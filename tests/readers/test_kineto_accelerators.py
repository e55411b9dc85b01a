"""Kineto traces of accelerators beside CUDA and ROCm: MTIA, XPU, HPU, backends of one's own, and what nobody knows yet.

The categories are those of Kineto's activity types (``mtia_ccp_events``, ``mtia_runtime``, ``xpu_runtime``, ``hpu_op``,
``privateuse1_runtime``) and of backends that add their own (``gcu_memcpy``, ``mlu_user_annotation``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.advice.advice import advise
from steplens.analysis.steps.times import step_times
from steplens.readers.kineto.kineto_accelerators import accelerator_name, device_label
from steplens.trace.building.devices import device_kind, device_names
from steplens.trace.schema import KIND_COMMUNICATION, KIND_COMPUTE, KIND_COPY, KIND_OTHER

from .test_gpu_traces import HOST, Event, checks, event, op, read, texts


def label(pid: int, text: str) -> Event:
    return {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "ts": 0, "args": {"labels": text}}


def call(category: str, name: str, at: float, length: float, correlation: int, **args: Any) -> Event:
    return event(category, name, at, length, **{"External id": 0, "correlation": correlation, **args})


def task(category: str, name: str, at: float, length: float, correlation: int, pid: int = 3, tid: int = 7, **args: Any) -> Event:
    return event(category, name, at, length, pid, tid, **{"correlation": correlation, **args})


def host(runtime: str) -> list[Event]:
    """A step with two operators, each of which launches something."""
    return [
        label(HOST, "CPU"),
        event("user_annotation", "ProfilerStep#4", 0, 1000),
        op("aten::mm", 10, 200, 1),
        call(runtime, "submit", 50, 20, 11),
        op("aten::relu", 300, 100, 2),
        call(runtime, "submit", 320, 20, 12),
    ]


def kinds(trace: Any) -> list[tuple[Any, ...]]:
    return texts(trace, "name", "kind", "core", "device", "stream")


def test_mtia(tmp_path: Path) -> None:
    """Tasks of the device in its own category, in a process that nothing labels; the CPU stands in for none of them."""
    events = [*host("mtia_runtime"), task("mtia_ccp_events", "bmm", 100, 300, 11), task("mtia_ccp_events", "relu", 500, 50, 12)]
    trace = read(tmp_path, events)
    assert kinds(trace) == [("bmm", KIND_COMPUTE, "MTIA", 3, 7), ("relu", KIND_COMPUTE, "MTIA", 3, 7)]
    ops = trace.ops
    assert ops is not None and trace.kernels is not None
    assert [ops["name"].cast(str)[row] for row in trace.kernels["op"]] == ["aten::mm", "aten::relu"]
    assert step_times(trace)["computing_ns"].to_list() == [350_000]
    assert (device_kind(trace), device_names(trace), trace.has_accelerator) == ("MTIA", ["MTIA 3"], True)
    assert trace.api is not None and trace.api["layer"].cast(str).unique().to_list() == ["mtia_runtime"]
    assert "unused_categories" not in checks(trace)


@pytest.mark.parametrize(
    ("runtime", "text", "core"),
    [
        ("xpu_runtime", "XPU 3", "XPU"),
        ("xpu_runtime", "GPU 3", "XPU"),
        ("privateuse1_runtime", "MUSA 3", "MUSA"),
        ("privateuse1_driver", "GPU 3", "PRIVATEUSE1"),
        ("gcu_runtime", "GPU 3", "GCU"),
        ("cuda_runtime", "GPU 3", "CUDA"),
    ],
)
def test_kernels_of_other_runtimes_are_of_their_device(tmp_path: Path, runtime: str, text: str, core: str) -> None:
    tasks = [task("kernel", "gemm", 100, 300, 11), task("gpu_memcpy", "Memcpy DtoH", 500, 50, 12)]
    trace = read(tmp_path, [*host(runtime), label(3, text), *tasks])
    assert kinds(trace) == [("gemm", KIND_COMPUTE, core, 3, 7), ("Memcpy DtoH", KIND_COPY, core, 3, 7)]
    assert device_kind(trace) == core


def test_a_category_that_nobody_knows_is_placed_by_what_it_says(tmp_path: Path) -> None:
    """By device and stream, by the launch it answers to, by the label of its process; else health names it."""
    events = [
        *host("acme_runtime"),
        label(9, "ACME 5"),
        task("acme_tile", "labelled", 100, 10, 0, pid=9, tid=1),
        task("acme_tile", "answers", 120, 10, 12, pid=40, tid=2),
        task("acme_tile", "says so", 140, 10, 0, pid=40, tid=2, device=1, stream=6),
        task("acme_tile", "on a lane of the host", 160, 10, 0, pid=HOST, tid=77, device=1, stream=6),
        task("acme_memcpy", "copy", 180, 10, 0, pid=9, tid=1),
        task("acme_sync", "wait", 190, 10, 0, pid=9, tid=1),
        task("collective_comm", "all", 200, 10, 0, pid=9, tid=1),
        task("acme_user_annotation", "## forward ##", 100, 50, 0, pid=9, tid=1),
        task("acme_notes", "of the host", 10, 5, 12, pid=HOST, tid=HOST),
        task("acme_notes", "nowhere", 10, 5, 0, pid=41, tid=1),
    ]
    trace = read(tmp_path, events)
    assert sorted(kinds(trace)) == sorted(
        [
            ("labelled", KIND_COMPUTE, "ACME", 5, 1),
            ("answers", KIND_COMPUTE, "ACME", 40, 2),
            ("says so", KIND_COMPUTE, "ACME", 1, 6),
            ("on a lane of the host", KIND_COMPUTE, "ACME", 1, 6),
            ("copy", KIND_COPY, "ACME", 5, 1),
            ("wait", KIND_OTHER, "ACME", 5, 1),
            ("all", KIND_COMMUNICATION, "ACME", 5, 1),
        ]
    )
    assert texts(trace, "domain", "message", table="marks") == [("acme_user_annotation", "## forward ##")]
    unused = trace.required("health").collect().row(by_predicate=pl.col("check") == "unused_categories", named=True)
    assert (unused["count"], "acme_notes (2)" in unused["message"]) == (2, True)
    assert device_names(trace) == ["ACME 1", "ACME 5", "ACME 40"]


@pytest.mark.parametrize(
    "lost",
    [
        [call("xpu_runtime", "urEnqueueKernelLaunch", 50, 20, 11)],
        [call("mtia_runtime", "submit", 50, 20, 11)],
        [{"ph": "i", "name": "[memory]", "pid": HOST, "tid": HOST, "ts": 5.0, "s": "t",
          "args": {"Addr": 1, "Bytes": 64, "Device Id": 0, "Device Type": 19, "Total Allocated": 64, "Total Reserved": 64}}],
    ],
)  # fmt: skip
def test_the_cpu_does_not_stand_in_for_an_accelerator_without_tasks(tmp_path: Path, lost: list[Event]) -> None:
    trace = read(tmp_path, [event("user_annotation", "ProfilerStep#4", 0, 1000), op("aten::mm", 10, 200, 1), *lost])
    assert trace.kernels is None
    assert "device_not_recorded" in checks(trace)


def test_a_run_on_a_cpu_stays_one(tmp_path: Path) -> None:
    trace = read(tmp_path, [label(HOST, "CPU"), op("aten::mm", 10, 200, 1), event("trace", "PyTorch Profiler (0)", 0, 900, 0, 0)])
    assert (device_kind(trace), checks(trace)) == ("CPU", {})


def test_everything_works_on_another_accelerator(tmp_path: Path) -> None:
    """Commands and advice: no rule for GPUs, no optimizer that nobody can fuse."""
    wrapper = [event("user_annotation", "Optimizer.step#CombinedOptimizer.step", 600, 390)]
    names = ("aten::mul_", "aten::addcmul_", "aten::sqrt", "aten::div_")
    calls = [op(names[number % 4], 600 + 8 * number, 7, 100 + number) for number in range(48)]
    events = [*host("mtia_runtime"), *wrapper, *calls, task("mtia_ccp_events", "bmm", 100, 300, 11, stream=7, device=3)]
    once = [item for item in events if item["ph"] == "X"]
    for number in range(1, 4):
        later = [{**item, "ts": item["ts"] + 1000 * number} for item in once]
        events += [{**item, "name": item["name"].replace("ProfilerStep#4", f"ProfilerStep#{4 + number}")} for item in later]
    read(tmp_path, events)
    run = steplens.open(tmp_path / "trace.json")
    assert "single_tensor_optimizer" not in [found.rule for found in advise(run).findings]
    assert run.kernels().height and run.device_time().height and run.idle().height
    known = [item if item["name"] != wrapper[0]["name"] else {**item, "name": "Optimizer.step#Adam.step"} for item in events]
    read(tmp_path, known, "known.json")
    known_run = steplens.open(tmp_path / "known.json")
    assert "single_tensor_optimizer" in [found.rule for found in advise(known_run).findings]


def test_names() -> None:
    assert accelerator_name(["hpu_op"], ["hpu_runtime"], ["CPU"]) == "HPU"
    assert accelerator_name(["kernel"], ["cuda_runtime", "overhead"], ["GPU 0"]) == "CUDA"
    assert device_label("CPU") is None and device_label("CPU 0") is None
    assert device_label("MTIA 12") is not None
