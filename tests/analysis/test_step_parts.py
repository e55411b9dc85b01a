"""The parts of a step: each is a mean of rows of the table of steps, and stands there."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from steplens.analysis.device.idle import idle_of_step
from steplens.analysis.steps.choice import number_ranges
from steplens.analysis.steps.summary import summarize_steps
from steplens.analysis.steps.times import DEVICE_PARTS, HOST_PARTS, step_times
from steplens.analysis.verdict import whole_of_shares
from steplens.cli.summary.summary import _to_figures
from steplens.cli.summary.summary_text import _lengths_text
from steplens.trace.trace import Trace

from .test_verdict import GEMM, LOADER, event, read

#: us that each step waits for data and that its kernel runs; the one before the last stands out, and is not usual
WAITS = (200, 900, 1500, 400, 3100, 700, 2300, 600, 60_000, 3000)
KERNELS = (3000, 4000, 2500, 3500, 6000, 2000, 4500, 3000, 3000, 7000)
OUTLIER = 8


def uneven(folder: Path) -> Trace:
    """Steps that wait, launch a kernel and wait for it, each for another time; mean and median of every part differ."""
    events, begin = [], 0.0
    for step, (wait, length) in enumerate(zip(WAITS, KERNELS, strict=True)):
        whole, at, key = wait + length + 600.0, begin + wait, step + 1
        events += [
            event("user_annotation", f"ProfilerStep#{step}", begin, whole),
            event("user_annotation", LOADER, begin, wait),
            event("cpu_op", "aten::mm", at + 100, 50, **{"External id": key}),
            event("cuda_runtime", "cudaLaunchKernel", at + 110, 20, correlation=key),
            event("kernel", GEMM, at + 200, length, 7, 0, correlation=key, device=0, stream=7),
            event("cuda_runtime", "cudaDeviceSynchronize", at + 160, length + 60, correlation=key + 1000),
        ]
        begin += whole
    return read(folder, events)


def test_a_part_is_the_mean_of_its_rows(tmp_path: Path) -> None:
    trace = uneven(tmp_path)
    summary = summarize_steps([trace])
    rows = [row for row in step_times(trace).to_dicts() if row["step"] != OUTLIER]
    assert summary.usual == summary.usual_on_device == tuple(row["step"] for row in rows) and summary.usual_steps == len(rows)
    assert summary.steps == len(rows) + 1 and summary.outliers == (OUTLIER,), "the median is of all"
    sides = (
        (summary.host, HOST_PARTS, "duration_ns", summary.host_mean_ns, summary.host_ns),
        (summary.device, DEVICE_PARTS, "device_period_ns", summary.device_mean_ns, summary.device_ns),
    )
    for parts, names, whole, mean_ns, median_ns in sides:
        assert tuple(parts) == names
        for name in names:
            assert parts[name] == pytest.approx(statistics.fmean(row[name] for row in rows)), name
        assert mean_ns == pytest.approx(statistics.fmean(row[whole] for row in rows)) == pytest.approx(sum(parts.values()))
        assert sum(100 * length / (mean_ns or 1) for length in parts.values()) == pytest.approx(100)
        assert mean_ns != pytest.approx(median_ns, rel=0.02), "a trace in which it matters"
    assert summary.step_mean_ns == pytest.approx(statistics.fmean(row["step_time_ns"] for row in rows))
    # as the trace was built
    usual = [(wait, length) for step, (wait, length) in enumerate(zip(WAITS, KERNELS, strict=True)) if step != OUTLIER]
    assert summary.host["data_wait_ns"] == pytest.approx(1000 * statistics.fmean(wait for wait, _ in usual))
    assert summary.device["computing_ns"] == pytest.approx(1000 * statistics.fmean(length for _, length in usual))
    assert sum(idle_of_step([trace], summary.device["idle_ns"]).values()) == pytest.approx(summary.device["idle_ns"])
    assert whole_of_shares(summary) <= max(summary.device_mean_ns or 0, summary.step_mean_ns or 0)


def test_a_last_step_whose_device_period_was_cut_is_none_of_the_means(tmp_path: Path) -> None:
    """Each step loads data for 8 ms and then runs a kernel of 1 ms: behind the last one nothing tells what the device waits."""
    events = []
    for step in range(6):
        begin, key = step * 10_000.0, step + 1
        events += [
            event("user_annotation", f"ProfilerStep#{step}", begin, 10_000),
            event("user_annotation", LOADER, begin, 8000),
            event("cpu_op", "aten::mm", begin + 8100, 50, **{"External id": key}),
            event("cuda_runtime", "cudaLaunchKernel", begin + 8110, 20, correlation=key),
            event("kernel", GEMM, begin + 8200, 1000, 7, 0, correlation=key, device=0, stream=7),
            event("cuda_runtime", "cudaDeviceSynchronize", begin + 8160, 1060, correlation=key + 1000),
        ]
    trace = read(tmp_path, events)
    summary = summarize_steps([trace])
    assert step_times(trace)["device_period_ns"].to_list() == [10_000_000] * 5 + [1_000_000]
    assert summary.usual == (0, 1, 2, 3, 4, 5) and summary.usual_on_device == (0, 1, 2, 3, 4)
    assert (summary.device_mean_ns, summary.device["computing_ns"], summary.device["idle_ns"]) == (10e6, 1e6, 9e6)
    # alone it is all that is known
    alone = read(tmp_path, events[-6:])
    assert summarize_steps([alone]).device_mean_ns == 1e6


def test_mean_and_median_are_told_where_they_differ(tmp_path: Path) -> None:
    summary = summarize_steps([uneven(tmp_path)])
    text = _lengths_text(_to_figures(summary))
    assert text.startswith(f"mean of steps {number_ranges(summary.usual)}, ") and "median" in text
    alone = [event("user_annotation", "ProfilerStep#7", 0, 10), event("cpu_op", "aten::mm", 2, 5)]
    assert _lengths_text(_to_figures(summarize_steps([read(tmp_path, alone)]))) == "step 7, 10.00 us"
