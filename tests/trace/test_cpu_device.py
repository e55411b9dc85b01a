"""The CPU as device: its tasks are the operator calls, its device time is their self time, nothing is there twice."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from steplens.analysis.device.idle import idle_causes
from steplens.analysis.device.kernels import kernel_statistics, op_statistic, outermost_tasks
from steplens.analysis.operators.operators import operators
from steplens.analysis.steps.times import step_times
from steplens.analysis.tools.overlap import merged
from steplens.timeline.layout import build_timeline
from steplens.trace.building.build import build_trace
from steplens.trace.building.checks.order import duplicated_events
from steplens.trace.building.cpu_device import communication_names, cpu_tasks, tasks_of_calls
from steplens.trace.building.devices import cpu_is_device
from steplens.trace.health import HealthLog
from steplens.trace.schema import NAME, SCOPE_BACKWARD, SCOPE_FUNCTION, SCOPE_USER
from steplens.trace.trace import Trace
from steplens.writers.device_tasks import device_tasks, one_after_the_other

PID, MAIN, GLOO = 100, 101, 102
NAMES = ["aten::linear", "aten::addmm", "aten::sum", "autograd::engine::evaluate_function: X", "range", "gloo:send"]
RANGES = ["start_ns", "end_ns"]


def run(calls: list[dict[str, Any]], **more: pl.DataFrame) -> Trace:
    rows = [{"pid": PID, "tid": MAIN, "scope": SCOPE_FUNCTION, **call} for call in calls]
    frame = pl.DataFrame(rows).with_columns(pl.col("name").cast(NAME), pl.col("scope").cast(pl.UInt8))
    return build_trace(Path("run"), {"ops": frame, **more}, HealthLog())


def call(name: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "start_ns": start, "end_ns": end, **more}


@st.composite
def nested_calls(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Calls of two threads that nest as a stack of calls does: each closes what it opened last, at times that never go back."""
    rows: list[dict[str, Any]] = []
    for tid in (MAIN, MAIN + 1):
        time, opened = draw(st.integers(0, 5)), []
        for opens in draw(st.lists(st.booleans(), max_size=24)):
            time += draw(st.integers(0, 7))
            if opens:
                name = draw(st.sampled_from(NAMES))
                scope = SCOPE_USER if name == "range" else draw(st.sampled_from([SCOPE_FUNCTION, SCOPE_BACKWARD]))
                rows.append(call(name, time, time, tid=tid, scope=scope, external_id=len(rows) + 1))
                opened.append(rows[-1])
            elif opened:
                opened.pop()["end_ns"] = time
        for row in reversed(opened):
            time += draw(st.integers(0, 7))
            row["end_ns"] = time
    return rows or [call("aten::relu", 0, 1)]


def busy(rows: pl.DataFrame) -> list[list[int]]:
    """Starts and ends of the union of some ranges."""
    return [part.tolist() for part in merged(rows.select(RANGES))]


def computing(trace: Trace) -> pl.DataFrame:
    """The calls that compute: no ranges of the user, no communication."""
    ops = trace.required("ops").collect()
    return ops.filter((pl.col("scope") != SCOPE_USER) & (pl.col("name").cast(pl.String) != "gloo:send"))


@given(nested_calls())
def test_device_time_is_self_time_and_counts_are_counts_of_calls(rows: list[dict[str, Any]]) -> None:
    trace = run(rows)
    every, calls = trace.required("ops").collect(), computing(trace)
    tasks = trace.required("kernels").collect()
    # call by call, in sum, and below every call
    assert calls["device_self_ns"].to_list() == calls["self_ns"].to_list()
    assert every["device_self_ns"].sum() == calls["self_ns"].sum() == tasks["self_ns"].sum()
    for row in every.iter_rows(named=True):
        inside = calls.filter(
            (pl.col("tid") == row["tid"]) & (pl.col("id") >= row["id"]) & (pl.col("end_ns") <= row["end_ns"])
            & (pl.col("start_ns") >= row["start_ns"]) & ((pl.col("depth") > row["depth"]) | (pl.col("id") == row["id"]))
            & ((pl.col("start_ns") < row["end_ns"]) | (pl.col("id") == row["id"]))
        )  # fmt: skip
        assert row["device_total_ns"] == inside["self_ns"].sum()
    # nothing that an operator does is idle
    assert busy(tasks) == busy(calls)
    # by name the same counts and sums as the operators
    shown = {row["name"]: (row["calls"], row["self_ns"]) for row in operators(trace).to_dicts()}
    for row in kernel_statistics(trace).to_dicts() if tasks.height else ():
        if row["name"] not in ("aten::sum", "aten::linear", "aten::addmm") or not _below_a_range_of_its_name(every, row["name"]):
            assert (row["count"], row["total_ns"]) == shown[row["name"]]
    assert op_statistic(trace)["count"].sum() == tasks.height
    assert tasks["op"].n_unique() == tasks.height


def _below_a_range_of_its_name(ops: pl.DataFrame, name: str) -> bool:
    joined = ops.with_columns(scope_of=pl.col("scope").gather(pl.col("counted_as")))
    return joined.filter((pl.col("name").cast(pl.String) == name) & (pl.col("scope_of") == SCOPE_USER)).height > 0


