"""The CSV files of hand-built runs, byte by byte, and against the csv module on random ones."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steplens.readers.ascend.text.ascend_csv import read_kernel_details, read_operator_memory
from steplens.trace.health import HealthLog
from steplens.trace.trace import Trace
from steplens.writers.common.output import NothingToWriteError, Output
from steplens.writers.common.text import guard_formula, microseconds, microseconds_text, render_distinct, write_csv
from steplens.writers.tables import (
    kernel_details,
    memory_record,
    op_statistic,
    operator_details,
    operator_memory,
    step_trace_time,
)

from .builder import BASE_NS, MAIN, build, kernel, memory, op, training_step

Write = Callable[[Output, Path], None]


@pytest.fixture
def text(tmp_path: Path) -> Callable[..., str]:
    def render(write: Write, trace: Trace, level: str = "Level0") -> str:
        path = tmp_path / "out.csv"
        write(Output(trace, BASE_NS, level), path)
        return path.read_bytes().decode()

    return render


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_operator_details(text: Callable[..., str]) -> None:
    assert text(operator_details.write, training_step()) == (
        "Name,Input Shapes,Call Stack,Host Self Duration(us),Host Total Duration(us),Device Self Duration(us),"
        "Device Total Duration(us),Device Self Duration With AICore(us),Device Total Duration With AICore(us)\r\n"
        'aten::linear,"32,16;\r\n16,8","model.py(3): forward;\r\ntrain.py(9): <module>",'
        "12.000,28.000,0.000,16.001,0.000,0.000\r\n"
        'aten::mm,"32,16;\r\n16,8","model.py(3): forward;\r\ntrain.py(9): <module>",16.001,16.001,16.001,16.001,0.000,0.000\r\n'
        "LinearBackward0,,,30.000,30.000,0.000,0.000,0.000,0.000\r\n"
        "aten::add,,,11.500,11.500,11.500,11.500,0.000,0.000\r\n"
    )


def test_operator_details_separates_ai_core_time(text: Callable[..., str]) -> None:
    trace = build(
        ops=[op("outer", 0, 20), op("inner", 1, 9, parent=0, depth=1), op("other", 30, 40)],
        kernels=[
            kernel("mm", 5, 12.5, core="AI_CORE", op=1),
            kernel("add", 13, 14, core="AI_VECTOR_CORE", op=1),
            kernel("mm", 15, 17, core="AI_CORE", op=0),
        ],
    )
    found = [(row["Name"], *list(row.values())[-2:]) for row in rows(text(operator_details.write, trace))]
    assert found == [("outer", "2.000", "9.500"), ("inner", "7.500", "7.500"), ("other", "0.000", "0.000")]


def test_kernel_details_of_level0(text: Callable[..., str]) -> None:
    assert text(kernel_details.write, training_step()) == (
        "Step Id,Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Num,"
        "Input Shapes,Input Data Types\r\n"
        '7,0,aten::mm,aten::mm,CPU,4.000\t,16.001,0.000,N/A,"""32,16;16,8""",float;float\r\n'
        "7,0,aten::add,aten::add,CPU,80.000\t,11.500,59.999,N/A,N/A,N/A\r\n"
    )


def test_kernel_details_of_level1(text: Callable[..., str]) -> None:
    assert text(kernel_details.write, training_step(), "Level1") == (
        "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),"
        "Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
        "Output Data Types,Output Formats,Context ID\r\n"
        "7,0,N/A,N/A,1001,aten::mm,aten::mm,static,CPU,4.000\t,16.001,0.000,N/A,N/A,N/A,"
        '"""32,16;16,8""",float;float,N/A,N/A,N/A,N/A,N/A\r\n'
        "7,0,N/A,N/A,1001,aten::add,aten::add,static,CPU,80.000\t,11.500,59.999,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A\r\n"
    )


def test_kernel_details_without_steps_or_shapes_has_only_the_base_columns(text: Callable[..., str]) -> None:
    trace = build(kernels=[kernel("k", 2, 3, stream=5), kernel("j", 1, 2, stream=6, wait_ns=None)])
    assert text(kernel_details.write, trace) == (
        "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Num\r\n"
        "0,j,j,CPU,1.000\t,1.000,0.000,N/A\r\n"
        "0,k,k,CPU,2.000\t,1.000,0.000,N/A\r\n"
    )


def test_a_kernel_outside_every_step_has_an_empty_step_id(text: Callable[..., str]) -> None:
    steps = [{"id": 3, "start_ns": BASE_NS, "end_ns": BASE_NS + 10_000, "pid": 1, "tid": MAIN}]
    trace = build(kernels=[kernel("in", 1, 2, step=3), kernel("out", 20, 30)], steps=steps)
    assert [row["Step Id"] for row in rows(text(kernel_details.write, trace))] == ["3", ""]


def test_an_unknown_wait_of_an_accelerator_is_not_available(text: Callable[..., str]) -> None:
    trace = build(kernels=[kernel("k", 2, 3, core="CUDA", wait_ns=None, correlation=17), kernel("j", 4, 5, core="CUDA")])
    found = rows(text(kernel_details.write, trace, "Level1"))
    assert [(row["Wait Time(us)"], row["Task ID"]) for row in found] == [("N/A", "17"), ("0.000", "N/A")]


def test_op_statistic(text: Callable[..., str]) -> None:
    tasks = [kernel("mm", 0, 2), kernel("mm", 3, 4), kernel("mm", 5, 6.001), kernel("add", 7, 7.5)]
    assert text(op_statistic.write, build(kernels=tasks), "Level1") == (
        "OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)\r\n"
        "mm,CPU,3,4.001,1.000,1.334,2.000,88.891\r\n"
        "add,CPU,1,0.500,0.500,0.500,0.500,11.109\r\n"
    )


def test_step_trace_time(text: Callable[..., str]) -> None:
    assert text(step_trace_time.write, training_step()) == (
        "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
        "Communication(Not Overlapped and Exclude Receive),Preparing\r\n"
        "0,7,27.501,0.000,0.000,0.000,59.999,87.500,0.000,0.000,3.000\r\n"
    )


def test_step_trace_time_without_steps_has_one_row_with_an_empty_step(text: Callable[..., str]) -> None:
    communication = [{"name": "gloo:all_reduce", "kind": "collective", "start_ns": BASE_NS + 8_000, "end_ns": BASE_NS + 30_000}]
    trace = build(ops=[op("a", 1, 40)], kernels=[kernel("a", 2, 10)], communication=communication)
    assert rows(text(step_trace_time.write, trace)) == [
        {
            "Device_id": "0",
            "Step": "",
            "Computing": "8.000",
            "Communication(Not Overlapped)": "20.000",
            "Overlapped": "2.000",
            "Communication": "22.000",
            "Free": "0.000",
            "Stage": "28.000",
            "Bubble": "0.000",
            "Communication(Not Overlapped and Exclude Receive)": "20.000",
            "Preparing": "1.000",
        }
    ]


def test_operator_memory(text: Callable[..., str]) -> None:
    assert text(operator_memory.write, training_step()) == (
        "Name,Size(KB),Allocation Time(us),Release Time(us),Active Release Time(us),Duration(us),Active Duration(us),"
        "Allocation Total Allocated(MB),Allocation Total Reserved(MB),Allocation Total Active(MB),"
        "Release Total Allocated(MB),Release Total Reserved(MB),Release Total Active(MB),Stream Ptr,Device Type\r\n"
        "aten::mm,2.0,5.000\t,19.500\t,,14.500\t,,0.001953125,0.0,,0.0,0.0,,0,CPU\r\n"
        "aten::add,0.5,81.000\t,,,,,0.00048828125,0.0,,,,,0,CPU\r\n"
    )


def test_memory_record(text: Callable[..., str]) -> None:
    assert text(memory_record.write, training_step()) == (
        "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Stream Ptr,Device Type\r\n"
        "PTA,5.000\t,0.001953125,0.0,,0,CPU\r\n"
        "PTA+GE,5.000\t,0.001953125,0.0,,0,CPU\r\n"
        "PTA,19.500\t,0.0,0.0,,0,CPU\r\n"
        "PTA+GE,19.500\t,0.0,0.0,,0,CPU\r\n"
        "PTA,81.000\t,0.00048828125,0.0,,0,CPU\r\n"
        "PTA+GE,81.000\t,0.00048828125,0.0,,0,CPU\r\n"
    )


def test_memory_record_adds_the_last_totals_of_the_other_allocator(text: Callable[..., str]) -> None:
    mb = 1 << 20
    on_npu = {"device_type": "NPU", "device": 1}
    trace = build(
        memory=[
            memory(1, 64, mb, allocated=2 * mb, reserved=20 * mb, active=2 * mb, stream=77, **on_npu),
            memory(2, 65, mb, allocated=1 * mb, reserved=2 * mb, component="GE", **on_npu),
            memory(3, 66, mb, allocated=9 * mb, component="WORKSPACE", **on_npu),
        ]
    )
    found = [tuple(row.values()) for row in rows(text(memory_record.write, trace))]
    assert found == [
        ("PTA", "1.000\t", "2.0", "20.0", "2.0", "77", "NPU:1"),
        ("PTA+GE", "1.000\t", "2.0", "20.0", "2.0", "77", "NPU:1"),
        ("GE", "2.000\t", "1.0", "2.0", "", "", "NPU:1"),
        ("PTA+GE", "2.000\t", "3.0", "22.0", "2.0", "77", "NPU:1"),
        ("WORKSPACE", "3.000\t", "9.0", "", "", "", "NPU:1"),
    ]


def test_an_accelerators_run_has_no_cpu_rows(text: Callable[..., str]) -> None:
    events = [memory(1, 64, 1024), memory(2, 65, 2048, device_type="CUDA", stream=3)]
    trace = build(memory=events, kernels=[kernel("k", 1, 2, core="CUDA")])
    assert [(row["Size(KB)"], row["Device Type"]) for row in rows(text(operator_memory.write, trace))] == [("2.0", "NPU:0")]
    with pytest.raises(NothingToWriteError, match="of an accelerator"):
        text(memory_record.write, build(memory=events[:1], kernels=[kernel("k", 1, 2, core="CUDA")]))


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_hostile_names_reach_no_spreadsheet_as_formulas(text: Callable[..., str], start: str) -> None:
    name = start + 'cmd|"/c calc"!A1'
    tasks = [kernel(name, 1, 2, input_types=name, input_shapes="1")]
    trace = build(ops=[op(name, 1, 2, stack=name, input_shapes=name)], kernels=tasks, memory=[memory(1, 64, 8, op=0)])
    for write in (operator_details.write, kernel_details.write, op_statistic.write, operator_memory.write):
        for row in rows(text(write, trace, "Level1")):
            for cell in row.values():
                assert not cell.startswith(start), write
    assert rows(text(operator_details.write, trace))[0]["Name"] == "'" + name


ODD_NAMES = ("plain", "  lead", "trail  ", " both ", "end\t", "=x", "'=x", "''@x", "'x", "' =x", "-", "\tx", "\r", "a\nb")


def test_odd_names_are_read_back_as_they_are(tmp_path: Path) -> None:
    tasks = [kernel(name, 10 * at, 10 * at + 2, input_types="FLOAT", input_shapes="1") for at, name in enumerate(ODD_NAMES, 1)]
    calls = [op(name, 10 * at, 10 * at + 2) for at, name in enumerate(ODD_NAMES, 1)]
    rises = [memory(10 * at + 1, 64, 64 * at, op=at - 1) for at in range(1, len(ODD_NAMES) + 1)]
    output = Output(build(ops=calls, kernels=tasks, memory=rises), BASE_NS, "Level1")
    health = HealthLog()
    kernel_details.write(output, tmp_path / "kernel_details.csv")
    kernels, _ = read_kernel_details([tmp_path / "kernel_details.csv"], health)
    assert kernels["name"].cast(pl.String).to_list() == list(ODD_NAMES)
    operator_memory.write(output, tmp_path / "operator_memory.csv")
    blocks = read_operator_memory([tmp_path / "operator_memory.csv"], health)
    assert blocks["name"].cast(pl.String).to_list() == list(ODD_NAMES)
    assert health.findings == []


@settings(deadline=None)
@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_survives_the_csv(name: str, stack: str) -> None:
    trace = build(ops=[op(name, 1, 2, stack=stack)])
    path = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(".")
    path = path / f"steplens-test-{id(trace)}.csv"
    try:
        operator_details.write(Output(trace, BASE_NS), path)
        row = rows(path.read_bytes().decode())[0]
    finally:
        path.unlink(missing_ok=True)
    assert row["Name"] == (guard_formula(name) or "")
    assert row["Call Stack"] == (guard_formula(stack.replace(";", ";\r\n")) or "")


@settings(deadline=None)
@given(st.integers(min_value=-(2**62), max_value=2**62))
def test_microseconds_are_exact(ns: int) -> None:
    frame = pl.DataFrame({"ns": [ns]})
    printed = frame.select(microseconds(pl.col("ns")).alias("us")).write_csv(include_header=False).strip()
    assert Decimal(printed) == Decimal(ns) / 1000
    assert len(printed.rpartition(".")[2]) == 3
    assert frame.select(microseconds_text(pl.col("ns"))).item() == printed + "\t"


@settings(deadline=None)
@given(st.lists(st.none() | st.text(max_size=3)))
def test_distinct_values_are_rendered_once_and_keep_their_rows(values: list[str | None]) -> None:
    calls: list[str] = []

    def render(value: str) -> str | None:
        calls.append(value)
        return value.upper() or None

    result = render_distinct(pl.Series("x", values, dtype=pl.String), render, "?")
    assert result.to_list() == [(value.upper() or "?") if value is not None else "?" for value in values]
    assert len(calls) == len(set(calls))


def test_nothing_to_write_says_why(tmp_path: Path) -> None:
    empty = Output(build(), BASE_NS, "Level1")
    for write in (
        operator_details.write,
        kernel_details.write,
        op_statistic.write,
        operator_memory.write,
        memory_record.write,
        step_trace_time.write,
    ):
        with pytest.raises(NothingToWriteError, match="recorded"):
            write(empty, tmp_path / "x.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_column_that_a_spreadsheet_would_take_for_a_formula_is_guarded(tmp_path: Path) -> None:
    """As of a vendor's table, whose columns a capture names."""
    write_csv(pl.DataFrame({"=1+1": [1], "'=1+1": [2], "@x": [3], "plain": [4]}), tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_bytes() == b"''=1+1,'=1+1,'@x,plain\r\n1,2,3,4\r\n"
