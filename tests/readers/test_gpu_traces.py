"""Kineto traces of GPUs: what device events carry, what launched them, and what communication kernels do.

Hand-made events cover what the recorded traces of ``test_recorded_traces`` do not have: graphs, several GPUs and processes,
every version's way of describing a collective, HIP, other tools' JSON, and values that are not what they should be.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.analysis.device.kernels import op_statistic
from steplens.readers.common.rank_names import rank_in_name
from steplens.readers.kineto import kineto
from steplens.readers.kineto.kineto_collectives import ELEMENT_BYTES, operation_of
from steplens.trace.trace import Trace

BASE_NS = 1_790_857_026_000_000_000
START_US = 4_413_860_637_534.123
START_NS = BASE_NS + 4_413_860_637_534_123
HOST = 500

Event = dict[str, Any]


def event(category: str, name: str, at: float, length: float, pid: int = HOST, tid: int = HOST, **args: Any) -> Event:
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": START_US + at, "dur": length, "args": args}


def op(name: str, at: float, length: float, external_id: int, /, **args: Any) -> Event:
    return event("cpu_op", name, at, length, **{"External id": external_id, **args})


def launch(correlation: int, at: float, length: float = 5, name: str = "cudaLaunchKernel", **args: Any) -> Event:
    return event("cuda_runtime", name, at, length, **{"External id": 0, "cbid": 211, "correlation": correlation, **args})


def kernel(correlation: int, at: float, length: float, name: str = "ampere_sgemm_32x32_nn", /, **args: Any) -> Event:
    members = {
        "External id": 0, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": correlation,
        "registers per thread": 40, "shared memory": 400, "blocks per SM": 4.5, "warps per SM": 75.25,
        "grid": [512, 3, 2], "block": [128, 4, 1], "est. achieved occupancy %": 75,
    }  # fmt: skip
    device, stream = args.get("device", 0), args.get("stream", 7)
    return event("kernel", name, at, length, device, stream, **{**members, **args})


def copy(correlation: int, at: float, length: float, name: str = "Memcpy HtoD (Pageable -> Device)", /, **args: Any) -> Event:
    members = {"External id": 0, "device": 0, "context": 1, "stream": 7, "correlation": correlation}
    size = {"bytes": 92_928, "memory bandwidth (GB/s)": 7.744}
    category = "gpu_memset" if name.startswith("Memset") else "gpu_memcpy"
    return event(category, name, at, length, 0, 7, **{**members, **size, **args})


def read(tmp_path: Path, events: list[Event], name: str = "trace.json", **members: Any) -> Trace:
    path = tmp_path / name
    path.write_text(json.dumps({"baseTimeNanoseconds": BASE_NS, **members, "traceEvents": events}))
    return kineto.read(path)


def texts(trace: Trace, *columns: str, table: str = "kernels") -> list[tuple[Any, ...]]:
    frame = trace.table(table)
    assert frame is not None
    return frame.select(pl.col(name).cast(pl.String) if frame[name].dtype == pl.Categorical else name for name in columns).rows()


def checks(trace: Trace) -> dict[str, int]:
    return {} if trace.health is None else dict(trace.health.select("check", "count").iter_rows())


def test_what_a_device_task_carries(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        [
            op("aten::mm", 0, 30, 3),
            launch(11, 5),
            kernel(11, 20, 100.5, **{"External id": 3}),
            op("aten::copy_", 40, 30, 4),
            launch(12, 45, name="cudaMemcpyAsync"),
            copy(12, 121, 12, **{"External id": 4}),
            launch(13, 55, name="cudaMemsetAsync"),
            copy(13, 140, 2, "Memset (Device)", **{"bytes": 64, "memory bandwidth (GB/s)": 0.032}),
        ],
        deviceProperties=[{"id": 0, "name": "NVIDIA A100-PG509-200", "numSms": 108}],
    )
    columns = ("type", "kind", "category", "core", "device", "stream", "context_id", "correlation", "bytes", "blocks", "wait_ns")
    assert texts(trace, *columns) == [
        ("matmul", "compute", "matmul", "CUDA", 0, 7, 1, 11, None, 512 * 3 * 2, 15_000),
        ("Memcpy HtoD", "copy", "copy", "CUDA", 0, 7, 1, 12, 92_928, None, 76_000),
        ("Memset", "copy", "memset", "CUDA", 0, 7, 1, 13, 64, None, 85_000),
    ]
    assert texts(trace, "start_ns", "end_ns", "launch_ns")[0] == (START_NS + 20_000, START_NS + 120_500, START_NS + 5_000)
    names = trace.ops["name"].cast(pl.String)
    assert [names[row] for row in trace.kernels["op"]] == ["aten::mm", "aten::copy_", "aten::copy_"]
    assert texts(trace, "kernel", "name", "value", table="kernel_metrics") == [
        *((0, name, value) for name, value in (
            ("registers per thread", 40), ("shared memory", 400), ("blocks per SM", 4.5), ("warps per SM", 75.25),
            ("grid x", 512), ("grid y", 3), ("grid z", 2), ("block x", 128), ("block y", 4), ("block z", 1),
            ("est. achieved occupancy %", 75),
        )),
        (1, "memory bandwidth (GB/s)", 7.744),
        (2, "memory bandwidth (GB/s)", 0.032),
    ]  # fmt: skip
    assert texts(trace, "name", "layer", "correlation", table="api")[1] == ("cudaMemcpyAsync", "cuda_runtime", 12)
    assert trace.meta_values()["deviceProperties"][0]["numSms"] == 108
    statistic = op_statistic(trace)
    assert statistic.select("type", "count", "total_ns").rows() == [
        ("matmul", 1, 100_500), ("Memcpy HtoD", 1, 12_000), ("Memset", 1, 2_000),
    ]  # fmt: skip


def test_a_graph_has_one_launch_and_many_kernels(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        [
            op("aten::graph_owner", 0, 50, 3),
            launch(20, 10, 20, "cudaGraphLaunch", **{"External id": 3}),
            *(kernel(20, 40 + 10 * number, 8, graph_id=1, **{"External id": 3}) for number in range(3)),
            launch(21, 35),  # launches nothing before the recording ends
            event("user_annotation", "## epilogue ##", 60, 30, **{"External id": 9}),
            launch(22, 70),
            kernel(22, 90, 5),
            kernel(23, 99, 5),  # launched before the recording began, or its call was not recorded
        ],
    )
    assert texts(trace, "correlation", "launch_ns", "wait_ns")[:3] == [
        (20, START_NS + 10_000, 30_000), (20, START_NS + 10_000, 40_000), (20, START_NS + 10_000, 50_000),
    ]  # fmt: skip
    names = trace.ops["name"].cast(pl.String).to_list()
    owners = [None if row is None else names[row] for row in trace.kernels["op"]]
    # outside every operator the annotation around the launch has the task
    assert owners == ["aten::graph_owner"] * 3 + ["## epilogue ##", None]
    assert trace.ops["device_total_ns"].to_list()[0] == 24_000
    assert checks(trace)["kernels_without_operator"] == 1


def test_external_ids_that_are_correlations_link_nothing(tmp_path: Path) -> None:
    """Old versions wrote the correlation where the id of the operator belongs: by chance it is that of another one."""
    trace = read(
        tmp_path,
        [
            op("aten::wrong", 0, 10, 77),
            op("aten::right", 20, 30, 5),
            launch(77, 25, **{"External id": 77}),
            kernel(77, 60, 10, **{"External id": 77}),
        ],
    )
    names = trace.ops["name"].cast(pl.String).to_list()
    assert names[trace.kernels["op"][0]] == "aten::right"
    assert trace.api["external_id"].to_list() == [None]


def test_the_external_id_counts_where_the_call_was_not_recorded(tmp_path: Path) -> None:
    trace = read(tmp_path, [op("aten::mm", 0, 10, 3), kernel(8, 60, 10, **{"External id": 3})])
    assert trace.kernels["op"].to_list() == [0]
    assert trace.kernels.select("launch_ns", "wait_ns").row(0) == (None, None)


def test_several_gpus_of_one_process(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        [
            op("aten::mm", 0, 100, 3),
            launch(1, 10), launch(2, 20), launch(3, 30),
            kernel(3, 50, 10, device=1, stream=9),
            kernel(2, 40, 30, device=1, stream=7),
            kernel(1, 60, 10, device=0, stream=7),
        ],
    )  # fmt: skip
    assert texts(trace, "id", "device", "stream", "correlation") == [(0, 0, 7, 1), (1, 1, 7, 2), (2, 1, 9, 3)]
    # metrics follow the numbers of their tasks
    assert trace.kernel_metrics["kernel"].unique().sort().to_list() == [0, 1, 2]


def test_processes_that_use_the_same_numbers(tmp_path: Path) -> None:
    """Traces merged by hand: a task belongs to the last call of its number that precedes it."""
    events = []
    for number, pid in enumerate((500, 600, 700)):
        at = 1000 * number
        events += [
            event("cpu_op", f"aten::op{pid}", at, 100, pid, pid, **{"External id": 3}),
            event("cuda_runtime", "cudaLaunchKernel", at + 10, 5, pid, pid, **{"External id": 3, "correlation": 1}),
            kernel(1, at + 200, 10, **{"External id": 3}),
        ]
    random.Random(3).shuffle(events)
    trace = read(tmp_path, events)
    names = trace.ops["name"].cast(pl.String).to_list()
    assert [names[row] for row in trace.kernels["op"]] == ["aten::op500", "aten::op600", "aten::op700"]
    assert trace.kernels["wait_ns"].to_list() == [190_000] * 3
    assert checks(trace)["several_processes"] == 3


def test_waits_overhead_and_annotations_of_the_device(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        [
            op("aten::item", 0, 100, 3),
            launch(5, 10, 50, "cudaStreamSynchronize"),
            event("cuda_sync", "Stream Sync", 12, 45, 0, 7, **{"cuda_sync_kind": "Stream Sync", "correlation": 5, "stream": 7}),
            event("cuda_sync", "Context Sync", 70, 5, 0, -1, **{"correlation": 99, "stream": 4294967295}),
            event("overhead", "Activity Buffer Request", 80, 3, -1, 0),
            event("gpu_user_annotation", "## forward ##", 20, 40, 0, 7, **{"External id": 44}),
            event("cuda_driver", "cuLaunchKernel", 90, 4, **{"correlation": 6, "External id": 3}),
            kernel(6, 95, 3),
            event("collective_telemetry", "something new", 1, 1),
            event("", "no category", 1, 1),
        ],
    )
    assert texts(trace, "name", "layer", "pid", "tid", "correlation", table="api") == [
        ("cudaStreamSynchronize", "cuda_runtime", HOST, HOST, 5),
        ("Activity Buffer Request", "overhead", -1, 0, None),
        ("cuLaunchKernel", "cuda_driver", HOST, HOST, 6),
        ("Stream Sync", "cuda_sync", HOST, HOST, 5),  # on the thread that waits
        ("Context Sync", "cuda_sync", 0, -1, 99),
    ]
    assert texts(trace, "domain", "message", "start_ns", "stream", "correlation", table="marks") == [
        ("gpu_user_annotation", "## forward ##", START_NS + 20_000, 7, 44)
    ]
    assert trace.kernels.height == 1
    assert trace.kernels["op"].to_list() == [0]
    unused = trace.health.filter(check="unused_categories").row(0, named=True)
    assert unused["count"] == 2
    assert "nothing says that a device ran them" in unused["message"]
    assert "collective_telemetry" in unused["message"] and "no category" in unused["message"]


def test_hip(tmp_path: Path) -> None:
    """What CUDA records of a task, HIP records of its call; the grid of some calls is counted in threads."""
    trace = read(
        tmp_path,
        [
            op("aten::mm", 0, 100, 3),
            launch(1, 5, name="hipLaunchKernel", grid=[3, 2, 1], block=[128, 1, 1], stream="0x0", **{"shared memory": 512}),
            launch(2, 15, name="hipExtModuleLaunchKernel", grid=[512, 8, 1], block=[256, 1, 1], stream="0x0"),
            launch(3, 25, name="hipMemcpyWithStream", size="2560", kind="1", src="0x5567"),
            event("kernel", "triton_poi_fused_add_0", 40, 5, 2, 0, device=2, stream=0, correlation=1, kind="Dispatch Kernel"),
            event("kernel", "Cijk_Alik_Bljk_SB", 50, 5, 2, 0, device=2, stream=0, correlation=2, kind="Dispatch Kernel"),
            event("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 60, 5, 2, 0, device=2, stream=0, correlation=3, kind="HtoD"),
        ],
    )
    assert texts(trace, "core", "type", "device", "blocks", "bytes") == [
        ("ROCM", "elementwise", 2, 6, None), ("ROCM", "matmul", 2, 2 * 8, None), ("ROCM", "Memcpy HtoD", 2, None, 2560),
    ]  # fmt: skip
    metrics = {(row, name): value for row, name, value in texts(trace, "kernel", "name", "value", table="kernel_metrics")}
    assert metrics[0, "shared memory"] == 512
    assert (metrics[1, "grid x"], metrics[1, "block x"]) == (512, 256)
    only_device = read(tmp_path, [kernel(1, 0, 1)], deviceProperties=[{"name": "AMD Instinct MI300X"}])
    assert texts(only_device, "core") == [("ROCM",)]


def collective(name: str, elements: int, dtype: str, size: int = 4, **members: Any) -> dict[str, Any]:
    ranks = {
        "Group size": size,
        "Process Group Name": "3",
        "Process Group Description": "tp",
        "Process Group Ranks": "[0, 1, 2, 3]",
    }
    return {"Collective name": name, "In msg nelems": elements, "Out msg nelems": 1, "dtype": dtype, **ranks, **members}


NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
COLUMNS = ("kind", "operation", "group", "ranks", "elements", "bytes", "dtype", "algorithm", "peer")


@pytest.mark.parametrize(
    ("recorded", "operation", "kind"),
    [
        ("allreduce", "allreduce", "collective"),
        ("allreduce_coalesced", "allreduce", "collective"),
        ("_allgather_base", "allgather", "collective"),
        ("all_gather_into_tensor_coalesced", "allgather", "collective"),
        ("_reduce_scatter_base", "reducescatter", "collective"),
        ("reduce_scatter_tensor_coalesced", "reducescatter", "collective"),
        ("all_to_allv", "alltoall", "collective"),
        ("alltoall_base", "alltoall", "collective"),
        ("broadcast", "broadcast", "collective"),
        ("_reduce_oop", "reduce", "collective"),
        ("gather", "gather", "collective"),
        ("scatter", "scatter", "collective"),
        ("barrier", "barrier", "collective"),
        ("send", "send", "send"),
        ("recv", "recv", "receive"),
    ],
)
def test_operations(tmp_path: Path, recorded: str, operation: str, kind: str) -> None:
    members = collective(recorded, 1000, "BFloat16", **{"Src Rank": 2, "Dst Rank": 5})
    trace = read(tmp_path, [op("record_param_comms", 0, 20, 3), launch(1, 5), kernel(1, 30, 100, NCCL, **members)])
    peer = {"send": 5, "receive": 2}.get(kind)
    assert texts(trace, *COLUMNS, table="communication") == [(kind, operation, "3", 4, 1000, 2000, "BFloat16", "RING_LL", peer)]
    assert texts(trace, "kind", "category", "type") == [("communication",) * 3]
    assert trace.communication.select("op", "launch_ns").row(0) == (0, START_NS + 5_000)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("Byte", 1), ("Float8_e4m3fn", 1), ("Float8_e5m2", 1), ("BFloat16", 2), ("Half", 2), ("Float", 4), ("Long", 8),
     ("Double", 8), ("ComplexDouble", 16), ("Mystery", None)],
)  # fmt: skip
def test_bytes_of_types(tmp_path: Path, dtype: str, size: int | None) -> None:
    trace = read(tmp_path, [kernel(1, 30, 100, NCCL, **collective("allreduce", 10, dtype))])
    assert texts(trace, "elements", "bytes", table="communication") == [(10, None if size is None else 10 * size)]
    assert ELEMENT_BYTES.get(dtype) == size


def test_older_traces_describe_collectives_in_their_calls(tmp_path: Path) -> None:
    named = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"
    older = {**collective("all_to_all", 256, "Half"), "Process Group ID": 7}
    del older["Process Group Name"]
    shapes = {"Input Dims": [[2, 3], [4]], "Input type": ["long int", "long int"]}
    events = [
        # the call around the launch says it; the id of the operator is known
        op("record_param_comms", 0, 20, 3, **older),
        event("user_annotation", "nccl:all_to_all", 2, 15, **{"External id": 4}),
        launch(1, 5, **{"External id": 3}),
        kernel(1, 30, 10, named, **{"External id": 3}),
        # only the place of the launch ties them
        op("record_param_comms", 40, 20, 5, **collective("allreduce", 100, "Float")),
        launch(2, 45, **{"External id": 2}),
        kernel(2, 70, 10, named, **{"External id": 2}),
        # no description, but an annotation with shapes
        event("user_annotation", "nccl:_all_gather_base", 80, 20, **{"External id": 6, **shapes}),
        launch(3, 85),
        kernel(3, 110, 10, named),
        # nothing but the name of the kernel
        launch(4, 125),
        kernel(4, 130, 10, "ncclDevKernel_ReduceScatter_Sum_bf16_TREE_LL128(ncclDevComm*, unsigned long, ncclWork*)"),
        kernel(5, 150, 10, named),
    ]
    info = {"backend": "nccl", "rank": 6, "world_size": 8, "pg_config": [{"pg_name": "3", "pg_size": 4, "ranks": [0, 1, 2, 3]}]}
    trace = read(tmp_path, events, distributedInfo=info)
    assert texts(trace, *COLUMNS[:-1], table="communication") == [
        ("collective", "alltoall", "7", 4, 256, 512, "Half", "RING_SIMPLE"),
        ("collective", "allreduce", "3", 4, 100, 400, "Float", "RING_SIMPLE"),
        ("collective", "allgather", None, None, 10, 80, "long int", "RING_SIMPLE"),
        ("collective", "reducescatter", None, None, None, None, None, "TREE_LL128"),
        ("collective", "sendrecv", None, None, None, None, None, "RING_SIMPLE"),
    ]
    assert (trace.rank, trace.meta_values()["world_size"]) == (6, 8)


def test_the_size_of_a_group_is_known_from_the_job(tmp_path: Path) -> None:
    members = collective("allreduce", 1, "Float")
    del members["Group size"]
    info = {"pg_config": [{"pg_name": "0", "pg_size": 8}, {"pg_name": "3", "pg_size": 4}, "damaged", {"pg_name": "3"}]}
    trace = read(tmp_path, [kernel(1, 0, 1, NCCL, **members)], distributedInfo=info)
    assert texts(trace, "ranks", table="communication") == [(4,)]


@pytest.mark.parametrize("words", ["ncclDevKernel_Generic_1", "", "wait", None])
def test_names_without_an_operation(words: str | None) -> None:
    assert operation_of(words) is None


def test_microseconds_since_the_epoch_keep_their_nanoseconds(tmp_path: Path) -> None:
    """A double of them is off by up to 125 ns; the text of the file is not."""
    lines = []
    for number in range(40):
        at = f"17121954955{number:05d}.{(number * 37) % 1000:03d}"
        lines.append(f'{{"ph": "X", "cat": "cpu_op", "name": "aten::op", "pid": 1, "tid": 2, "ts": {at}, "dur": 0.{number:03d}}}')
        lines.append(f'{{"ph": "s", "id": {number}, "pid": 1, "tid": 2, "ts": {at}, "cat": "fwdbwd", "name": "fwdbwd"}}')
        lines.append(f'{{"ph": "f", "id": {number}, "pid": 1, "tid": 2, "ts": {at}, "cat": "fwdbwd", "name": "fwdbwd"}}')
        memory = '{"Total Reserved": 0, "Total Allocated": 64, "Bytes": 64, "Device Id": -1, "Device Type": 0, "Addr": 1}'
        lines.append(f'{{"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 2, "ts": {at}, "args": {memory}}}')
    expected = [1_712_195_495_500_000_000 + number * 1000 + (number * 37) % 1000 for number in range(40)]
    path = tmp_path / "absolute.json"
    path.write_text('{"traceEvents": [' + ",\n".join(lines) + "]}")
    trace = kineto.read(path)
    assert trace.ops["start_ns"].to_list() == expected
    assert (trace.ops["end_ns"] - trace.ops["start_ns"]).to_list() == list(range(40))
    assert trace.flows["from_ns"].to_list() == trace.flows["to_ns"].to_list() == trace.memory["time_ns"].to_list() == expected
    # the same in quotes, as some tools write numbers
    quoted = path.with_name("quoted.json")
    quoted.write_text(re.sub(r'("(?:ts|dur)": )([0-9.]+)', r'\1"\2"', path.read_text()))
    same = kineto.read(quoted)
    assert same.ops.equals(trace.ops) and same.flows.equals(trace.flows) and same.memory.equals(trace.memory)
    assert checks(trace) == checks(same) == {}


@pytest.mark.parametrize(
    ("text", "ns"),
    [("12.5", 12_500), ("-3.25", -3_250), ("-0.001", -1), ("7", 7_000), ("1.2346", 1_235), ("1e3", 1_000_000),
     ("1712195495519689.0479", 1_712_195_495_519_689_048), ("99999999999999999", None), ('"nan"', None), ("null", None),
     ("[1]", None), ('"abc"', None), ("1e400", None)],
)  # fmt: skip
def test_times_of_every_spelling(tmp_path: Path, text: str, ns: int | None) -> None:
    first = '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1712195495519689.047,"dur":1}'
    other = f'{{"ph":"X","cat":"cpu_op","name":"b","pid":1,"tid":2,"ts":{text},"dur":1}}'
    path = tmp_path / "times.json"
    path.write_text(f'{{"traceEvents":[{first},{other}]}}')
    trace = kineto.read(path)
    assert trace.ops["start_ns"].to_list() == [1_712_195_495_519_689_047, *([] if ns is None else [ns])]
    health = trace.table("health")
    found = {} if health is None else dict(health.select("check", "count").iter_rows())
    assert found.get("damaged_events") == (1 if ns is None else None)


@pytest.mark.parametrize(
    ("name", "distributed", "rank"),
    [
        ("rank0.json", False, 0),
        ("trace_rank_12.json.gz", False, 12),
        ("cuda_sampled_rank1.json.gz", False, 1),
        ("dedicated_log_torch_trace_rank-3.pt.trace.json", False, 3),
        ("Rank7.1712195495519689047.pt.trace.json.gz", False, 7),
        ("trace.3.json", True, 3),
        ("kineto.11.pt.trace.json.gz", True, 11),
        ("trace.3.json", False, None),
        ("host_4711.1712195495519689047.pt.trace.json", True, None),
        ("frank5.json", True, None),
        ("trace.json", True, None),
        ("libkineto_activities_1102.json", True, None),
    ],
)
def test_the_rank_in_a_name(name: str, distributed: bool, rank: int | None) -> None:
    assert rank_in_name(name, distributed=distributed) == rank


def test_where_the_rank_comes_from(tmp_path: Path) -> None:
    events = [op("aten::mm", 0, 1, 1)]
    named = read(tmp_path, events, "worker_rank_5.json", distributedInfo={"backend": "gloo", "world_size": 8})
    assert (named.rank, named.meta_values()["rank_source"]) == (5, "file name")
    said = read(tmp_path, events, "worker_rank_5.json", distributedInfo={"backend": "gloo", "rank": 2, "world_size": 8})
    assert said.rank == 2 and "rank_source" not in said.meta_values()
    unknown = read(tmp_path, events, distributedInfo={"backend": "gloo"})
    assert unknown.rank == -1
    assert checks(unknown) == {"rank_unknown": 1}
    # without a process group it is rank 0 of 1
    alone = read(tmp_path, events)
    assert (alone.rank, alone.recorded_rank, checks(alone)) == (0, -1, {})
    assert read(tmp_path, events, distributedInfo={"rank": True}).rank == -1


MEMORY = {"Total Reserved": 0, "Total Allocated": 64, "Bytes": 64, "Device Id": 0, "Device Type": 1, "Addr": 4096}
ON_DEVICE = {"ph": "i", "s": "t", "name": "[memory]", "pid": HOST, "tid": HOST, "ts": START_US, "args": MEMORY}


@pytest.mark.parametrize(
    ("more", "members", "found"),
    [
        ([], {}, None),
        ([], {"distributedInfo": {"backend": "gloo", "rank": 0}}, None),
        ([], {"distributedInfo": {"backend": "cpu:gloo,cuda:nccl", "rank": 0}}, None),
        ([], {"deviceProperties": [{"name": "NVIDIA A100"}]}, None),
        ([launch(1, 5)], {}, "launches_without_kernels"),
        ([ON_DEVICE], {}, "device_not_recorded"),
        ([], {"distributedInfo": {"backend": "nccl", "rank": 0}}, "device_not_recorded"),
    ],
)
def test_the_cpu_does_not_pass_for_a_device_that_was_not_recorded(
    tmp_path: Path, more: list[Event], members: dict[str, Any], found: str | None
) -> None:
    trace = read(tmp_path, [op("aten::mm", 0, 30, 3), *more], **members)
    assert (trace.kernels is None) == (found is not None)
    assert set(checks(trace)) == ({found} if found else set())


def test_what_the_profiler_lost(tmp_path: Path) -> None:
    line = (
        "INFO:2024-05-22 17:15:23 1:1 Cupti.cpp:333] Record counts: Out-of-range = {}, Blocklisted runtime = 37458, "
        "Invalid ext correlations = {}, CPU GPU out-of-order = {}, Unexpected CUDA events = {}, CUPTI stopped early? = {}"
    )
    events = [op("aten::mm", 0, 1, 1)]
    assert checks(read(tmp_path, events, INFO=[line.format(0, 0, 0, 0, 0), 5, None])) == {}
    usual = read(tmp_path, events, INFO=[line.format(4181, 0, 0, 0, 0)])
    assert usual.health.select("check", "severity", "count").rows() == [("out_of_range_records", "info", 4181)]
    bad = read(tmp_path, events, INFO=[line.format(1, 2, 3, 4, 1), line.format(10, 20, 30, 40, 0)])
    assert checks(bad) == {
        "out_of_range_records": 11, "records_without_operator": 22, "disordered_records": 77, "recording_stopped_early": 1,
    }  # fmt: skip


def test_members_in_another_order_mean_the_same(tmp_path: Path) -> None:
    """Other tools sort the members, so that those of one task stand behind those of the launch."""
    events = [op("aten::mm", 0, 30, 3), launch(11, 5), launch(12, 6), kernel(11, 20, 10), kernel(12, 40, 10), copy(11, 60, 1)]
    usual = read(tmp_path, events)
    path = tmp_path / "sorted.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": events}, sort_keys=True))
    other = kineto.read(path)
    assert other.kernels.equals(usual.kernels)
    assert other.kernel_metrics.equals(usual.kernel_metrics)
    assert usual.kernel_metrics.height == 2 * 11 + 1


HOSTILE: dict[str, Event] = {
    "huge_numbers": kernel(2**63 - 1, 0, 1, grid=[2**40, 2**40, 2**40], **{"External id": 2**70, "shared memory": 1e308}),
    "negative": kernel(-5, 0, -1, device=-7, stream=-9, grid=[-1, 2], block=[]),
    "text": kernel(1, 0, 1, **{"correlation": "x", "device": "GPU 0", "stream": "0x1f", "registers per thread": "40"}),
    "null": kernel(1, 0, 1, **dict.fromkeys(("correlation", "device", "stream", "grid", "registers per thread", "External id"))),
    "lists": kernel(1, 0, 1, grid=[[1]], block={"x": 1}, correlation=[1], **{"warps per SM": [1, 2]}),
    "no_args": {key: value for key, value in kernel(1, 0, 1).items() if key != "args"},
    "args_list": {**kernel(1, 0, 1), "args": [1, 2]},
    "unknown_members": kernel(1, 0, 1, **{f"x{number}": number for number in range(500)}),
    "zero_block": launch(1, 0, name="hipExtModuleLaunchKernel", grid=[1, 1, 1], block=[0, 0, 0]),
    "collective_of_nothing": kernel(
        1, 0, 1, NCCL, **{"Collective name": 5, "In msg nelems": "many", "dtype": [], "Group size": 2**80}
    ),
    "collective_of_much": kernel(1, 0, 1, NCCL, **collective("allreduce", 2**62, "Float", 2**40, **{"Src Rank": 2**50})),
    "shapes_of_much": event(
        "user_annotation", "nccl:all_reduce", 200, 10, **{"Input Dims": [[2**60, 2**60], "x", [[1], []]], "Input type": [3, None]}
    ),
    "memory_of_text": copy(1, 0, 1, bytes="many", **{"memory bandwidth (GB/s)": "inf"}),
    "no_name": {**copy(1, 0, 1), "name": ""},
    "thread_of_much": {"ph": "M", "name": "thread_name", "pid": 2**80, "tid": -(2**63) - 1, "args": {"name": "x"}},
    "arrow_of_much": {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 2**70, "pid": 2**70, "tid": 1, "ts": 1e300},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_one_hostile_event_spoils_no_other(tmp_path: Path, name: str) -> None:
    good = [op("aten::mm", 0, 30, 3), launch(11, 5), kernel(11, 20, 100, NCCL, **collective("allreduce", 10, "Float"))]
    trace = read(tmp_path, [HOSTILE[name], *good])
    kept = trace.kernels.filter(pl.col("correlation") == 11)
    assert kept.select("start_ns", "end_ns", "op", "blocks").rows()[-1] == (
        START_NS + 20_000,
        START_NS + 120_000,
        kept["op"][0],
        3072,
    )
    assert trace.ops["name"].cast(pl.String).to_list()[kept["op"][0]] == "aten::mm"
    found = trace.communication.filter(pl.col("correlation") == 11)
    assert found.select("elements", "bytes", "ranks").rows() == [(10, 40, 4)]
    assert trace.kernel_metrics.filter(pl.col("kernel") == kept["id"][0]).height == 11


def test_random_damage_never_escapes_as_another_error(tmp_path: Path) -> None:
    data = json.dumps(
        {
            "baseTimeNanoseconds": BASE_NS,
            "distributedInfo": {"rank": 1, "world_size": 2, "pg_config": [{"pg_name": "3", "pg_size": 4}]},
            "deviceProperties": [{"name": "x"}],
            "INFO": ["Out-of-range = 5"],
            "traceEvents": [op("aten::mm", 0, 30, 3), launch(11, 5), kernel(11, 20, 100, NCCL, **collective("send", 10, "Float"))]
            * 2
            + [copy(11, 60, 1), launch(5, 1, name="hipLaunchKernel", grid=[1], block=[1])],
        }
    ).encode()
    choice = random.Random(11)
    for number in range(100):
        changed = bytearray(data)
        for _ in range(choice.randrange(1, 12)):
            position = choice.randrange(len(changed))
            if choice.random() < 0.5:
                changed[position] = choice.choice(b'0123456789-.eE"{}[],: xn\\')
            else:
                del changed[position : position + choice.randrange(1, 6)]
        path = tmp_path / f"damaged{number}.json"
        path.write_bytes(changed)
        try:
            trace = kineto.read(path)
        except kineto.InputError:
            continue
        assert set(trace) <= {
            "ops",
            "api",
            "kernels",
            "kernel_metrics",
            "communication",
            "meta",
            "health",
            "threads",
            "marks",
            "flows",
        }


NAMES = [
    f"void at::native::vectorized_elementwise_kernel<4, at::native::Functor{number}<float>, {'char*, ' * 40}>()"
    for number in range(50)
]

PEAK = """
import resource, sys
from pathlib import Path
from steplens.readers.kineto import kineto
trace = kineto.read(Path(sys.argv[1]))
print(trace.kernels.height, sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
"""


@pytest.mark.slow
def test_memory_stays_below_the_size_of_a_large_file(tmp_path: Path) -> None:
    """Two processes read it; what they need is their libraries and the columns, not the text and not an object per event."""
    path = tmp_path / "large.json"
    count = 80_000
    with path.open("w") as handle:
        handle.write('{\n  "schemaVersion": 1,\n  "traceEvents": [\n  ')
        for number in range(count):
            at = 40.0 * number
            events = (
                op("aten::mm", at, 30, number),
                launch(number + 1, at + 5),
                kernel(number + 1, at + 20, 15, NAMES[number % 50]),
            )
            for one in events:
                handle.write(json.dumps(one, indent=4).replace("\n", "\n  ") + ",\n  ")
        handle.write('{"ph": "M", "name": "x"}\n  ]}')
    assert path.stat().st_size > 100e6
    # a process inherits the peak of the one that starts it, here of all tests so far; a shell between the two has little
    command = ["sh", "-c", '"$0" -c "$1" "$2"; exit $?', sys.executable, PEAK, str(path)]
    # each thread has memory of its own, and polars starts one per processor
    environment = {**os.environ, "POLARS_MAX_THREADS": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    kernels, peak_kb = map(int, done.stdout.split())
    assert kernels == count
    assert peak_kb * 1024 < 450e6


def of_devices(first: object, second: object, *, in_args: bool) -> list[Event]:
    """Two kernels at the same time on two devices, whose names lie in their arguments or are their process alone."""
    items = [op("aten::mm", 0, 10, 1), launch(1, 1), op("aten::mm", 20, 10, 2), launch(2, 21)]
    for correlation, device in ((1, first), (2, second)):
        item = kernel(correlation, 30, 5)
        item["pid"], item["args"]["External id"] = device, correlation
        if in_args:
            item["args"]["device"] = device
        else:
            del item["args"]["device"]
        items.append(item)
    return items


@pytest.mark.parametrize("in_args", [True, False])
@pytest.mark.parametrize(
    ("first", "second", "numbers"),
    [
        ("gpu:0", "gpu:1", [0, 1]),
        ("GPU 3", "GPU 2", [3, 2]),
        ("0", "1", [0, 1]),
        ("node a / card 0", "node b / card 0", [0, 1]),
        ("gpu:1", "GPU 1", [0, 1]),
        (1 << 31, 1 << 40, [1, 0]),
        (1 << 70, "x", [0, 1]),
        (0, "gpu:1", [0, 1]),
        (0, "other", [0, 1]),
    ],
)
def test_devices_named_with_text_stay_apart(
    tmp_path: Path, first: object, second: object, numbers: list[int], in_args: bool
) -> None:
    path = tmp_path / "devices.json"
    path.write_text(json.dumps({"traceEvents": of_devices(first, second, in_args=in_args)}))
    trace = kineto.read(path)
    found = dict(trace.kernels.select("correlation", "device").rows())
    if (first, second) == ("gpu:1", "GPU 1"):
        # both say one; the first in the order of texts has it
        assert found == {1: 0, 2: 1}
    else:
        assert [found[1], found[2]] == numbers
    assert trace.health is None or not trace.health["check"].str.contains("overlap").any()
    told = [] if trace.health is None else trace.health.filter(check="named_devices")["count"].to_list()
    names = [name for name in (first, second) if name not in (0, "0", "1")]
    assert told == ([len(names)] if names else [])


def test_streams_named_with_text_stay_apart(tmp_path: Path) -> None:
    items = of_devices(0, 0, in_args=True)
    items[-2]["args"]["stream"], items[-1]["args"]["stream"] = "main", "copies"
    # an annotation as the device saw it lies on the thread alone
    items.append({**event("gpu_user_annotation", "range", 30, 5), "pid": 0, "tid": "main"})
    path = tmp_path / "streams.json"
    path.write_text(json.dumps({"traceEvents": items}))
    trace = kineto.read(path)
    found = dict(trace.kernels.select("correlation", "stream").rows())
    assert sorted(found.values()) == [0, 1]
    assert trace.marks["stream"].to_list() == [found[1]]
