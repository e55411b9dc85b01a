"""trace_view.json: valid, exact, every event on a named lane, every arrow with both ends."""

from __future__ import annotations

import io
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steplens.analysis.cluster.measured_communication import group_hash
from steplens.trace.schema import SCOPE_MODULE
from steplens.trace.trace import Trace
from steplens.writers.common.output import TIME_BASE_UNIT_NS, NothingToWriteError, Output, time_base_ns
from steplens.writers.common.rows import ROWS_PER_CHUNK
from steplens.writers.trace_view import trace_view

from .builder import BACKWARD, BASE_NS, MAIN, PID, build, frame, kernel, op, synthetic, training_step

HARDWARE = PID << 10 | 14 << 5
COMMUNICATION = PID << 10 | 16 << 5
OVERLAP = PID << 10 | 31 << 5


def events(trace: Trace, level: str = "Level0") -> list[dict[str, Any]]:
    handle = io.BytesIO()
    trace_view.write_events(Output(trace, BASE_NS, level), handle)
    text = handle.getvalue().decode()
    assert "\n" not in text
    found = json.loads(text, parse_float=Decimal)
    assert isinstance(found, list)
    return found


def complete(found: list[dict[str, Any]], category: str | None = None) -> list[dict[str, Any]]:
    return [event for event in found if event["ph"] == "X" and event.get("cat") == category]


def check(found: list[dict[str, Any]]) -> None:
    """What holds for every timeline."""
    assert found[0]["args"] == {"base_time_ns": BASE_NS}
    processes = {event["pid"] for event in found if event["name"] == "process_name"}
    threads = {(event["pid"], event["tid"]) for event in found if event["name"] == "thread_name"}
    named = Counter((event["name"], event["pid"], event["tid"]) for event in found if event["ph"] == "M")
    assert max(named.values()) == 1
    assert {pid for pid, _ in threads} <= processes
    ends: dict[tuple[str, int], list[str]] = {}
    slices = {(event["pid"], event["tid"], event["ts"]) for event in found if event["ph"] == "X"}
    for event in found:
        if event["ph"] == "M":
            continue
        assert (event["pid"], event["tid"]) in threads, event
        assert isinstance(event["ts"], Decimal)
        if event["ph"] == "X":
            assert event["dur"] >= 0
        else:
            assert event["bp"] == "e"
            assert 0 < event["id"] < 2**53
            assert (event["pid"], event["tid"], event["ts"]) in slices
            ends.setdefault((event["cat"], event["id"]), []).append(event["ph"])
    assert all(end == ["s", "f"] for end in ends.values())


def test_a_training_step() -> None:
    found = events(training_step())
    check(found)
    calls = complete(found, "cpu_op")
    assert [call["name"] for call in calls] == ["ProfilerStep#7", "aten::linear", "aten::mm", "aten::add", "LinearBackward0"]
    assert calls[1] == {
        "ph": "X",
        "name": "aten::linear",
        "cat": "cpu_op",
        "pid": PID,
        "tid": MAIN,
        "ts": Decimal("2.000"),
        "dur": Decimal("28.000"),
        "args": {
            "Sequence number": 5,
            "Fwd thread id": 0,
            "Input Dims": "32,16;\r\n16,8",
            "Input type": "float;\r\nfloat",
            "Call stack": "model.py(3): forward;\r\ntrain.py(9): <module>",
        },
    }
    assert calls[3]["args"] == {"Sequence number": -1, "Fwd thread id": 0}
    assert [(call["name"], call["args"]) for call in complete(found, "python_function")] == [
        ("train.py(9): <module>", {"Python id": 0, "Python parent id": None}),
        ("nn.Module: Linear_0", {"Python id": 1, "Python parent id": 0, "Python module id": 0}),
    ]
    assert [(gc["pid"], gc["tid"], gc["dur"]) for gc in complete(found, "GC")] == [(1024063, PID, Decimal("3.5"))]
    tasks = [event for event in complete(found) if event["pid"] == HARDWARE]
    assert [(task["name"], task["tid"], task["ts"], task["dur"]) for task in tasks] == [
        ("aten::mm", MAIN, Decimal(4), Decimal("16.001")),
        ("aten::add", MAIN, Decimal(80), Decimal("11.5")),
    ]
    assert tasks[0]["args"] == {"Task Type": "CPU", "Physic Stream Id": MAIN, "Task Id": 0}
    arrows = [
        (event["cat"], event["ph"], event["id"], event["pid"], event["tid"], event["ts"]) for event in found if "id" in event
    ]
    assert arrows == [
        ("fwdbwd", "s", 1, PID, MAIN, 2),
        ("fwdbwd", "f", 1, PID, BACKWARD, 40),
        ("async_npu", "s", 1, PID, MAIN, 4),
        ("async_npu", "f", 1, HARDWARE, MAIN, 4),
        ("async_npu", "s", 2, PID, MAIN, 80),
        ("async_npu", "f", 2, HARDWARE, MAIN, 80),
    ]


