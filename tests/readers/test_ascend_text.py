"""Result folders: real captures against their own files, hand-made ones, and those that steplens itself writes."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from steplens.analysis.device.kernels import core_self_ns, op_statistic, subtree_total_ns
from steplens.analysis.steps.ascend_step_times import ascend_step_times
from steplens.common import rundir
from steplens.common.errors import InputError
from steplens.readers.ascend.text import ascend_text, text_files
from steplens.trace.health import HealthLog
from steplens.trace.trace import Trace
from steplens.writers.result import DONE, Settings, write_result

from ..shared_data import shared
from . import timeline_builder as build
from .timeline_builder import BACKWARD, COMMUNICATION, HARDWARE, MAIN, OVERLAP, PID, Event, ns

NAMES = ("text_level0/rank0", "text_level1/rank0", "text_level1/rank1")
OUTPUT = rundir.OUTPUT_DIRECTORY


class Capture:
    """A real capture, read once, and its own files."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.run = shared("ascend_pytorch", f"{name}_ascend_pt")
        self.health = HealthLog()
        self.raw = ascend_text.read(self.run / OUTPUT, self.run, self.health)
        self.trace = ascend_text.read_trace(self.run / OUTPUT, self.run)

    def rows(self, file: str) -> list[dict[str, str]]:
        with (self.run / OUTPUT / file).open(newline="") as handle:
            return list(csv.DictReader(handle))


@pytest.fixture(scope="module", params=NAMES)
def capture(request: pytest.FixtureRequest) -> Capture:
    return Capture(request.param)


def table(trace: Trace, name: str) -> pl.DataFrame:
    frame = trace.table(name)
    assert frame is not None, name
    return frame


def text(frame: pl.DataFrame, column: str) -> list[str | None]:
    return frame[column].cast(pl.String).to_list()


def micro(value: str) -> int:
    """Decimal µs as ns, exact for three decimals."""
    whole, _, fraction = value.strip().partition(".")
    return int(whole or 0) * 1000 + int(fraction[:3].ljust(3, "0") or 0)


# --- real captures --------------------------------------------------------------------------------------------------------

#: contract 12.2: computing, communication not overlapped, communication, free, stage, preparing
STEP_50 = {
    "text_level0/rank0": (8827473, 81515607, 85516889, 25908102, 116251182, 19358190),
    "text_level1/rank0": (8873756, 101963203, 105991878, 25744050, 136581009, 17902502),
    "text_level1/rank1": (8878295, 96359047, 100375286, 26675274, 131912616, 20433190),
}


def test_counts_of_a_capture(capture: Capture) -> None:
    heights = {name: frame.height for name, frame in capture.raw.items()}
    assert (heights["ops"], heights["python"], heights["flows"], heights["task_queue"]) == (860, 1282, 27, 159)
    assert capture.raw["task_queue"].null_count().sum_horizontal().item() == 0
    kinds = dict(table(capture.trace, "kernels").group_by(pl.col("kind").cast(pl.String)).len().iter_rows())
    assert (kinds["compute"], kinds["communication"], kinds["copy"]) == (187, 4, 24)
    assert heights["communication"] == 4
    # the only thing to say of an untouched capture: five copies of one call each have two tasks and one launch
    assert [(finding.check, finding.severity, finding.count) for finding in capture.health.findings] == [
        ("unmatched_launches", "info", 5)
    ]


def test_step_times_of_a_capture(capture: Capture) -> None:
    row = ascend_step_times(capture.trace).row(0, named=True)
    names = ("computing", "communication_not_overlapped", "communication", "free", "stage", "preparing")
    assert tuple(row[f"{name}_ns"] for name in names) == STEP_50[capture.name]
    (own,) = capture.rows("step_trace_time.csv")
    assert row["step"] == int(own["Step"])
    for title, name in (("Computing", "computing"), ("Overlapped", "overlapped"), ("Free", "free")):
        assert row[f"{name}_ns"] / 1000 == pytest.approx(float(own[title]), abs=5e-4), title
    # sums of epoch µs in doubles are a quarter of a µs off
    assert row["stage_ns"] / 1000 == pytest.approx(float(own["Stage"]), abs=0.25)


