"""What steplens says of the training thread in every step, against simulated programs whose phases are known."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steplens.analysis.steps.phases import BETWEEN, DEVICE_WAIT, host_phase_names, host_phases
from steplens.readers.kineto import kineto
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, build, kernel, op
from . import answers
from .capture import Capture, record, write
from .program import ForwardMark, Program
from .schedules import LOOPS, forgetful, program
from .simulation import PHASES

COLUMN = {phase: f"{phase}_ns" for phase in PHASES} | {"data": "data_wait_ns"}
COLUMNS = list(COLUMN.values())

MARKS: list[ForwardMark] = ["module", "ddp", "range", "none"]
#: inference without a mark of the model, and a graph that only a replay launches, say nothing of phases
SILENT = {("inferring", "none"), *(("graphed", mark) for mark in MARKS)}


def read(capture: Capture, folder: Path) -> Trace:
    return kineto.read(write(capture, folder / "trace.json"))


@pytest.mark.parametrize("framed", [True, False], ids=["frame of backward", "nodes alone"])
@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("loop", LOOPS)
def test_phases(loop: str, mark: ForwardMark, framed: bool, tmp_path: Path) -> None:
    if (loop, mark) in SILENT:
        pytest.skip("nothing in such a capture says what is forward")
    capture = record(program(loop, 31, busy=150, forward_mark=mark, backward_frame=framed))
    told = host_phases(read(capture, tmp_path)).sort("step")
    truth = answers.host_phases(capture)
    assert told["step"].to_list() == sorted(truth)
    for row in told.to_dicts():
        assert {phase: row[COLUMN[phase]] for phase in PHASES} == truth[row["step"]]


@pytest.mark.parametrize("mark", MARKS)
def test_phases_of_a_window(mark: ForwardMark, tmp_path: Path) -> None:
    """A step that recording cut takes nothing from its neighbours, nor does a missing mark."""
    source = program("distributed", 32, busy=150, forward_mark=mark, record_from=(1, 55), record_until=(6, 30), unmarked=(4,))
    capture = record(source)
    told = host_phases(read(capture, tmp_path)).sort("step")
    truth = answers.host_phases(capture)
    assert told["step"].to_list() == [2, 3, 5]
    for row in told.to_dicts():
        assert {phase: row[COLUMN[phase]] for phase in PHASES} == truth[row["step"]]


@pytest.mark.parametrize(("loop", "name"), [("reading", "aten::item"), ("synchronizing", "cudaDeviceSynchronize")])
def test_waiting_is_told_by_name(loop: str, name: str, tmp_path: Path) -> None:
    capture = record(program(loop, 33, busy=300))
    trace = read(capture, tmp_path)
    names = host_phase_names(trace).filter(pl.col("phase") == DEVICE_WAIT)
    assert names["name"].cast(pl.String).unique().to_list() == [name]
    assert names["time_ns"].sum() == host_phases(trace)["device_wait_ns"].sum() > 0


def test_between_is_told_by_name(tmp_path: Path) -> None:
    capture = record(program("distributed", 34, busy=50))
    trace = read(capture, tmp_path)
    names = host_phase_names(trace).filter(pl.col("phase") == BETWEEN)
    assert set(names["name"].cast(pl.String)) == {"aten::copy_", "aten::_foreach_norm", "aten::_foreach_zero_"}
    by_step = names.group_by("step").agg(pl.col("time_ns").sum()).sort("step")
    assert by_step["time_ns"].to_list() == host_phases(trace).sort("step")["between_ns"].to_list()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drawn")


@st.composite
def programs(draw: st.DrawFn) -> Program:
    steps = draw(st.integers(1, 4))
    source = program(
        draw(st.sampled_from(sorted(LOOPS))),
        draw(st.integers(0, 1 << 16)),
        busy=draw(st.sampled_from([5, 100, 1000])),
        layers=draw(st.integers(1, 4)),
        steps=steps,
        depth=draw(st.sampled_from([1, 10, 1024])),
        forward_mark=draw(st.sampled_from(MARKS)),
        backward_frame=draw(st.booleans()),
        record_from=(0, draw(st.sampled_from([0, 10, 50, 90]))),
        record_until=(steps - 1, draw(st.sampled_from([10, 50, 90, 100]))),
        unmarked=tuple(draw(st.sets(st.integers(0, steps), max_size=2))),
    )
    return forgetful(source, 1, percent=draw(st.sampled_from([0, 100])))


@settings(max_examples=60)
@given(source=programs())
def test_phases_add_up(folder: Path, source: Program) -> None:
    """Whatever was recorded of it."""
    capture = record(source)
    if not capture.marks:
        return
    told = host_phases(read(capture, folder)).sort("step")
    assert told["duration_ns"].to_list() == [mark.end - mark.start for mark in capture.marks]
    assert all((told[column] >= 0).all() for column in (*COLUMNS, "gradient_sync_ns"))
    assert told.select(pl.sum_horizontal(COLUMNS)).to_series().to_list() == told["duration_ns"].to_list()
    assert (told["gradient_sync_ns"] <= told["backward_ns"]).all()


def test_a_copy_that_returns_when_it_is_done_waits_and_one_that_is_queued_does_not() -> None:
    """As a GPU recorded it: 28 ms in ``cudaMemcpyAsync`` from pageable memory, and some us from pinned memory."""

    def trace_with_copy(call_us: int, copy_from_us: int, copy_until_us: int) -> Trace:
        call = op("cudaMemcpyAsync", 20, 20 + call_us)
        return build(
            steps=[{"id": 1, "start_ns": BASE_NS, "end_ns": BASE_NS + 50_000_000}],
            ops=[op("aten::copy_", 10, 30 + call_us), op("aten::mul", 40_000, 41_000)],
            api=[{name: call[name] for name in ("name", "pid", "tid", "start_ns", "end_ns")} | {"correlation": 5}],
            kernels=[kernel("Memcpy HtoD", copy_from_us, copy_until_us, kind="copy", core="", stream=7, correlation=5)],
        )

    blocking = host_phases(trace_with_copy(28_000, 25, 28_030))
    queued = host_phases(trace_with_copy(12, 35, 27_035))
    assert blocking["device_wait_ns"].to_list() == [28_000_000]
    assert queued["device_wait_ns"].to_list() == [0]
