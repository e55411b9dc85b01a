"""Flat profiler directories of MindSpore: recorded ones of either generation against their known values, damaged ones."""

from __future__ import annotations

import csv
import json
import random
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.analysis.data_loading.data_pipeline import operations
from steplens.analysis.step_trace.step_trace import averages, detail_table, step_trace
from steplens.common.errors import InputError
from steplens.readers.mindspore.mindspore_folder import open_folder
from steplens.readers.mindspore.results import mindspore_flat, mindspore_steps, mindspore_tables
from steplens.readers.mindspore.results.mindspore_dynamic_shape import SUMS
from steplens.trace.health import HealthLog
from steplens.trace.trace import Trace

from .mindspore_data import shared

RUN_2 = ("run_2", "normal_run", "profiler")


def checks(trace: Trace) -> set[str]:
    return set() if trace.health is None else set(trace.health["check"])


def table(trace: Trace, name: str) -> pl.DataFrame:
    found = trace.source_table(name)
    assert found is not None
    return found


def numbers(trace: Trace, name: str, *columns: str) -> pl.DataFrame:
    return table(trace, name).with_columns(pl.col(columns).cast(pl.Float64))


def text(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    return frame.with_columns(pl.col(columns).cast(pl.String))


def run_2() -> Trace:
    return mindspore_flat.read_trace(shared(*RUN_2))


def test_operator_types_of_the_oldest_generation() -> None:
    types = numbers(run_2(), "aicore_intermediate_type", "task_time", "percent")
    assert types.height == 21
    top = types.sort("task_time", descending=True).head(3)
    times = [(kind, round(time * 1000, 2), count) for kind, time, count in top.select(
        "kernel_type", "task_time", "execution_frequency").iter_rows()]  # fmt: skip
    assert times == [("MatMul", 20657.74, "9"), ("ApplyMomentum", 1241.28, "11"), ("Conv2D", 461.07, "5")]
    # the file already holds percent; multiplying by 100 once more shows 8947
    assert top["percent"].to_list() == [89.47, 5.38, 2.0]


def test_operator_types_of_the_next_generation() -> None:
    trace = mindspore_flat.read_trace(shared("profiler"), 1)
    types = numbers(trace, "aicore_intermediate_type", "percent")
    assert dict(types.select("kernel_type", "percent").iter_rows()) == {
        "AtomicAddrClean": 0.49,
        "Cast": 3.63,
        "TransData": 8.23,
        "Conv2D": 4.33,
        "MatMul": 73.80,
    }
    assert "incomplete_shares" in checks(trace)
    details = table(trace, "aicore_intermediate_detail")
    assert details.height == 10
    assert details["full_kernel_name"][0] == "Default/AtomicAddrClean-op104"


def test_executions_on_the_ai_cores() -> None:
    trace = run_2()
    kernels = text(trace.required("kernels").collect(), "name", "core", "type")
    cores = kernels.filter(core="AI_CORE")
    assert cores.height == 107 and cores["name"].n_unique() == 105
    assert cores["type"].null_count() == 0 and cores["input_shapes"].null_count() == 0
    with shared(*RUN_2, "output_timeline_data_1.txt").open() as handle:
        rows = list(csv.reader(handle, skipinitialspace=True))[1:]
    stored = sorted(
        (name, int(stream), round(float(start) * 1e6), round(float(length) * 1e6)) for name, stream, start, length in rows
    )
    found = cores.select("name", "stream", "start_ns", pl.col("end_ns") - pl.col("start_ns")).rows()
    assert [(name, stream, length) for name, stream, _, length in sorted(found)] == [(n, s, length) for n, s, _, length in stored]
    # doubles near 1.5e8 ms resolve 30 ns
    assert all(abs(ours[2] - theirs[2]) <= 30 for ours, theirs in zip(sorted(found), stored, strict=True))
    sums = cores.group_by("type").agg(total=(pl.col("end_ns") - pl.col("start_ns")).sum(), count=pl.len())
    matmul = sums.filter(type="MatMul")
    assert matmul.select("total", "count").rows() == [(20657740, 9)]


def test_distinct_operators_and_their_time() -> None:
    trace = run_2()
    kernels = text(trace.required("kernels").collect(), "name", "core")
    assert kernels.height == 112
    assert kernels["name"].n_unique() == 108
    cores = kernels.filter(core="AI_CORE")
    on_cores = int((cores["end_ns"] - cores["start_ns"]).sum()) / 1000
    metrics = trace.required("kernel_metrics").filter(pl.col("name").cast(pl.String) == "Total Time(ms)").collect()
    ai_cpu = metrics["value"].sum() * 1000
    assert round(on_cores, 2) == 23137.32
    # the stored sum added milliseconds of the AI CPU to microseconds of the AI Cores
    assert round(on_cores + ai_cpu, 2) == 32831.32


def test_kernels_of_the_ai_cpu() -> None:
    trace = run_2()
    rows = numbers(trace, "aicpu_intermediate", "total_time", "dispatch_time")
    by_type = rows.group_by("kernel_type", maintain_order=True).agg(pl.col("total_time").sum(), count=pl.len())
    shares = by_type.with_columns(share=(pl.col("total_time") / pl.col("total_time").sum() * 100).round(2))
    assert [(kind, round(total * 1000, 1), count, share) for kind, total, count, share in shares.iter_rows()] == [
        ("InitData", 7906.0, 1, 81.56),
        ("GetNext", 1181.0, 2, 12.18),
        ("EndOfSequence", 607.0, 2, 6.26),
    ]
    means = rows.group_by("kernel_type", maintain_order=True).agg(pl.col("total_time", "dispatch_time").mean() * 1000)
    assert [(kind, round(total, 1), round(dispatch, 1)) for kind, total, dispatch in means.iter_rows()] == [
        ("InitData", 7906.0, 150.0),
        ("GetNext", 590.5, 102.5),
        ("EndOfSequence", 303.5, 84.5),
    ]
    kernels = text(trace.required("kernels").collect(), "core").filter(core="AI_CPU").sort("start_ns")
    assert kernels["start_ns"][0] == 154901853050_000
    assert kernels["wait_ns"].to_list() == [150_000, 132_000, 78_000, 73_000, 91_000]
    metrics = trace.required("kernel_metrics").join(trace.required("kernels"), left_on="kernel", right_on="id").collect()
    assert set(metrics["core"].cast(pl.String)) == {"AI_CPU"}


def test_scheduler_text_serves_where_the_timeline_is_missing(tmp_path: Path) -> None:
    for name in ("output_format_data_hwts_1.txt", "framework_raw_1.csv"):
        shutil.copy(shared(*RUN_2, name), tmp_path)
    trace = mindspore_flat.read_trace(tmp_path)
    whole = text(run_2().required("kernels").collect(), "name", "core", "type").filter(core="AI_CORE")
    found = text(trace.required("kernels").collect(), "name", "core", "type")
    assert (
        found.select("name", "type", "stream")
        .sort("name", "stream")
        .equals(whole.select("name", "type", "stream").sort("name", "stream"))
    )
    assert int((found["end_ns"] - found["start_ns"]).sum()) == int((whole["end_ns"] - whole["start_ns"]).sum())


def test_stored_average_is_a_reference_only() -> None:
    trace = run_2()
    stored = table(trace, "step_trace_average")
    assert stored["step_num"].to_list() == ["0"]
    assert int(stored["iteration_interval"][0]) / 1e5 == pytest.approx(12.4321, abs=5e-5)
    found = averages(trace)
    assert found.steps == (1,)
    assert round(found.parts.row(by_predicate=pl.col("part") == "forward_backward_ns", named=True)["mean_ns"] / 1e6, 4) == 23.6681
    assert "foreign_averages" in checks(trace)
    assert trace.meta_values()["fp_start"] == "Default/EndOfSequence-op131"


@pytest.mark.parametrize("rank", [0, 10])
def test_step_trace_files_come_back_as_they_were(rank: int) -> None:
    trace = mindspore_flat.read_trace(shared("profiler"), rank)
    with shared("profiler", f"step_trace_raw_{rank}_detail_time.csv").open(newline="") as handle:
        header, *rows = csv.reader(handle)
    found = detail_table(trace)
    assert found.columns == header
    assert [[str(cell) for cell in row] for row in found.iter_rows()] == rows
    assert "foreign_averages" not in checks(trace)


def test_collectives_of_the_newer_step_trace() -> None:
    trace = mindspore_flat.read_trace(shared("cluster_propose"), 0)
    points = trace.required("step_collectives").collect()
    assert points.height == 5 * 97
    with shared("cluster_propose", "step_trace_raw_0_detail_time.csv").open(newline="") as handle:
        first = next(csv.DictReader(handle))
    receive = text(points, "name").filter(step=1, name="stream_48_0_Receive-op663").row(0, named=True)
    assert receive["start_ns"] == 10 * int(first["stream_48_0_Receive-op663_start_point"])
    assert receive["end_ns"] - receive["start_ns"] == 10 * int(first["stream_48_0_Receive-op663"])
    kinds = trace.required("communication").collect()["kind"].cast(pl.String).value_counts()
    assert dict(kinds.iter_rows()).keys() == {"collective", "receive", "send"}


def test_stored_intervals_of_four_ranks() -> None:
    folder = shared("cluster_propose")
    assert open_folder(folder).ranks == [0, 1, 2, 3]
    intervals = []
    for rank in range(4):
        trace = mindspore_flat.read_trace(folder, rank)
        stored = table(trace, "step_trace_average")
        intervals.append(round(int(stored["iteration_interval"][0]) / 1e5, 4))
        assert trace.meta_values()["parallel_mode"] == "pipeline-parallel"
        assert trace.meta_values()["world_size"] == 4
    assert intervals == [1.5722, 1.5588, 2.4318, 2.3954]


def test_collective_costs_and_links_of_four_ranks() -> None:
    costs, means, links = [], [], {}
    for rank in range(4):
        trace = mindspore_flat.read_trace(shared("cluster_propose"), rank)
        raw = numbers(trace, "hccl_raw", "communication_cost", "wait_cost")
        first = raw.filter(step_num="1").row(0, named=True)
        costs.append((round(first["communication_cost"], 5), round(first["wait_cost"], 5)))
        steps = raw.filter(pl.col("step_num") != "-")
        means.append((steps.height, steps["communication_cost"].mean()))
        average = json.loads(raw.filter(step_num="-")["link_info"][0])
        links.update({link: transports["SDMA"] for link, transports in average.items() if len(set(link.split("-"))) == 2})
        if rank == 0:
            step_1 = json.loads(first["link_info"])["1-0"]["SDMA"]
        times = trace.required("communication_times").filter(pl.col("step") == 1).collect()
        assert times["transit_ms"].sum() == pytest.approx(first["communication_cost"])
        assert times["wait_ms"].sum() == pytest.approx(first["wait_cost"])
    assert costs == [(2.60018, 270.25056), (2.61475, 333.77764), (7.93334, 2000.81932), (7.94937, 2215.23546)]
    assert [count for count, _ in means] == [6, 6, 2, 2]
    assert [mean for _, mean in means] == pytest.approx([2.268855, 2.2812567, 4.778965, 4.78749], abs=1e-6)
    # KB/s = KB / s over the whole, ends as ranks of the job
    assert {link: round(values[1] / values[0] * 1000) for link, values in links.items()} == {
        "1-0": 20_934_047,
        "0-1": 5_055_173,
        "3-2": 17_367_619,
        "2-3": 19_375_526,
    }
    assert {link: round(values[2] * 1e6) for link, values in links.items()} == {
        "1-0": 20_934_047,
        "0-1": 5_055_173,
        "3-2": 17_367_619,
        "2-3": 19_375_526,
    }
    assert round(step_1[1] / step_1[0] * 1000) == 20_907_853


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("run_2", {"iteration_interval": 0.0, "fp_and_bp": 23.6681, "tail": 0.041}),
        ("run_3", {"computation_time": 651.9051, "communication_alone_time": 1293.1231}),
        (
            "run_4",
            {
                "computation_time": 651.9051,
                "communication_alone_time": 1293.1231,
                "stage_time": 1577.1234,
                "receive_alone_time": 368.7766,
                "collective_communication_alone_time": 227.1234,
            },
        ),
    ],
)
def test_parts_of_steps_by_parallel_mode(run: str, expected: dict[str, float]) -> None:
    trace = mindspore_flat.read_trace(shared(run, "normal_run", "profiler"))
    row = table(trace, "ascend_cluster_analyse").row(0, named=True)
    assert row.pop("step_num") == "1"
    assert {name: round(float(value), 4) for name, value in row.items()} == expected
    assert step_trace(trace)["total_ns"].to_list() == [23_709_050]


