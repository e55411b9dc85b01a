"""MindSpore's own files of a run on a CPU: launches, shapes, memory; as it writes them, as it once did, and damaged."""

from __future__ import annotations

import json
import random
from pathlib import Path

import polars as pl
import pytest

from steplens.common.errors import InputError
from steplens.readers.common.microseconds import ms_text_ns
from steplens.readers.mindspore.results import mindspore_flat
from steplens.readers.mindspore.windows.mindspore_cpu import read_launches, read_shapes
from steplens.trace.health import HealthLog
from steplens.trace.schema import SCOPE_BACKWARD, SCOPE_FUNCTION
from steplens.trace.trace import Trace

START = 1795184283329718763
RELU, OTHER = "Default/network-WithLossCell/relu-ReLU/ReLU-op0", "Default/other-Cell/ReLU-op0"
GRADIENT, BARE = "Gradients/Default/network/gradMatMul/MatMul-op2", "MatMul"


def checks(trace: Trace) -> set[str]:
    return set() if trace.health is None else set(trace.health["check"])


def write(folder: Path, start: int = START) -> Path:
    """Two steps of four launches; two names that differ in their scope only; one launch of pyboost, without a scope."""
    launches = [
        (RELU, [(0, "0.001"), (100_000, "0.0015")]),
        (OTHER, [(10_000, "0.002"), (110_000, "2e-05")]),
        (GRADIENT, [(20_000, "0.340206"), (400_000, "1.25")]),
        (BARE, [(380_000, "0.01")]),
    ]
    lines = [f"{name};HostCpuOps;" + "".join(f"{start + at},{length},0 " for at, length in times) for name, times in launches]
    (folder / "cpu_op_execute_timestamp_0.txt").write_text("\n".join(reversed(lines)) + "\n")
    shapes = [
        "ReLU;ReLU-op0;1;input_1:[32, 1, 28, 28];",
        "ReLU;ReLU-op0;1;input_1:[7];input_2:NoShape;",
        "MatMul;MatMul-op2;1;input_1:[2, 3];input_2:[3, 4];",
        "ReLU;ReLU-op0;1;input_1:[32, 1, 28, 28];",
        "ReLU;ReLU-op0;1;input_1:[9];input_2:NoShape;",
        ";;1354706327;",
        "MatMul;MatMul-op2;1;input_1:[2, 3];input_2:[3, 4];",
    ]
    (folder / "cpu_framework_0.txt").write_text("\n".join(shapes) + "\n")
    memory = [f"{start - 500},512,1073741824,512", f"{start + 10},1024,1073741824,2048"]
    header = "Timestamp(ns),Total Allocated(Byte),Total Reserved(Byte),Total Active(Byte)"
    (folder / "cpu_ms_memory_record_0.txt").write_text("\n".join([header, *memory]) + "\n")
    detail = "op_side,op_type,op_name,full_op_name,op_occurrences,op_total_time(ms),op_avg_time(ms),total_proportion,subgraph,pid"
    (folder / "cpu_op_detail_info_0.csv").write_text(f"{detail}\nHost,ReLU,ReLU-op0,{RELU},2,0.0025,0.00125,0.01,Default,24126\n")
    return folder


def test_every_launch_with_its_time_and_full_name(tmp_path: Path) -> None:
    trace = mindspore_flat.read_trace(write(tmp_path))
    ops = trace.required("ops").collect().with_columns(pl.col("name", "module", "input_shapes").cast(pl.String))
    found = ops.sort("start_ns").select("name", pl.col("start_ns") - START, pl.col("end_ns") - START, "input_shapes").rows()
    assert found == [
        (RELU, 0, 1000, "32,1,28,28"),
        (OTHER, 10_000, 12_000, "7;"),
        (GRADIENT, 20_000, 360_206, "2,3;3,4"),
        (RELU, 100_000, 101_500, "32,1,28,28"),
        (OTHER, 110_000, 110_020, "9;"),
        (BARE, 380_000, 390_000, None),
        (GRADIENT, 400_000, 1_650_000, "2,3;3,4"),
    ]
    assert ops.filter(name=RELU)["module"][0] == "Default/network-WithLossCell/relu-ReLU"
    assert ops.filter(name=BARE)["module"][0] is None
    assert set(ops.filter(name=GRADIENT)["scope"]) == {SCOPE_BACKWARD}
    assert set(ops.filter(name=RELU)["scope"]) == {SCOPE_FUNCTION}
    assert checks(trace) == {"missing_shapes"} | checks(trace) & {"overlapping_calls"}


