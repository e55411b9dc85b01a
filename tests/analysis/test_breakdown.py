"""Breakdowns of the device's time line, against one that is painted nanosecond by nanosecond."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.analysis.device.breakdown import communication_overlap, idle_breakdown, kind_breakdown, temporal_breakdown
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, build, kernel

KINDS = ("compute", "communication", "copy", "other")
TASKS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 60), st.integers(0, 20), st.integers(0, 2), st.integers(0, 1)), max_size=14
)
Task = tuple[str, int, int, int, int]


def traced(tasks: list[Task]) -> Trace:
    """Tasks of (kind, start, length, stream, device), in ns."""
    rows = []
    for kind, at, length, stream, device in tasks:
        times = {"start_ns": BASE_NS + at, "end_ns": BASE_NS + at + length}
        rows.append(kernel(kind, 0, 0, kind=kind, core="CUDA", stream=stream, device=device, **times))
    return build(kernels=rows)


def painted(tasks: list[Task]) -> list[set[str]]:
    """The kinds that run in each nanosecond."""
    line: list[set[str]] = [set() for _ in range(100)]
    for kind, at, length, _, _ in tasks:
        for time in range(at, at + length):
            line[time].add(kind)
    return line


@given(TASKS)
def test_temporal_breakdown(tasks: list[Task]) -> None:
    busy = [task for task in tasks if task[0] != "other"]
    found = temporal_breakdown(traced(tasks))
    if not busy:
        assert found.is_empty()
        return
    line = painted(busy)
    total = max(at + length for _, at, length, _, _ in busy) - min(at for _, at, _, _, _ in busy)
    compute = sum("compute" in kinds for kinds in line)
    occupied = sum(bool(kinds) for kinds in line)
    row = found.row(0, named=True)
    assert (row["total_ns"], row["compute_ns"]) == (total, compute)
    assert (row["non_compute_ns"], row["idle_ns"]) == (occupied - compute, total - occupied)
    if total:
        percent = row["idle_percent"] + row["compute_percent"] + row["non_compute_percent"]
        assert percent == pytest.approx(100)
    per_device = temporal_breakdown(traced(tasks), per_device=True)
    assert per_device["device"].to_list() == sorted({task[4] for task in busy})
    for device, *values in per_device.select("device", "total_ns", "idle_ns", "compute_ns", "non_compute_ns").iter_rows():
        alone = temporal_breakdown(traced([task for task in busy if task[4] == device]))
        assert list(alone.select("total_ns", "idle_ns", "compute_ns", "non_compute_ns").row(0)) == values


@given(TASKS)
def test_communication_overlap_and_kinds(tasks: list[Task]) -> None:
    busy = [task for task in tasks if task[0] != "other"]
    line = painted(busy)
    expected = Counter(" + ".join(kind for kind in KINDS if kind in kinds) for kinds in line if kinds)
    found = kind_breakdown(traced(tasks))
    assert dict(found.select("kinds", "time_ns").iter_rows()) == dict(expected)
    assert found["time_ns"].to_list() == sorted(found["time_ns"].to_list(), reverse=True)
    if found.height:
        assert found["percent"].sum() == pytest.approx(100)
    # leaving a kind out is as if it did not run
    two = Counter(" + ".join(kind for kind in KINDS[:2] if kind in kinds) for kinds in line if kinds & set(KINDS[:2]))
    assert dict(kind_breakdown(traced(tasks), KINDS[:2]).select("kinds", "time_ns").iter_rows()) == dict(two)
    overlap = communication_overlap(traced(tasks))
    if not busy:
        assert overlap.is_empty()
        return
    row = overlap.row(0, named=True)
    assert row["communication_ns"] == sum("communication" in kinds for kinds in line)
    assert row["overlapped_ns"] == sum({"communication", "compute"} <= kinds for kinds in line)
    if row["communication_ns"]:
        assert row["overlap_percent"] == pytest.approx(100 * row["overlapped_ns"] / row["communication_ns"])
    else:
        assert row["overlap_percent"] is None


@given(TASKS)
def test_communication_that_is_no_task_counts_as_well(tasks: list[Task]) -> None:
    """On a CPU operations are rows of ``communication`` only."""
    mine = traced(tasks)
    kernels = mine.required("kernels").collect()
    operations = kernels.filter(kernels["kind"] == "communication").select("name", "device", "stream", "start_ns", "end_ns")
    rows = operations.with_columns(kind=pl.lit("collective")).to_dicts()
    apart = build(kernels=kernels.filter(kernels["kind"] != "communication").to_dicts(), communication=rows)
    for question in (temporal_breakdown, communication_overlap):
        for per_device in (True, False):
            assert question(apart, per_device=per_device).equals(question(mine, per_device=per_device))
    assert kind_breakdown(apart).sort("kinds").equals(kind_breakdown(mine).sort("kinds"))


def launched(start: int, end: int, launch: int | None, **values: Any) -> dict[str, Any]:
    times = {"start_ns": BASE_NS + start, "end_ns": BASE_NS + end, "launch_ns": None if launch is None else BASE_NS + launch}
    return kernel("k", 0, 0, core="CUDA", **{"stream": 7, **times, **values})


def test_causes_of_idle_time() -> None:
    tasks = [
        launched(0, 100_000, -5),
        launched(10_000, 20_000, -4),  # inside the one before: no gap, and the next gap begins at 100 us
        launched(103_000, 110_000, 50),  # launched long before: the device's own overhead
        launched(150_000, 160_000, 60),  # launched long before, but late: it waited for something else
        launched(170_000, 171_000, 165_000),  # launched while the stream was idle
        launched(180_000, 181_000, None),  # nobody knows
        launched(181_000, 182_000, 90),  # no gap
        launched(0, 1_000, -3, stream=9),
        launched(5_000, 6_000, 4_000, stream=9),
        launched(1_000, 5_000, 0, stream=9, kind="other"),  # waiting is no work
    ]
    found = idle_breakdown(build(kernels=tasks))
    assert found.select("stream", "cause", "gaps", "idle_ns").rows() == [
        (7, "host_wait", 1, 10_000),
        (7, "kernel_wait", 1, 3_000),
        (7, "other", 2, 49_000),
        (9, "host_wait", 1, 4_000),
    ]
    assert found.group_by("stream").agg(pl.col("idle_percent").sum()).sort("stream")["idle_percent"].to_list() == [100, 100]
    longer = idle_breakdown(build(kernels=tasks), short_gap_ns=50_000)
    assert longer.filter(pl.col("cause") == "kernel_wait")["idle_ns"].to_list() == [43_000]


def test_a_trace_without_tasks_gives_no_rows() -> None:
    trace = build()
    for analysis in (temporal_breakdown, communication_overlap, kind_breakdown, idle_breakdown):
        assert analysis(trace).is_empty()  # type: ignore[operator]
