"""The basis of a step: tables per step against the raw events of a capture, and times of groups against a loop."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from typing import Any, TypeAlias

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steplens.analysis.device.bound import bound
from steplens.analysis.device.kernels import kernel_statistics, op_statistic
from steplens.analysis.device.step_work import step_work
from steplens.analysis.operators.flop_tree import flop_tree
from steplens.analysis.operators.flops import flops
from steplens.analysis.operators.operators import ALL_STEPS, operators, operators_of_traces
from steplens.analysis.steps.basis import basis_sentence, step_basis
from steplens.analysis.tools.outermost import is_outermost
from steplens.run import open_run
from steplens.trace.building.classify import category_of
from steplens.trace.schema import SCOPE_FUNCTION, SCOPE_USER

from ..shared_data import shared
from ..writers.builder import BASE_NS, MAIN, PID, build, kernel, op

NAMES = ("aten::mm", "aten::matmul", "aten::add")
STACKS = ("a.py(1): f", "a.py(1): f;b.py(2): g", None)


def steps(count: int) -> list[dict[str, Any]]:
    edges = [(BASE_NS + number * 1_000_000, BASE_NS + (number + 1) * 1_000_000) for number in range(count)]
    return [{"id": number, "start_ns": edge[0], "end_ns": edge[1], "pid": PID, "tid": MAIN} for number, edge in enumerate(edges)]


@st.composite
def nested(draw: Any) -> list[dict[str, Any]]:
    """Calls in calls, in the order of their starts."""
    rows: list[dict[str, Any]] = []

    def fill(begin: int, end: int, parent: int) -> None:
        at = begin
        while end - at > 2 and len(rows) < 30 and draw(st.booleans()):
            length = draw(st.integers(1, end - at))
            place = len(rows)
            call = op(draw(st.sampled_from(NAMES)), at, at + length, parent=parent, id=place, counted_as=place, step=0)
            rows.append(
                {**call, "scope": draw(st.sampled_from([SCOPE_FUNCTION, SCOPE_USER])), "stack": draw(st.sampled_from(STACKS))}
            )
            fill(at, at + length, place)
            at += length

    fill(0, 200, -1)
    return rows


@settings(max_examples=30, deadline=None)
@given(nested())
def test_a_total_counts_no_time_twice(rows: list[dict[str, Any]]) -> None:
    """What a group took is the union of its calls' ranges; ranges that somebody marked are in no group."""
    trace = build(ops=rows)
    keys = {
        "name": lambda row: row["name"],
        "category": lambda row: category_of(row["name"]),
        "line": lambda row: row["stack"] and "a.py(1): f",
    }
    for by, key in keys.items():
        covered: dict[Any, set[int]] = defaultdict(set)
        for row in rows:
            if row["scope"] == SCOPE_FUNCTION:
                covered[key(row)] |= set(range(row["start_ns"], row["end_ns"], 1000))
        found = operators(trace, by)
        assert dict(found.select(by, "total_ns").iter_rows()) == {group: len(times) * 1000 for group, times in covered.items()}
        assert found["calls"].sum() == sum(row["scope"] == SCOPE_FUNCTION for row in rows)
        everything = operators(trace, by, annotations=True)
        assert everything["calls"].sum() == len(rows)


def test_parents_that_are_none() -> None:
    """Of a damaged source: outside of the table, or behind the call."""
    parents, groups = pl.Series([5, 2, 0, -7]).to_numpy(), pl.Series([0, 0, 0, 0]).to_numpy()
    assert is_outermost(parents, groups).tolist() == [True, True, False, True]