def test_operators_of_a_capture(capture: Capture) -> None:
    """Host times exactly; device times up to the rounding of each kernel to a ns, in the file as well as here."""
    trace = capture.trace
    ops = table(trace, "ops")
    core = core_self_ns(trace, "AI_CORE")
    assert core is not None
    tasks = np.zeros(ops.height, dtype=np.int64)
    np.add.at(tasks, table(trace, "kernels")["op"].drop_nulls().to_numpy(), 1)
    found = ops.with_columns(
        total_ns=pl.col("end_ns") - pl.col("start_ns"),
        core=pl.Series(core),
        core_total=pl.Series(subtree_total_ns(trace, core)),
        tasks=pl.Series(tasks),
        tasks_total=pl.Series(subtree_total_ns(trace, tasks)),
    )
    found = found.filter(~pl.col("name").cast(pl.String).str.starts_with("ProfilerStep#")).sort("start_ns", maintain_order=True)
    rows = capture.rows("operator_details.csv")
    assert len(rows) == found.height == 859
    launching = 0
    for own, row in zip(rows, found.iter_rows(named=True), strict=True):
        assert own["Name"] == row["name"]
        assert own["Input Shapes"].replace("\n", "") == (row["input_shapes"] or "")
        assert own["Call Stack"].replace("\n", "") == (row["stack"] or "")
        assert round(float(own["Host Self Duration(us)"]) * 1000) == row["self_ns"]
        assert round(float(own["Host Total Duration(us)"]) * 1000) == row["total_ns"]
        for title, column, count in (
            ("Device Self Duration(us)", "device_self_ns", "tasks"),
            ("Device Total Duration(us)", "device_total_ns", "tasks_total"),
            ("Device Self Duration With AICore(us)", "core", "tasks"),
            ("Device Total Duration With AICore(us)", "core_total", "tasks_total"),
        ):
            assert abs(float(own[title]) * 1000 - row[column]) <= row[count] + 1e-3, (own["Name"], title)
        launching += row["device_self_ns"] > 0
    assert launching == 127


def test_kernels_of_a_capture(capture: Capture) -> None:
    """Every row of kernel_details once, with its own values; times of the timeline, whose rounding may differ by a ns."""
    kernels = table(capture.trace, "kernels").filter(pl.col("kind").cast(pl.String).is_in(["compute", "communication"]))
    kernels = kernels.sort("start_ns")
    rows = sorted(capture.rows("kernel_details.csv"), key=lambda row: micro(row["Start Time(us)"]))
    assert kernels.height == len(rows) == 191
    detailed = "Task ID" in rows[0]
    for own, row in zip(rows, kernels.iter_rows(named=True), strict=True):
        assert own["Name"] == row["name"]
        assert abs(micro(own["Start Time(us)"]) - row["start_ns"]) <= 1
        assert abs(micro(own["Duration(us)"]) - (row["end_ns"] - row["start_ns"])) <= 1
        assert micro(own["Wait Time(us)"]) == row["wait_ns"]
        assert int(own["Block Dim"]) == row["blocks"]
        assert row["op"] is not None and row["step"] == 50
        if detailed:
            known = {
                column: None if own[title] == "N/A" else own[title] for title, column in (("Type", "type"), ("OP State", "state"))
            }
            assert known == {"type": row["type"], "state": row["state"]}
            assert own["Accelerator Core"] == row["core"]
            assert own["Input Shapes"].strip('"') == (row["input_shapes"] or "N/A")
            assert own["Output Formats"] == (row["output_formats"] or "N/A")