def test_processes_carry_the_names_that_clients_look_for() -> None:
    found = events(training_step())
    names = {event["pid"]: event["args"]["name"] for event in found if event["name"] == "process_name"}
    labels = {event["pid"]: event["args"]["labels"] for event in found if event["name"] == "process_labels"}
    assert names == {PID: "Python", 1024063: "Python GC", HARDWARE: "Ascend Hardware", OVERLAP: "Overlap Analysis"}
    assert labels == {PID: "CPU", 1024063: "CPU", HARDWARE: "CPU 0", OVERLAP: "CPU 0"}
    lanes = {(event["pid"], event["tid"]): event["args"]["name"] for event in found if event["name"] == "thread_name"}
    assert lanes[HARDWARE, MAIN] == f"Stream {MAIN}"
    assert [lanes[OVERLAP, tid] for tid in range(4)] == ["Computing", "Communication", "Communication(Not Overlapped)", "Free"]


def test_overlap_lanes_and_collectives() -> None:
    us = 1000
    communication = [
        {
            "name": "allreduce",
            "kind": "collective",
            "group": "dp",
            "bytes": 64,
            "start_ns": BASE_NS + 8 * us,
            "end_ns": BASE_NS + 30 * us,
        },
        {"name": "send", "kind": "send", "start_ns": BASE_NS + 50 * us, "end_ns": BASE_NS + 60 * us},
    ]
    trace = build(ops=[op("a", 1, 70)], kernels=[kernel("a", 2, 10), kernel("b", 9, 12, stream=2)], communication=communication)
    found = events(trace)
    check(found)
    lanes: dict[str, list[tuple[int, int]]] = {}
    for event in complete(found):
        if event["pid"] == OVERLAP:
            lanes.setdefault(event["name"], []).append((int(event["ts"]), int(event["ts"] + event["dur"])))
    assert lanes == {
        "Computing": [(2, 12)],
        "Communication": [(8, 30), (50, 60)],
        "Communication(Not Overlapped)": [(12, 30), (50, 60)],
        "Free": [(30, 50)],
    }
    first, second = (event for event in complete(found) if event["pid"] == COMMUNICATION)
    assert first["args"] == {"kind": "collective", "recorded as": "allreduce", "group": "dp", "size(Byte)": 64}
    assert second["args"] == {"kind": "send", "recorded as": "send"}
    assert (first["name"], second["name"]) == (f"hcom_allReduce__{group_hash('dp') % 1000:03}_0_0", "hcom_send__0_0_0")
    assert first["tid"] != second["tid"]


def test_collectives_that_run_side_by_side_have_lanes_side_by_side() -> None:
    def collective(start: int, end: int, group: str) -> dict[str, object]:
        times = {"start_ns": BASE_NS + start * 1000, "end_ns": BASE_NS + end * 1000}
        return {"name": "gloo:all_reduce", "kind": "collective", "operation": "allreduce", "group": group, **times}

    given = [collective(1, 9, "dp"), collective(2, 12, "dp"), collective(3, 5, "tp"), collective(9, 11, "dp")]
    trace = build(ops=[op("a", 1, 70)], kernels=[kernel("a", 2, 10)], communication=given)
    found = events(trace)
    check(found)
    drawn = sorted((int(event["ts"]), event["tid"]) for event in complete(found) if event["pid"] == COMMUNICATION)
    assert drawn == [(1, 0), (2, 2), (3, 1), (9, 0)]
    lanes = {
        event["tid"]: event["args"]["name"] for event in found if event["name"] == "thread_name" and event["pid"] == COMMUNICATION
    }
    assert lanes == {0: "Group dp Communication", 1: "Group tp Communication", 2: "Group dp Communication"}


def test_module_ranges_of_hooks_become_python_functions() -> None:
    trace = build(
        ops=[
            op("nn.Module: Net_0", 1, 50, scope=SCOPE_MODULE),
            op("aten::x", 2, 49, parent=0, depth=1),
            op("nn.Module: Linear_0", 3, 20, parent=1, depth=2, scope=SCOPE_MODULE),
        ],
        python=[{**frame("main", 0.5, 60, parent=None), "id": 41}],
    )
    found = events(trace)
    check(found)
    assert [call["name"] for call in complete(found, "cpu_op")] == ["aten::x"]
    modules = [(call["name"], call["args"]) for call in complete(found, "python_function")]
    assert modules == [
        ("main", {"Python id": 41, "Python parent id": None}),
        ("nn.Module: Net_0", {"Python id": 42, "Python parent id": None}),
        ("nn.Module: Linear_0", {"Python id": 44, "Python parent id": 42}),
    ]