def test_a_step_is_the_mean_of_the_chosen_ones_and_marks_are_no_operators() -> None:
    """The first of six steps is warm-up: its call takes ten times as long."""
    calls, marks = [], []
    for number in range(6):
        length = 100 if number else 900
        marks.append(op(f"ProfilerStep#{number}", number * 1000, number * 1000 + 1000, scope=SCOPE_USER, step=number))
        calls.append(op("aten::mm", number * 1000 + 10, number * 1000 + 10 + length, step=number))
        calls += [
            op("aten::add", number * 1000 + 950 + at, number * 1000 + 955 + at, step=number)
            for at in ((0, 10) if number else (0,))
        ]
    ops = [{**row, "counted_as": place} for place, row in enumerate(sorted([*marks, *calls], key=lambda row: row["start_ns"]))]
    tasks = [kernel(row["name"], 0, 1, step=row["step"]) | {name: row[name] for name in ("start_ns", "end_ns")} for row in calls]
    trace = build(steps=steps(6), ops=ops, kernels=tasks)
    assert step_basis(trace).steps == (1, 2, 3, 4, 5)
    per_step = operators(trace, per_step=True)
    assert per_step.select("name", "calls", "self_ns", "total_ns").rows() == [
        ("aten::mm", 1.0, 100_000.0, 100_000.0), ("aten::add", 2.0, 10_000.0, 10_000.0)
    ]  # fmt: skip
    assert per_step["self_percent"].sum() == pytest.approx(100)
    assert operators(trace)["calls"].to_list() == [6, 11]
    assert ALL_STEPS in operators(trace, annotations=True)["name"].to_list()
    assert kernel_statistics(trace, per_step=True).select("name", "count", "total_ns").rows() == [
        ("aten::mm", 1.0, 100_000.0), ("aten::add", 2.0, 10_000.0)
    ]  # fmt: skip
    assert step_work([trace]).select("name", "step_ns", "calls").rows() == [
        ("aten::mm", 100_000.0, 1.0),
        ("aten::add", 10_000.0, 2.0),
    ]
    assert basis_sentence([trace]) == "per step (mean of steps 1-5)"
    # of a trace without steps it is what was recorded
    alone = build(ops=[{**row, "step": None} for row in ops], kernels=tasks)
    assert operators(alone, per_step=True)["calls"].to_list() == [6.0, 11.0]
    assert basis_sentence([alone]) == "sums over the whole recording, which has no steps"
    # several ranks: their mean, of those that have steps
    both = operators_of_traces([trace, build(steps=steps(6), ops=[op("aten::mm", 10, 310, step=0, counted_as=0)])], per_step=True)
    assert both.filter(name="aten::mm")["self_ns"].item() == (100_000 + 300_000 / 6) / 2


def test_a_launch_before_a_full_queue_is_no_work_of_the_host() -> None:
    names = ["aten::relu"] * 10
    calls = [
        op(name, 1000 * place, 1000 * place + 20, device_total_ns=50_000, counted_as=place) for place, name in enumerate(names)
    ]
    # the last one stands still for 400 us, and the queue holds work for 90 ms
    calls[-1]["end_ns"] += 400_000
    api = [
        {"name": "cudaLaunchKernel", "layer": "cuda_runtime", "start_ns": row["start_ns"] + 5000, "pid": PID, "tid": MAIN,
         "end_ns": row["start_ns"] + 10_000 + (400_000 if row is calls[-1] else 0), "correlation": place + 1}
        for place, row in enumerate(calls)
    ]  # fmt: skip
    tasks = [kernel("relu", 90_000 + 60 * place, 90_050 + 60 * place, core="CUDA", correlation=place + 1) for place in range(10)]
    (row,) = bound(build(ops=calls, api=api, kernels=tasks), "operator").to_dicts()
    assert (row["calls"], row["host_ns"], row["device_ns"], row["bound"]) == (10, 200_000, 500_000, "device")


#: ns of every task or call, by name
Lengths: TypeAlias = dict[str, list[int]]


