"""The reader of Ascend timelines on hand-made arrays: names and ids old and new, exact times, launches, damage."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.common.errors import InputError
from steplens.readers.ascend.ascend_link import through_queue
from steplens.readers.ascend.timeline.ascend_timeline import read_timeline
from steplens.readers.ascend.timeline.ascend_timeline_events import TimelineColumns
from steplens.trace.health import HealthLog

from . import timeline_builder as build
from .timeline_builder import BACKWARD, CANN, COMMUNICATION, DEQUEUE, HARDWARE, MAIN, OVERLAP, PID, Event, at, ns

Tables = dict[str, pl.DataFrame]


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Write events, read them; the findings are the attribute ``health`` of the function."""

    def read_events(events: list[Event], **options: Any) -> Tables:
        read_events.health = HealthLog()  # type: ignore[attr-defined]
        path = build.write(tmp_path / "msprof_1.json", events)
        return read_timeline([path], read_events.health, **options)  # type: ignore[attr-defined]

    return read_events


def checks(read: Any) -> dict[str, int]:
    return {finding.check: finding.count for finding in read.health.findings}


def text(frame: pl.DataFrame, column: str) -> list[str | None]:
    return frame[column].cast(pl.String).to_list()


# --- times ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quoted", [True, False])
def test_absolute_times_are_exact(tmp_path: Path, quoted: bool) -> None:
    """A JSON number of epoch µs has digits that a double has not; they count."""
    stamps = [ns(0.001 * step) for step in range(0, 4000, 37)]
    mark = '"' if quoted else ""
    events = [
        f'{{"name":"k","ph":"X","pid":{HARDWARE},"tid":2,"ts":{mark}{stamp // 1000}.{stamp % 1000:03d}{mark},"dur":0.001,'
        '"args":{"Task Type":"AI_CORE"}}'
        for stamp in stamps
    ]
    names = [json.dumps(event) for event in build.process(HARDWARE, "Ascend Hardware", "NPU 0")]
    path = tmp_path / "msprof_1.json"
    path.write_text("[" + ",".join(names + events) + "]")
    kernels = read_timeline([path], HealthLog())["kernels"]
    assert kernels["start_ns"].to_list() == stamps
    assert (kernels["end_ns"] - kernels["start_ns"]).unique().to_list() == [1]


def test_numbers_count_from_the_base_that_the_file_states(read: Any) -> None:
    base = 7_889_238_000_000_000 * 220
    event = build.operator("aten::mm", 0, 1.5)
    event["ts"] = 12.345
    stated = {"name": "base_time_ns", "ph": "M", "pid": PID, "tid": 0, "args": {"base_time_ns": base}}
    tables = read([stated, *build.head(), event], base_ns=5)
    assert tables["ops"]["start_ns"].to_list() == [base + 12_345]
    assert json.loads(dict(tables["meta"].iter_rows())["base_time_ns"]) == base
    # without it, the base of profiler_metadata.json counts
    assert read([*build.head(), event], base_ns=base + 7)["ops"]["start_ns"].to_list() == [base + 7 + 12_345]
    # absolute times need none
    assert read([*build.head(), build.operator("a", 3, 1)], base_ns=base)["ops"]["start_ns"].to_list() == [ns(3)]


def test_lengths_are_rounded_to_ns(read: Any) -> None:
    tables = read([*build.head(), build.task("k", 0, 53.7410625), build.task("j", 100, "7.25"), build.task("i", 200, 0)])
    assert (tables["kernels"]["end_ns"] - tables["kernels"]["start_ns"]).to_list() == [53_741, 7_250, 0]


def test_ends_are_those_of_the_overlap_lanes(read: Any) -> None:
    """A lane's range is rounded at both ends; a task's start and length are rounded apart, so its end may be one ns off."""
    events = [
        build.task("k", 10, 53.741),
        build.task("far", 100, 10),
        build.span("Computing", OVERLAP, 0, 10, 53.742),
        build.span("Computing", OVERLAP, 0, 100, 25),
        build.span("hcom_allReduce__1_0_1", COMMUNICATION, 0, 200, 5.0004),
        build.span("Communication", OVERLAP, 1, 200, 5.001),
    ]
    tables = read([*build.head(), *events])
    ends = dict(zip(text(tables["kernels"], "name"), tables["kernels"]["end_ns"].to_list(), strict=True))
    assert ends == {"k": ns(63.742), "far": ns(110), "hcom_allReduce__1_0_1": ns(205.001)}
    assert tables["communication"]["end_ns"].to_list() == [ns(205.001)]


