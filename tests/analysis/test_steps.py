"""Step times against brute force over single nanoseconds."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from steplens.analysis.steps.ascend_step_times import ascend_step_times
from steplens.analysis.steps.times import DEVICE_PARTS, HOST_PARTS, step_times
from steplens.trace.building.build import conform_to_schema
from steplens.trace.health import STEP_AVERAGES, WARNING, finding, frame_of
from steplens.trace.schema import SCOPE_BACKWARD, SCOPE_FUNCTION, SCOPE_USER
from steplens.trace.trace import Trace

STEPS = [(3, 100, 200), (4, 205, 300)]


def trace_of(tasks, operations, ops=()) -> Trace:
    """A trace with the two steps, device tasks (start, end), communication (start, end, kind) and calls."""

    def step_of(time: int) -> int | None:
        return next((step for step, start, end in STEPS if start <= time < end), None)

    tables = {
        "steps": pl.DataFrame(
            [(step, start, end, 1, 7) for step, start, end in STEPS],
            schema=["id", "start_ns", "end_ns", "pid", "tid"],
            orient="row",
        ),
    }
    if tasks:
        tables["kernels"] = pl.DataFrame(
            [("k", "k", "compute", "CPU", start, end, step_of(start)) for start, end in tasks],
            schema={
                "name": pl.String,
                "type": pl.String,
                "kind": pl.String,
                "core": pl.String,
                "start_ns": pl.Int64,
                "end_ns": pl.Int64,
                "step": pl.Int64,
            },
            orient="row",
        )
    if operations:
        tables["communication"] = pl.DataFrame(
            [("c", kind, start, end, step_of(start)) for start, end, kind in operations],
            schema={"name": pl.String, "kind": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64, "step": pl.Int64},
            orient="row",
        )
    if ops:
        tables["ops"] = pl.DataFrame(
            [(name, start, end, 1, tid, scope) for name, start, end, tid, scope in ops],
            schema={
                "name": pl.String,
                "start_ns": pl.Int64,
                "end_ns": pl.Int64,
                "pid": pl.Int64,
                "tid": pl.Int64,
                "scope": pl.UInt8,
            },
            orient="row",
        )
    return Trace(Path("test"), {name: conform_to_schema(name, frame) for name, frame in tables.items()})


spans = st.tuples(st.integers(90, 310), st.integers(0, 60)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(spans, max_size=10), st.lists(st.tuples(spans, st.sampled_from(["collective", "receive"])), max_size=8))
def test_times_of_ascends_files_equal_brute_force(tasks, operations) -> None:
    rows = ascend_step_times(trace_of(tasks, [(*span, kind) for span, kind in operations]))
    assert rows["step"].to_list() == [3, 4]
    for row, (_, start, end) in zip(rows.iter_rows(named=True), STEPS, strict=True):
        computing = {time for a, b in tasks if start <= a < end for time in range(a, b)}
        communication = {time for (a, b), _ in operations if start <= a < end for time in range(a, b)}
        receive = {time for (a, b), kind in operations if kind == "receive" and start <= a < end for time in range(a, b)}
        busy = computing | communication
        span = max(busy) + 1 - min(busy) if busy else 0
        assert row["start_ns"] == start
        assert row["duration_ns"] == end - start
        assert row["computing_ns"] == len(computing)
        assert row["communication_ns"] == len(communication)
        assert row["overlapped_ns"] == len(computing & communication)
        assert row["communication_not_overlapped_ns"] == len(communication - computing)
        assert row["free_ns"] == span - len(busy)
        assert row["preparing_ns"] == (min(busy) - start if busy else 0)
        assert row["bubble_ns"] == len(receive)
        assert row["stage_ns"] == span - len(receive)
        assert row["exclude_receive_ns"] == max(len(communication - computing) - len(receive), 0)


kinds = st.sampled_from(["data", "optimizer", "backward", "forward", "elsewhere"])


@given(st.lists(st.tuples(spans, kinds), max_size=12))
def test_phases_sum_to_the_step_and_contain_their_calls(raw) -> None:
    described = {
        "data": ("enumerate(DataLoader)#next", 7, SCOPE_USER),
        "optimizer": ("Optimizer.step#SGD.step", 7, SCOPE_USER),
        "backward": ("MmBackward0", 8, SCOPE_BACKWARD),
        "forward": ("aten::mm", 7, SCOPE_FUNCTION),
        "elsewhere": ("aten::mm", 9, SCOPE_FUNCTION),
    }
    ops = [(described[kind][0], *span, *described[kind][1:]) for span, kind in raw]
    rows = step_times(trace_of([], [], ops))
    if not ops:
        assert rows["forward_ns"].null_count() == len(STEPS)
        return
    for row, (_, start, end) in zip(rows.iter_rows(named=True), STEPS, strict=True):
        if row["python_ns"] is None:
            # no operator of the training thread: what no range tells of is not known, and never 0
            assert not {"forward"} & {kind for _, kind in raw}
            assert row["between_ns"] is None and row["forward_ns"] is None
            assert (row["data_wait_ns"] is None) == all(kind != "data" or a == b for (a, b), kind in raw)
            continue
        assert sum(row[phase] for phase in HOST_PARTS) == end - start
        assert min(row[phase] for phase in HOST_PARTS) >= 0
        assert 0 <= row["gradient_sync_ns"] <= row["backward_ns"]
        data = {time for (a, b), name in raw if name == "data" for time in range(max(a, start), min(b, end))}
        assert row["data_wait_ns"] == len(data)
        # gaps of a pass may be added, and what waits for data is taken away
        nodes = {time for (a, b), name in raw if name == "backward" for time in range(max(a, start), min(b, end))} - data
        assert row["backward_ns"] >= len(nodes)


def test_forward_is_from_the_first_operator_to_backward_and_backward_to_its_last_node() -> None:
    ops = [
        ("aten::a", 105, 110, 7, SCOPE_FUNCTION),
        ("aten::b", 115, 120, 7, SCOPE_FUNCTION),
        ("X", 130, 140, 8, SCOPE_BACKWARD),
        ("Y", 145, 150, 8, SCOPE_BACKWARD),
        ("Optimizer.step#SGD.step", 160, 170, 7, SCOPE_USER),
        ("aten::c", 180, 185, 7, SCOPE_FUNCTION),
        ("aten::d", 210, 215, 7, SCOPE_FUNCTION),
    ]
    first, second = step_times(trace_of([], [], ops)).iter_rows(named=True)
    phases = ("forward_ns", "backward_ns", "optimizer_ns", "between_ns", "python_ns")
    assert [first[phase] for phase in phases] == [25, 20, 10, 5, 40]
    # no node of backward answers to it: nothing says that it is of the model
    assert [second[phase] for phase in phases] == [0, 0, 0, 5, 90]


def test_a_trace_without_steps() -> None:
    trace = Trace(
        Path("test"),
        {
            name: trace.table(name)
            for trace in [trace_of([(110, 120)], [], [("aten::a", 100, 150, 7, SCOPE_FUNCTION)])]
            for name in ("ops", "kernels")
        },
    )
    trace = Trace(Path("test"), {"ops": trace.ops, "kernels": trace.kernels.with_columns(step=pl.lit(None, dtype=pl.Int64))})
    assert step_times(trace).height == 0
    (row,) = step_times(trace, whole_trace_without_steps=True).iter_rows(named=True)
    assert (row["step"], row["duration_ns"], row["computing_ns"], row["forward_ns"]) == (None, 50, 10, 50)
    assert sum(row[part] for part in HOST_PARTS) == sum(row[part] for part in DEVICE_PARTS) == 50


def test_a_step_that_recording_was_stopped_in_is_not_complete() -> None:
    trace = trace_of([(110, 120), (210, 220)], [])
    assert step_times(trace)["complete"].to_list() == [True, True]
    stopped = frame_of([finding("stopped_inside_step", WARNING, 1, "stopped", STEP_AVERAGES)])
    cut = Trace(trace.source, {**{name: trace.table(name) for name in trace}, "health": stopped})
    assert step_times(cut)["complete"].to_list() == [True, False]