def test_the_cpu_is_the_device(tmp_path: Path) -> None:
    trace = mindspore_flat.read_trace(write(tmp_path))
    kernels = trace.required("kernels").collect().with_columns(pl.col("name", "type", "core").cast(pl.String))
    assert kernels.height == 7
    assert not trace.has_accelerator
    assert dict(kernels.group_by("type").len().iter_rows()) == {"ReLU": 4, "MatMul": 3}
    ops = trace.required("ops").collect()
    assert kernels["op"].null_count() == 0
    launched = ops["name"].cast(pl.String).gather(kernels["op"])
    assert launched.to_list() == kernels["name"].to_list()


def test_memory_pool_and_own_tables(tmp_path: Path) -> None:
    trace = mindspore_flat.read_trace(write(tmp_path))
    memory = trace.required("memory").collect()
    assert memory.select(pl.col("time_ns") - START, "allocated", "reserved", "active").rows() == [
        (-500, 512, 1 << 30, 512),
        (10, 1024, 1 << 30, 2048),
    ]
    assert set(memory["component"].cast(pl.String)) == {"MindSpore"}
    details = trace.source_table("cpu_op_detail_info")
    assert details is not None and details["op_total_time(ms)"].to_list() == ["0.0025"]


def test_times_of_the_oldest_versions_are_monotonic(tmp_path: Path) -> None:
    trace = mindspore_flat.read_trace(write(tmp_path, start=2_574_109_000_000))
    assert trace.required("ops").collect()["start_ns"].min() == 2_574_109_000_000
    assert "monotonic_times" in checks(trace)


@pytest.mark.parametrize(("shift", "steps"), [(0, [1, 1, 1, 2, 2, 2, 2]), (-START, [None] * 7)])
def test_steps_of_the_older_timeline(tmp_path: Path, shift: int, steps: list[int | None]) -> None:
    write(tmp_path, start=2_574_109_000_000)
    base = 0 if shift else 2_574_109_000
    lanes = [{"name": str(step), "ph": "X", "tid": 100000, "pid": 0, "ts": base + at, "dur": length} for step, at, length in [
        (1, 0, 99.5), (2, 100, 1600)]]  # fmt: skip
    lanes.append({"name": "ReLU-op0", "ph": "X", "tid": "HostCpuOps0", "pid": 0, "ts": base, "dur": 1})
    (tmp_path / "cpu_timeline_display_0.json").write_text(json.dumps(lanes))
    ops = mindspore_flat.read_trace(tmp_path).required("ops").collect()
    assert ops.sort("start_ns")["step"].to_list() == steps


def test_shapes_need_as_many_lines_as_launches(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "cpu_framework_0.txt"
    path.write_text(path.read_text().replace("ReLU;ReLU-op0;1;input_1:[9];input_2:NoShape;\n", ""))
    trace = mindspore_flat.read_trace(tmp_path)
    shapes = trace.required("ops").collect().with_columns(pl.col("name", "input_shapes").cast(pl.String))
    # three lines for four launches, which differ: nothing tells which launch has which
    assert shapes.filter(pl.col("name").is_in([RELU, OTHER]))["input_shapes"].null_count() == 4
    assert shapes.filter(name=GRADIENT)["input_shapes"].to_list() == ["2,3;3,4"] * 2


def test_damaged_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "cpu_op_execute_timestamp_0.txt"
    path.write_bytes(b"A;HostCpuOps;5,1.5,0 6,x,0 7\nno fields\n\n \xff;HostCpuOps;99999999999999999999,1,0 8,-1,0 9,1e-3,2 \n")
    health = HealthLog()
    launches = read_launches(path, health)
    assert launches.select("start_ns", "end_ns", "worker").rows() == [(5, 1_500_005, 0), (9, 1009, 2)]
    assert [(finding.check, finding.count) for finding in health.findings] == [("damaged_records", 5)]
    path.write_text("a;b\n;;\nT;x/T-op1;3;input_1:[4];input_2:[ 5, 6 ];\n")
    health = HealthLog()
    assert read_shapes(path, health).rows() == [("", "", ""), ("T", "T-op1", "4;5,6")]
    assert [(finding.check, finding.count) for finding in health.findings] == [("damaged_records", 1)]


def test_milliseconds_are_read_digit_by_digit() -> None:
    texts = ["154907895.95956", "0.0031", "1", "1.2345678", "1700000000123.456789", "-1", "x", "", "99999999999999999"]
    expected = [154907895959560, 3100, 1_000_000, 1_234_568, 1700000000123456789, None, None, None, None]
    assert ms_text_ns(pl.Series(texts)).to_list() == expected


@pytest.mark.parametrize("seed", range(10))
def test_mutated_files_never_crash(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for path in list(write(tmp_path).iterdir()):
        data = bytearray(path.read_bytes())
        for _ in range(rng.randint(0, 10)):
            data[rng.randrange(len(data))] = rng.choice([*b"0123456789;,.: \n[]-", rng.randrange(256)])
        path.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.3 else data)
    try:
        trace = mindspore_flat.read_trace(tmp_path)
    except InputError:
        return
    for name in trace:
        assert trace.table(name) is not None