# --- processes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "pid_device", "given", "expected"),
    [
        ("NPU 3", 0, None, 3),
        ("NPU", 5, None, 5),
        ("", 2, None, 2),
        ("NPU", 31, 6, 6),
        ("NPU 12", 31, 6, 12),
        ("CPU 0", 0, None, 0),
    ],
)
def test_device_of_a_process(read: Any, label: str, pid_device: int, given: int | None, expected: int) -> None:
    pid = build.layer(13, pid_device)
    events = [*build.process(pid, "Ascend Hardware", label), build.span("k", pid, 2, 0, 1, **{"Task Type": "AI_CORE"})]
    tables = read(events, device=given)
    assert tables["kernels"]["device"].to_list() == [expected]
    assert dict(tables["meta"].iter_rows())["device_ids"] == f"[{expected}]"


@pytest.mark.parametrize("sort", [13, 14, 20, 31])
def test_the_name_of_a_process_decides_and_not_its_index(read: Any, sort: int) -> None:
    hardware, overlap = build.layer(sort, 0), build.layer(5, 0)
    events = [
        *build.process(hardware, "Ascend Hardware", "NPU", sort),
        *build.process(overlap, "Overlap Analysis", "NPU", 14),
        build.span("k", hardware, 2, 0, 5, **{"Task Type": "AI_CORE"}),
        build.span("Computing", overlap, 0, 0, 5),
    ]
    assert text(read(events)["kernels"], "kind") == ["compute"]


def test_metadata_may_stand_behind_the_events(read: Any) -> None:
    events = [build.task("k", 0, 1, connection_id=4), *build.launch(4, -3, 0), build.call("Node@launch", -3, 1, 4)]
    assert read([*events, *build.head()])["kernels"].equals(read([*build.head(), *events])["kernels"])


def test_processes_without_a_name(read: Any) -> None:
    """What a cut file has lost is concluded from the events, and said."""
    tables = read([build.task("k", 0, 1), build.call("Node@launch", -3, 1, 4)])
    assert text(tables["kernels"], "kind") == ["compute"]
    assert text(tables["api"], "name") == ["launch"]
    assert checks(read)["unnamed_processes"] == 2


def test_processes_of_a_container_count_apart(read: Any) -> None:
    """The framework's pid is that of the container, the device's that of the host: one process is the same one."""
    hardware, cann = build.layer(14, 0, 777), build.layer(7, 31, 777)
    events = [
        *build.process(PID, "Python", "CPU"),
        *build.process(hardware, "Ascend Hardware", "NPU 0"),
        *build.process(cann, "CANN", "CPU"),
        build.operator("aten::mm", 0, 10),
        build.span("k", hardware, 2, 20, 5, **{"Task Type": "AI_CORE"}),
        *build.arrow("HostToDevice", "9", (cann, MAIN, 4), (hardware, 2, 20)),
    ]
    assert read(events)["kernels"]["launch_pid"].to_list() == [PID]


# --- the host -------------------------------------------------------------------------------------------------------------


