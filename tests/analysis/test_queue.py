"""Launches and queues, against plain loops over the tasks."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.analysis.device.queue import launch_statistics, launches, queue_length, queue_summary
from steplens.analysis.steps.summary import summarize_steps
from steplens.cli.summary import summary_text

from ..writers.builder import BASE_NS, build, kernel

#: launch, wait until the start, length, stream
LAUNCHED = st.lists(st.tuples(st.integers(0, 50), st.integers(-3, 30), st.integers(0, 9), st.integers(7, 8)), max_size=20)


def task(number: int, start: int, end: int, launch: int | None = None, **values: Any) -> dict[str, Any]:
    times = {"start_ns": BASE_NS + start, "end_ns": BASE_NS + end, "launch_ns": None if launch is None else BASE_NS + launch}
    return kernel(f"k{number}", 0, 0, core="CUDA", correlation=number, **{"stream": 7, **times, **values})


def call(number: int, start: int, end: int, name: str = "cudaLaunchKernel") -> dict[str, Any]:
    times = {"start_ns": BASE_NS + start, "end_ns": BASE_NS + end}
    return {"name": name, "layer": "cuda_runtime", **times, "pid": 1, "tid": 2, "correlation": number}


@given(LAUNCHED)
def test_queue_like_a_plain_loop(tasks: list[tuple[int, int, int, int]]) -> None:
    trace = build(
        kernels=[
            task(number, launch + wait, launch + wait + length, launch, stream=stream)
            for number, (launch, wait, length, stream) in enumerate(tasks, 1)
        ]
    )
    rows = queue_length(trace).rows(named=True)
    summary = {row["stream"]: row for row in queue_summary(trace).iter_rows(named=True)}
    assert set(summary) == {stream for *_, stream in tasks}
    for stream, row in summary.items():
        changes = [(launch, 1) for launch, _, _, one in tasks if one == stream]
        changes += [(launch + wait, -1) for launch, wait, _, one in tasks if one == stream]
        expected, length = [], 0
        for time, change in sorted(changes, key=lambda item: (item[0], -item[1])):
            length += change
            expected.append((BASE_NS + time, length))
        assert [(one["time_ns"], one["length"]) for one in rows if one["stream"] == stream] == expected
        lengths = [value for _, value in expected]
        assert (row["changes"], row["min"], row["max"], row["median"]) == (
            len(lengths), min(lengths), max(lengths), statistics.median(lengths),
        )  # fmt: skip
        assert row["mean"] == pytest.approx(statistics.mean(lengths))
        assert row["std"] == pytest.approx(statistics.stdev(lengths))
        whole = expected[-1][0] - expected[0][0]
        if whole:
            waiting = dict.fromkeys(range(expected[0][0], expected[-1][0]), 0)
            for time, value in expected:
                for later in range(time, expected[-1][0]):
                    waiting[later] = value
            assert row["time_mean"] == pytest.approx(statistics.mean(waiting.values()))
            empty = sum(value <= 0 for value in waiting.values())
            assert row["empty_percent"] == pytest.approx(100 * empty / len(waiting))


def test_what_does_not_queue() -> None:
    trace = build(kernels=[task(1, 5, 6), task(2, 5, 6, 1, kind="other"), task(3, 9, 10, 4)])
    assert queue_length(trace).select("time_ns", "length").rows() == [(BASE_NS + 4, 1), (BASE_NS + 9, 0)]
    assert queue_length(build()).is_empty()
    assert queue_summary(build()).is_empty()


def test_launches_and_their_statistics() -> None:
    us = 1_000
    trace = build(
        api=[
            call(1, 0, 5 * us),
            call(2, 10 * us, 100 * us),
            call(3, 200 * us, 204 * us, "cudaGraphLaunch"),
            call(4, 300 * us, 301 * us),  # launches nothing
            call(1, 900 * us, 901 * us),  # the number comes again; the first call counts
            call(0, 950 * us, 951 * us),  # no number
        ],
        kernels=[
            task(1, 4 * us, 6 * us),  # starts before its call returns
            task(2, 250 * us, 255 * us),
            task(3, 210 * us, 211 * us),
            task(3, 212 * us, 220 * us),  # a graph has one launch and many tasks
            task(9, 400 * us, 401 * us),  # nobody launched it
            task(0, 960 * us, 961 * us),
        ],
    )
    found = launches(trace)
    columns = ("call", "name", "launch_duration_ns", "task_duration_ns", "delay_ns", "wait_ns")
    assert [tuple(row[name] for name in columns) for row in found.iter_rows(named=True)] == [
        ("cudaLaunchKernel", "k1", 5 * us, 2 * us, -1 * us, 4 * us),
        ("cudaLaunchKernel", "k2", 90 * us, 5 * us, 150 * us, 240 * us),
        ("cudaGraphLaunch", "k3", 4 * us, 1 * us, 6 * us, 10 * us),
        ("cudaGraphLaunch", "k3", 4 * us, 8 * us, 8 * us, 12 * us),
    ]
    rows = {row["call"]: row for row in launch_statistics(trace).iter_rows(named=True)}
    kernels, graphs = rows["cudaLaunchKernel"], rows["cudaGraphLaunch"]
    assert (kernels["tasks"], kernels["short_tasks"], kernels["long_launches"], kernels["long_delays"]) == (2, 2, 1, 1)
    assert (kernels["launch_total_ns"], kernels["launch_mean_ns"], kernels["launch_max_ns"]) == (95 * us, 47_500, 90 * us)
    assert (kernels["delay_mean_ns"], kernels["delay_max_ns"]) == (75 * us, 150 * us)
    assert (graphs["tasks"], graphs["short_tasks"], graphs["long_launches"], graphs["long_delays"]) == (2, 1, 0, 0)
    assert launch_statistics(trace, long_launch_ns=us, long_delay_ns=us)["long_delays"].to_list() == [2, 1]
    assert launches(build()).is_empty()
    assert launch_statistics(build()).is_empty()


def throttled(places: int, tasks: int = 600) -> tuple[Any, dict[str, int]]:
    """One step of a host that launches every 100 ns (10 of them in the call) onto a queue with so many places; tasks take 1 us.

    The first half is launched in forward, the second one in backward.

    Returns:
        the trace, and how long the host waits in each phase, ns.
    """
    kernels, calls, starts, time, free = [], [], [], 0, 0
    waits = {"forward_ns": 0, "backward_ns": 0}
    borders = []
    for number in range(1, tasks + 1):
        if number in (1, tasks // 2 + 1):
            borders.append(time)
        begin = time
        queued = sum(start > begin for start in starts[-places - 1 :])
        # a place is free when the task starts that was launched so many tasks ago
        until = max(begin, starts[-places]) if queued >= places else begin
        waits["forward_ns" if number <= tasks // 2 else "backward_ns"] += until - begin
        start = max(free, until + 50)
        free = start + 1000
        starts.append(start)
        kernels.append(task(number, start, free, begin, step=0))
        calls.append(call(number, begin, until + 10))
        time = until + 100
    borders.append(time)
    host = {"pid": 1, "tid": 2, "depth": 0, "parent": -1}
    spans = [{"start_ns": BASE_NS + begin, "end_ns": BASE_NS + end} for begin, end in itertools.pairwise(borders)]
    ops = [
        {"name": name, "scope": 7, **host, **span} for name, span in zip(("## forward ##", "## backward ##"), spans, strict=True)
    ]
    ops += [{"name": "aten::mm", "scope": 0, **host, **span, "depth": 1} for span in spans]
    step = {"id": 0, "start_ns": BASE_NS, "end_ns": BASE_NS + time, "pid": 1, "tid": 2}
    return build(kernels=kernels, api=calls, ops=ops, steps=[step]), waits


def test_the_host_waits_for_a_place_in_the_queue() -> None:
    """Against the simulation that made the trace: with 300 places it waits for all but the first; with 700 it never does."""
    trace, truth = throttled(300)
    summary = summarize_steps([trace])
    assert truth["backward_ns"] > 200_000 and set(summary.queue_wait) <= set(truth)
    for phase, length in truth.items():
        # of each call what it usually takes is no wait; the last places of the queue count as full
        assert summary.queue_wait.get(phase, 0) == pytest.approx(length, rel=0.03, abs=1000)
        assert summary.queue_wait.get(phase, 0) <= summary.host[phase]
    text = summary_text._queue_text({"queue_wait": summary.queue_wait, "host_mean_ns": summary.host_mean_ns})
    assert "waiting for the device, whose queue is full (" in text and "; the host's own work is " in text
    trace, truth = throttled(700)
    assert not any(truth.values()) and summarize_steps([trace]).queue_wait == {}
    # a queue that never held many tasks was not full
    assert summarize_steps([throttled(100)[0]]).queue_wait == {}