def test_measurements_of_a_capture(capture: Capture) -> None:
    if "level1" not in capture.name:
        assert "kernel_metrics" not in capture.raw
        return
    metrics, kernels = table(capture.trace, "kernel_metrics"), table(capture.trace, "kernels")
    names = list(dict.fromkeys(text(metrics, "name")))
    assert (names[0], names[-1], len(names)) == ("aicore_time(us)", "cube_utilization(%)", 25)
    by_kernel = {
        (kernel, name): value for kernel, name, value in metrics.with_columns(pl.col("name").cast(pl.String)).iter_rows()
    }
    ids = {(row["name"], row["start_ns"]): row["id"] for row in kernels.iter_rows(named=True)}
    checked = 0
    for own in capture.rows("kernel_details.csv"):
        kernel = ids.get((own["Name"], micro(own["Start Time(us)"])))
        for name in names:
            if own[str(name)] != "N/A":
                assert by_kernel.pop((kernel, name)) == float(own[str(name)])
                checked += 1
    assert checked == metrics.height and not by_kernel


def test_sums_per_type_of_a_capture(capture: Capture) -> None:
    """op_statistic.csv adds up what kernel_details.csv lists and does not communicate."""
    if "level1" not in capture.name:
        return
    kernels = table(capture.trace, "kernels").filter(pl.col("kind").cast(pl.String) == "compute")
    mine = {(row["type"], row["core"]): row for row in op_statistic(Trace(Path(), {"kernels": kernels})).iter_rows(named=True)}
    rows = capture.rows("op_statistic.csv")
    assert len(rows) == len(mine) == 33
    for own in rows:
        row = mine[own["OP Type"], own["Core Type"]]
        assert row["count"] == int(own["Count"])
        assert abs(row["total_ns"] - float(own["Total Time(us)"]) * 1000) <= row["count"] + 0.5
        for title, column in (("Min Time(us)", "min_ns"), ("Max Time(us)", "max_ns"), ("Avg Time(us)", "mean_ns")):
            assert abs(row[column] - float(own[title]) * 1000) <= 1.5
        assert row["ratio_percent"] == pytest.approx(float(own["Ratio(%)"]), abs=1e-3)


def test_runtime_calls_of_a_capture(capture: Capture) -> None:
    """The calls of the timeline add up to api_statistic.csv."""
    if "level1" not in capture.name:
        assert "api" not in capture.raw
        return
    calls = capture.raw["api"].with_columns(length=pl.col("end_ns") - pl.col("start_ns"))
    found = {
        (layer, name): (count, total)
        for layer, name, count, total in calls.group_by(pl.col("layer", "name").cast(pl.String))
        .agg(count=pl.len(), total=pl.col("length").sum())
        .iter_rows()
    }
    rows = capture.rows("api_statistic.csv")
    for own in rows:
        layer = "communication" if own["Level"] == "hccl" else own["Level"]
        count, total = found.pop((layer, own["API Name"]))
        assert count == int(own["Count"])
        assert total == pytest.approx(float(own["Time(us)"]) * 1000, abs=10 * count)
    assert not found and len(rows) > 40


def test_memory_of_a_capture(capture: Capture) -> None:
    own = [row for row in capture.rows("memory_record.csv") if row["Component"] != "PTA+GE"]
    memory = capture.raw["memory"]
    assert memory.height == len(own)
    mib = 1 << 20

    def size(value: str) -> int | None:
        return round(float(value) * mib) if value else None

    assert memory.select(pl.col("component").cast(pl.String), "time_ns", "allocated", "reserved", "active").rows() == [
        (
            row["Component"],
            micro(row["Timestamp(us)"]),
            *(size(row[f"Total {what}(MB)"]) for what in ("Allocated", "Reserved", "Active")),
        )
        for row in own
    ]
    allocations = capture.raw["allocations"]
    rows = capture.rows("operator_memory.csv")
    assert text(allocations, "name") == [row["Name"] for row in rows]
    assert allocations["bytes"].to_list() == [round(float(row["Size(KB)"]) * 1024) for row in rows]
    for title, column in (
        ("Allocation Time(us)", "allocation_ns"),
        ("Release Time(us)", "release_ns"),
        ("Active Release Time(us)", "active_release_ns"),
    ):
        assert allocations[column].to_list() == [micro(row[title]) if row[title] else None for row in rows], title
    for title, column in (
        ("Allocation Total Active(MB)", "allocation_active"),
        ("Release Total Reserved(MB)", "release_reserved"),
    ):
        assert allocations[column].to_list() == [size(row[title]) for row in rows], title
    modules = capture.raw["counters"].filter(pl.col("group").cast(pl.String) == "npu_module_mem")
    own_modules = capture.rows("npu_module_mem.csv")
    assert modules["value"].to_list() == [float(row["Total Reserved(MB)"]) * 1024 for row in own_modules]