def test_operators(read: Any) -> None:
    args = {"Input Dims": "2,3;\r\n4,3", "Input type": "float;\r\nfloat", "Call stack": "a.py(1): f;\r\nb.py(2): g"}
    events = [
        build.operator("ProfilerStep#50", 0, 100),
        build.operator("aten::mm", 1, 2, **{**args, "Sequence number": 6, "Module Hierarchy": "net.fc", "flops": 96}),
        build.operator("MmBackward0", 50, 2, BACKWARD, **{"Fwd thread id": 1, "Sequence number": 6}),
        build.operator("autograd::engine::evaluate_function: AddBackward0", 60, 2, BACKWARD),
        build.operator("enumerate(DataLoader)#_Iter.__next__", 70, 2),
        build.operator("Optimizer.step#SGD.step", 80, 2),
        build.operator("aclnnMm", 1.5, 1, **{"Input Dims": ""}),
    ]
    ops = read([*build.head(), *events])["ops"].sort("start_ns")
    rows = {row["name"]: row for row in ops.iter_rows(named=True)}
    scopes = {name: row["scope"] for name, row in rows.items()}
    assert scopes == {
        "ProfilerStep#50": 7,
        "aten::mm": 0,
        "MmBackward0": 1,
        "autograd::engine::evaluate_function: AddBackward0": 1,
        "enumerate(DataLoader)#_Iter.__next__": 7,
        "Optimizer.step#SGD.step": 7,
        "aclnnMm": 0,
    }
    mm = rows["aten::mm"]
    assert (mm["input_shapes"], mm["input_types"], mm["stack"]) == ("2,3;4,3", "float;float", "a.py(1): f;b.py(2): g")
    assert (mm["sequence"], mm["module"], mm["flops"]) == (6, "net.fc", 96)
    assert rows["aclnnMm"]["sequence"] is None and rows["aclnnMm"]["input_shapes"] is None
    assert rows["MmBackward0"]["forward_tid"] == 1


@pytest.mark.parametrize("named", [True, False])
def test_the_task_queue_is_paired_by_number(read: Any, named: bool) -> None:
    events = [*build.queued(8, 5, 7), *build.queued(9, 5.5, 10, "aclnnAdd", BACKWARD)]
    if named:
        events[0]["name"] = "Enqueue@aclnnMm"
    events += [build.span("Enqueue", PID, MAIN, 20, 1, "enqueue", correlation_id=11)]
    queue = read([*build.head(), *events])["task_queue"].sort("correlation")
    assert text(queue, "name") == ["aclnnMm", "aclnnAdd", None]
    assert queue["enqueue_start_ns"].to_list() == [ns(5), ns(5.5), ns(20)]
    assert queue["dequeue_end_ns"].to_list() == [ns(9), ns(12), None]
    assert queue["enqueue_tid"].to_list() == [MAIN, BACKWARD, MAIN]
    assert checks(read) == {"half_queued_tasks": 1}


def test_python_calls(read: Any) -> None:
    def frame(number: int, parent: int | None, start: float, length: float, tid: int = MAIN) -> Event:
        ids = {"Python id": number, "Python parent id": parent}
        return build.span(f"f{number}", PID, tid, start, length, "python_function", **ids)

    # ids of each thread from 0; parent 0 of f2 and f0 means none, of f1 it means f0
    events = [frame(0, 0, 0, 10), frame(1, 0, 1, 5), frame(2, 0, 20, 5), frame(0, None, 0, 3, BACKWARD)]
    python = read([*build.head(), *events])["python"].sort("tid", "start_ns")
    assert python["id"].n_unique() == 4
    main = python.filter(pl.col("tid") == MAIN)
    assert main["parent"].to_list() == [None, main["id"][0], None]
    assert python.filter(pl.col("tid") == BACKWARD)["parent"].to_list() == [None]
    assert checks(read) == {}
    unique = read([*build.head(), frame(3, None, 0, 9), frame(7, 3, 1, 2)])["python"]
    assert unique.select("id", "parent").rows() == [(3, None), (7, 3)], "ids that are unique stay"


@pytest.mark.parametrize("cat", ["GC", "gc"])
def test_collections(read: Any, cat: str) -> None:
    pid = build.layer(1, 0)
    events = [*build.process(pid, "Python GC", "CPU"), build.span("GC", pid, PID, 80, 10, cat)]
    assert read(events)["gc"].select("start_ns", "end_ns", "pid", "tid").rows() == [(ns(80), ns(90), PID, PID)]
    # without a device the reference writes -1
    assert read([build.span("GC", -1, PID, 80, 10, cat)])["gc"]["pid"].to_list() == [PID]


