"""What ran once each among traces: windows of a process, processes of a rank, ranks of a job; and how long their steps take."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from steplens.analysis.steps.summary import summarize_steps
from steplens.analysis.steps.times import DEVICE_PARTS
from steplens.comparison.causes.cause import DEVICE
from steplens.comparison.causes.side_times import measure_times
from steplens.comparison.gate import _sample_parts
from steplens.comparison.item_times import SELF, ItemTimes
from steplens.comparison.measure import MeasuredFigures
from steplens.comparison.recordings import find_recordings
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, MAIN, build, kernel, op


def ns(time_us: float) -> int:
    return BASE_NS + round(time_us * 1000)


def window(numbers: Sequence[int], begin_us: float = 0.0, pid: int = 7, source: str = "folder/a.json", **meta: Any) -> Trace:
    """A trace of steps of 1 ms, of which aten::mm takes half; ``pid`` is that of its calls."""
    calls, steps = [], []
    for place, number in enumerate(numbers):
        begin = begin_us + 1000 * place
        calls.append(op("aten::mm", begin + 10, begin + 510, pid=pid, step=number))
        steps.append({"id": number, "start_ns": ns(begin), "end_ns": ns(begin + 1000), "pid": pid, "tid": MAIN})
    return build(source, meta={"rank": 0, "whole_steps": True, **meta}, ops=calls, steps=steps)


def heights(traces: Sequence[Trace]) -> list[int]:
    return [recording.steps.height for recording in find_recordings(traces)]


FIVE = range(5)


def test_a_process_is_that_of_the_calls_where_the_source_names_none() -> None:
    assert heights([window(FIVE, pid=pid) for pid in (4000, 4001, 4002)]) == [5, 5, 5]


def test_a_number_that_comes_again_is_another_process() -> None:
    """As in containers, where the first process has the same number each time."""
    hosts = [window(FIVE, 10_000 * number, pid=1, host_name=f"box{number}") for number in range(3)]
    again = [window(FIVE, 10_000 * number, pid=1, host_name="box") for number in range(3)]
    at_once = [window(range(10 * number, 10 * number + 5), pid=1) for number in range(3)]
    folders = [window(range(10 * number, 10 * number + 5), 10_000 * number, source=f"{number}/a.json") for number in range(3)]
    for traces in (hosts, again, at_once, folders):
        assert heights(traces) == [5, 5, 5]


def test_windows_that_go_on_are_of_one_process() -> None:
    windows = [window(range(10 * number, 10 * number + 5), 10_000 * number, host_name="box") for number in range(3)]
    assert heights(windows[::-1]) == [15]


def test_recordings_that_say_their_process_are_known_by_it() -> None:
    """Several profilers in one process count their steps from the beginning each."""
    of_one = [window(FIVE, 10_000 * number, process_identity="one", pid=1) for number in range(2)]
    other = window(range(10, 14), 20_000, process_identity="other", pid=1)
    first, second = find_recordings([other, *of_one])
    assert (first.steps.height, first.windows, second.steps.height) == (10, (0, 1), 4)


def test_ranks_of_a_job_are_one_recording() -> None:
    jobs = [[window(FIVE, 10_000 * job, 10 * job + rank, rank=rank) for rank in range(2)] for job in range(3)]
    every = [trace for job in jobs for trace in job]
    assert [(recording.ranks, recording.steps.height) for recording in find_recordings(every)] == [(2, 5)] * 3
    # the first job lacks a rank: which of the others ran with which, their times tell
    found = find_recordings([jobs[0][1], *jobs[1], *jobs[2]])
    assert [{trace.meta_value("rank") for trace in recording.traces} for recording in found] == [{1}, {0, 1}, {0, 1}]
    # clocks that differ tell nothing
    late = [window(FIVE, 10_000 * job + 1e9, rank=2, pid=10 * job + 2) for job in range(3)]
    assert [recording.ranks for recording in find_recordings([*every, *late])] == [3, 3, 3]


@pytest.mark.parametrize("begins_anew", [False, True])
def test_a_rank_that_lacks_a_window_makes_no_operator_shorter(begins_anew: bool) -> None:
    first, second = (range(10), range(10)) if begins_anew else (range(10, 20), range(30, 40))
    traces = [
        window(numbers, begin_us, rank=rank, process_identity=f"process {rank}")
        for rank, numbers, begin_us in ((0, first, 0), (0, second, 20_000), (1, second, 20_000))
    ]
    (recording,) = find_recordings(traces)
    assert (recording.ranks, recording.steps.height) == (2, 20)
    sample = ItemTimes(recording).sample_time(SELF, "aten::mm")
    assert sample is not None and sample.usual == 500_000
    assert MeasuredFigures(traces, [recording]).operator_rows["self_ns"].to_list() == [sample.usual]


def test_a_step_that_a_rank_lacks_makes_no_operator_shorter() -> None:
    traces = [window(range(10 - rank), rank=rank, pid=rank) for rank in range(2)]
    (recording,) = find_recordings(traces)
    sample = ItemTimes(recording).sample_time(SELF, "aten::mm")
    assert sample is not None and (sample.steps, sample.usual) == (10, 500_000)


def device_program(steps: int, pid: int) -> Trace:
    """Steps of 1 ms, each with a task of 300 us: the period of the last one ends with its task, and is cut."""
    calls, tasks, marks = [], [], []
    for number in range(steps):
        begin = 1000 * number
        calls.append(op("aten::mm", begin + 10, begin + 50, pid=pid, step=number))
        task = kernel("gemm", begin + 20, begin + 320, op=number, step=number, core="GPU", stream=7, correlation=number + 1)
        tasks.append({**task, "launch_ns": ns(begin + 11)})
        marks.append({"id": number, "start_ns": ns(begin), "end_ns": ns(begin + 1000), "pid": pid, "tid": MAIN})
    meta = {"rank": 0, "pid": pid, "whole_steps": True, "device_type": "CUDA"}
    return build(meta=meta, ops=calls, kernels=tasks, steps=marks)


def test_parts_of_the_device_are_those_of_the_first_page() -> None:
    """However many steps there are, the last device period is no whole one."""
    sides = [find_recordings([device_program(steps, pid) for pid in (1, 2)]) for steps in (40, 5)]
    for steps, recordings in zip((40, 5), sides, strict=True):
        shown = summarize_steps(recordings[0].traces).device
        assert shown["idle_ns"] == pytest.approx(700_000, abs=1000)
        usual = recordings[0].usual
        assert {part: usual[part].mean() for part in DEVICE_PARTS} == {part: pytest.approx(shown[part]) for part in DEVICE_PARTS}
        times = measure_times(recordings, DEVICE)
        assert times is not None and times.recordings[0].step_count == steps - 1
        side: Any = SimpleNamespace(recordings=recordings)
        assert _sample_parts(side, ("idle_ns",))[0].usual == pytest.approx(shown["idle_ns"])