def test_communication_of_a_capture(capture: Capture) -> None:
    communication = capture.raw["communication"]
    assert communication["elements"].to_list() == [4097000, 16781312, 37752832, 2469696]
    assert (communication["bytes"] == communication["elements"] * 4).all()
    assert set(text(communication, "operation")) == {"allreduce"}
    assert communication["launch_ns"].null_count() == 0
    if "level1" not in capture.name:
        return
    assert set(text(communication, "group")) == {"17522688603477080586"}
    times = capture.raw["communication_times"]
    # the file has cut the digits of the starts, the timeline has them
    assert times["start_ns"].to_list() == communication["start_ns"].to_list()
    assert times["step"].to_list() == [50] * 4
    lengths = (communication["end_ns"] - communication["start_ns"]) / 1e6
    assert times["elapse_ms"].to_list() == pytest.approx(lengths.to_list(), abs=2e-6)
    assert capture.raw["communication_matrix"].height == 48
    assert capture.raw["communication_bandwidth"].filter(pl.col("count").is_not_null()).height == 8


def test_meta_and_sources_of_a_capture(capture: Capture) -> None:
    values = capture.trace.meta_values()
    assert values["rank"] == int(capture.name[-1])
    assert values["source_format"] == "ascend_text"
    assert values["device_ids"] == [int(capture.name[-1])]
    assert values["pid"] == table(capture.trace, "ops")["pid"][0]
    assert values["config"]["experimental_config"]["_profiler_level"] == f"Level{capture.name[10]}"
    assert {*ascend_text._HANDED_ON} == {*text_files._HANDED_ON}
    assert text_files.detect(capture.run / OUTPUT)
    assert not text_files.detect(capture.run)
    files = {path.name for path in text_files.sources(capture.run / OUTPUT, capture.run)}
    everything = {path.name for path in capture.run.rglob("*") if path.is_file()}
    assert everything - files == {"operator_details.csv"}


# --- hand-made results ----------------------------------------------------------------------------------------------------

KERNEL_DETAILS = (
    "Step Id", "Device_id", "Model ID", "Task ID", "Stream ID", "Name", "Type", "OP State", "Accelerator Core", "Start Time(us)",
    "Duration(us)", "Wait Time(us)", "Block Num", "Input Shapes", "Context ID", "aic_mac_ratio",
)  # fmt: skip


def kernel_row(name: str, start_us: float, length: float, core: str = "AI_CORE", kind: str = "MatMulV3") -> tuple[Any, ...]:
    place = ("N/A", "N/A") if core in ("HCCL", "COMMUNICATION") else (7, 2)
    return (
        0,
        0,
        4294967295,
        *place,
        name,
        kind,
        "dynamic",
        core,
        build.at(start_us) + "\t",
        length,
        0.5,
        20,
        '"2,3"',
        "N/A",
        0.25,
    )