@pytest.mark.parametrize(
    ("name", "level", "expected"),
    [
        ("AscendCL@aclrtMemcpyAsync", "acl", ("aclrtMemcpyAsync", "acl")),
        ("Node@launch", "node", ("launch", "node")),
        ("Hccl@Launch_Ffts", "hccl", ("Launch_Ffts", "communication")),
        ("Communication@hcom_allReduce_", "communication", ("hcom_allReduce_", "communication")),
        ("Runtime@KernelLaunch", None, ("KernelLaunch", "runtime")),
        ("Model@execute", None, ("execute", "model")),
        ("cudaLaunchKernel", "cuda_runtime", ("cudaLaunchKernel", "cuda_runtime")),
    ],
)
def test_runtime_calls(read: Any, name: str, level: str | None, expected: tuple[str, str]) -> None:
    event = build.call(name, 1, 2, 17, level or "")
    if level is None:
        del event["args"]["level"]
    api = read([*build.head(), event])["api"]
    assert (text(api, "name")[0], text(api, "layer")[0]) == expected
    assert api.select("start_ns", "end_ns", "pid", "tid", "correlation").rows() == [(ns(1), ns(3), PID, DEQUEUE, 17)]


def test_arrows_between_forward_and_backward(read: Any) -> None:
    events = [
        *build.arrow("fwdbwd", 1350, (PID, MAIN, 1), (PID, BACKWARD, 50)),
        *build.arrow("fwdbwd", 1349, (PID, MAIN, 2), (PID, BACKWARD, 45)),
        *build.arrow("fwdbwd", 1351, (PID, MAIN, 3), (PID, BACKWARD, 40))[:1],
    ]
    flows = read([*build.head(), build.operator("a", 0, 1), *events])["flows"]
    assert flows.select("flow_id", "from_ns", "from_tid", "to_ns", "to_tid").rows() == [
        (1350, ns(1), MAIN, ns(50), BACKWARD),
        (1349, ns(2), MAIN, ns(45), BACKWARD),
    ]
    assert checks(read) == {"unmatched_flows": 1}


def test_threads(read: Any) -> None:
    events = [build.thread(PID, MAIN, "Thread 1"), build.thread(CANN, MAIN, "Thread 1"), build.thread(CANN, DEQUEUE, "acl")]
    threads = read([*build.head(), build.operator("a", 0, 1), *events])["threads"]
    assert threads.rows() == [(PID, MAIN, "Thread 1"), (PID, DEQUEUE, "acl")]


def test_marks_and_counters(read: Any) -> None:
    marks, hbm, pmu = build.layer(6, 31), build.layer(24, 1), build.layer(19, 1)

    def sample(pid: int, name: str, us: float, **args: Any) -> Event:
        return {"name": name, "ts": at(us), "pid": pid, "tid": 0, "args": args, "ph": "C"}

    events = [
        *build.process(marks, "MsTx", "CPU"),
        *build.process(hbm, "HBM", "NPU 1"),
        *build.process(pmu, "Acc PMU", "NPU 1"),
        build.span("step 5", marks, MAIN, 1, 9, **{"event_type": "push/pop", "domain": "train"}),
        sample(hbm, "HBM 0/Read", 2, **{"Read(MB/s)": 12.5}),
        sample(hbm, "DDR", 3, **{"KB": "7"}),
        sample(pmu, "read_bandwidth", 4, value=3, acc_id=2),
        sample(pmu, "Level", 5, Level=1),
        sample(pmu, "Level", 6, Level=None),
    ]
    tables = read(events)
    mark = tables["marks"].row(0, named=True)
    assert (mark["message"], mark["domain"], mark["start_ns"], mark["end_ns"], mark["pid"]) == (
        "step 5",
        "train",
        ns(1),
        ns(10),
        PID,
    )
    assert tables["counters"].sort("time_ns").select("group", "name", "unit", "time_ns", "value", "device").rows() == [
        ("HBM", "HBM 0/Read", "MB/s", ns(2), 12.5, 1),
        ("HBM", "DDR", "KB", ns(3), 7.0, 1),
        ("Acc PMU", "read_bandwidth 2", "value", ns(4), 3.0, 1),
        ("Acc PMU", "Level", "value", ns(5), 1.0, 1),
    ]


