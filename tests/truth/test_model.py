"""The model of host and device, and the truth told of it, against what can be worked out by hand."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.readers.kineto import kineto

from .answers import covered, device_periods, host_phases, painted, parts
from .capture import ORIGIN_NS, Capture, record, write
from .program import COMMUNICATION_STREAM, COMPUTE_STREAM, Backward, Call, Forward, Launch, Load, Optimizer, Program, Python, Work
from .schedules import LOOPS, forgetful, program
from .simulation import Task

KINDS = st.sampled_from(["compute", "communication", "copy", "set"])
TASKS = st.lists(
    st.builds(
        lambda kind, start, length: Task(kind, start, start + length, 0, 0, 0, True),
        KINDS,
        st.integers(0, 60),
        st.integers(0, 30),
    ),
    max_size=12,
)


def one_kernel(length: int, *, cost: int = 1_000, pause: int = 0) -> list[Call | Python]:
    return [Call("aten::one", 0, (Launch((Work("compute", length),), cost),), 0), Python(pause)]


@given(TASKS, st.integers(0, 50), st.integers(0, 60))
def test_pieces_are_what_is_painted(tasks: list[Task], start: int, length: int) -> None:
    told = parts(tasks, start, start + length)
    assert told == painted(tasks, start, start + length)
    assert sum(told[:4]) == length
    intervals = [(task.start, task.end) for task in tasks]
    assert covered(intervals) == len({time for left, right in intervals for time in range(left, right)})


def test_busy_device_sets_the_pace() -> None:
    """Kernels of 100 us, launched every 11 us: the device is never idle, and falls behind."""
    capture = record(Program([one_kernel(100_000, pause=10_000) for _ in range(5)]))
    rows = device_periods(capture)
    assert [row.end - row.start for row in rows] == [100_000] * 5  # type: ignore[operator]
    assert [row.computing for row in rows] == [100_000] * 5
    assert [row.idle for row in rows] == [0] * 5
    assert rows[-1].start == 1_000 + 5_000 + 4 * 100_000
    assert [mark.end - mark.start for mark in capture.marks] == [11_000] * 5


def test_idle_device_follows_the_host() -> None:
    """Kernels of 10 us, launched every 101 us."""
    rows = device_periods(record(Program([one_kernel(10_000, pause=100_000) for _ in range(4)])))
    assert [(row.computing, row.idle) for row in rows] == [(10_000, 91_000)] * 3 + [(10_000, 0)]


def test_full_queue_holds_the_host_up() -> None:
    """A queue of three: from the fourth launch on the host waits for a kernel to end, and steps last as long as kernels."""
    capture = record(Program([one_kernel(100_000) for _ in range(8)], depth=3))
    lengths = [mark.end - mark.start for mark in capture.marks]
    assert lengths[:3] == [1_000] * 3
    assert lengths[5:] == [100_000] * 3


def test_streams_wait_for_each_other() -> None:
    """A collective behind a kernel; the next kernel behind the collective: nothing overlaps, all of it is exposed."""
    launch = Launch(
        (
            Work("compute", 50_000),
            Work("communication", 30_000, COMMUNICATION_STREAM, (COMPUTE_STREAM,)),
            Work("compute", 20_000, COMPUTE_STREAM, (COMMUNICATION_STREAM,)),
            Work("copy", 25_000, 30, (COMMUNICATION_STREAM,)),
        )
    )
    row = device_periods(record(Program([[Call("aten::all", 0, (launch,))]])))[0]
    assert (row.computing, row.communication, row.copy, row.idle, row.overlapped) == (70_000, 30_000, 5_000, 0, 0)


def test_a_read_waits_for_its_stream() -> None:
    step = [*one_kernel(100_000), Call("aten::item", 500, (Launch((Work("copy", 1_000),), 2_000),), 700, reads=(COMPUTE_STREAM,))]
    capture = record(Program([step]))
    # the kernel starts at 6 us and ends at 106 us, the copy at 107 us
    assert capture.marks[0].end == 107_000 + 700
    assert host_phases(capture)[0] == {**dict.fromkeys(host_phases(capture)[0], 0), "between": 1_000, "device_wait": 106_700}


def test_phases_of_one_step() -> None:
    """Every action has its phase; the loss and the gap behind it are forward, what a closure does is no part of the update."""
    forward = Forward(
        (Call("aten::a", 10, (), 0, True), Python(5), Call("aten::b", 20, (), 0, True)),
        (Python(3), Call("aten::c", 7, (), 0, True)),
    )
    backward = Backward((Call("aten::c", 100, (), 0), Python(50), Call("aten::b", 200, (), 0)))
    step = [
        Load(1_000),
        Python(11),
        Call("aten::flip", 400, (), 0),
        forward,
        backward,
        Python(13),
        Optimizer((Call("aten::add", 30, (), 0),)),
        Optimizer((Call("aten::add", 40, (), 0),), closure=(forward, backward)),
    ]
    told = host_phases(record(Program([step], backward_frame=False)))[0]
    once = 100 + 50 + 200 + 2 * 1_000
    expected = {
        "data": 1_000,
        "forward": 90,
        "backward": 2 * once,
        "optimizer": 3_070,
        "device_wait": 0,
        "between": 400,
        "python": 24,
    }
    assert told == expected
    framed = host_phases(record(Program([step])))[0]
    assert framed["backward"] == 2 * (once + 2_000 + 3_000 + 1_000 + 2_000)


def test_recording_that_begins_and_ends_inside_steps() -> None:
    source = Program([one_kernel(100_000, pause=10_000) for _ in range(6)], record_from=(1, 50), record_until=(4, 50))
    capture = record(source)
    assert [mark.number for mark in capture.marks] == [2, 3]
    # what steps 0 and 1 launched runs on the device while recording goes on, and has no launch
    assert capture.launched_by == [None, None, 2, 3, None]
    assert [row.computing for row in device_periods(capture)] == [100_000, 100_000]
    lossy = record(replace(source, drained=False))
    assert [row.recorded for row in device_periods(lossy)] == [False, False]


def test_missing_mark_ends_a_period_with_its_work() -> None:
    capture = record(Program([one_kernel(100_000, pause=10_000) for _ in range(5)], unmarked=(2,)))
    rows = {row.step: row for row in device_periods(capture)}
    assert sorted(rows) == [0, 1, 3, 4]
    assert {row.computing for row in rows.values()} == {100_000}
    assert {row.idle for row in rows.values()} == {0}


@pytest.mark.parametrize("busy", [20, 300])
@pytest.mark.parametrize("loop", LOOPS)
def test_answers_hold_together(loop: str, busy: int) -> None:
    for seed in range(5):
        capture = record(forgetful(program(loop, seed, busy=busy, depth=random.Random(seed).choice([8, 64, 1024])), seed))
        rows = device_periods(capture)
        for row in rows:
            assert row.start is not None
            assert row.end is not None
            told = (row.computing, row.communication, row.copy, row.idle)
            assert sum(part or 0 for part in told) == row.end - row.start
        assert all(earlier.end == later.start for earlier, later in itertools.pairwise(rows))
        of_stream: dict[int, list[Task]] = {}
        for task in capture.tasks:
            of_stream.setdefault(task.stream, []).append(task)
            assert task.start > task.launched
        for tasks in of_stream.values():
            assert all(earlier.end <= later.start for earlier, later in itertools.pairwise(tasks))
        host_phases(capture)


@pytest.mark.parametrize("loop", LOOPS)
def test_written_capture_is_read_to_the_nanosecond(loop: str, tmp_path: Path) -> None:
    capture = record(program(loop, 3))
    trace = kineto.read(write(capture, tmp_path / "trace.json"))
    tasks = trace.required("kernels").select("start_ns", "end_ns", "stream").collect()
    expected = sorted((task.start + ORIGIN_NS, task.end + ORIGIN_NS, task.stream) for task in capture.tasks)
    assert sorted(tasks.iter_rows()) == expected
    steps = trace.required("steps").select("id", "start_ns", "end_ns").collect()
    assert list(steps.iter_rows()) == [(m.number, m.start + ORIGIN_NS, m.end + ORIGIN_NS) for m in capture.marks]
    assert_launches(trace.required("kernels").select("start_ns", "launch_ns").collect().rows(), capture)


def assert_launches(rows: list[tuple[int, int | None]], capture: Capture) -> None:
    launched = sorted((task.start + ORIGIN_NS, task.launched + ORIGIN_NS) for task in capture.tasks if task.launch_recorded)
    assert sorted(row for row in rows if row[1] is not None) == launched
