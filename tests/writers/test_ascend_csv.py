"""The CSV files of a hand-built Ascend run, byte by byte."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from steplens.trace.trace import Trace
from steplens.writers.common import source_table
from steplens.writers.common.metrics import metric_rows
from steplens.writers.common.output import LEVEL0, LEVEL1, NothingToWriteError, Output, device_kind
from steplens.writers.result import OUTPUT_FILES, Settings, why_not_due
from steplens.writers.tables import (
    api_statistic,
    kernel_details,
    memory_record,
    npu_module_mem,
    op_statistic,
    operator_details,
    operator_memory,
    step_trace_time,
)

from .ascend import MB, ascend_run, ns
from .builder import BASE_NS, build, kernel

Write = Callable[[Output, Path], None]


@pytest.fixture
def text(tmp_path: Path) -> Callable[..., str]:
    def render(write: Write, trace: Trace, level: str = LEVEL1) -> str:
        path = tmp_path / "out.csv"
        write(Output(trace, BASE_NS, level), path)
        return path.read_bytes().decode()

    return render


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_kernel_details_have_every_column_and_the_metrics_in_source_order(text: Callable[..., str]) -> None:
    shapes = '"""2,3;3,4""",FLOAT;FLOAT,ND;ND,"""2,4""",FLOAT,ND,N/A'
    assert text(kernel_details.write, ascend_run()) == (
        "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),"
        "Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
        "Output Data Types,Output Formats,Context ID,aicore_time(us),aic_total_cycles,aic_mac_time(us),aic_mac_ratio,"
        "aiv_vec_time(us),cube_utilization(%)\r\n"
        f"0,0,4294967295,101,2,MatMulV3,MatMulV3,dynamic,AI_CORE,20.000\t,5.000,0.000,20,0,NO,{shapes},"
        "4.5,8100,3.125,0.694,0.0,66.301\r\n"
        f"0,0,4294967295,102,2,MatMulV3b,MatMulV3,dynamic,AI_CORE,55.000\t,7.500,0.000,20,0,NO,{shapes},"
        "7.25,13050,6.001,0.828,0.0,80.5\r\n"
        '1,0,4294967295,103,2,Add,Add,N/A,AI_VECTOR_CORE,116.000\t,2.250,53.500,N/A,N/A,N/A,"""""",N/A,N/A,N/A,N/A,N/A,N/A,'
        "0.0,0,0.0,0.0,1.75,0.0\r\n"
        "1,0,4294967295,N/A,3,hcom_allReduce__123_0_1,hcom_allReduce_,N/A,HCCL,140.000\t,20.500,21.750,N/A,N/A,N/A,"
        "N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A\r\n"
    )


def test_kernel_details_of_level0_have_shapes_where_the_source_has_them(text: Callable[..., str]) -> None:
    found = text(kernel_details.write, ascend_run(), LEVEL0).splitlines()
    assert found[0] == (
        "Step Id,Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Num,Input Shapes,"
        "Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats"
    )
    assert found[3] == '1,0,Add,Add,AI_VECTOR_CORE,116.000\t,2.250,53.500,N/A,"""""",N/A,N/A,N/A,N/A,N/A'


def test_metrics_of_a_database_are_named_and_scaled_as_in_the_text_files(text: Callable[..., str]) -> None:
    measured = [("aic_total_time", 310660.7638888889), ("aic_mac_time", 3125.0), ("aic_mac_ratio", 0.5), ("aiv_total_time", 0.0)]
    trace = build(
        kernels=[kernel("k", 1, 2, core="AI_CORE", id=7)],
        kernel_metrics=[{"kernel": 7, "name": name, "value": value} for name, value in measured],
    )
    (row,) = rows(text(kernel_details.write, trace))
    assert dict(list(row.items())[-4:]) == {
        "aicore_time(us)": "310.6607638888889",
        "aic_mac_time(us)": "3.125",
        "aic_mac_ratio": "0.5",
        "aiv_time(us)": "0",
    }


def test_times_of_counters_have_no_noise_behind_their_last_digit(text: Callable[..., str]) -> None:
    # of each of these the quotient or the product of doubles is a neighbour of what it should be
    in_ns = {9325.0: "9.325", 416.0: "0.416", 3717012547.0: "3717012.547", 30.6: "0.0306", 675723629.499: "675723.629499"}
    tasks = [kernel("k", number, number + 1, core="AI_CORE", id=number) for number in range(len(in_ns))]
    found = {
        name: build(kernels=tasks, kernel_metrics=[{"kernel": number, "name": name, "value": value} for number, value in given])
        for name, given in (("aic_mac_time", enumerate(in_ns)), ("aic_mac_time(us)", enumerate(map(float, in_ns.values()))))
    }
    printed = [row["aic_mac_time(us)"] for row in rows(text(kernel_details.write, found["aic_mac_time"]))]
    assert printed == list(in_ns.values())
    assert metric_rows(found["aic_mac_time(us)"])["value"].to_list() == list(in_ns)


def test_a_category_does_not_pass_for_the_type_of_an_npus_task(text: Callable[..., str]) -> None:
    tasks = [kernel("conv_1", 1, 2, type="convolution", category="convolution", core=core) for core in ("AI_CORE", "CUDA")]
    assert [row["Type"] for row in rows(text(kernel_details.write, build(kernels=tasks[:1])))] == ["N/A"]
    assert [row["Type"] for row in rows(text(kernel_details.write, build(kernels=tasks[1:])))] == ["convolution"]


def test_op_statistic_counts_computing_tasks_only(text: Callable[..., str]) -> None:
    assert text(op_statistic.write, ascend_run()) == (
        "OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)\r\n"
        "MatMulV3,AI_CORE,2,12.500,5.000,6.250,7.500,84.746\r\n"
        "Add,AI_VECTOR_CORE,1,2.250,2.250,2.250,2.250,15.254\r\n"
    )


@pytest.mark.parametrize("core", ["CUDA", "ROCM"])
def test_a_gpu_lists_its_copies_too(text: Callable[..., str], core: str) -> None:
    kinds = ["compute", "communication", "copy"]
    tasks = [kernel(kind, number, number + 1, core=core, kind=kind) for number, kind in enumerate([*kinds, "other"])]
    assert [row["Name"] for row in rows(text(kernel_details.write, build(kernels=tasks)))] == kinds
    assert {row["OP Type"] for row in rows(text(op_statistic.write, build(kernels=tasks)))} == {"compute", "copy"}
    assert device_kind(build(kernels=tasks)) == core


def test_step_trace_time(text: Callable[..., str]) -> None:
    assert text(step_trace_time.write, ascend_run()).splitlines()[1:] == [
        "0,0,12.500,0.000,0.000,0.000,30.000,42.500,0.000,0.000,19.000",
        "0,1,2.250,20.500,0.000,20.500,21.750,44.500,0.000,20.500,15.999",
    ]


def test_operator_details_have_the_device_time_of_the_queue(text: Callable[..., str]) -> None:
    found = [(row["Name"], *list(row.values())[3:]) for row in rows(text(operator_details.write, ascend_run()))]
    assert found == [
        ("aten::linear", "12.000", "28.000", "0.000", "6.000", "0.000", "5.000"),
        ("aten::mm", "16.000", "16.000", "6.000", "6.000", "5.000", "5.000"),
        ("autograd::engine::evaluate_function: LinearBackward0", "15.000", "30.000", "0.000", "7.500", "0.000", "7.500"),
        ("aten::mm", "15.000", "15.000", "7.500", "7.500", "7.500", "7.500"),
        ("aten::add", "10.000", "10.000", "2.250", "2.250", "0.000", "0.000"),
        ("c10d::allreduce_", "10.000", "10.000", "20.500", "20.500", "0.000", "0.000"),
    ]


def test_api_statistic_is_computed_in_order_of_name(text: Callable[..., str]) -> None:
    assert text(api_statistic.write, ascend_run()) == (
        "Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance\r\n"
        "communication,Launch_Ffts,0.300,1,0.300,0.300,0.300,0.0\r\n"
        "acl,aclnnMm,1.400,1,1.400,1.400,1.400,0.0\r\n"
        "acl,aclrtMemcpyAsync,0.400,1,0.400,0.400,0.400,0.0\r\n"
        "node,launch,1.800,4,0.450,0.300,0.500,0.008\r\n"
        "runtime,rtStreamSynchronize,10.000,1,10.000,10.000,10.000,0.0\r\n"
    )


def test_api_statistic_of_the_source_is_passed_on(text: Callable[..., str]) -> None:
    record = {"Level": "hccl", "API Name": "x", "Time(us)": "1.5", "Variance": "-0.0"}
    trace = ascend_run(source_tables=[{"table": "api_statistic", "row": 0, "record": json.dumps(record)}])
    assert text(api_statistic.write, trace) == "Level,API Name,Time(us),Variance\r\nhccl,x,1.5,-0.0\r\n"


def test_memory_record_has_the_process_first_and_sums_behind_both_allocators(text: Callable[..., str]) -> None:
    found = [tuple(row.values()) for row in rows(text(memory_record.write, ascend_run()))]
    assert found == [
        ("APP", "9.000\t", "", "2.0", "", "", "NPU:0"),
        ("PTA", "4.500\t", "2.0", "20.0", "2.0", "77", "NPU:0"),
        ("PTA+GE", "4.500\t", "2.0", "20.0", "2.0", "77", "NPU:0"),
        ("WORKSPACE", "8.000\t", str(512 / MB), "20.0", str(512 / MB), "77", "NPU:0"),
        ("GE", "10.000\t", "1.0", "2.0", "", "", "NPU:0"),
        ("PTA+GE", "10.000\t", "3.0", "22.0", "2.0", "77", "NPU:0"),
        ("PTA", "19.000\t", "0.0", "20.0", "2.0", "77", "NPU:0"),
        ("PTA+GE", "19.000\t", "1.0", "22.0", "2.0", "77", "NPU:0"),
        ("PTA", "21.000\t", "0.0", "20.0", "0.0", "77", "NPU:0"),
        ("PTA+GE", "21.000\t", "1.0", "22.0", "0.0", "77", "NPU:0"),
        ("PTA", "112.500\t", str(1024 / MB), "20.0", str(1024 / MB), "77", "NPU:0"),
        ("PTA+GE", "112.500\t", str(1 + 1024 / MB), "22.0", str(1024 / MB), "77", "NPU:0"),
    ]


def test_operator_memory_of_pairs_has_the_graph_engine_last(text: Callable[..., str]) -> None:
    totals = {"allocation_allocated": MB, "allocation_reserved": MB, "allocation_active": MB}
    pairs = [
        {"name": "cann::GeOp", "bytes": 16384, "allocation_ns": ns(1), "release_ns": ns(3.5), "component": "GE", **totals},
        {
            "name": "aten::mm", "bytes": 2 * MB, "allocation_ns": ns(4.5), "release_ns": ns(19), "active_release_ns": ns(21),
            "component": "PTA", "stream": 77, **totals,
        },
    ]  # fmt: skip
    on_npu = [{**pair, "device_type": "NPU", "device": 1} for pair in pairs]
    found = rows(text(operator_memory.write, ascend_run(without=["memory"], allocations=on_npu)))
    columns = ("Name", "Size(KB)", "Release Time(us)", "Active Release Time(us)", "Duration(us)", "Active Duration(us)")
    assert [tuple(row[column] for column in columns) for row in found] == [
        ("aten::mm", "2048.0", "19.000\t", "21.000\t", "14.500\t", "16.500\t"),
        ("cann::GeOp", "16.0", "3.500\t", "", "2.500\t", ""),
    ]
    assert [(row["Stream Ptr"], row["Device Type"]) for row in found] == [("77", "NPU:1"), ("", "NPU:1")]


def test_npu_module_mem(text: Callable[..., str]) -> None:
    assert text(npu_module_mem.write, ascend_run()) == (
        "Device_id,Component,Timestamp(us),Total Reserved(MB),Device\r\n"
        "0,APP,9.000\t,4.0,NPU:0\r\n"
        "0,AML,9.000\t,0.0009765625,NPU:0\r\n"
    )


def test_tables_of_the_source_are_passed_on_and_guarded(text: Callable[..., str]) -> None:
    assert text(partial(source_table.write_source_table, "l2_cache"), ascend_run()) == (
        "Stream Id,Task Id,Hit Rate,Victim Rate,Op Name\r\n2,101,N/A,0.23,MatMulV3\r\n"
    )
    record = {"=a": "-1.5", "b": "=1+1", "c": "@x", "d": None}
    trace = ascend_run(source_tables=[{"table": "nic", "row": 0, "record": json.dumps(record)}])
    assert text(partial(source_table.write_source_table, "nic"), trace) == "'=a,b,c,d\r\n-1.5,'=1+1,'@x,\r\n"
    with pytest.raises(NothingToWriteError, match="no roce"):
        text(partial(source_table.write_source_table, "roce"), trace)


@pytest.mark.parametrize(
    ("level", "switches", "due"),
    [
        ("Level_none", {}, set()),
        ("Level0", {"l2_cache": False, "sys_io": False, "sys_interconnection": False}, {"npu_module_mem.csv", "task_time.csv"}),
        ("Level0", {"l2_cache": True, "sys_io": False, "sys_interconnection": False}, {"l2_cache.csv", "soc_pmu.csv"}),
        (
            "Level1",
            {"sys_io": True, "sys_interconnection": False},
            {"op_statistic.csv", "api_statistic.csv", "nic.csv", "roce.csv"},
        ),
        ("Level2", {"sys_interconnection": True}, {"data_preprocess.csv", "pcie.csv", "hccs.csv"}),
    ],
)
def test_when_a_table_is_due(level: str, switches: dict[str, bool], due: set[str]) -> None:
    conditional = {
        "npu_module_mem.csv", "task_time.csv", "op_statistic.csv", "api_statistic.csv", "data_preprocess.csv", "l2_cache.csv",
        "soc_pmu.csv", "nic.csv", "roce.csv", "pcie.csv", "hccs.csv",
    }  # fmt: skip
    found = {file.name for file in OUTPUT_FILES if not why_not_due(file, Settings(level=level, switches=switches))} & conditional
    assert due <= found
    switched = {"l2_cache": ["l2_cache.csv", "soc_pmu.csv"], "sys_io": ["nic.csv", "roce.csv"]}
    for switch, names in switched.items():
        if switches.get(switch) is False:
            assert not found & set(names)
    if level == "Level_none":
        assert not found
    assert ("data_preprocess.csv" in found) == (level == "Level2")