def golden() -> list[Event]:
    """The step of the contract's fixture: three kernels, a receive, a queue, two threads."""
    kernels = (
        ("MatMulV3", 1, 8, 20, 5, "AI_CORE"),
        ("MatMulV3b", 2, 50, 55, 7.5, "AI_CORE"),
        ("Add", 3, 114, 116, 2.25, "AI_VECTOR_CORE"),
    )
    events = [
        *build.head(),
        build.operator("ProfilerStep#0", 1, 99),
        build.operator("aten::linear", 2, 28, **{"Sequence number": 5}),
        build.operator("aten::mm", 4, 16),
        build.operator("autograd::engine::evaluate_function: LinearBackward0", 40, 30, BACKWARD, **{"Fwd thread id": 1}),
        build.operator("aten::mm", 45, 15, BACKWARD),
        build.operator("ProfilerStep#1", 100.001, 99.999),
        build.operator("aten::add", 110, 10),
        *build.queued(1, 5, 7),
        *build.queued(2, 47, 49, "aclnnMmB", BACKWARD),
        *build.queued(3, 111, 113, "aclnnAdd"),
        build.span("hcom_receive__123_0_1", COMMUNICATION, 0, 22, 4, connection_id=9),
        build.span("Communication", OVERLAP, 1, 22, 10),
    ]
    for name, connection, launched, start, length, core in kernels:
        events += [
            build.call("Node@launch", launched, 0.5, connection),
            build.task(name, start, length, core, connection_id=connection),
            *build.launch(connection, launched, start),
            build.span("Computing", OVERLAP, 0, start, length),
        ]
    return events


def write_table(path: Path, header: Sequence[str], *rows: Sequence[Any]) -> None:
    with path.open("w", newline="") as handle:
        csv.writer(handle).writerows([header, *rows])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / OUTPUT
    folder.mkdir()
    build.write(folder / "trace_view.json", golden())
    rows = [kernel_row("MatMulV3", 20, 5), kernel_row("MatMulV3b", 55, 7.5), kernel_row("Add", 116, 2.25, kind="Add")]
    write_table(
        folder / "kernel_details.csv",
        KERNEL_DETAILS,
        *rows,
        kernel_row("hcom_receive__123_0_1", 21.999, 4, "HCCL", "hcom_receive_"),
    )
    (tmp_path / "profiler_info_0.json").write_text(json.dumps({"config": {}, "rank_id": 3, "cann_version": "8.3"}))
    return tmp_path


def checks(trace: Trace) -> dict[str, int]:
    health = trace.table("health")
    return {} if health is None else dict(health.select("check", "count").iter_rows())


def test_the_contracts_fixture(run: Path) -> None:
    trace = ascend_text.read_trace(run / OUTPUT, run)
    times = ascend_step_times(trace).select(
        "step", "computing_ns", "communication_not_overlapped_ns", "overlapped_ns", "communication_ns", "free_ns", "stage_ns",
        "bubble_ns", "exclude_receive_ns", "preparing_ns",
    )  # fmt: skip
    assert times.rows() == [
        (0, 12_500, 7_000, 3_000, 10_000, 23_000, 38_500, 4_000, 3_000, 19_000),
        (1, 2_250, 0, 0, 0, 0, 2_250, 0, 0, 15_999),
    ]
    ops = table(trace, "ops").sort("start_ns")
    core = core_self_ns(trace, "AI_CORE")
    assert core is not None
    rows = [
        (row["name"].split(" ")[-1], row["self_ns"], row["device_self_ns"], row["device_total_ns"], int(core[row["id"]]))
        for row in ops.filter(~pl.col("name").cast(pl.String).str.starts_with("ProfilerStep")).iter_rows(named=True)
    ]
    assert rows == [
        ("aten::linear", 12_000, 0, 5_000, 0),
        ("aten::mm", 16_000, 5_000, 5_000, 5_000),
        ("LinearBackward0", 15_000, 0, 7_500, 0),
        ("aten::mm", 15_000, 7_500, 7_500, 7_500),
        # the list says AI_CORE, the scheduler AI_VECTOR_CORE: sums go by the scheduler
        ("aten::add", 10_000, 2_250, 2_250, 0),
    ]
    kernels = table(trace, "kernels").sort("start_ns")
    assert kernels["step"].to_list() == [0, 0, 0, 1]
    assert text(kernels, "core") == ["AI_CORE", "HCCL", "AI_CORE", "AI_CORE"]
    assert text(kernels, "task_type") == ["AI_CORE", None, "AI_CORE", "AI_VECTOR_CORE"]
    # the list has cut off the start of the receive, and it is the same one
    assert kernels["start_ns"].to_list() == [ns(20), ns(22), ns(55), ns(116)]
    assert trace.meta_values()["rank"] == 3
    metrics = table(trace, "kernel_metrics")
    assert metrics["kernel"].n_unique() == 4 and set(metrics["value"]) == {0.25}


