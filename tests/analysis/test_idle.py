"""Causes of idle time: against a loop over single nanoseconds, and in recorded traces against the idle time of their steps."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import steplens
from steplens.analysis.device import idle
from steplens.analysis.device.idle import CAUSES, idle_after, idle_causes
from steplens.analysis.steps.device import device_periods
from steplens.analysis.steps.times import step_times
from steplens.trace.schema import DATALOADER_PREFIX, SCOPE_USER
from steplens.trace.trace import Trace

from ..shared_data import shared
from ..writers.builder import build

STEP = 2000
#: later than any time
NEVER = 1 << 62


def random_trace(seed: int) -> Trace:
    """Two steps of 2 us with tasks, calls and copies of tens of ns anywhere."""
    numbers = random.Random(seed)
    kernels: list[dict[str, Any]] = []
    ops: list[dict[str, Any]] = []
    api: list[dict[str, Any]] = []
    gc: list[dict[str, Any]] = []

    def span(step: int, longest: int = 60) -> dict[str, int]:
        start = step * STEP + numbers.randrange(STEP - 100)
        return {"start_ns": start, "end_ns": start + numbers.randrange(1, longest)}

    for step in (0, 1):
        for _ in range(14):
            times = span(step)
            launch = numbers.choice([None, times["start_ns"] - numbers.randrange(300)])
            kernels.append(
                {
                    "name": "k",
                    "kind": "compute",
                    "core": "CUDA",
                    "device": 0,
                    "stream": 7,
                    "step": step,
                    "launch_ns": launch,
                    **times,
                }
            )
        for _ in range(3):
            kernels.append(
                {"name": "Memcpy", "kind": "copy", "core": "CUDA", "device": 0, "stream": 8, "step": step, **span(step)}
            )
        for _ in range(2):
            wait = {"name": "EVENT_WAIT", "kind": "other", "core": "CUDA", "device": 0, "stream": numbers.choice([7, 9])}
            kernels.append({**wait, "step": step, **span(step, 120)})
        host = {"pid": 1, "tid": 1, "depth": 0, "parent": -1}
        for _ in range(4):
            ops.append({"name": "aten::mm", "scope": 0, **host, **span(step, 200)})
            api.append(
                {
                    "name": numbers.choice(["cudaMalloc", "cudaStreamSynchronize", "cudaLaunchKernel"]),
                    **span(step),
                    "pid": 1,
                    "tid": 1,
                }
            )
        ops.append({"name": f"{DATALOADER_PREFIX}_Iter", "scope": SCOPE_USER, **host, **span(step, 200)})
        gc.append({**span(step), "pid": 1, "tid": 1})
    steps = [{"id": step, "start_ns": step * STEP, "end_ns": (step + 1) * STEP, "pid": 1, "tid": 1} for step in (0, 1)]
    return build(ops=ops, api=api, gc=gc, kernels=kernels, steps=steps)


def by_hand(trace: Trace) -> dict[tuple[int, str], int]:
    """The causes of every single nanosecond of the device periods in which no stream works."""

    def covers(rows: list[dict[str, Any]], time: int) -> bool:
        return any(row["start_ns"] <= time < row["end_ns"] for row in rows)

    tasks, ops, api, gc = (trace.table(name).to_dicts() for name in ("kernels", "ops", "api", "gc"))
    kernels = [row for row in tasks if row["kind"] != "other"]
    # a stream on which nothing but waits is, does no work that could be late
    waits = [row for row in tasks if row["kind"] == "other" and row["stream"] != 9]
    starts = sorted({row["start_ns"] for row in kernels})
    found: dict[tuple[int, str], int] = {}
    for period in device_periods(trace).filter("recorded").iter_rows(named=True):
        for time in range(period["start_ns"], period["end_ns"]):
            if covers(kernels, time):
                continue
            begin = max((row["end_ns"] for row in kernels if row["end_ns"] <= time), default=-1)
            following = next((start for start in starts if start > time), None)
            launches = [row["launch_ns"] for row in kernels if row["start_ns"] == following and row["launch_ns"] is not None]
            launch = NEVER if following is None else min(launches, default=None)
            if launch is None:
                cause = idle.UNKNOWN
            elif launch <= begin:
                before = {row["stream"] for row in kernels if row["end_ns"] == begin}
                behind = {row["stream"] for row in kernels if row["start_ns"] == following}
                cut = range(max(begin, period["start_ns"]), min(following, period["end_ns"]))
                is_plain = before & behind and 2 * sum(covers(waits, at) for at in cut) < len(cut)
                cause = idle.BETWEEN_KERNELS if is_plain else idle.DEPENDENCY
            elif time >= launch:
                cause = idle.LAUNCH
            elif covers(gc, time):
                cause = idle.GARBAGE_COLLECTION
            elif covers([row for row in ops if row["name"].startswith(DATALOADER_PREFIX)], time):
                cause = idle.DATA
            elif covers([row for row in api if "Sync" in row["name"]], time):
                cause = idle.SYNCHRONIZATION
            elif covers([row for row in api if "Malloc" in row["name"]], time):
                cause = idle.ALLOCATION
            elif covers([row for row in ops if row["name"] == "aten::mm"] + api, time):
                cause = idle.CALLS
            else:
                cause = idle.PYTHON
            found[period["step"], cause] = found.get((period["step"], cause), 0) + 1
    return found


@pytest.mark.parametrize("seed", range(12))
def test_against_single_nanoseconds(seed: int) -> None:
    trace = random_trace(seed)
    found = idle_causes(trace)
    assert {(step, cause): length for step, cause, length in found.iter_rows()} == by_hand(trace)
    order = [(step, CAUSES.index(cause)) for step, cause, _ in found.iter_rows()]
    assert order == sorted(order)


def test_all_causes_occur() -> None:
    assert {cause for seed in range(12) for cause in idle_causes(random_trace(seed))["cause"]} == {*CAUSES} - {idle.NOT_RECORDED}


def without_host(trace: Trace) -> Trace:
    """The trace of a capture without operators of the host."""
    return Trace(Path("x"), {name: frame for name in trace if name != "ops" and (frame := trace.table(name)) is not None})


def test_without_operators_of_the_host_nobody_says_that_python_ran() -> None:
    trace = random_trace(1)
    sums = dict(idle_causes(without_host(trace)).group_by("cause").agg(pl.col("idle_ns").sum()).iter_rows())
    assert idle.PYTHON not in sums and sums[idle.NOT_RECORDED] > 0
    assert sum(sums.values()) == idle_causes(trace)["idle_ns"].sum()


def test_long_gaps_of_a_stream_are_no_plain_ones() -> None:
    """Five queued tasks with gaps of 40 us between them, as a profiler of Ascend makes them, and one with 130 us."""
    gaps, time, kernels = (40_000, 40_000, 40_000, 40_000, 130_000), 0, []
    for gap in (*gaps, 0):
        times = {"start_ns": time, "end_ns": time + 1000, "launch_ns": 0, "step": 0}
        kernels.append({"name": "k", "kind": "compute", "core": "NPU", "device": 0, "stream": 7, **times})
        time += 1000 + gap
    trace = build(steps=[{"id": 0, "start_ns": 0, "end_ns": time, "pid": 1, "tid": 1}], kernels=kernels)
    causes = dict(idle_causes(trace).select("cause", "idle_ns").iter_rows())
    assert causes == {idle.BETWEEN_KERNELS: 160_000, idle.DEPENDENCY: 130_000}


@pytest.mark.parametrize(
    "name",
    [
        "kineto/cuda_nccl_distributed.json.gz",
        "kineto/cuda_ns_resolution_rank0.json.gz",
        "kineto/rocm_mi250_minitoy.json.gz",
        "kineto/cuda_sampled_rank0.json.gz",
        "ascend_pytorch/text_level1/rank0_ascend_pt",
        "ascend_pytorch/db_level2/rank0_ascend_pt",
    ],
)
def test_the_causes_add_up_to_the_idle_time_of_recorded_steps(name: str) -> None:
    trace = steplens.open(shared(name)).trace()
    sums = dict(idle_causes(trace).group_by("step").agg(pl.col("idle_ns").sum()).iter_rows())
    for step, idle_ns in step_times(trace).drop_nulls("idle_ns").select("step", "idle_ns").iter_rows():
        assert sums.get(step, 0) == idle_ns


@pytest.mark.parametrize("seed", range(4))
def test_the_gaps_of_a_cpu(seed: int) -> None:
    """Nothing launches its tasks, so no gap is for a launch; the causes add up to the idle time all the same."""
    trace = random_trace(seed)
    kernels = trace.table("kernels").with_columns(
        pl.lit("CPU").cast(trace.table("kernels")["core"].dtype).alias("core"), pl.lit(None, dtype=pl.Int64).alias("launch_ns")
    )
    tables = {name: trace.table(name) for name in ("ops", "api", "gc", "steps")}
    on_cpu = Trace(Path("x"), {**tables, "kernels": kernels})
    found = idle_causes(on_cpu)
    assert not {idle.LAUNCH, idle.BETWEEN_KERNELS, idle.DEPENDENCY, idle.UNKNOWN} & set(found["cause"])
    idle_ns = dict(step_times(on_cpu).select("step", "idle_ns").iter_rows())
    assert dict(found.group_by("step").agg(pl.col("idle_ns").sum()).iter_rows()) == idle_ns
    # no stream works in so many of the nanoseconds of a step
    for step, length in idle_ns.items():
        busy = {time for row in kernels.iter_rows(named=True) if row["kind"] != "other"
                for time in range(row["start_ns"], row["end_ns"])}  # fmt: skip
        assert length == sum(time not in busy for time in range(step * STEP, (step + 1) * STEP))


def test_a_trace_without_tasks_has_no_idle_time() -> None:
    assert idle_causes(build()).is_empty()


@pytest.mark.parametrize("seed", range(6))
def test_the_gap_after_a_wait(seed: int) -> None:
    trace = random_trace(seed)
    tasks = trace.table("kernels").filter(pl.col("kind").cast(pl.String) == "compute").to_dicts()
    times = sorted(random.Random(seed).randrange(2 * STEP) for _ in range(40))
    seen: set[int] = set()
    for time, gap in zip(times, idle_after(trace, np.array(times)).tolist(), strict=True):
        before = [task for task in tasks if task["start_ns"] <= time]
        after = [task["start_ns"] for task in tasks if task["start_ns"] > time]
        expected = 0
        if before and after and min(after) not in seen:
            seen.add(min(after))
            expected = max(min(after) - max(task["end_ns"] for task in before), 0)
        assert gap == expected
    assert idle_after(build(), np.array([5, 6])).tolist() == [0, 0]
    assert idle_after(trace, np.array([], dtype=np.int64)).tolist() == []


def test_a_gap_has_the_launch_of_the_task_whatever_starts_with_it() -> None:
    """A task and an operation that start at once: nobody knows who launched the operation, so the task says."""
    times = {"start_ns": 900, "end_ns": 1000, "step": 0}
    compute = {"kind": "compute", "core": "CUDA", "device": 0, "stream": 7, "step": 0}
    trace = build(
        steps=[{"id": 0, "start_ns": 0, "end_ns": 2000, "pid": 1, "tid": 1}],
        kernels=[
            {"name": "a", "start_ns": 0, "end_ns": 100, "launch_ns": 0, **compute},
            {"name": "b", **times, "launch_ns": 600, **{key: compute[key] for key in ("kind", "core", "device", "stream")}},
        ],
        communication=[{"name": "all_reduce", "kind": "collective", **times}],
    )
    assert dict(idle_causes(trace).select("cause", "idle_ns").iter_rows()) == {idle.NOT_RECORDED: 500, idle.LAUNCH: 300}