def test_parallel_strategy_names_stages() -> None:
    meta = mindspore_flat.read_trace(shared("parallel_strategy"), 0).meta_values()
    assert meta["parallel_strategy"]["stage_devices"] == {"0": [0, 1]}
    assert meta["parallel_mode"] == "auto_parallel"
    assert meta["world_size"] == 2


def test_flops_by_the_names_of_their_columns() -> None:
    columns = [f"{what}({unit})" for what, unit in (("MFLOPs", "10^6 cube"), ("MFLOPs", "10^6 vector"))]
    row = numbers(mindspore_flat.read_trace(shared("profiler"), 1), "flops").row(0, named=True)
    assert row["full_kernel_name"] == "Default/AtomicAddrClean-op104"
    assert [float(row[name]) for name in columns] == [333, 333]
    assert [float(row[f"FLOPS utilization({name})"]) for name in ("cube", "vec")] == [33, 33]
    old = table(mindspore_flat.read_trace(shared("profiler"), 0), "flops")
    assert [float(value) for value in old.row(0)[1:]] == [333, 333, 33]
    summary = table(mindspore_flat.read_trace(shared("profiler"), 0), "flops_summary")
    assert summary.to_dicts() == [{"FLOPs": "8167.743", "FLOPS": "9868.936", "FLOPS_Utilization": "3.765"}]