@pytest.mark.parametrize("core", ["COMMUNICATION", "N/A", "AI_CPU"])
def test_what_lies_on_the_lane_of_a_group_communicates(run: Path, core: str) -> None:
    expected = ascend_step_times(ascend_text.read_trace(run / OUTPUT, run))
    rows = [kernel_row("MatMulV3", 20, 5), kernel_row("MatMulV3b", 55, 7.5), kernel_row("Add", 116, 2.25, kind="Add")]
    receive = kernel_row("hcom_receive__123_0_1", 21.999, 4, core, "N/A")
    write_table(run / OUTPUT / "kernel_details.csv", KERNEL_DETAILS, *rows, receive)
    trace = ascend_text.read_trace(run / OUTPUT, run)
    assert text(table(trace, "kernels").sort("start_ns"), "kind") == ["compute", "communication", "compute", "compute"]
    assert ascend_step_times(trace).equals(expected)


def test_a_list_without_a_timeline(run: Path) -> None:
    (run / OUTPUT / "trace_view.json").unlink()
    trace = ascend_text.read_trace(run / OUTPUT, run)
    kernels = table(trace, "kernels").sort("start_ns")
    assert text(kernels, "name") == ["MatMulV3", "hcom_receive__123_0_1", "MatMulV3b", "Add"]
    assert kernels["step"].to_list() == [0, 0, 0, 0], "what the list says"
    assert text(table(trace, "communication"), "kind") == ["receive"]
    assert trace.table("ops") is None
    assert checks(trace)["missing_file"] == 1
    (finding,) = table(trace, "health").filter(check="missing_file").to_dicts()
    assert finding["severity"] == "error" and "operator times" in finding["unsafe"]


def test_a_timeline_without_the_list(run: Path) -> None:
    (run / OUTPUT / "kernel_details.csv").unlink()
    trace = ascend_text.read_trace(run / OUTPUT, run)
    kinds = text(table(trace, "kernels").sort("start_ns"), "kind")
    assert kinds == ["compute", "communication", "compute", "compute"]
    assert trace.table("kernel_metrics") is None
    (finding,) = table(trace, "health").filter(check="missing_file").to_dicts()
    assert finding["severity"] == "warning" and finding["unsafe"] == "kernel details"


def test_tasks_that_only_one_side_has(run: Path) -> None:
    path = run / OUTPUT / "kernel_details.csv"
    rows = [
        kernel_row("MatMulV3", 20, 5),
        kernel_row("Only listed", 70, 3),
        kernel_row("hcom_broadcast__1_0_1", 80, 2, "HCCL", "hcom_broadcast_"),
    ]
    write_table(path, KERNEL_DETAILS, *rows)
    trace = ascend_text.read_trace(run / OUTPUT, run)
    kernels = table(trace, "kernels").sort("start_ns")
    assert text(kernels, "name") == [
        "MatMulV3",
        "hcom_receive__123_0_1",
        "MatMulV3b",
        "Only listed",
        "hcom_broadcast__1_0_1",
        "Add",
    ]
    assert text(table(trace, "communication").sort("start_ns"), "name")[-1] == "hcom_broadcast__1_0_1"
    found = checks(trace)
    assert (found["tasks_not_in_timeline"], found["tasks_not_listed"]) == (2, 3)
    assert kernels.filter(pl.col("name").cast(pl.String) == "Only listed")["launch_ns"].to_list() == [None]


