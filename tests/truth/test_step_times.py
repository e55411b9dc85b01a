"""How long a step is and which steps count, against simulated schedules."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from steplens.analysis.steps.times import step_times
from steplens.readers.kineto import kineto

from . import answers
from .capture import record, write
from .program import Program, Python
from .schedules import program


def times(source: Program, folder: Path) -> pl.DataFrame:
    return step_times(kineto.read(write(record(source), folder / "trace.json"))).sort("step")


def chosen(told: pl.DataFrame) -> list[int]:
    return told.filter("chosen")["step"].to_list()


@pytest.mark.parametrize("loop", ["plain", "distributed", "prefetching", "accumulating"])
def test_device_behind_the_host(loop: str, tmp_path: Path) -> None:
    """The device is busy all the time, and the host far ahead of it: a step is what the device takes for it."""
    source = program(loop, 41, busy=600)
    truth = {row.step: row for row in answers.device_periods(record(source))}
    told = times(source, tmp_path)
    picked = chosen(told)
    assert len(picked) >= 3
    for step, length in told.filter("chosen").select("step", "step_time_ns").iter_rows():
        period = truth[step]
        assert period.start is not None
        assert period.end is not None
        assert length == period.end - period.start


@pytest.mark.parametrize("loop", ["reading", "synchronizing", "inferring"])
def test_host_that_waits_for_the_device(loop: str, tmp_path: Path) -> None:
    """The host reads something at the end of every step: nothing is behind it when the step ends."""
    source = program(loop, 42, busy=100)
    told = times(source, tmp_path)
    assert told["step_time_ns"].to_list() == told["duration_ns"].to_list()


@pytest.mark.parametrize("busy", [20, 600])
def test_step_times_add_up_to_the_run(busy: int, tmp_path: Path) -> None:
    """As many steps of the median take as long as the run: no figure of a step may be far from that."""
    source = program("plain", 43, busy=busy, steps=20)
    capture = record(source)
    begin = min(task.start for task in capture.tasks)
    end = max(task.end for task in capture.tasks)
    told = times(source, tmp_path)
    median = statistics.median(told.filter("chosen")["step_time_ns"].to_list())
    assert median == pytest.approx((end - begin) / 20, rel=0.15)


def test_warm_up_is_no_part_of_the_answer(tmp_path: Path) -> None:
    """The first two steps take many times as long on the host (compilation), and the device waits for it."""
    source = program("reading", 44, busy=100, steps=12)
    slow = [[Python(50_000_000), *step] if number < 2 else step for number, step in enumerate(source.steps)]
    assert chosen(times(replace(source, steps=slow), tmp_path)) == list(range(2, 12))


def test_slow_step_in_the_middle_is_a_step(tmp_path: Path) -> None:
    """Warm-up leads; a slow step later is what the run is like, and a median bears it."""
    source = program("reading", 45, busy=100, steps=12)
    slow = [[Python(50_000_000), *step] if number == 6 else step for number, step in enumerate(source.steps)]
    assert chosen(times(replace(source, steps=slow), tmp_path)) == list(range(12))


def test_even_steps_are_all_chosen(tmp_path: Path) -> None:
    source = program("reading", 46, busy=100)
    assert chosen(times(source, tmp_path)) == list(range(8))


def test_steps_whose_work_was_lost_are_not_recorded(tmp_path: Path) -> None:
    """The device is three steps behind when recording stops without waiting for it."""
    source = program("plain", 47, busy=1500, steps=12, record_until=(11, 0), drained=False)
    truth = {row.step: row.recorded for row in answers.device_periods(record(source))}
    told = times(source, tmp_path)
    assert dict(told.select("step", pl.col("device_period_ns").is_not_null()).iter_rows()) == truth
    assert not all(truth.values())
