"""The Kineto reader on recorded traces of GPUs and of a distributed CPU job, against plain loops over their JSON."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.analysis.device.kernels import kernel_statistics, op_statistic
from steplens.analysis.steps.ascend_step_times import ascend_step_times
from steplens.analysis.steps.times import DEVICE_PARTS, HOST_PARTS
from steplens.run import open_run
from steplens.trace.trace import Trace

from ..shared_data import shared

NAMES = [
    "cpu_only_rank34",
    "cuda_alexnet",
    "cuda_nccl_distributed",
    "cuda_ns_resolution_rank0",
    "cuda_rank_missing",
    "cuda_sampled_rank0",
    "cuda_sampled_rank1",
    "rocm_mi250_minitoy",
]


@pytest.fixture(params=NAMES)
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    source = shared("kineto", f"{request.param}.json.gz")
    path = tmp_path / source.name
    shutil.copy(source, path)
    # decimals, since a double cannot hold nanoseconds since the epoch in microseconds
    data = json.loads(gzip.decompress(source.read_bytes()), parse_float=Decimal)
    return path, data["traceEvents"] if isinstance(data, dict) else data


def test_calls_and_tasks_are_complete(recorded: tuple[Path, list[dict[str, Any]]]) -> None:
    path, events = recorded
    run = open_run(path)
    durations = [event for event in events if event.get("ph") == "X" and isinstance(event.get("pid"), int)]
    calls = [event for event in durations if event.get("cat") in ("cpu_op", "user_annotation", "Operator")]
    tasks = [
        event for event in durations if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
    ]
    trace = run.trace()
    assert (trace.ops.height if trace.ops is not None else 0) == len(calls)
    if tasks:
        assert trace.kernels.height == len(tasks)
        assert trace.has_accelerator
        assert (trace.kernels["end_ns"] - trace.kernels["start_ns"]).sum() == sum(event["dur"] * 1000 for event in tasks)
    else:
        assert trace.kernels is None or not trace.has_accelerator
    if calls:
        self_ns = trace.ops["self_ns"].sum()
        roots = trace.ops.filter(pl.col("parent").is_null())
        # what is nested adds up to its root, exactly, wherever nesting is proper
        assert self_ns == (roots["end_ns"] - roots["start_ns"]).sum()


def test_every_question_has_an_answer(recorded: tuple[Path, list[dict[str, Any]]]) -> None:
    path, _ = recorded
    run = open_run(path)
    steps = run.steps()
    for parts, whole in ((HOST_PARTS, "duration_ns"), (DEVICE_PARTS, "device_period_ns")):
        known = steps.drop_nulls(list(parts))
        assert (known.select(pl.sum_horizontal(parts)).to_series() == known[whole]).all()
        assert known.select(pl.all_horizontal(pl.col(*parts) >= 0).all()).item()
    for by in ("name", "shape", "stack", "module"):
        run.operators(by=by)
    run.memory()
    assert set(run.health()["severity"].to_list()) <= {"info", "warning", "error"}


def test_device_times_equal_brute_force(recorded: tuple[Path, list[dict[str, Any]]]) -> None:
    path, _ = recorded
    run = open_run(path)
    trace = run.trace()
    if not trace.has_accelerator or trace.steps is None:
        assert run.steps().height == (0 if trace.steps is None else trace.steps.height)
        return
    tasks = trace.kernels.select("start_ns", "end_ns", "step", pl.col("name", "type").cast(pl.String)).rows(named=True)
    for row in ascend_step_times(trace).iter_rows(named=True):
        computing, communication = [], []
        for task in tasks:
            if task["step"] == row["step"] and not (task["type"] or "").startswith("Mem"):
                (communication if "nccl" in task["name"].lower() else computing).append((task["start_ns"], task["end_ns"]))
        assert row["computing_ns"] == covered(computing)
        assert row["communication_ns"] == covered(communication)
        assert row["overlapped_ns"] == covered(computing) + covered(communication) - covered(computing + communication)
    if "nccl" in path.name or "sampled" in path.name:
        assert run.steps()["exposed_communication_ns"].sum() > 0
    if "nccl" in path.name:
        size = {"Float": 4, "Int": 4, "Long": 8}
        sent = [event["args"] for event in recorded[1] if "nccl" in str(event.get("name")) and event.get("cat") == "kernel"]
        assert trace.communication["bytes"].sum() == sum(args["In msg nelems"] * size[args["dtype"]] for args in sent)
        assert set(trace.communication["ranks"]) == {2}
        assert set(trace.communication["kind"].cast(pl.String)) == {"collective"}


TASKS = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME = ("cuda_runtime", "cuda_driver", "hip_runtime")


def events_of(events: list[dict[str, Any]], *categories: str) -> list[dict[str, Any]]:
    return [event for event in events if event.get("ph") == "X" and event.get("cat") in categories]


def in_order_of_time(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(
        events_of(events, *TASKS),
        key=lambda one: (one["args"]["device"], one["args"]["stream"], one["ts"], one["args"]["correlation"]),
    )


def ns(event: dict[str, Any], base_ns: int, end: bool = False) -> int:
    return base_ns + int((event["ts"] + (event["dur"] if end else 0)) * 1000)


def base(trace: Trace) -> int:
    value: int = trace.meta_values()["base_time_ns"]
    return value


def test_tasks_and_their_launches(recorded: tuple[Path, list[dict[str, Any]]]) -> None:
    path, events = recorded
    trace = open_run(path).trace()
    tasks = in_order_of_time(events)
    if not tasks:
        return
    base_ns = base(trace)
    calls = {event["args"]["correlation"]: event for event in reversed(events_of(events, *RUNTIME))}
    rows = trace.kernels.rows(named=True)
    assert [row["id"] for row in rows] == list(range(len(tasks)))
    for row, task in zip(rows, tasks, strict=True):
        args, call = task["args"], calls[task["args"]["correlation"]]
        assert (row["name"], row["device"], row["stream"], row["correlation"]) == (
            task["name"], args["device"], args["stream"], args["correlation"],
        )  # fmt: skip
        assert (row["start_ns"], row["end_ns"]) == (ns(task, base_ns), ns(task, base_ns, end=True))
        assert (row["launch_ns"], row["wait_ns"]) == (ns(call, base_ns), ns(task, base_ns) - ns(call, base_ns))
        if "bytes" in args:
            assert row["bytes"] == args["bytes"]
        if "grid" in args:
            assert row["blocks"] == args["grid"][0] * args["grid"][1] * args["grid"][2]
    api = trace.api.filter(pl.col("layer").cast(pl.String).is_in(RUNTIME))
    assert api.height == len(events_of(events, *RUNTIME))
    waits = events_of(events, "cuda_sync")
    assert trace.api.height - api.height == len(waits)
    assert (0 if trace.marks is None else trace.marks.height) == len(events_of(events, "gpu_user_annotation"))


MEASURED = (
    "registers per thread", "shared memory", "blocks per SM", "warps per SM", "grid", "block", "est. achieved occupancy %",
    "memory bandwidth (GB/s)",
)  # fmt: skip


def test_measured_values(recorded: tuple[Path, list[dict[str, Any]]]) -> None:
    path, events = recorded
    trace = open_run(path).trace()
    calls = {event["args"]["correlation"]: event["args"] for event in reversed(events_of(events, *RUNTIME))}
    expected = []
    for number, task in enumerate(in_order_of_time(events)):
        members = task["args"]
        if "registers per thread" not in members and task["cat"] == "kernel":
            # HIP has them in the call
            members = calls[members["correlation"]]
        for name in MEASURED:
            if name in ("grid", "block") and name in members:
                expected += [(number, f"{name} {axis}", float(size)) for axis, size in zip("xyz", members[name], strict=True)]
            elif name in members:
                expected.append((number, name, float(members[name])))
    found = [] if trace.kernel_metrics is None else trace.kernel_metrics.rows()
    assert found == expected


def test_device_time_of_operators(recorded: tuple[Path, list[dict[str, Any]]]) -> None:
    """By PyTorch's own rule: tasks belong to the operator with their external id, where the trace has such ids at all."""
    path, events = recorded
    trace = open_run(path).trace()
    tasks = events_of(events, *TASKS)
    if not tasks:
        return
    ids_are_real = any(task["args"]["External id"] != task["args"]["correlation"] for task in tasks)
    operators = events_of(events, "cpu_op")
    calls = {event["args"]["correlation"]: event for event in reversed(events_of(events, *RUNTIME))}
    of_id = {one["args"]["External id"]: one["name"] for one in operators}
    lanes = defaultdict(list)
    for one in [*operators, *events_of(events, "user_annotation")]:
        lanes[one["pid"], one["tid"]].append(one)
    expected: dict[str, int] = defaultdict(int)
    for task in tasks:
        if ids_are_real:
            name = of_id[task["args"]["External id"]]
        else:
            call = calls[task["args"]["correlation"]]
            around = [one for one in lanes[call["pid"], call["tid"]] if one["ts"] <= call["ts"] <= one["ts"] + one["dur"]]
            # of calls with the same times, which microseconds leave many of, the one that begins later in the file lies inside
            name = max(enumerate(around), key=lambda one: (one[1]["ts"], -one[1]["dur"], one[0]))[1]["name"]
        expected[name] += int(task["dur"] * 1000)
    names = trace.ops["name"].cast(pl.String)
    found = trace.ops.group_by(names.alias("name")).agg(pl.col("device_self_ns").sum()).filter(pl.col("device_self_ns") > 0)
    assert dict(found.rows()) == dict(expected)
    assert trace.kernels["op"].null_count() == 0