def test_equal_names_are_told_apart_by_device_and_stream(tmp_path: Path) -> None:
    """The same kernel at the same time on two streams and two devices: each row goes to its own task."""
    second = build.layer(14, 1)
    events = [*build.head(), *build.process(second, "Ascend Hardware", "NPU 1"), build.operator("a", 0, 1)]
    for pid in (HARDWARE, second):
        events += [
            build.span("k", pid, stream, 10, 5, **{"Task Type": "AI_CORE", "Physic Stream Id": stream}) for stream in (2, 3)
        ]
    (tmp_path / OUTPUT).mkdir()
    build.write(tmp_path / OUTPUT / "trace_view.json", events)
    header = ("Device_id", "Stream ID", "Name", "Start Time(us)", "Duration(us)", "Block Num")
    rows = [(device, stream, "k", build.at(10), 5, 10 * device + stream) for device in (1, 0) for stream in (3, 2)]
    write_table(tmp_path / OUTPUT / "kernel_details.csv", header, *rows)
    kernels = table(ascend_text.read_trace(tmp_path / OUTPUT, tmp_path), "kernels")
    assert kernels.select("device", "stream", "blocks").rows() == [(0, 2, 2), (0, 3, 3), (1, 2, 12), (1, 3, 13)]


def test_files_that_a_recording_promises(run: Path) -> None:
    config = {
        "common_config": {"profile_memory": True, "activities": ["ProfilerActivity.CPU", "ProfilerActivity.NPU"]},
        "experimental_config": {"_profiler_level": "Level1"},
    }
    (run / "profiler_info_0.json").write_text(json.dumps({"config": config}))
    health = HealthLog()
    ascend_text.read(run / OUTPUT, run, health)
    missing = [finding.message.split(" ")[0] for finding in health.findings if finding.check == "missing_file"]
    assert missing == ["memory_record.csv", "operator_memory.csv", "communication.json"]


def test_groups_and_ranks(run: Path) -> None:
    value = {"step0": {"p2p": {"hcom_receive__123_0_1@886": {"Communication Time Info": {"Start Timestamp(us)": 1.0}}}}}
    (run / OUTPUT / "communication.json").write_text(json.dumps(value))
    groups = {"886": {"group_name": "pp", "group_rank": 0, "global_ranks": [0, 8, 16]}}
    distributed = {"world_size": 24, "rank": 3}
    metadata = {"parallel_group_info": groups, "distributed_args": distributed}
    (run / "profiler_metadata.json").write_text(json.dumps(metadata))
    trace = ascend_text.read_trace(run / OUTPUT, run)
    named = table(trace, "communication").filter(pl.col("name").cast(pl.String).str.starts_with("hcom"))
    assert named.select(pl.col("group").cast(pl.String), "ranks").rows() == [("886", 3)]
    assert trace.meta_values()["world_size"] == 24
    assert table(trace, "communication_times")["start_ns"].to_list() == [1000], "too far away to be the same start"


