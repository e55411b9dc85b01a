"""What steplens says of the device in every step, against simulated schedules whose answers are known to the nanosecond."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steplens.analysis.steps.device import device_periods
from steplens.readers.kineto import kineto
from steplens.trace.trace import Trace

from . import answers
from .capture import ORIGIN_NS, Capture, record, write
from .program import Program
from .schedules import LOOPS, forgetful, program

PARTS = ("computing_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
#: columns whose names say more than the truth needs to
COLUMN = {"communication": "exposed_communication", "copy": "exposed_copy", "overlapped": "overlapped_communication"}
LAUNCHED = ("launched_computing_ns", "launched_communication_ns", "launched_copy_ns")

#: name: loop, seed and machine; what each is about is in ``schedules`` and here
SCHEDULES: dict[str, Callable[[], Program]] = {
    **{f"{loop}, host bound": lambda loop=loop: program(loop, 1, busy=20) for loop in LOOPS},  # type: ignore[misc]
    **{f"{loop}, device bound": lambda loop=loop: program(loop, 2, busy=300) for loop in LOOPS},  # type: ignore[misc]
    **{f"{loop}, full queue": lambda loop=loop: program(loop, 3, busy=300, depth=6) for loop in LOOPS},  # type: ignore[misc]
    "run-ahead of steps": lambda: program("plain", 4, busy=1000),
    "run-ahead with collectives": lambda: program("distributed", 5, busy=1000),
    "run-ahead with a copy stream": lambda: program("prefetching", 6, busy=600),
    "begins inside a step": lambda: program("plain", 7, busy=300, record_from=(2, 40)),
    "begins behind run-ahead": lambda: program("distributed", 8, busy=600, record_from=(3, 0)),
    "ends inside a step": lambda: program("plain", 9, busy=300, record_until=(5, 60)),
    "cut at both ends": lambda: program("distributed", 10, busy=200, record_from=(1, 55), record_until=(6, 30)),
    "not drained": lambda: program("plain", 11, busy=300, record_until=(6, 0), drained=False),
    "last steps not recorded": lambda: program("plain", 12, busy=1500, record_until=(7, 0), drained=False),
    "mark missing": lambda: program("plain", 13, busy=300, unmarked=(3,)),
    "marks missing on several streams": lambda: program("accumulating", 14, busy=300, unmarked=(2, 5)),
    "launches lost": lambda: forgetful(program("plain", 15, busy=200), 15, percent=40),
    "launches lost, several streams": lambda: forgetful(program("prefetching", 16, busy=100), 16, percent=40),
    "one step": lambda: program("plain", 17, steps=1),
    "many layers": lambda: program("distributed", 18, busy=150, layers=30, steps=12),
}


def read(capture: Capture, folder: Path) -> Trace:
    return kineto.read(write(capture, folder / "trace.json"))


def expected(capture: Capture) -> list[dict[str, Any]]:
    rows = []
    for row in answers.device_periods(capture):
        told = asdict(row)
        start, end = told.pop("start"), told.pop("end")
        times = {f"{COLUMN.get(name, name)}_ns": value for name, value in told.items() if name not in ("step", "recorded")}
        period = None if start is None or end is None else end - start
        begin = None if start is None else start + ORIGIN_NS
        finish = None if end is None else end + ORIGIN_NS
        head = {"step": row.step, "recorded": row.recorded, "start_ns": begin, "end_ns": finish, "period_ns": period}
        rows.append({**head, **times})
    return rows


@pytest.mark.parametrize("name", SCHEDULES)
def test_device_periods(name: str, tmp_path: Path) -> None:
    capture = record(SCHEDULES[name]())
    told = device_periods(read(capture, tmp_path)).sort("step")
    for row, truth in zip(told.to_dicts(), expected(capture), strict=True):
        assert {column: row[column] for column in truth} == truth


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Any loop on any machine, recorded from and until anywhere."""
    steps = draw(st.integers(1, 6))
    first = draw(st.integers(0, steps - 1))
    last = draw(st.integers(first, steps - 1))
    source = program(
        draw(st.sampled_from(sorted(LOOPS))),
        draw(st.integers(0, 1 << 16)),
        busy=draw(st.sampled_from([5, 20, 100, 300, 2000])),
        layers=draw(st.integers(1, 4)),
        steps=steps,
        depth=draw(st.sampled_from([1, 3, 10, 1024])),
        latency=draw(st.sampled_from([1, 5_000, 400_000])),
        record_from=(first, draw(st.sampled_from([0, 30]))),
        record_until=(last, draw(st.sampled_from([70, 100]))),
        drained=draw(st.booleans()),
        unmarked=tuple(draw(st.sets(st.integers(0, steps), max_size=2))),
    )
    return forgetful(source, draw(st.integers(0, 99)), percent=draw(st.sampled_from([0, 30, 100])))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drawn")


@settings(max_examples=60)
@given(source=programs())
def test_parts_add_up(folder: Path, source: Program) -> None:
    """Whatever was recorded of it: parts are a period to the nanosecond, and no part is negative or above it."""
    capture = record(source)
    if not capture.marks:
        return
    trace = read(capture, folder)
    told = device_periods(trace)
    assert told["step"].to_list() == [mark.number for mark in capture.marks]
    recorded = told.filter("recorded")
    columns = [*PARTS, *LAUNCHED, "overlapped_communication_ns", "period_ns"]
    assert all((recorded[column] >= 0).all() for column in columns)
    assert recorded.select(pl.sum_horizontal(PARTS)).to_series().to_list() == recorded["period_ns"].to_list()
    assert (recorded["end_ns"] - recorded["start_ns"]).to_list() == recorded["period_ns"].to_list()
    assert (recorded["start_ns"][1:] >= recorded["end_ns"][:-1]).all()
    assert (recorded["overlapped_communication_ns"] <= recorded["computing_ns"]).all()
    missing = told.filter(~pl.col("recorded"))
    assert all(missing[column].null_count() == missing.height for column in columns)


@settings(max_examples=60)
@given(source=programs())
def test_drawn_programs(folder: Path, source: Program) -> None:
    """To the nanosecond, as the schedules above."""
    capture = record(source)
    if not capture.marks:
        return
    told = device_periods(read(capture, folder)).sort("step")
    for row, truth in zip(told.to_dicts(), expected(capture), strict=True):
        assert {column: row[column] for column in truth} == truth


@pytest.mark.parametrize("loop", LOOPS)
def test_launched_work_is_the_same_in_sum(loop: str, tmp_path: Path) -> None:
    """Work of one stream that never runs at once: what steps launched is all that was recorded, and periods hold it all."""
    capture = record(program(loop, 21, busy=200))
    told = device_periods(read(capture, tmp_path))
    kinds = {
        "launched_computing_ns": ("compute",),
        "launched_communication_ns": ("communication",),
        "launched_copy_ns": ("copy", "set"),
    }
    for column, names in kinds.items():
        by_step: dict[int | None, list[tuple[int, int]]] = {}
        for task, step in zip(capture.tasks, capture.launched_by, strict=True):
            if task.kind in names:
                by_step.setdefault(step, []).append((task.start, task.end))
        assert told[column].sum() == sum(answers.covered(intervals) for intervals in by_step.values())
    everything = [(task.start, task.end) for task in capture.tasks]
    busy = told["period_ns"].sum() - told["idle_ns"].sum()
    assert busy == answers.covered(everything)