def test_a_flops_file_needs_no_line_end(tmp_path: Path) -> None:
    """MindSpore ends the last line of some and not of others; a line that lacks a cell is damaged in both."""
    path = tmp_path / "flops_0.txt"
    whole = "full_kernel_name, MFLOPs, GFLOPS, FLOPS utilization\nDefault/a, 1, 2, 3\nDefault/b, 4, 5, 6"
    for text, rows, checks in ((whole, 2, []), (whole + "\n", 2, []), (whole[:-6], 1, [("truncated_file", "error")])):
        path.write_text(text)
        health = HealthLog()
        assert mindspore_tables.flops(path, health).height == rows
        assert [(finding.check, finding.severity) for finding in health.findings] == checks


def test_dynamic_shapes() -> None:
    trace = mindspore_flat.read_trace(shared("profiler"), 0)
    runs = table(trace, "dynamic_shape_runs")
    add = runs.filter(level="operator", step="1", type="Add").select("side", "name", "duration_us", "shapes").rows()
    assert add == [("gpu", "Add-op6", "75.616", '["[32, 1]", "[32, 1]"]')]
    sums = table(trace, "dynamic_shape_types").with_columns(
        pl.col(name).cast(dtype) for name, dtype in SUMS.items() if name != "full_name"
    )
    assert set(sums.filter(level="operator")["type"]) == {"InitDataSetQueue", "GetNext", "Add"}
    get_next = sums.filter(level="operator", type="GetNext").sort("step")
    assert get_next["average_us"].to_list() == [153.52, 80.224, 50.752, 72.768, 59.936, 81.344, 67.232, 52.064]
    assert sums.filter(level="kernel").sort("step")["average_us"].to_list()[:3] == [3.904, 3.232, 3.04]


