"""The step trace: recorded points against golden tables, points found in tasks against hand-made steps."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import mean, median

import polars as pl
import pytest

from steplens.analysis import step_trace as steps_of
from steplens.readers import legacy_device
from steplens.trace.build import build_trace
from steplens.trace.health import HealthLog
from steplens.trace.schema import SCHEMA
from steplens.trace.trace import Trace

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "mindspore"


def recorded(job: str) -> Trace:
    if not (SHARED / job).is_dir():
        pytest.skip("the shared test data is not beside this checkout")
    return legacy_device.read_trace(SHARED / job)


@pytest.mark.parametrize(("job", "golden"), [("JOB1", 0), ("ERROR_JOB", 10)])
def test_detail_table_equals_the_golden_file_cell_by_cell(job: str, golden: int) -> None:
    table = steps_of.detail_table(recorded(job))
    with (SHARED / "profiler" / f"step_trace_raw_{golden}_detail_time.csv").open(newline="") as handle:
        header, *rows = csv.reader(handle)
    assert table.columns == header
    assert [[str(cell) for cell in row] for row in table.iter_rows()] == rows


@pytest.mark.parametrize(
    ("job", "count", "expected"),
    [
        ("JOB1", 20, ["130.4561", "90.3536", "17.0945", "23.0080"]),
        ("ERROR_JOB", 40, ["130.4972", "90.3735", "17.1141", "23.0096"]),
    ],
)
def test_averages_leave_out_the_first_step_and_say_so(job: str, count: int, expected: list[str]) -> None:
    averages = steps_of.averages(recorded(job))
    found = {row["part"]: f"{row['mean_ns'] / 1e6:.4f}" for row in averages.parts.iter_rows(named=True)}
    assert found == dict(zip(steps_of.PARTS, expected, strict=True))
    assert averages.excluded == (1,)
    assert averages.steps == tuple(range(2, count + 1))
    assert set(averages.parts["steps"]) == {count - 1}


def test_shares_and_collectives_of_the_average_step() -> None:
    averages = steps_of.averages(recorded("JOB1"))
    shares = {part: f"{share:.2%}" for part, share in averages.parts.select("part", "share").iter_rows()}
    assert shares == {"total_ns": "100.00%", "interval_ns": "69.26%", "forward_backward_ns": "13.10%", "tail_ns": "17.64%"}
    expected = [(10, 90.4991, 0.2181), (10, 100.5027, 3.0058), (10, 112.6086, 1.9994), (11, 90.5095, 0.2986)]
    for row, (stream, start, duration) in zip(averages.collectives.iter_rows(named=True), expected, strict=True):
        assert row["stream"] == stream
        # the expected values were printed from means of stamps that had been rounded to 10 ns
        assert row["start_ns"] / 1e6 == pytest.approx(start, abs=1e-4)
        assert row["duration_ns"] / 1e6 == pytest.approx(duration, abs=1e-4)


def test_collectives_are_averaged_over_the_steps_that_have_them() -> None:
    trace = recorded("ERROR_JOB")
    averages = steps_of.averages(trace)
    assert averages.collectives["steps"].to_list() == [19] * 4
    with (SHARED / "profiler" / "step_trace_raw_10_detail_time.csv").open(newline="") as handle:
        rows = [row for row in csv.DictReader(handle) if row["step_num"] != "-" and 2 <= int(row["step_num"]) <= 20]
    for row in averages.collectives.iter_rows(named=True):
        name = row["name"]
        starts = [int(step[f"{name}_start_point"]) - int(step["start_point"]) for step in rows]
        assert row["start_ns"] == pytest.approx(10 * mean(starts))
        assert row["duration_ns"] == pytest.approx(10 * mean(int(step[name]) for step in rows))
        assert row["start_ns"] > 0 and row["duration_ns"] > 0


def test_median_and_percentile_are_of_the_same_steps() -> None:
    trace = recorded("JOB1")
    tails = steps_of.step_trace(trace)["tail_ns"].to_list()[1:]
    row = steps_of.averages(trace).parts.row(by_predicate=pl.col("part") == "tail_ns", named=True)
    assert row["median_ns"] == median(tails)
    assert sum(tail <= row["p90_ns"] for tail in tails) == 17  # 0.9 * 18 = place 16.2 of 0..18
    everything = steps_of.averages(trace, warm_up=0)
    assert everything.excluded == () and everything.steps == tuple(range(1, 21))


def run(tasks: list[tuple[str, int, int, str]]) -> Trace:
    """Two steps of 1000 ns; tasks are name, start, end, kind."""
    names, starts, ends, kinds = zip(*tasks, strict=True)
    kernels = pl.DataFrame(
        {"name": names, "start_ns": starts, "end_ns": ends, "kind": kinds, "core": "AI_CORE", "device": 0, "stream": 1}
    )
    steps = pl.DataFrame({"id": [5, 6], "start_ns": [0, 1000], "end_ns": [1000, 2000]})
    reduces = kernels.filter(pl.col("kind") == "communication").with_columns(kind=pl.lit("collective"))
    tables = {"kernels": kernels, "steps": steps, "communication": reduces.drop("core")}
    return build_trace(Path("made"), tables, HealthLog(), cpu_is_device=False)


TASKS = [
    ("Default/GetNext-op1", 10, 60, "compute"),
    ("Default/net/Conv2D-op2", 70, 200, "compute"),
    ("Gradients/Default/net/gradConv2D-op3", 210, 500, "compute"),
    ("Default/AllReduce-op4", 510, 700, "communication"),
    ("Default/Momentum-op5", 710, 900, "compute"),
    ("Default/net/Conv2D-op2", 1070, 1200, "compute"),
    ("Gradients/Default/net/gradConv2D-op3", 1210, 1500, "compute"),
    ("Gradients/Default/net/gradCast-op6", 1510, 1520, "compute"),
    ("Default/Momentum-op5", 1710, 1900, "compute"),
]


def test_points_are_found_behind_get_next_and_before_the_last_all_reduce() -> None:
    found = steps_of.step_trace(run(TASKS))
    assert found.columns == list(steps_of.COLUMNS)
    first, second = found.rows(named=True)
    # behind GetNext; before the all-reduce
    assert (first["step"], first["forward_ns"], first["backward_ns"]) == (5, 70, 500)
    assert (first["interval_ns"], first["forward_backward_ns"], first["tail_ns"], first["total_ns"]) == (70, 430, 500, 1000)
    # no GetNext: the first task; no all-reduce: the last one of the backward pass
    assert (second["forward_ns"], second["backward_ns"]) == (1070, 1520)


def test_points_may_be_named_by_the_last_parts_of_a_name() -> None:
    trace = run(TASKS)
    found = steps_of.step_trace(trace, forward_point="Default/GetNext-op1", backward_point="net/gradConv2D-op3")
    assert found["forward_ns"].to_list() == [10, None]
    assert found["backward_ns"].to_list() == [500, 1500]
    assert found["interval_ns"].to_list() == [10, None]
    averages = steps_of.averages(trace, steps=found)
    assert averages.parts.filter(part="tail_ns")["mean_ns"].to_list() == [500]
    assert averages.parts.filter(part="interval_ns")["mean_ns"].to_list() == [None]
    assert averages.parts.filter(part="interval_ns")["steps"].to_list() == [0]


def test_environment_names_points() -> None:
    both = {"FP_POINT": "a", "PROFILING_FP_START": "b", "PROFILING_BP_END": "c", "BP_POINT": ""}
    assert steps_of.named_points(both) == ("a", "c")
    assert steps_of.named_points({"PROFILING_FP_START": "b"}) == ("b", None)
    assert steps_of.named_points({}) == (None, None)


def test_only_the_training_model_counts() -> None:
    columns = ["step", "model_id", "start_ns", "forward_ns", "backward_ns", "end_ns"]
    rows = [(1, 3, 0, 0, 50, 90), (1, 8, 100, 100, 150, 180), (2, 8, 180, 190, 250, 280)]
    points = pl.DataFrame(rows, schema={name: SCHEMA["step_points"][name] for name in columns}, orient="row")
    reduces = pl.DataFrame(
        [(1, 3, 0, 0, "a", 10, 20), (2, 8, 0, 0, "b", 200, 240)], schema=SCHEMA["step_collectives"], orient="row"
    )
    trace = Trace(Path("made"), {"step_points": points, "step_collectives": reduces})
    assert steps_of.step_trace(trace)["start_ns"].to_list() == [100, 180]
    assert steps_of.step_collectives(trace)["name"].cast(pl.String).to_list() == ["b"]
    assert steps_of.averages(trace).collectives.select("start_ns", "duration_ns").rows() == [(20.0, 40.0)]


def test_inference_steps_have_no_backward_part() -> None:
    rows = [(step, None, 100 * step, 100 * step + 10, None, 100 * step + 100) for step in (1, 2)]
    points = pl.DataFrame(rows, schema=SCHEMA["step_points"], orient="row")
    trace = Trace(Path("made"), {"step_points": points})
    found = steps_of.step_trace(trace)
    assert found["tail_ns"].to_list() == [None, None] == found["forward_backward_ns"].to_list()
    assert found["interval_ns"].to_list() == [10, 10]
    assert steps_of.detail_table(trace)["tail"].to_list() == [0, 0, 0]


def test_a_trace_without_steps_has_no_step_trace() -> None:
    trace = Trace(Path("made"), {})
    assert steps_of.step_trace(trace).height == 0
    averages = steps_of.averages(trace)
    assert averages.steps == () and averages.parts["mean_ns"].null_count() == 4
    assert steps_of.detail_table(trace).height == 0
