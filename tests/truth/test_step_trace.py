"""The step trace of devices that run behind the host, against simulated schedules whose answers are known to the nanosecond."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from steplens.analysis.cluster.cluster_steps import cluster_steps
from steplens.analysis.step_trace.step_trace import averages, step_trace
from steplens.analysis.steps.choice import chosen_steps
from steplens.readers.kineto import kineto

from . import answers
from .capture import ORIGIN_NS, record, write
from .schedules import program
from .test_device_periods import SCHEDULES

PARTS = ("interval_ns", "forward_backward_ns", "tail_ns")


@pytest.mark.parametrize("busy", [20, 150, 1000])
@pytest.mark.parametrize("loop", ["plain", "prefetching"])
def test_points_are_of_the_device(loop: str, busy: int, tmp_path: Path) -> None:
    """A step ends with the last work that it launched, forward begins and backward ends with what was launched in them."""
    capture = record(program(loop, 31 + busy, busy=busy))
    found = step_trace(kineto.read(write(capture, tmp_path / "trace.json"))).sort("step")
    assert found["step"].to_list() == [mark.number for mark in capture.marks]
    ended = None
    for row, mark in zip(found.to_dicts(), capture.marks, strict=True):
        own = [task for task in capture.tasks if mark.start <= task.launched < mark.end]
        end = max([task.end for task in own] + ([ended] if ended is not None else []))
        start = ended if ended is not None else min(task.start for task in own)
        phases = {
            name: [task for task in own if task.kind == "compute" and begin <= task.launched < finish]
            for name, begin, finish in capture.history.phases
            if mark.start <= begin < mark.end
        }
        forward = max(start, min(task.start for task in phases["forward"]))
        backward = max(max(phases["backward"], key=lambda task: task.start).end, start)
        truth = {"start_ns": start, "forward_ns": forward, "backward_ns": backward, "end_ns": end}
        assert {name: row[name] - ORIGIN_NS for name in truth} == truth
        ended = end


@pytest.mark.parametrize("name", SCHEDULES)
def test_parts_add_up(name: str, tmp_path: Path) -> None:
    """Whatever was recorded: no part is negative, those of a step are the step, and steps follow each other without a gap."""
    trace = kineto.read(write(record(SCHEDULES[name]()), tmp_path / "trace.json"))
    found = step_trace(trace)
    whole = found.drop_nulls(list(PARTS))
    assert all((found[part].drop_nulls() >= 0).all() for part in (*PARTS, "total_ns"))
    assert whole.select(pl.sum_horizontal(PARTS)).to_series().to_list() == whole["total_ns"].to_list()
    follows = found.filter(pl.col("step") - pl.col("step").shift() == 1)
    before = found.filter(pl.col("step").shift(-1) - pl.col("step") == 1)
    assert follows["start_ns"].to_list() == before["end_ns"].to_list()
    means = averages(trace)
    # one choice of steps for every figure of a run
    assert set(means.steps) <= set(chosen_steps(trace).steps)
    assert means.parts["share"].drop_nulls().is_between(0, 1).all()


@pytest.mark.parametrize("busy", [20, 600])
def test_communication_alone_is_of_the_step_of_the_device(busy: int, tmp_path: Path) -> None:
    """However far the host runs ahead: what communication leaves of a step is the rest of its device period."""
    capture = record(program("distributed", 47, busy=busy))
    path = write(capture, tmp_path / "trace.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "distributedInfo": {"rank": 0, "world_size": 2}}))
    told = cluster_steps([kineto.read(path)]).drop_nulls("computation_ns")
    truth = {row.step: row for row in answers.device_periods(capture) if row.recorded}
    assert told.height >= 3
    assert told["communication_alone_ns"].sum() > 0
    for row in told.iter_rows(named=True):
        own = truth[row["step"]]
        assert own.start is not None and own.end is not None
        assert row["communication_alone_ns"] == own.communication
        assert row["computation_ns"] == own.end - own.start - own.communication
