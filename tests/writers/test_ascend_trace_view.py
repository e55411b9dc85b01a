"""The timeline of a hand-built Ascend run: every layer, lane and arrow."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from .ascend import COMMUNICATION as OPERATIONS
from .ascend import DEQUEUE, GROUP, KERNELS, ascend_run, ns
from .builder import BACKWARD, MAIN, PID
from .test_trace_view import check, complete, events

HOST = PID << 10 | 7 << 5 | 31
HARDWARE = PID << 10 | 14 << 5
COMMUNICATION = PID << 10 | 16 << 5


def arrows(found: list[dict[str, Any]], category: str) -> list[tuple[Any, ...]]:
    """(from pid, from tid, from ts, to pid, to tid, to ts) of every arrow, in order of id."""
    ends = [event for event in found if event.get("cat") == category and event["ph"] in "sf"]
    ends.sort(key=lambda event: (event["id"], event["ph"] != "s"))
    pairs = zip(ends[::2], ends[1::2], strict=True)
    return [(a["pid"], a["tid"], float(a["ts"]), b["pid"], b["tid"], float(b["ts"])) for a, b in pairs]


def processes(found: list[dict[str, Any]], kind: str = "process_name", key: str = "name") -> dict[int, Any]:
    return {event["pid"]: event["args"][key] for event in found if event["name"] == kind}


def test_every_layer_has_its_process() -> None:
    found = events(ascend_run(), "Level1")
    check_all(found)
    sorts = processes(found, "process_sort_index", "sort_index")
    assert {name: sorts[pid] for pid, name in processes(found).items()} == {
        "Python": 0, "Python GC": 1, "MSTX": 6, "CANN": 7, "Ascend Hardware": 14, "AI Core Freq": 15, "Communication": 16,
        "NPU MEM": 17, "HBM": 24, "Stars Soc Info": 25, "LLC": 27, "QoS": 29, "Overlap Analysis": 31,
    }  # fmt: skip
    labels = processes(found, "process_labels", "labels")
    assert (labels[HARDWARE], labels[HOST], labels[PID]) == ("NPU 0", "CPU", "CPU")
    assert {pid for pid, name in processes(found).items() if name == "Python GC"} == {PID << 10 | 1 << 5}


def check_all(found: list[dict[str, Any]]) -> None:
    """The checks of every timeline; counters have no slice and no args but their value."""
    check([event for event in found if event["ph"] != "C"])
    threads = {(event["pid"], event["tid"]) for event in found if event["name"] == "thread_name"}
    for event in found:
        if event["ph"] == "C":
            assert (event["pid"], event["tid"]) in threads
            assert len(event["args"]) == 1


def test_task_queue() -> None:
    found = events(ascend_run(), "Level1")
    enqueues, dequeues = complete(found, "enqueue"), complete(found, "dequeue")
    assert [(e["name"], e["tid"], float(e["ts"]), float(e["dur"]), e["args"]) for e in enqueues[:2]] == [
        ("Enqueue@aclnnMm", MAIN, 5.0, 1.0, {"correlation_id": 1}),
        ("Enqueue@aclnnMmB", BACKWARD, 47.0, 1.0, {"correlation_id": 2}),
    ]
    assert [(e["name"], e["tid"]) for e in dequeues[-1:]] == [("Dequeue@HcclAllreduce", DEQUEUE)]
    assert arrows(found, "async_task_queue")[:2] == [
        (PID, MAIN, 5.0, PID, DEQUEUE, 7.0),
        (PID, BACKWARD, 47.0, PID, DEQUEUE, 49.0),
    ]
    order = {
        event["tid"]: event["args"]["sort_index"]
        for event in found
        if event["name"] == "thread_sort_index" and event["pid"] == PID
    }
    assert order == {MAIN: MAIN, BACKWARD: BACKWARD, DEQUEUE: DEQUEUE + 1}


def test_half_a_task_of_the_queue_is_drawn_without_an_arrow() -> None:
    half = {"correlation": 9, "pid": PID, "enqueue_tid": MAIN, "enqueue_start_ns": ns(5), "enqueue_end_ns": ns(6)}
    found = events(ascend_run(task_queue=[half]), "Level1")
    assert [event["name"] for event in complete(found, "enqueue")] == ["Enqueue"]
    assert complete(found, "dequeue") == [] and arrows(found, "async_task_queue") == []


def test_runtime_calls_carry_the_name_of_their_layer() -> None:
    found = events(ascend_run(), "Level1")
    calls = [event for event in complete(found) if event["pid"] == HOST]
    assert [call["name"] for call in calls] == [
        "AscendCL@aclnnMm", "Node@launch", "AscendCL@aclrtMemcpyAsync", "Node@launch", "Node@launch", "Node@launch",
        "Communication@Launch_Ffts", "Runtime@rtStreamSynchronize",
    ]  # fmt: skip
    assert calls[1]["args"] == {"level": "node", "Thread Id": DEQUEUE, "connection_id": 1}


def test_arrows_lead_to_computing_tasks_copies_and_collectives() -> None:
    found = events(ascend_run(), "Level1")
    targets = [
        (HARDWARE, 2, 20.0),
        (HARDWARE, 2, 55.0),
        (HARDWARE, 2, 116.0),
        (HARDWARE, 2, 18.0),
        (COMMUNICATION, 0, 140.0),
    ]
    launches = [(8.0, DEQUEUE), (50.0, DEQUEUE), (114.0, DEQUEUE), (8.4, DEQUEUE), (134.0, DEQUEUE)]
    assert arrows(found, "HostToDevice") == [
        (HOST, tid, us, *target) for (us, tid), target in zip(launches, targets, strict=True)
    ]
    operators = [(4.0, MAIN), (45.0, BACKWARD), (110.0, MAIN), (4.0, MAIN), (130.0, MAIN)]
    assert arrows(found, "async_npu") == [(PID, tid, us, *target) for (us, tid), target in zip(operators, targets, strict=True)]
    assert arrows(found, "fwdbwd") == [(PID, MAIN, 2.0, PID, BACKWARD, 40.0)]


def test_device_tasks_are_those_of_the_hardware() -> None:
    found = events(ascend_run(), "Level1")
    tasks = [event for event in complete(found) if event["pid"] == HARDWARE]
    assert Counter(task["name"] for task in tasks) == Counter(row["name"] for row in KERNELS if row["kind"] != "communication")
    assert tasks[0]["args"] == {
        "Task Type": "AI_CORE", "Physic Stream Id": 2, "Task Id": 101, "Model Id": 4294967295, "connection_id": 1,
    }  # fmt: skip


def test_collectives_and_their_planes() -> None:
    found = events(ascend_run(), "Level1")
    lanes = {
        event["tid"]: (event["args"]["name"])
        for event in found
        if event["name"] == "thread_name" and event["pid"] == COMMUNICATION
    }
    assert lanes == {0: f"Group {GROUP} Communication", 1: "Plane 0", 2: "Plane 1"}
    operation, wait, copy = (event for event in complete(found) if event["pid"] == COMMUNICATION)
    assert operation["args"] == {
        "kind": "collective", "group": GROUP, "data_type": "FP32", "alg_type": "MESH-RING", "count": 256, "ranks": 8,
        "size(Byte)": 1024, "connection_id": 4,
    }  # fmt: skip
    assert (wait["name"], wait["tid"], float(wait["ts"]), float(wait["dur"])) == ("Notify_Wait", 2, 141.0, 9.0)
    assert (wait["args"]["notify_id"], wait["args"]["dst rank"], wait["args"]["bandwidth(GB/s)"]) == ("92", 1, 0)
    assert (copy["tid"], copy["args"]["link type"], copy["args"]["size(Byte)"]) == (1, "ON_CHIP", 4000)
    assert copy["args"]["bandwidth(GB/s)"] == 2


def test_planes_follow_their_group() -> None:
    second = {
        "name": "hcom_send__1_0_1", "kind": "send", "group": "other", "device": 0, "stream": 9, "correlation": 70,
        "start_ns": KERNELS[3]["start_ns"] - 10, "end_ns": KERNELS[3]["end_ns"],
    }  # fmt: skip
    found = events(ascend_run(communication=[second, *OPERATIONS]), "Level1")
    names = {
        event["tid"]: event["args"]["name"] for event in found if event["name"] == "thread_name" and event["pid"] == COMMUNICATION
    }
    sort = {
        event["tid"]: event["args"]["sort_index"]
        for event in found
        if event["name"] == "thread_sort_index" and event["pid"] == COMMUNICATION
    }
    ordered = [names[tid] for tid in sorted(names, key=sort.__getitem__)]
    assert ordered == ["Group other Communication", f"Group {GROUP} Communication", "Plane 0", "Plane 1"]


def test_counters() -> None:
    found = [event for event in events(ascend_run()) if event["ph"] == "C"]
    assert [(event["name"], event["args"]) for event in found] == [
        ("AI Core Freq", {"MHz": 1800}),
        ("HBM 0/Read", {"Read(MB/s)": 27}),
        ("HBM 0/Write", {"Write(MB/s)": Decimal("0.5")}),
        ("LLC 0 Read/Throughput", {"Throughput(MB/s)": 64}),
        ("LLC 0 Read/Hit Rate", {"Hit Rate(%)": Decimal("85.1")}),
        ("APP/DDR", {"KB": 0}),
        ("APP/HBM", {"KB": 2048}),
        ("L2 Buffer Bw Level", {"value": 3}),
        ("Mata Bw Level", {"value": 4}),
        ("QoS OTHERS", {"value": 1876}),
    ]


def test_counters_of_an_unknown_group_have_a_process_of_their_own() -> None:
    rows = [
        {"group": group, "name": "x", "unit": None, "time_ns": KERNELS[0]["start_ns"], "value": value, "device": device}
        for group, value, device in (("new", 1.0, 0), ("new", float("nan"), 0), ("newer", 2.0, 0), ("new", 3.0, 1))
    ]
    found = events(ascend_run(counters=rows))
    check_all(found)
    samples = [event for event in found if event["ph"] == "C"]
    assert [(processes(found)[event["pid"]], event["args"]["value"]) for event in samples] == [
        ("new", 1),
        ("newer", 2),
        ("new", 3),
    ]
    assert len({event["pid"] for event in samples}) == 3
    assert all(0 < event["pid"] < 2**53 for event in samples)


def test_marks_are_apart_from_the_calls_they_may_cross() -> None:
    found = complete(events(ascend_run()), "mstx")
    assert [(mark["name"], float(mark["dur"]), mark["args"]) for mark in found] == [
        ("point", 0.0, {"domain": "default", "event_type": "marker"}),
        ("range", 2.0, {"domain": "mine", "event_type": "start/end"}),
    ]


@pytest.mark.parametrize("level", ["Level_none", "Level0"])
def test_level0_leaves_out_runtime_calls_with_both_ends_of_their_arrows_and_their_process(level: str) -> None:
    found = events(ascend_run(), level)
    check_all(found)
    assert "CANN" not in processes(found).values()
    assert arrows(found, "HostToDevice") == []
    assert len(arrows(found, "async_npu")) == 5


def test_a_device_without_a_framework() -> None:
    found = events(ascend_run(without=["ops", "python", "task_queue", "gc", "steps", "marks"]), "Level1")
    check_all(found)
    assert HARDWARE in processes(found)
    assert len(arrows(found, "HostToDevice")) == 5