# --- the device -----------------------------------------------------------------------------------------------------------


def test_device_tasks(read: Any) -> None:
    events = [
        build.task("MatMul", 0, 5, "AI_CORE", connection_id=3, **{"Task Id": 11}),
        build.task("Add", 6, 1, "AI_VECTOR_CORE", 3),
        build.task("Mask", 8, 1, "DSA_SQE", 3),
        build.task("MEMCPY_ASYNC", 10, 1, "PCIE_DMA_SQE"),
        build.task("MEMCPY_ASYNC", 12, 1, "SDMA_SQE"),
        build.task("SDMA", 14, 1, "SDMA", 4),
        build.task("EVENT_RECORD", 16, 0.02, "EVENT_RECORD_SQE"),
        build.task("Notify Wait", 18, 1, "Notify Wait", 4),
        build.task("hcom_allReduce_AivKernel", 20, 1, "AI_VECTOR_CORE", 4),
    ]
    kernels = read([*build.head(), *events])["kernels"].sort("start_ns")
    assert text(kernels, "kind") == ["compute"] * 3 + ["copy"] * 2 + ["other"] * 4
    assert kernels["stream"].to_list() == [2, 3, 3, 2, 2, 4, 2, 4, 4]
    first = kernels.row(0, named=True)
    assert (first["core"], first["task_type"], first["task_id"], first["model_id"]) == ("AI_CORE", "AI_CORE", 11, 4294967295)
    assert (first["correlation"], first["context_id"], first["device"]) == (3, None, 0)


def test_only_what_the_computing_lane_covers_computes(read: Any) -> None:
    """The lane leaves out kernels that serve communication; it is of one device."""
    other = build.layer(14, 1)
    events = [
        build.task("MatMul", 0, 5),
        build.task("MC2", 50, 5),
        build.task("late", 10.001, 5),
        build.span("Computing", OVERLAP, 0, 0, 5),
        build.span("Computing", OVERLAP, 0, 10, 5),
        *build.process(other, "Ascend Hardware", "NPU 1"),
        build.span("k", other, 2, 50, 5, **{"Task Type": "AI_CORE"}),
    ]
    kernels = read([*build.head(), *events])["kernels"].sort("device", "start_ns")
    assert dict(zip(text(kernels, "name"), text(kernels, "kind"), strict=True)) == {
        "MatMul": "compute",
        "late": "compute",
        "MC2": "other",
        "k": "compute",
    }


@pytest.mark.parametrize("process", ["HCCL", "Communication"])
def test_communication_operations(read: Any, process: str) -> None:
    args = {"connection_id": 1175, "data_type": "FP32", "alg_type": "MESH-RING", "count": 4097000, "model id": 4294967295}
    events = [
        *build.process(COMMUNICATION, process, "NPU"),
        build.span("hcom_allReduce__586_0_1", COMMUNICATION, 0, 100, 50.4375, **args),
        build.span("hcom_receive__586_1_1", COMMUNICATION, 0, 160, 4),
        build.span("hcom_send__586_2_1", COMMUNICATION, 0, 170, 4, data_type="BFP16", count=8),
        build.span("Notify_Wait", COMMUNICATION, 1, 100, 3, notify_id="0"),
        build.span("Reduce_Inline", COMMUNICATION, 1, 104, 3, **{"size(Byte)": 4}),
        build.task("SDMA", 104, 3, "SDMA", 4, connection_id=1175),
        build.task("Notify Wait", 100, 3, "Notify Wait", 4, connection_id=1175),
        *build.arrow("HostToDevice", "5046586572799", (CANN, DEQUEUE, 90), (COMMUNICATION, 0, 100)),
    ]
    tables = read([*build.head(), *events])
    communication = tables["communication"]
    assert text(communication, "kind") == ["collective", "receive", "send"]
    assert text(communication, "operation") == ["allreduce", "receive", "send"]
    assert text(communication, "group") == ["g0"] * 3
    assert communication["bytes"].to_list() == [4 * 4097000, None, 16]
    first = communication.row(0, named=True)
    assert (first["dtype"], first["algorithm"], first["elements"], first["correlation"]) == ("FP32", "MESH-RING", 4097000, 1175)
    assert (first["start_ns"], first["end_ns"], first["launch_ns"], first["launch_tid"]) == (
        ns(100),
        ns(150.4375),
        ns(90),
        DEQUEUE,
    )
    kernels = tables["kernels"]
    operations = kernels.filter(pl.col("kind").cast(pl.String) == "communication")
    assert text(operations, "name") == text(communication, "name")
    assert text(operations, "core") == ["HCCL"] * 3
    assert text(operations, "type") == ["hcom_allReduce_", "hcom_receive_", "hcom_send_"]
    # the parts of an operation are tasks of the hardware, once
    assert sorted(text(kernels.filter(pl.col("kind").cast(pl.String) == "other"), "name")) == ["Notify Wait", "SDMA"]