def test_timelines_serve_where_tables_are_missing(tmp_path: Path) -> None:
    shutil.copy(shared("profiler", "ascend_timeline_display_0.json"), tmp_path)
    kernels = text(mindspore_flat.read_trace(tmp_path).required("kernels").collect(), "name", "core", "type")
    assert kernels.sort("start_ns").select("name", "type", "core", "stream", "start_ns", "end_ns").rows() == [
        ("InitData", "InitData", "AI_CPU", 0, 0, 160_000),
        ("GetNext", "GetNext", "AI_CPU", 0, 6042139000, 6042657000),
        ("Default/AssignAdd-op142", "AssignAdd", "AI_CORE", 519, 6042909560, 6042912660),
    ]
    trace = mindspore_flat.read_trace(shared("profiler"), 0)
    assert "tasks_without_steps" in checks(trace)


def test_timeline_of_a_gpu(tmp_path: Path) -> None:
    shutil.copy(shared("profiler", "gpu_timeline_display_0.json"), tmp_path)
    trace = mindspore_flat.read_trace(tmp_path)
    calls = text(trace.required("ops").collect(), "name", "module").select("name", "module", "start_ns", "end_ns").rows()
    assert calls == [("Default/InitDataSetQueue-op0", "Default", 1600695893269618250, 1600695893269922090)]
    kernel = text(trace.required("kernels").collect(), "name", "core").row(0, named=True)
    assert (kernel["core"], kernel["stream"], kernel["start_ns"]) == ("CUDA", 17, 1600695897737724750)
    assert kernel["end_ns"] - kernel["start_ns"] == 5792