def test_sums_per_type(recorded: tuple[Path, list[dict[str, Any]]]) -> None:
    path, events = recorded
    trace = open_run(path).trace()
    tasks = in_order_of_time(events)
    if not tasks:
        return
    lengths: dict[str, list[int]] = defaultdict(list)
    for task, type_ in zip(tasks, trace.kernels["type"].cast(pl.String), strict=True):
        lengths[type_].append(int(task["dur"] * 1000))
        if task["cat"] != "kernel":
            assert task["name"].startswith(type_)
    for row in op_statistic(trace).iter_rows(named=True):
        mine = lengths.pop(row["type"])
        assert (row["count"], row["total_ns"], row["min_ns"], row["max_ns"]) == (len(mine), sum(mine), min(mine), max(mine))
        assert abs(Fraction(sum(mine), len(mine)) - row["mean_ns"]) <= Fraction(1, 2)
    # what waits or only moves memory may be left out of the statistic, what computes may not
    assert all(type_.startswith("Mem") for type_ in lengths)
    by_name = {row["name"]: row for row in kernel_statistics(trace).iter_rows(named=True)}
    for name in {task["name"] for task in tasks}:
        mine = [int(task["dur"] * 1000) for task in tasks if task["name"] == name]
        assert (by_name[name]["count"], by_name[name]["total_ns"]) == (len(mine), sum(mine))