def test_communication_that_no_operation_names(read: Any) -> None:
    events = [
        build.span("hcom_receive__123_0_1", COMMUNICATION, 0, 22, 4),
        build.span("Communication", OVERLAP, 1, 22, 10),
        build.span("Communication", OVERLAP, 1, 50, 5),
    ]
    tables = read([*build.head(), *events])
    rows = tables["communication"].select("name", "kind", "start_ns", "end_ns").rows()
    assert rows == [
        ("hcom_receive__123_0_1", "receive", ns(22), ns(26)),
        ("Communication", "collective", ns(26), ns(32)),
        ("Communication", "collective", ns(50), ns(55)),
    ]
    assert tables["kernels"].height == 1, "it is no task"
    assert checks(read) == {"unnamed_communication": 2}


# --- launches -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number",
    ["17", 17, str(17 << 32), 17 << 32, "40004068119343529983"],
    ids=["old text", "old number", "new text", "new number", "beyond 64 bits"],
)
def test_launch_points(read: Any, number: Any) -> None:
    events = [
        build.task("k", 20, 5, connection_id=17),
        *build.arrow("HostToDevice", number, (CANN, DEQUEUE, 8), (HARDWARE, 2, 20)),
    ]
    kernels = read([*build.head(), *events])["kernels"]
    assert kernels.select("launch_ns", "launch_pid", "launch_tid").rows() == [(ns(8), PID, DEQUEUE)]
    assert checks(read) == {}


def test_first_ends_count_and_the_others_are_told(read: Any) -> None:
    events = [
        build.task("a", 20, 5),
        build.task("b", 30, 5),
        build.task("c", 40, 5),
        *build.launch(1, 8, 20),
        *build.launch(1, 9, 30)[1:],
        *build.launch(2, 10, 99)[:1],
        *build.launch(3, 11, 40)[1:],
    ]
    kernels = read([*build.head(), *events])["kernels"]
    assert kernels["launch_ns"].to_list() == [ns(8), None, None]
    assert checks(read) == {"unmatched_launches": 3}


def test_level0_keeps_launches_of_the_process_it_prunes(read: Any) -> None:
    """The name of CANN's process is gone, its arrows are not."""
    pruned = [event for event in build.head() if event["pid"] != CANN]
    events = [build.operator("aten::mm", 0, 10), *build.queued(5, 4, 7), build.task("k", 20, 5), *build.launch(1, 8, 20)]
    tables = read([*pruned, *events])
    assert "api" not in tables
    assert tables["kernels"].select("launch_ns", "launch_pid", "launch_tid").rows() == [(ns(8), PID, DEQUEUE)]
    through = through_queue(tables["kernels"], tables["task_queue"])
    assert through.select("launch_ns", "launch_pid", "launch_tid").rows() == [(ns(4), PID, MAIN)]