def write(folder: Path, name: str, rows: str) -> None:
    (folder / name).write_text(rows)


def test_newest_generation(tmp_path: Path) -> None:
    write(
        tmp_path,
        "aicore_intermediate_2_type.csv",
        "kernel_type,total_time,execution_frequency,percent\nCast,1.5,3,0.75\nMul,0.5,1,0.25\n",
    )
    write(
        tmp_path,
        "aicore_intermediate_2_detail.csv",
        "full_kernel_name,task_duration,execution_frequency,task_type\nA/Cast-op1,0.5,3,AI_CORE\n",
    )
    info = '"{""Input_0"": {""format"": ""ND"", ""data_type"": ""FLOAT"", ""shape"": ""4,5""}}"'
    write(
        tmp_path,
        "framework_raw_2.csv",
        "task_id,stream_id,block_dim,full_kernel_name,op_name,kernel_name,kernel_type,subgraph,op_info,model_id,task_type\n"
        f"7,3,8,A/Cast-op1,A/Cast-op1,Cast-op1,Cast,A,{info},1,AI_VECTOR_CORE\n",
    )
    write(
        tmp_path,
        "output_timeline_data_2.txt",
        "kernel_name,stream_id,start_time(us),duration(ms)\nA/Cast-op1,3,1700000000123.456789,0.5\n",
    )
    write(
        tmp_path,
        "aicpu_intermediate_2.csv",
        "serial_number,kernel_type,total_time,dispatch_time,execution_time,run_start,run_end\n"
        "1,GetNext,1.5,0.5,1.0,1700000000120.25,1700000000121.75\n",
    )
    write(
        tmp_path,
        "operator_memory_2.csv",
        "Name,Size(KB),Allocation Time(us),Duration(us),Allocation Total Allocated(MB),Allocation Total Reserved(MB),"
        "Release Total Allocated(MB),Release Total Reserved(MB),Device,\n"
        "op,2,1700000000000000.5,10.25,1,2,0.5,2,NPU:2,\n,1,1700000000000001.0,,1,2,0,0,NPU:2,\n",
    )
    trace = mindspore_flat.read_trace(tmp_path)
    assert numbers(trace, "aicore_intermediate_type", "percent")["percent"].to_list() == [75, 25]
    kernels = text(trace.required("kernels").collect(), "name", "core", "type", "input_shapes", "input_types").sort("start_ns")
    assert kernels.select("name", "core", "type", "start_ns", "end_ns", "input_shapes", "input_types").rows()[1] == (
        "A/Cast-op1",
        "AI_VECTOR_CORE",
        "Cast",
        1700000000123456789,
        1700000000123956789,
        "4,5",
        "FLOAT",
    )
    assert kernels["start_ns"][0] == 1700000000120250000
    allocations = trace.required("allocations").collect()
    assert allocations.select("bytes", "allocation_ns", "release_ns", "allocation_allocated", "release_allocated").rows() == [
        (2048, 1700000000000000500, 1700000000000010750, 1 << 20, 1 << 19),
        (1024, 1700000000000001000, None, 1 << 20, None),
    ]
    # the unit of starts, and a run_end that counts the wait after the start
    assert {"mislabelled_unit", "wait_counted_twice"} <= checks(trace)
    assert "device_clock" not in checks(trace)