@pytest.fixture(scope="module")
def capture() -> tuple[Any, Lengths, Lengths, Lengths, Lengths]:
    """A capture of a V100 with two steps of warm-up: of the steps 103 to 105, from the raw events, the lengths of tasks and calls
    by name, and those of tasks by the operator that launched them; then the tasks of each that are no kernels."""
    path = shared("kineto", "cuda_ns_resolution_rank0.json.gz")
    events = [event for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if event.get("ph") == "X"]
    marks = [event for event in events if event["name"].startswith("ProfilerStep#") and event["cat"] == "user_annotation"]
    ranges = [(event["ts"], event["ts"] + event["dur"]) for event in marks if int(event["name"].split("#")[1]) > 102]
    assert len(ranges) == 3

    def inside(event: dict[str, Any]) -> bool:
        return any(begin <= event["ts"] < end for begin, end in ranges)

    launched = {
        event["args"]["correlation"] for event in events if event["cat"] in ("cuda_runtime", "cuda_driver") and inside(event)
    }
    tasks: Lengths = defaultdict(list)
    calls: Lengths = defaultdict(list)
    by_operator: Lengths = defaultdict(list)
    no_kernels: Lengths = defaultdict(list)
    operators = {event["args"]["External id"]: event["name"] for event in events if event["cat"] == "cpu_op"}
    for event in events:
        length = round(event["dur"] * 1000)
        if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset") and event["args"]["correlation"] in launched:
            tasks[event["name"]].append(length)
            name = operators[event["args"]["External id"]]
            by_operator[name].append(length)
            if event["cat"] != "kernel":
                no_kernels[name].append(length)
        elif event["cat"] == "cpu_op" and inside(event):
            calls[event["name"]].append(length)
    return open_run(path), tasks, calls, by_operator, no_kernels


def test_tables_of_a_step_are_those_of_the_raw_events(capture: tuple[Any, Lengths, Lengths, Lengths, Lengths]) -> None:
    run, tasks, calls, by_operator, no_kernels = capture
    trace = run.trace()
    found = {row["name"]: row for row in run.table("kernels", per_step=True).to_dicts()}
    assert found.keys() == tasks.keys()
    for name, lengths in tasks.items():
        assert found[name]["count"] == pytest.approx(len(lengths) / 3)
        # times of the file are us with three digits
        assert found[name]["total_ns"] == pytest.approx(sum(lengths) / 3, abs=len(lengths))
    whole = sum(sum(lengths) for lengths in tasks.values())
    assert sum(row["ratio_percent"] for row in found.values()) == pytest.approx(100)
    work = {row["name"]: row for row in step_work(run.traces).to_dicts()}
    assert work.keys() == by_operator.keys()
    for name, lengths in by_operator.items():
        assert work[name]["step_ns"] == pytest.approx(sum(lengths) / 3, abs=len(lengths))
        # beside kernels of an operator its memory sets do not count as such
        kernels = len(lengths) - len(no_kernels[name])
        assert work[name]["calls"] == pytest.approx((kernels or len(lengths)) / 3)
        assert work[name]["ratio"] == pytest.approx(sum(lengths) / whole, abs=1e-3)
    assert op_statistic(trace, per_step=True)["total_ns"].sum() == pytest.approx(whole / 3, rel=1e-6)
    operator_rows = run.table("operators", per_step=True)
    device_ns = {row["name"]: row["device_self_ns"] for row in operator_rows.to_dicts() if row["device_self_ns"]}
    assert device_ns == pytest.approx({name: row["step_ns"] for name, row in work.items()}), "one definition in both places"
    assert set(operator_rows["name"]) == set(calls)
    assert operator_rows["calls"].sum() <= sum(map(len, calls.values())) / 3
    convolutions = operator_rows.filter(name="aten::conv2d")
    assert convolutions["calls"].item() == len(calls["aten::conv2d"]) / 3
    assert convolutions["total_ns"].item() == pytest.approx(sum(calls["aten::conv2d"]) / 3, rel=1e-6)


def test_arithmetic_of_a_step_and_of_all_ranks() -> None:
    def rank(number: int, products: int) -> Any:
        shapes = {"input_shapes": "10,20;20,30", "input_types": "float;float"}
        calls = [
            op("aten::mm", 1000 * step + 50 * place, 1000 * step + 50 * place + 20, step=step, **shapes, device_total_ns=20_000)
            for step in range(4)
            for place in range(products)
        ]
        numbered = [{**row, "counted_as": place} for place, row in enumerate(calls)]
        return build(steps=steps(4), ops=numbered, meta={"rank": number})

    few, many = rank(0, 1), rank(1, 5)
    work = 2 * 10 * 20 * 30
    assert flop_tree(few)["flops"].to_list() == [work, work]
    assert flop_tree([few, many])["flops"].to_list() == [3 * work, 3 * work]
    (row,) = flops(many, per_step=True).to_dicts()
    assert (row["calls"], row["flops"], row["time_ns"], row["flops_per_second"]) == (5, 5 * work, 100_000, work / 20e-6)
    assert flops(many)["flops"].item() == 4 * 5 * work