def test_a_repeated_sequence_number_keeps_its_own_pairs() -> None:
    trace = build(
        ops=[
            op("forward", 1, 2, sequence=5),
            op("forward", 11, 12, sequence=5),
            op("unrelated", 13, 14, sequence=6),
            op("backward on the same thread", 15, 16, sequence=6, forward_tid=1),
            op("backward", 3, 4, sequence=5, forward_tid=1, tid=BACKWARD),
            op("backward", 20, 21, sequence=5, forward_tid=1, tid=BACKWARD),
            op("too early", 0.5, 0.6, sequence=5, forward_tid=1, tid=BACKWARD),
        ]
    )
    found = events(trace)
    arrows = [(event["id"], event["ph"], event["ts"]) for event in found if event.get("cat") == "fwdbwd"]
    assert arrows == [(1, "s", 1), (1, "f", 3), (2, "s", 11), (2, "f", 20)]


def test_runtime_calls_are_pruned_at_level0() -> None:
    us = 1000
    launch = {
        "name": "cudaLaunchKernel",
        "layer": "runtime",
        "start_ns": BASE_NS + us,
        "end_ns": BASE_NS + 2 * us,
        "correlation": 9,
    }
    other = {"name": "cudaStreamIsCapturing", "start_ns": BASE_NS + 3 * us, "end_ns": BASE_NS + 4 * us}
    calls = [{**call, "pid": PID, "tid": MAIN} for call in (launch, other)]
    trace = build(ops=[op("a", 0.5, 9)], api=calls, kernels=[kernel("k", 5, 6, core="CUDA", stream=7, device=1, correlation=9)])
    assert not [event for event in events(trace) if event["ph"] in "sf"]
    found = events(trace, "Level1")
    check(found)
    host = PID << 10 | 7 << 5 | 31
    assert [(event["pid"], event["tid"], event["ts"]) for event in found if event.get("cat") == "HostToDevice"] == [
        (host, MAIN, 1),
        (HARDWARE + 1, 7, 5),
    ]
    labels = {event["pid"]: event["args"]["labels"] for event in found if event["name"] == "process_labels"}
    assert labels[HARDWARE + 1] == "CUDA 1"


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(max_size=10), st.text(max_size=10), st.integers(0, 10**12)), min_size=1, max_size=5))
def test_any_text_gives_valid_json(rows: list[tuple[str, str, int]]) -> None:
    calls = [op(name, 1, 2, stack=stack, start_ns=BASE_NS + start, end_ns=BASE_NS + start + 1) for name, stack, start in rows]
    found = events(build(ops=calls, kernels=[kernel(name, 1, 2) for name, _, _ in rows]))
    calls_found = complete(found, "cpu_op")
    assert [call["name"] for call in calls_found] == [name for name, _, _ in rows]
    assert [call["ts"] * 1000 for call in calls_found] == [start for _, _, start in rows]
    assert [call["args"].get("Call stack", "") for call in calls_found] == [text.replace(";", ";\r\n") for _, text, _ in rows]


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=TIME_BASE_UNIT_NS - 1))
def test_every_ns_of_a_base_period_survives_a_double(ns: int) -> None:
    handle = io.BytesIO()
    trace = build(gc=[{"start_ns": BASE_NS + ns, "end_ns": BASE_NS + ns + 1, "pid": PID, "tid": PID}])
    trace_view.write_events(Output(trace, time_base_ns(trace)), handle)
    found = json.loads(handle.getvalue())
    assert found[0]["args"]["base_time_ns"] == BASE_NS
    assert int(float(BASE_NS)) == BASE_NS
    assert round(found[-1]["ts"] * 1000) == ns


def test_a_trace_with_only_one_source_of_events() -> None:
    full = training_step()
    for table in ("ops", "python", "gc", "kernels"):
        check(events(Trace(Path("part"), {table: full.required(table)})))
    with pytest.raises(NothingToWriteError, match="no events"):
        events(build())


def test_more_rows_than_a_chunk() -> None:
    count = ROWS_PER_CHUNK + 3
    found = events(synthetic(ops=count, kernels=10, memory_events=0))
    assert len(complete(found, "cpu_op")) == count


def test_time_base_is_the_recorded_one_where_that_is_usable() -> None:
    trace = training_step()
    assert time_base_ns(trace) == BASE_NS
    assert time_base_ns(trace, BASE_NS - 1000) == BASE_NS - 1000
    for unusable in ("0", True, -1, 0, BASE_NS + 10**9, None, 1.5):
        assert time_base_ns(trace, unusable) == BASE_NS