def test_types_that_only_names_tell(tmp_path: Path) -> None:
    """The framework's list may lack operators; their full names end in their types all the same."""
    header = "task_id,stream_id,block_dim,full_kernel_name,op_name,kernel_name,kernel_type,subgraph,op_info,model_id,task_type\n"
    write(tmp_path, "framework_raw_0.csv", header + "7,3,8,A/Cast-op1,A/Cast-op1,Cast-op1,CastKind,A,{},1,AI_CORE\n")
    write(
        tmp_path,
        "output_timeline_data_0.txt",
        "kernel_name,stream_id,start_time(us),duration(ms)\n"
        "A/Cast-op1,3,1700000000123.456789,0.5\nA/UnsortedSegmentSum-op12,3,1700000000124.0,0.5\nAtomicAddrClean,3,1700000000125,1\n",
    )
    kernels = text(mindspore_flat.read_trace(tmp_path).required("kernels").collect(), "type", "category").sort("start_ns")
    assert kernels.select("type", "category").rows() == [
        ("CastKind", "layout"),
        ("UnsortedSegmentSum", "reduction"),
        ("memset", "memset"),
    ]


@pytest.mark.parametrize("core", ["HCCL", "COMMUNICATION"])
def test_the_framework_tells_which_tasks_communicate(tmp_path: Path, core: str) -> None:
    write(
        tmp_path,
        "framework_raw_0.csv",
        "task_id,stream_id,block_dim,full_kernel_name,op_name,kernel_name,kernel_type,subgraph,op_info,model_id,task_type\n"
        "7,3,8,A/Cast-op1,A/Cast-op1,Cast-op1,Cast,A,{},1,AI_CORE\n"
        f"8,3,8,A/AllReduce-op2,A/AllReduce-op2,AllReduce-op2,AllReduce,A,{{}},1,{core}\n",
    )
    write(
        tmp_path,
        "output_timeline_data_0.txt",
        "kernel_name,stream_id,start_time(us),duration(ms)\n"
        "A/Cast-op1,3,1700000000123.456789,0.5\nA/AllReduce-op2,3,1700000000124.0,0.5\n",
    )
    trace = mindspore_flat.read_trace(tmp_path)
    kernels = text(trace.required("kernels").collect(), "name", "kind").sort("start_ns")
    assert kernels.select("name", "kind").rows() == [("A/Cast-op1", "compute"), ("A/AllReduce-op2", "communication")]
    assert trace.required("communication").collect().height == 1