def test_arrows(recorded: tuple[Path, list[dict[str, Any]]]) -> None:
    """Every arrow that has both ends; Kineto writes an end at every runtime call besides, which is no fault."""
    path, events = recorded
    trace = open_run(path).trace()
    starts = {(one["cat"], one["id"]) for one in events if one.get("ph") == "s"}
    ends = {(one["cat"], one["id"]) for one in events if one.get("ph") == "f"}
    found = [] if trace.flows is None else trace.flows.select(pl.col("kind").cast(pl.String), "flow_id").rows()
    assert sorted(found) == sorted(starts & ends)
    launched = {("ac2g", task["args"]["correlation"]) for task in events_of(events, *TASKS)} if ends else set()
    assert launched <= set(found)


def test_collectives(recorded: tuple[Path, list[dict[str, Any]]]) -> None:
    path, events = recorded
    trace = open_run(path).trace()
    kernels = [one for one in in_order_of_time(events) if one["name"].startswith("nccl")]
    if not kernels:
        return
    rows = trace.communication.sort("device", "stream", "start_ns").rows(named=True)
    assert len(rows) == len(kernels)
    annotations = [one for one in events_of(events, "user_annotation") if one["name"].startswith("nccl:")]
    calls = {event["args"]["correlation"]: event for event in reversed(events_of(events, *RUNTIME))}
    size = {
        "Float": 4,
        "Int": 4,
        "Long": 8,
        "float": 4,
        "long": 8,
        "c10::Half": 2,
        "int": 4,
        "unsigned char": 1,
        "signed char": 1,
    }
    for row, kernel in zip(rows, kernels, strict=True):
        args = kernel["args"]
        if "Collective name" in args:
            expected = (
                args["Collective name"],
                args["In msg nelems"],
                args["dtype"],
                args["Process Group Name"],
                args["Group size"],
            )
        else:
            call = calls[args["correlation"]]
            (around,) = [
                one for one in annotations if one["tid"] == call["tid"] and one["ts"] <= call["ts"] <= one["ts"] + one["dur"]
            ]
            operation = {"nccl:all_to_all": "alltoall", "nccl:all_reduce": "allreduce", "nccl:_all_gather_base": "allgather"}
            (dims,) = around["args"]["Input Dims"]
            elements = 1
            for length in dims:
                elements *= length
            expected = (operation[around["name"]], elements, around["args"]["Input type"][0], None, None)
        assert (row["operation"], row["elements"], row["dtype"], row["group"], row["ranks"]) == expected
        assert row["bytes"] == row["elements"] * size[row["dtype"]]
        assert (row["start_ns"], row["end_ns"]) == (ns(kernel, base(trace)), ns(kernel, base(trace), end=True))


def test_ranks(recorded: tuple[Path, list[dict[str, Any]]]) -> None:
    path, _ = recorded
    expected = {"cpu_only_rank34": 34, "cuda_rank_missing": -1, "cuda_sampled_rank1": 1}
    assert open_run(path).trace().rank == expected.get(path.name.removesuffix(".json.gz"), 0)


def test_the_text_of_times_is_exact(recorded: tuple[Path, list[dict[str, Any]]]) -> None:
    path, events = recorded
    trace = open_run(path).trace()
    calls = sorted(int(one["ts"] * 1000) for one in events_of(events, "cpu_op", "user_annotation"))
    assert (trace.ops["start_ns"].sort() - base(trace)).to_list() == calls
    if "ns_resolution" in path.name:
        # doubles of these would be multiples of 250 ns, and 380 calls would seem to outlive the calls around them
        assert len({time % 250 for time in calls}) == 250
        assert "overlapping_calls" not in trace.health["check"].to_list()


def covered(intervals: list[tuple[int, int]]) -> int:
    """Length of the union, by walking along the sorted intervals."""
    total, reach = 0, 0
    for start, end in sorted(intervals):
        total += max(end - max(start, reach), 0)
        reach = max(reach, end)
    return total