@given(nested_calls())
def test_in_files_tasks_stand_one_after_the_other(rows: list[dict[str, Any]]) -> None:
    trace = run(rows)
    tasks, listed = trace.required("kernels").collect(), device_tasks(trace).collect()
    assert listed.drop(RANGES).equals(tasks.drop(RANGES))
    assert (listed["end_ns"] - listed["start_ns"]).to_list() == tasks["self_ns"].to_list()
    for stream in listed.partition_by("stream"):
        ordered = stream.sort("start_ns", "end_ns")
        assert all(end <= start for end, start in itertools.pairwise(itertools.chain(*ordered.select(RANGES).iter_rows())))
    for stream in (MAIN, MAIN + 1):
        outermost = outermost_tasks(trace).filter(pl.col("stream") == stream).collect()
        mine = merged(tasks.filter(pl.col("stream") == stream).select(RANGES))
        assert (outermost["end_ns"] - outermost["start_ns"]).sum() == mine.length_ns
    if not {"range", "gloo:send"} & {row["name"] for row in rows}:
        # nothing lies between the tasks of a call: no task before its call, or behind the end of the outermost one around it
        assert (listed["start_ns"] >= tasks["start_ns"]).all()
        for stream in (MAIN, MAIN + 1):
            one, other = (frame.filter(pl.col("stream") == stream) for frame in (tasks, listed))
            assert [length for length in busy(one) if length] == [length for length in busy(other) if length]