def test_own_timeline_files_have_the_unit_of_their_header(tmp_path: Path) -> None:
    write(
        tmp_path,
        "output_timeline_data_0.txt",
        "kernel_name,stream_id,start_time(us),duration(ms)\nA,3,1700000000123456.789,0.5\n",
    )
    write(tmp_path, "profiler_info_0.json", '{"steplens_version": "1.0", "context_mode": "graph", "rank_size": 1}')
    kernels = mindspore_flat.read_trace(tmp_path).required("kernels").collect()
    assert kernels["start_ns"].to_list() == [1700000000123456789]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("iteration_interval,fp\n1,10,90,80,20,10,70\n2,90,190,100,95,5,95\n-,0,0,90,0,7,82\n", [1, 2]),
        ("bp_point,iteration_interval,fp_and_bp,tail\n-,10,90,80,20,60,10,40,30\n", [1]),
    ],
)
def test_inference_and_single_steps(tmp_path: Path, content: str, expected: list[int]) -> None:
    write(tmp_path, "step_trace_raw_0_detail_time.csv", "step_num,start_point,end_point,total,fp_point," + content)
    found = step_trace(mindspore_flat.read_trace(tmp_path))
    assert found["step"].to_list() == expected
    assert found["interval_ns"][0] == 100
    assert found["tail_ns"].null_count() == (2 if len(expected) == 2 else 0)


def test_one_of_several_ranks_must_be_named(tmp_path: Path) -> None:
    assert not open_folder(tmp_path).ranks
    folder = shared("cluster_propose")
    assert open_folder(folder).ranks
    with pytest.raises(InputError, match="ranks 0, 1, 2, 3"):
        mindspore_flat.read_trace(folder)
    assert {path.name.split("_")[0] for path in mindspore_flat.sources(folder, 3)} == {"ascend", "flops", "hccl", "step"}
    assert len(mindspore_flat.sources(folder, 3)) == 4
    write(tmp_path, "flops_0.txt", "")
    with pytest.raises(InputError, match="nothing can be read"):
        mindspore_flat.read_trace(tmp_path)


def test_every_file_of_the_pipeline_is_read_with_the_others() -> None:
    trace = run_2()
    assert operations(trace)["id"].to_list() == [0, 1, 2, 3]
    assert trace.required("pipeline_batches").collect().height == 5
    assert "out_of_range" not in checks(trace)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("run", ["run_2/normal_run/profiler", "profiler", "cluster_propose"])
def test_damaged_directories_give_what_is_left(tmp_path: Path, run: str, seed: int) -> None:
    rng = random.Random(f"{run} {seed}")
    for source in shared(*run.split("/")).iterdir():
        if source.is_file():
            data = bytearray(source.read_bytes())
            for _ in range(rng.randint(0, 8)):
                data[rng.randrange(len(data))] = rng.choice([*b'",\n0-9[{}:.e', rng.randrange(256)])
            (tmp_path / source.name).write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.2 else data)
    for rank in open_folder(tmp_path).ranks[:2]:
        try:
            trace = mindspore_flat.read_trace(tmp_path, rank)
        except InputError:
            continue
        averages(trace)
        detail_table(trace)
        operations(trace)


def test_files_of_the_host_and_files_without_units(tmp_path: Path) -> None:
    (tmp_path / "host_info").mkdir()
    write(tmp_path / "host_info", "dataset_1.csv", "Operation,Stage,Occurrences,Avg. time (us),Custom Info\nMap,Run,3,7.5,\n")
    assert not open_folder(tmp_path).ranks
    write(tmp_path, "gpu_op_type_info_1.csv", "op_type,type_occurrences,total_time(us)\nAdd,2,5.5\n")
    write(tmp_path, "gpu_op_execute_timestamp_1.txt", "Add;GpuOps;5,7 \n")
    trace = mindspore_flat.read_trace(tmp_path)
    assert table(trace, "dataset")["Avg. time (us)"].to_list() == ["7.5"]
    assert table(trace, "gpu_op_type_info")["op_type"].to_list() == ["Add"]
    assert "unread_files" in checks(trace)


