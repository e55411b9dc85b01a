"""The step trace: recorded points against golden tables, points found in tasks against hand-made steps."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import mean, median

import polars as pl
import pytest

from steplens.analysis.step_trace import step_trace as steps_of
from steplens.common.step_points import named_points
from steplens.readers.mindspore.device_logs import legacy_device
from steplens.trace.building.build import build_trace
from steplens.trace.health import HealthLog
from steplens.trace.schema import SCHEMA
from steplens.trace.trace import Trace

from ..shared_data import shared


def recorded(job: str) -> Trace:
    return legacy_device.read_trace(shared("mindspore", job))


@pytest.mark.parametrize(("job", "golden"), [("JOB1", 0), ("ERROR_JOB", 10)])
def test_detail_table_equals_the_golden_file_cell_by_cell(job: str, golden: int) -> None:
    table = steps_of.detail_table(recorded(job))
    with shared("mindspore", "profiler", f"step_trace_raw_{golden}_detail_time.csv").open(newline="") as handle:
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
    with shared("mindspore", "profiler", "step_trace_raw_10_detail_time.csv").open(newline="") as handle:
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
    assert averages.parts.filter(part="interval_ns")["mean_ns"].to_list() == [10]
    assert averages.parts.filter(part="interval_ns")["steps"].to_list() == [1]


def test_environment_names_points() -> None:
    both = {"FP_POINT": "a", "PROFILING_FP_START": "b", "PROFILING_BP_END": "c", "BP_POINT": ""}
    assert named_points(both) == ("a", "c")
    assert named_points({"PROFILING_FP_START": "b"}) == ("b", None)
    assert named_points({}) == (None, None)


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


def with_points(config: dict[str, object] | None = None) -> Trace:
    """The steps of ``TASKS``, and a third without tasks, with points that the device recorded."""
    trace = run(TASKS)
    rows = [(5, 1, 0, 20, 940, 1000), (6, 1, 1000, 1020, 1940, 2000), (7, 1, 2000, 2020, 2940, 3000)]
    columns = ["step", "model_id", "start_ns", "forward_ns", "backward_ns", "end_ns"]
    points = pl.DataFrame(rows, schema=columns, orient="row")
    meta = pl.DataFrame({"key": ["config"], "value": [json.dumps(config or {})]})
    tables = {name: trace.required(name).collect() for name in ("kernels", "steps", "communication")}
    return build_trace(Path("made"), {**tables, "step_points": points, "meta": meta}, HealthLog(), cpu_is_device=False)


def test_a_named_point_moves_alone() -> None:
    forward = steps_of.step_trace(with_points(), forward_point="net/Conv2D-op2")
    # what is not in a step has no time in it; the recorded backward points stay
    assert forward["forward_ns"].to_list() == [70, 1070, None]
    assert forward["backward_ns"].to_list() == [940, 1940, 2940]
    assert forward["tail_ns"].to_list() == [60, 60, 60]
    assert forward["forward_backward_ns"].to_list() == [870, 870, None]
    backward = steps_of.step_trace(with_points(), backward_point="net/gradConv2D-op3")
    assert backward["forward_ns"].to_list() == [20, 1020, 2020]
    assert backward["backward_ns"].to_list() == [500, 1500, None]


@pytest.mark.parametrize("variable", ["FP_POINT", "PROFILING_FP_START"])
def test_the_environment_names_points_of_every_question(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "net/Conv2D-op2")
    monkeypatch.setenv("BP_POINT", "nothing/of/this/name")
    trace = with_points()
    assert steps_of.step_trace(trace)["interval_ns"].to_list() == [70, 70, None]
    # a name that no operator has moves nothing, and is told
    assert steps_of.step_trace(trace)["backward_ns"].to_list() == [940, 1940, 2940]
    assert steps_of.points_of(trace) == steps_of.NamedPoints("net/Conv2D-op2", None, ("nothing/of/this/name",))
    table = steps_of.detail_table(trace)
    # the means are of the steps that have the point
    assert table["fp_point"].to_list() == [7, 107, 0, 107]


def test_points_that_were_named_while_recording_hold_unless_the_environment_names_others(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = with_points({"fp_point": "net/Conv2D-op2", "bp_point": "net/gradConv2D-op3"})
    assert steps_of.step_trace(trace).select("forward_ns", "backward_ns").row(0) == (70, 500)
    monkeypatch.setenv("PROFILING_BP_END", "Momentum-op5")
    assert steps_of.step_trace(trace).select("forward_ns", "backward_ns").row(0) == (70, 900)


def test_the_gradients_of_a_graph_are_no_forward_pass() -> None:
    tasks = [("Gradients/Default/net/ExpandDims-op0", 5, 8, "compute"), *[task for task in TASKS if "GetNext" not in task[0]]]
    assert steps_of.step_trace(run(tasks))["forward_ns"].to_list() == [70, 1070]


def training_calls() -> Trace:
    """A step of PyTorch on a CPU: makes an iterator, takes a batch, augments it, runs forward, backward, the optimizer."""
    calls = [
        # name, start, end, scope, sequence
        ("aten::empty", 5, 10, 0, 7),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 20, 100, 7, None),
        ("aten::select", 30, 40, 0, 7),
        ("aten::mul", 110, 130, 0, 7),
        ("aten::linear", 150, 250, 0, None),
        ("aten::t", 151, 160, 0, None),
        ("aten::addmm", 170, 240, 0, 7),
        ("autograd::engine::evaluate_function: AddmmBackward0", 300, 400, 1, 7),
        ("aten::mm", 310, 390, 0, None),
        ("Optimizer.step#SGD.step", 410, 500, 7, None),
        ("aten::add_", 420, 490, 0, None),
    ]
    names, starts, ends, scopes, sequences = zip(*calls, strict=True)
    ops = pl.DataFrame({"name": names, "start_ns": starts, "end_ns": ends, "scope": scopes, "sequence": sequences})
    steps = pl.DataFrame({"id": [1], "start_ns": [0], "end_ns": [600]})
    ops = ops.with_columns(pid=pl.lit(1), tid=pl.lit(1))
    return build_trace(Path("made"), {"ops": ops, "steps": steps}, HealthLog(), cpu_is_device=True)


def test_forward_begins_with_the_first_operator_that_autograd_answers() -> None:
    step = steps_of.step_trace(training_calls()).row(0, named=True)
    # forward begins where linear is called, behind selecting and augmenting; the node of autograd works until it returns
    assert (step["forward_ns"], step["backward_ns"]) == (150, 400)


def test_without_a_backward_pass_the_data_loader_is_still_no_forward_pass() -> None:
    trace = training_calls()
    ops = trace.required("ops").filter(pl.col("start_ns").is_between(20, 290)).collect()
    steps = trace.required("steps").collect()
    ops = ops.select("name", "start_ns", "end_ns", "scope", "sequence", "pid", "tid")
    trace = build_trace(Path("made"), {"ops": ops, "steps": steps}, HealthLog(), cpu_is_device=True)
    assert steps_of.step_trace(trace)["forward_ns"].to_list() == [110]