def test_other_sources_of_a_launch(read: Any) -> None:
    """Runtime arrow, else the call with the connection, else the arrow from the operator."""
    events = [
        build.operator("aten::mm", 0, 10),
        *(build.task(name, start, 1, connection_id=number) for name, start, number in (("a", 20, 1), ("b", 30, 2), ("c", 40, 3))),
        build.task("w", 50, 1, "EVENT_WAIT_SQE", connection_id=2),
        *build.launch(1, 8, 20),
        build.call("Node@launch", 9, 1, 2),
        *(event for us in (20, 40) for event in build.arrow("async_npu", us, (PID, MAIN, 0), (HARDWARE, 2, us))),
    ]
    kernels = read([*build.head(), *events])["kernels"].sort("start_ns")
    assert kernels["launch_ns"].to_list() == [ns(8), ns(9), ns(0), None]
    assert kernels["launch_tid"].to_list() == [DEQUEUE, DEQUEUE, MAIN, None]


# --- files ----------------------------------------------------------------------------------------------------------------


def test_slices_are_one_timeline(tmp_path: Path) -> None:
    events = [
        *build.head(),
        *(
            event
            for i in range(40)
            for event in (build.task(f"k{i % 3}", 10 * i, 5, connection_id=i), *build.launch(i, 10 * i - 4, 10 * i))
        ),
    ]
    whole = read_timeline([build.write(tmp_path / "all.json", events)], HealthLog())
    cut = (0, 40, 80, len(events))
    paths = [build.write(tmp_path / f"msprof_slice_{i}_1.json", events[cut[i] : cut[i + 1]]) for i in range(3)]
    health = HealthLog()
    sliced = read_timeline(paths, health)
    assert health.findings == []
    assert sliced["kernels"].equals(whole["kernels"])
    assert sliced["kernels"]["launch_ns"].null_count() == 0
    # one damaged slice costs itself
    paths[1].write_text("not a trace")
    assert read_timeline(paths, health)["kernels"].height < whole["kernels"].height
    assert health.findings[0].check == "unreadable_file"


def nasty(generator: random.Random) -> str:
    return "".join(
        generator.choice(['}, {"', '"', "\\", "},{", "[", "]", "ä", "\n", "x", ","]) for _ in range(generator.randrange(12))
    )


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":"), (",\n", ": ")])
def test_cutting_in_pieces_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, separators: tuple[str, str]) -> None:
    """Names full of what separates events, and pieces so small that every event is cut somewhere."""
    generator = random.Random(7)
    events = build.head()
    for index in range(120):
        events.append(build.operator(nasty(generator), 10 * index, 5, **{"Call stack": nasty(generator)}))
        events += [build.task(nasty(generator), 10 * index, 3), {"name": "i", "ph": "i", "pid": 1, "tid": 1, "ts": at(0)}]
    path = build.write(tmp_path / "trace_view.json", events, separators)
    expected = [event["name"] for event in events if event.get("cat") == "cpu_op"]
    for size in (200, 1000, 1 << 21):
        monkeypatch.setattr("steplens.readers.ascend.timeline.ascend_timeline_events.PIECE_BYTES", size)
        columns = TimelineColumns.read(path)
        assert text(columns.frame(columns.durations["cpu_op"]), "name") == expected
        assert columns.count == len(events)
        assert (columns.damaged, columns.truncated, dict(columns.skipped)) == (0, 0, {"i": 120})


def test_a_file_that_breaks_off(tmp_path: Path) -> None:
    whole = json.dumps([*build.head(), *(build.task(f"k{i}", 10 * i, 5) for i in range(50))])
    path = tmp_path / "trace_view.json"
    for cut in range(len(whole) - 40, 1200, -977):
        path.write_text(whole[:cut])
        health = HealthLog()
        kernels = read_timeline([path], health).get("kernels", pl.DataFrame())
        complete = whole[:cut].count("5, ") and whole[:cut].count('"Subtask Id": 4294967295}, "ph": "X"}')
        assert kernels.height == complete
        (finding,) = [finding for finding in health.findings if finding.check == "truncated_file"]
        assert finding.severity == "error"