def test_wrong_headers_are_findings(tmp_path: Path) -> None:
    odd: dict[str, Any] = {
        "aicore_intermediate_0_type.csv": "a,b\n1,2\n",
        "output_timeline_data_0.txt": "kernel_name\nx\n",
        "hccl_raw_0.csv": "step_num,x\n1,2\n",
        "ascend_cluster_analyse_x_1_1_0.csv": "q\n1\n",
        "step_trace_raw_0_detail_time.csv": "step_num,start_point\n1,2\n",
        "framework_raw_0.csv": "task_id\n1\n",
    }
    for name, content in odd.items():
        write(tmp_path, name, content)
    write(tmp_path, "device_queue_profiling_0.txt", "1 64 1 0 10\n")
    trace = mindspore_flat.read_trace(tmp_path)
    assert trace.health is not None
    messages = " ".join(trace.health["message"])
    assert all(name in messages for name in odd)
    assert set(trace) == {"pipeline_batches", "meta", "health"}


def test_operators_of_a_parallel_strategy() -> None:
    rows = table(mindspore_flat.read_trace(shared("parallel_strategy"), 1), "parallel_strategy").to_dicts()
    assert [(row["node"], row["type"], row["scope"], row["inputs"]) for row in rows] == [
        ("1", "GetNext", "Default", "[]"),
        ("2", "Conv2D", "Default/conv1-Conv2d", '["1"]'),
    ]
    assert rows[1]["strategy"] == "[[2, 1, 1, 1], [1, 1, 1, 1]]"
    assert rows[0]["output_type"] == "DT_FLOAT32, DT_INT32"
    assert rows[0]["output_shape"] == "[[32, 3, 224, 224], [32]]"


def test_a_damaged_parallel_strategy(tmp_path: Path) -> None:
    """What is no operator is left out and counted; values that JSON cannot hold, long and deep ones do no harm."""
    deep: object = {"dtype": "DT_INT64", "intVal": "1"}
    for _ in range(40):
        deep = {"dtype": "DT_TUPLE", "values": [deep]}
    attributes = [
        {"name": "in_strategy", "value": {"dtype": "DT_TUPLE", "values": [{"dtype": "DT_FLOAT32", "floatVal": "nan"}]}},
        {"name": "long", "value": {"dtype": "DT_STRING", "strVal": "x" * 2000}},
        {"name": "deep", "value": deep},
        {"value": {}}, 7,
    ]  # fmt: skip
    nodes = [
        {"name": "1", "fullName": "a", "scope": 5, "instanceName": "x_grad_mirror",
         "attribute": attributes, "input": [{"name": 3}, "y"],
         "outputType": {"tensorType": {"elemType": "DT_INT32", "shape": {"dim": [{"size": "-1"}, {"size": "z"}, 4]}}}},
        {"name": "2"}, "nothing", None,
    ]  # fmt: skip
    (tmp_path / "parallel_strategy_0.json").write_text(json.dumps({"config": {"parallelType": "auto"}, "graph": {"node": nodes}}))
    trace = mindspore_flat.read_trace(tmp_path, 0)
    (row,) = table(trace, "parallel_strategy").to_dicts()
    assert (row["node"], row["role"], row["scope"], row["inputs"], row["strategy"]) == (
        "1",
        "gradient_aggregation",
        "",
        "[]",
        '["nan"]',
    )
    assert row["output_shape"] == '[-1, "z"]'
    assert set(json.loads(row["attributes"])) == {"in_strategy", "deep"}
    found = {finding["check"]: finding["count"] for finding in trace.health.to_dicts()}
    assert (found["damaged_side_file"], found["long_attributes"]) == (3, 1)


def test_a_point_that_a_step_does_not_have_is_none(tmp_path: Path) -> None:
    """An evaluation has no backward pass, a step without the operator that a user named no forward point; files say 0."""
    path = tmp_path / "step_trace_raw_0_detail_time.csv"
    header = "step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail"
    path.write_text(f"{header}\n1,100,190,90,110,180,10,70,10\n2,200,290,90,0,280,0,0,10\n3,300,390,90,310,0,10,0,0\n")
    points, _, _ = mindspore_steps.read_steps(path, HealthLog())
    assert points.select("step", "forward_ns", "backward_ns").rows() == [(1, 1100, 1800), (2, None, 2800), (3, 3100, None)]