def test_one_of_ten_convolutions_with_a_small_share_of_its_own_does_not_become_idle() -> None:
    rows = [call("ProfilerStep#1", 0, 2_000, scope=SCOPE_USER)]
    for number in range(10):
        begin = 100 + 150 * number
        # each takes 100; nine of them work in their own time, one mostly calls others
        inner = 65 if number == 4 else 10
        rows += [
            call("aten::convolution_backward", begin, begin + 100),
            call("aten::empty", begin + 20, begin + 20 + inner),
            call("aten::resize_", begin + 21, begin + 21 + inner // 2),
        ]
    trace = run(rows)
    (found,) = kernel_statistics(trace).filter(pl.col("name") == "aten::convolution_backward").to_dicts()
    (shown,) = operators(trace).filter(pl.col("name") == "aten::convolution_backward").to_dicts()
    assert (found["count"], found["total_ns"]) == (shown["calls"], shown["self_ns"]) == (10, 9 * 90 + 35)
    assert shown["device_self_ns"] == shown["self_ns"]
    (step,) = step_times(trace).to_dicts()
    # nine gaps between the calls, and what lies in front of the first and behind the last call
    assert (step["computing_ns"], step["idle_ns"]) == (1_000, 9 * 50 + 100 + 450)
    assert step["exposed_communication_ns"] == step["exposed_copy_ns"] == 0
    assert idle_causes(trace)["idle_ns"].sum() == step["idle_ns"]
    # between the calls there is Python, and nothing else
    assert idle_causes(trace)["cause"].to_list() == ["python"]


def test_wrappers_and_dispatching_compute_and_communication_does_not() -> None:
    trace = run(
        [
            call("autograd::engine::evaluate_function: AddmmBackward0", 0, 100),
            call("AddmmBackward0", 5, 60, scope=SCOPE_BACKWARD),
            call("c10d::allreduce_", 70, 90),
            call("record_param_comms", 72, 80),
            call("gloo:all_reduce", 90, 300, tid=GLOO),
            call("## forward ##", 400, 500, scope=SCOPE_USER),
            call("aten::mm", 410, 490),
        ]
    )
    tasks = {row["name"]: row for row in trace.required("kernels").collect().to_dicts()}
    assert {name: row["self_ns"] for name, row in tasks.items()} == {
        "autograd::engine::evaluate_function: AddmmBackward0": 25, "AddmmBackward0": 55, "aten::mm": 80,
        "c10d::allreduce_": 12, "record_param_comms": 8,
    }  # fmt: skip
    assert tasks["AddmmBackward0"]["kind"] == "compute" and tasks["AddmmBackward0"]["core"] == "CPU"
    assert trace.required("communication").collect()["name"].to_list() == ["gloo:all_reduce"]
    device = dict(trace.required("ops").select(pl.col("name").cast(pl.String), "device_self_ns").collect().rows())
    assert device["gloo:all_reduce"] == device["## forward ##"] == 0
    # what a thread does in its outermost calls is what its tasks add up to
    assert sum(row["self_ns"] for row in tasks.values()) == 100 + 80


def test_an_only_child_of_its_parents_name_is_part_of_its_task() -> None:
    trace = run([call("aten::sum", 0, 10), call("aten::sum", 2, 9), call("aten::fill_", 3, 5)])
    tasks = trace.required("kernels").collect()
    assert tasks.select(pl.col("name").cast(pl.String), "op", "self_ns").rows() == [("aten::sum", 0, 8), ("aten::fill_", 2, 2)]
    assert trace.required("ops").collect()["device_self_ns"].to_list() == [3, 5, 2]
    # below a range of the user the call is a task of its own
    below = run([call("aten::sum", 0, 10, scope=SCOPE_USER), call("aten::sum", 2, 9)]).required("kernels").collect()
    assert below.select("op", "self_ns").rows() == [(1, 7)]


def test_calls_of_the_cpu_are_once_on_the_timeline() -> None:
    trace = run([call("aten::linear", 0, 100), call("aten::addmm", 10, 90), call("gloo:all_reduce", 20, 60, tid=GLOO)])
    assert cpu_is_device(trace)
    timeline = build_timeline(trace, 0)
    drawn = {lane.source.id for lane in timeline.lanes}
    assert drawn == {"operators", "device_states"}
    assert [timeline.names[number] for number in timeline.name].count("aten::addmm") == 1


def test_a_source_that_lists_the_calls_as_tasks_tells_their_types() -> None:
    calls = [call("Default/MatMul-op1", 0, 100), call("Default/Relu-op2", 100, 150)]
    tasks = pl.DataFrame(
        [
            {"name": row["name"], "type": row["name"][8:-4], "start_ns": row["start_ns"], "end_ns": row["end_ns"], "stream": MAIN,
             "device": 3, "core": "CPU", "kind": "compute", "launch_ns": row["start_ns"], "launch_pid": PID, "launch_tid": MAIN}
            for row in calls
        ]
    )  # fmt: skip
    # its call was lost
    lost = tasks.head(1).with_columns(pl.col("start_ns") + 900, pl.col("end_ns") + 850, launch_ns=pl.lit(None, pl.Int64))
    trace = run(calls, kernels=pl.concat([tasks, lost]))
    found = trace.required("kernels").select(pl.col("type").cast(pl.String), "device", "op", "self_ns", "id").collect()
    assert found.rows() == [("MatMul", 3, 0, 100, 0), ("Relu", 3, 1, 50, 1), ("MatMul", 3, None, 50, 2)]


def test_tasks_of_an_accelerator_keep_their_lengths() -> None:
    tasks = pl.DataFrame(
        [{"name": "gemm", "type": "kernel", "start_ns": 10, "end_ns": 40, "stream": 7, "device": 0, "core": "CUDA"}]
    )
    trace = run([call("aten::mm", 0, 20)], kernels=tasks)
    assert not cpu_is_device(trace)
    assert trace.required("kernels").collect()["self_ns"].to_list() == [30]
    assert device_tasks(trace).collect().equals(trace.required("kernels").collect())


def test_a_call_that_is_there_twice_is_reported_once() -> None:
    trace = run([call("aten::mm", 0, 1_003, external_id=7), call("aten::mm", 0, 1_003, external_id=7)])
    tables = {name: trace.required(name).collect() for name in trace}
    assert [found.check for found in duplicated_events(tables)] == ["duplicated_events"]


def test_without_calls_there_are_no_tasks() -> None:
    ops = run([call("aten::mm", 0, 1)]).required("ops").collect().clear()
    tasks = cpu_tasks(ops, tasks_of_calls(ops, communication_names(ops)))
    assert tasks.is_empty() and one_after_the_other(tasks).is_empty()


def _exchange(peer: str) -> list[dict[str, Any]]:
    """A send and a receive: their events begin inside the calls that ask for them and end behind them."""
    arguments = {"arguments": f'["", "", "{peer}", "0"]', "scope": SCOPE_FUNCTION}
    return [
        call("c10d::send", 0, 30, **arguments),
        call("gloo:send", 25, 40),
        call("c10d::recv_", 50, 70, **arguments),
        call("gloo:recv", 60, 200),
        call("gloo:all_reduce", 300, 400, tid=GLOO),
    ]


def test_sends_and_receives_have_the_rank_that_their_call_names() -> None:
    """A send begins with its call: when its event begins, the message may have arrived already."""
    rows = run(_exchange("3")).required("communication").select("kind", "peer", "start_ns", "end_ns").collect().rows()
    assert rows == [("send", 3, 0, 40), ("receive", 3, 60, 200), ("collective", None, 300, 400)]
    assert run(_exchange("-1")).required("communication").collect()["peer"].to_list() == [None] * 3


def test_a_number_in_one_of_several_groups_is_no_rank() -> None:
    groups = {"pg_config": [{"pg_name": "0", "pg_size": 4}, {"pg_name": "1", "pg_size": 2}]}
    job = pl.DataFrame({"key": ["distributedInfo"], "value": [json.dumps(groups)]})
    trace = run(_exchange("1"), meta=job)
    assert trace.required("communication").collect()["peer"].to_list() == [None] * 3


def test_arguments_that_are_damaged_name_no_rank() -> None:
    for arguments in ("", "[", '["", ""]', '{"2": 1}', '["", "", null, "0"]', '["", "", "1e99", "0"]', '["", "", "99999999999"]'):
        calls = [{**each, "arguments": arguments} if "arguments" in each else each for each in _exchange("3")]
        assert run(calls).required("communication").collect()["peer"].to_list() == [None] * 3, arguments