def test_odd_members_cost_themselves_alone(read: Any) -> None:
    odd: list[Any] = [
        {**build.task("text ids", 0, 1), "pid": str(HARDWARE), "tid": "2"},
        {**build.task("no thread", 1, 1), "tid": None},
        {**build.task("list of a thread", 2, 1), "tid": [2]},
        {**build.task("huge thread", 3, 1), "tid": 10**30},
        {**build.task("text length", 4, 1), "dur": "1.5"},
        {**build.task("no length", 5, 1), "dur": None},
        {**build.task("odd length", 6, 1), "dur": {}},
        {**build.task("no args", 7, 1), "args": 5},
        build.task("odd args", 8, 1, connection_id={"a": 1}, **{"Task Id": "12", "Physic Stream Id": 2.5}),
        {**build.task("no time", 9, 1), "ts": "soon"},
        {**build.task("huge time", 9, 1), "ts": 10**40},
        {"ph": "s", "cat": "HostToDevice", "id": 10**40, "pid": HARDWARE, "tid": 10**40, "ts": 10**40},
        {"ph": "C", "name": "c", "pid": HARDWARE, "ts": 10**40, "args": {"v": 10**40}},
        {**build.task(str(["a"]), 10, 1), "name": ["a"]},
        {"ph": "X"},
        {"ph": "M", "name": "process_name", "pid": 2**70, "args": {"name": "x"}},
        {"ph": "C", "name": "c", "pid": HARDWARE, "ts": at(0), "args": {"v": [1]}},
        {"name": "no phase"},
        17,
        "text",
        None,
        [build.task("nested", 11, 1)],
        build.task("good", 12, 1),
    ]
    kernels = read([*build.head(), *odd])["kernels"]
    names = ["text ids", "text length", "no args", "odd args", "['a']", "good"]
    assert sorted(text(kernels, "name")) == sorted(names)  # type: ignore[type-var]
    rows = {row["name"]: row for row in kernels.iter_rows(named=True)}
    assert rows["text length"]["end_ns"] - rows["text length"]["start_ns"] == 1500
    assert (rows["odd args"]["task_id"], rows["odd args"]["correlation"]) == (12, None)
    assert rows["good"]["launch_ns"] is None
    assert checks(read) == {"damaged_events": 12}


@pytest.mark.parametrize(
    "content",
    [b"", b"   ", b"{}", b'{"a": 1}', b"nonsense", b"\x00" * 100, b"[" * 5000, b'[{"ph":' * 3000, b"\xff\xfe[]", b"[1, 2"],
    ids=range(10),
)
def test_what_is_no_timeline(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "msprof_1.json"
    path.write_bytes(content)
    health = HealthLog()
    tables: Tables = {}
    with contextlib.suppress(InputError):
        tables = read_timeline([path], health)
        assert health.findings
    assert set(tables) <= {"meta"}


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_timeline([tmp_path / "msprof_1.json"], HealthLog())


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = build.write(tmp_path / "msprof_1.json", [*build.head(), build.task("NAME", 0, 1), build.task("other", 5, 1)])
    path.write_bytes(path.read_bytes().replace(b"NAME", b"\xff\x01n"))
    kernels = read_timeline([path], HealthLog())["kernels"]
    assert kernels.height == 2 and "other" in text(kernels, "name")


@pytest.mark.slow
def test_speed_and_memory_of_a_large_timeline(tmp_path: Path) -> None:
    """50 thousand kernels with their calls, arrows and lanes (46 MB) in less processor time than Python's JSON takes twice."""
    import time

    events = build.head()
    for i in range(50_000):
        t = 10.0 * i
        events += [
            build.call("Node@launch", t + 5, 0.5, i),
            *build.launch(i, t + 5, t + 20),
            build.task("MatMulV3", t + 20, 7.5, connection_id=i),
            {"name": "Computing", "pid": OVERLAP, "tid": 0, "ts": at(t + 20), "dur": 7.5, "ph": "X"},
        ]
    path = build.write(tmp_path / "msprof_1.json", events)
    best = plain = float("inf")
    for _ in range(3):
        begin = time.process_time()
        tables = read_timeline([path], HealthLog())
        best = min(best, time.process_time() - begin)
        begin = time.process_time()
        json.loads(path.read_bytes())
        plain = min(plain, time.process_time() - begin)
    assert tables["kernels"].height == 50_000
    assert tables["kernels"]["launch_ns"].null_count() == 0
    assert best < 2 * plain, f"{best} s, and {plain} s without a table; measured: 0.7 times"