@pytest.mark.parametrize("damage", ["cut", "noise", "empty", "folder"])
@pytest.mark.parametrize("name", ["trace_view.json", "kernel_details.csv", "profiler_info_0.json"])
def test_one_damaged_file_leaves_the_others(run: Path, name: str, damage: str) -> None:
    path = run / name if name.startswith("profiler") else run / OUTPUT / name
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    else:
        path.write_bytes({"cut": content[: len(content) // 2], "noise": b"\x00\xff\x1f\x8b" * 99, "empty": b""}[damage])
    trace = ascend_text.read_trace(run / OUTPUT, run)
    assert table(trace, "kernels").height >= 1
    assert table(trace, "health").height >= 1


def test_nothing_to_read(tmp_path: Path) -> None:
    assert not text_files.detect(tmp_path)
    with pytest.raises(InputError, match="holds no event"):
        ascend_text.read_trace(tmp_path, tmp_path)
    (tmp_path / "trace_view.json").write_text("[]")
    with pytest.raises(InputError, match="holds no event"):
        ascend_text.read_trace(tmp_path, tmp_path)


def test_a_timeline_on_its_own(run: Path) -> None:
    trace = ascend_text.read_timeline_trace(run / OUTPUT / "trace_view.json")
    assert ascend_step_times(trace)["computing_ns"].to_list() == [12_500, 2_250]
    (run / "empty.json").write_text("[]")
    with pytest.raises(InputError, match="holds no event"):
        ascend_text.read_timeline_trace(run / "empty.json")


# --- results of steplens --------------------------------------------------------------------------------------------------


def differences(one: Trace, other: Trace, name: str, order: list[str], without: Sequence[str] = ()) -> dict[str, int]:
    """Columns of a table that differ, and in how many rows."""
    frames = [table(trace, name).with_columns(pl.col(pl.Categorical).cast(pl.String)).sort(order) for trace in (one, other)]
    assert frames[0].height == frames[1].height, name
    unequal = {column: int((~frames[0][column].eq_missing(frames[1][column])).sum()) for column in frames[0].columns}
    return {column: count for column, count in unequal.items() if count and column not in without}


TABLES = {
    "ops": ["pid", "tid", "start_ns", "end_ns"],
    "python": ["pid", "id"],
    "task_queue": ["correlation"],
    "communication": ["start_ns"],
    "memory": ["time_ns", "component"],
    "allocations": ["allocation_ns", "name", "bytes"],
    "counters": ["group", "name", "time_ns"],
    "steps": ["id"],
    "threads": ["pid", "tid"],
}


def test_a_recomputed_capture_reads_the_same(capture: Capture, tmp_path: Path) -> None:
    for file in capture.run.glob("*.json"):
        shutil.copy(file, tmp_path)
        (tmp_path / file.name).chmod(0o644)
    level = "Level1" if "level1" in capture.name else "Level0"
    statuses = write_result(capture.trace, tmp_path, Settings(level=level))
    assert statuses["trace_view.json"].status == DONE
    again = ascend_text.read_trace(tmp_path / OUTPUT, tmp_path)
    for name, order in TABLES.items():
        # Level0 leaves out the runtime's launches, and the operators' starts take their place
        launches = ("launch_ns",) if level == "Level0" else ()
        allowed = (*launches, "device_self_ns", "device_total_ns")
        assert differences(capture.trace, again, name, order, allowed) == {}, name
    kernels = differences(capture.trace, again, "kernels", ["device", "start_ns", "name"], ("launch_ns", "op", "task_type"))
    assert kernels == {}
    assert ascend_step_times(again).equals(ascend_step_times(capture.trace))
    for name in ("api", "kernel_metrics", "communication_times", "communication_bandwidth", "communication_matrix"):
        if name in capture.trace and level == "Level1":
            assert table(again, name).height == table(capture.trace, name).height


def test_a_result_of_steplens_reads_the_same(run: Path, tmp_path: Path) -> None:
    trace = ascend_text.read_trace(run / OUTPUT, run)
    folder = tmp_path / "again"
    folder.mkdir()
    write_result(trace, folder, Settings(level="Level1"))
    again = ascend_text.read_trace(folder / OUTPUT, folder)
    for name, order in (("ops", TABLES["ops"]), ("task_queue", TABLES["task_queue"]), ("communication", ["start_ns"])):
        assert differences(trace, again, name, order, ("sequence",)) == {}, name
    assert differences(trace, again, "kernels", ["start_ns"], ("task_type",)) == {}
    assert ascend_step_times(again).equals(ascend_step_times(trace))
    assert json.loads((folder / "profiler_metadata.json").read_text())["base_time_ns"] == again.meta_values()["base_time_ns"]
    assert MAIN in table(again, "ops")["tid"].to_list() and table(again, "ops")["pid"].unique().to_list() == [PID]
