"""MindData's files: the recorded ones against their expected values, newer and damaged ones made here."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.analysis.data_loading import data_pipeline
from steplens.common.errors import InputError
from steplens.readers.mindspore import minddata
from steplens.readers.mindspore.minddata_cpu import cpu_samples
from steplens.readers.mindspore.results import mindspore_flat
from steplens.trace.building.build import build_trace
from steplens.trace.health import HealthLog
from steplens.trace.trace import Trace

from .mindspore_data import shared

RUN_2 = ("run_2", "normal_run", "profiler")


def checks(trace: Trace) -> set[str]:
    return set() if trace.health is None else set(trace.health["check"])


def batches(trace: Trace, kind: str) -> pl.DataFrame:
    assert trace.pipeline_batches is not None
    return trace.pipeline_batches.filter(pl.col("kind").cast(pl.String) == kind)


def values(trace: Trace, scope: str, name: str, op: int | None = None) -> list[float]:
    found = trace.required("pipeline_samples").filter(
        (pl.col("scope").cast(pl.String) == scope) & (pl.col("name").cast(pl.String) == name) & pl.col("op").eq_missing(op)
    )
    return found.sort("sample").collect()["value"].to_list()


def test_queues_of_a_recorded_run() -> None:
    trace = mindspore_flat.read_trace(shared(*RUN_2))
    assert data_pipeline.host_queue(trace) == data_pipeline.QueueSummary("send", 1, 1, 0)
    assert data_pipeline.queue_summary(trace, "receive") == data_pipeline.QueueSummary("receive", 3, 0, None)
    assert data_pipeline.queue_summary(trace, "iterate") == data_pipeline.QueueSummary("iterate", 1, 0, 0)
    received = batches(trace, "receive")
    assert received["wait_ns"].to_list() == [1000, 0, 1000]
    assert received["queue_size"].to_list() == [3, 2, 1]
    sent = batches(trace, "send").select("batch", "time_ns", "get_ns", "push_ns", "total_ns", "queue_size", "queue_capacity")
    assert sent.rows() == [(1, 10_000_000, 0, 4_000_000, 4_000_000, 0, 64)]
    # the oldest form, without times
    assert batches(trace, "iterate").select("batch", "time_ns", "queue_size", "queue_capacity").rows() == [(1, None, 3, 64)]
    # the other two are of the device's files in the same folder
    assert checks(trace) == {"pipeline_clock", "device_clock", "foreign_averages"}


def test_cpu_use_of_a_recorded_run() -> None:
    trace = mindspore_flat.read_trace(shared(*RUN_2))
    means = {name: sum(values(trace, "host", f"{name}_utilization")[:2]) / 2 for name in ("user", "sys", "io", "idle")}
    assert means == {"user": 15, "sys": 15, "io": 10, "idle": 10}
    assert values(trace, "host", "runnable_processes") == [10, 20, 30]
    assert values(trace, "op", "user_utilization", 1) == [10, 20, 30]
    table = data_pipeline.operations(trace)
    assert table.filter(id=1)["workers"].to_list() == [8]
    assert trace.meta_values()["cpu_processor_num"] == 100


def golden(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


@pytest.mark.parametrize("source", ["JOB1", "JOB2"])
def test_pipeline_equals_the_golden_table(source: str) -> None:
    operations, samples = minddata.read_pipeline(shared(source, "pipeline_profiling_0.json"), HealthLog())
    trace = Trace(Path("made"), {"pipeline_ops": operations.drop("sampling_ms"), "pipeline_samples": samples})
    table = data_pipeline.operations(trace)
    expected = golden(shared("profiler", "minddata_pipeline_raw_0.csv"))
    assert set(operations["sampling_ms"]) == {10.0}
    assert table["id"].to_list() == [int(row["op_id"]) for row in expected]
    for row, wanted in zip(table.iter_rows(named=True), expected, strict=True):
        assert row["type"] == wanted["op_type"]
        assert row["workers"] == int(wanted["num_workers"])
        assert row["queue_sizes"] == (json.loads(wanted["output_queue_size"]) if wanted["output_queue_size"] else None)
        assert row["mean_size"] == (float(wanted["output_queue_average_size"]) if wanted["output_queue_average_size"] else None)
        assert row["queue_capacity"] == (int(wanted["output_queue_length"]) if wanted["output_queue_length"] else None)
        # the golden file says 0 where there is no queue
        assert (row["usage"] or 0) == float(wanted["output_queue_usage_rate"])
        assert row["parent"] == (int(wanted["parent_id"]) if wanted["parent_id"] else None)
        assert row["children"] == (json.loads(wanted["children_id"]) if wanted["children_id"] else [])


@pytest.mark.parametrize(
    ("rank", "low", "expected"),
    [
        (0, 0.2, [4]),
        (0, 0.6, [4]),
        (1, 0.6, [1]),
        (1, 0.2, [1]),
        (2, 0.6, [0]),
        (2, 0.2, [0]),
        (3, 0.2, [2, 3]),
        (3, 0.6, [2, 3]),
    ],
)
def test_bottleneck_rules_on_tables_without_json(rank: int, low: float, expected: list[int]) -> None:
    trace = mindspore_flat.read_trace(shared("minddata_pipeline"), rank)
    assert data_pipeline.bottlenecks(data_pipeline.operations(trace), high=0.8, low=low) == expected


def test_moderately_used_queues_are_no_bottleneck_below_the_lower_threshold() -> None:
    trace = mindspore_flat.read_trace(shared("minddata_pipeline").parent / "profiler", 1)
    table = data_pipeline.operations(trace)
    assert data_pipeline.bottlenecks(table, high=0.8, low=0.2) == []
    assert data_pipeline.bottlenecks(table, high=0.8, low=0.6) == [2, 3]


def test_root_without_queue_above_operation_zero_is_left_out() -> None:
    trace = mindspore_flat.read_trace(shared(*RUN_2))
    table = data_pipeline.operations(trace)
    expected = golden(shared(*RUN_2, "minddata_pipeline_raw_1.csv"))
    assert table["id"].to_list() == [int(row["op_id"]) for row in expected]
    assert table["usage"].to_list() == [float(row["output_queue_usage_rate"]) for row in expected]


def newer(folder: Path) -> Path:
    """What MindSpore 2.10 writes: two windows of batches, doubled samples of the host, one sample per time of the queues."""
    count = 6
    operations = [
        {"children": [1], "metrics": None, "num_workers": 1, "op_id": 0, "op_type": "EpochCtrlOp"},
        {"children": [2], "metrics": {"output_queue": {"length": 16, "size": [0, 0, 2, 1, 0, 0]}}, "num_workers": 2, "op_id": 1,
         "op_type": "BatchOp"},
        {"metrics": {"output_queue": {"length": 16, "size": [16] * count}}, "num_workers": 1, "op_id": 2,
         "op_type": "GeneratorOp"},
    ]  # fmt: skip
    (folder / "pipeline_profiling_0.json").write_text(json.dumps({"op_info": operations, "sampling_interval": 20}))
    stamps = [1000 + 60 * index for index in range(count)]
    real = [0, *range(11, 11 + count)]
    doubled = [value for number in real for value in (number, 0)]
    cpu = {
        "cpu_processor_num": 8,
        "device_info": {
            "context_switch_count": doubled,
            "idle_utilization": doubled,
            "user_utilization": doubled[:count],
            "sys_utilization": doubled[:count],
            "runnable_process": [value for value in real for _ in range(2)],
        },
        "op_info": [{"op_id": 1, "metrics": {"user_utilization": [3] * count, "sys_utilization": [1] * count}}],
        "process_info": {"user_utilization": [40] * count, "sys_utilization": [4] * count},
        "process_memory_info": {"rss_mbytes": [812.5] * count},
        "sampling_interval": 20,
        "time_stamp": stamps,
    }
    (folder / "minddata_cpu_utilization_0.json").write_text(json.dumps(cpu))
    lines = []
    for batch in range(21, 25):
        time = 1000 + 30 * batch
        lines += [f"0 1 {batch} 2 {time}", f"0 2 {batch} 27 {time}", f"0 0 {batch} 25 {time}", f"1 16 {batch} 0 {time}"]
    (folder / "dataset_iterator_profiling_0.txt").write_text("\n".join(lines) + "\n")
    (folder / "minddata_pipeline_summary_0.json").write_text('{"op_ids": [0, 1, 2]}')
    return folder


def read_pipeline(folder: Path, clock_offset_ns: int) -> Trace:
    health = HealthLog()
    (rank,) = minddata.ranks(folder)
    return build_trace(folder, minddata.tables(folder, rank, health, clock_offset_ns=clock_offset_ns), health)


def test_files_of_newer_versions(tmp_path: Path) -> None:
    offset = 1_795_000_000_000_000_000
    trace = read_pipeline(newer(tmp_path), offset)
    taken = batches(trace, "iterate")
    assert taken["batch"].to_list() == [21, 22, 23, 24]
    assert taken["time_ns"].to_list() == [offset + (1000 + 30 * batch) * 1_000_000 for batch in range(21, 25)]
    assert set(taken.select("get_ns", "push_ns", "total_ns", "queue_size", "queue_capacity").rows()) == {
        (25_000_000, 2_000_000, 27_000_000, 0, 16)
    }
    assert values(trace, "host", "idle_utilization") == [11, 12, 13, 14, 15, 16]
    # cut to half: what is left stands for the first samples, the others are absent, not zero
    assert values(trace, "host", "user_utilization") == [11, 12]
    assert values(trace, "host", "runnable_processes") == [11, 12, 13, 14, 15, 16]
    assert values(trace, "process", "rss") == [812.5] * 6
    queue = trace.required("pipeline_samples").filter(pl.col("name").cast(pl.String) == "queue_size").collect()
    assert queue.filter(op=1)["time_ns"].to_list() == [offset + (1000 + 60 * index) * 1_000_000 for index in range(6)]
    assert checks(trace) == {"doubled_samples"}
    table = data_pipeline.operations(trace)
    assert table.select("id", "parent", "usage", "empty_share").rows() == [
        (0, None, None, None),
        (1, 0, 0.03125, 4 / 6),
        (2, 1, 1, 0),
    ]
    assert data_pipeline.bottlenecks(table) == [1]
    summary = trace.source_table("minddata_pipeline_summary")
    assert summary is not None and summary["op_ids"].to_list() == [[0, 1, 2]]


def test_device_queue_in_nanoseconds(tmp_path: Path) -> None:
    (tmp_path / "minddata_getnext_profiling_2.txt").write_text("GetNext 5000 8000 3\nnoise\n")
    trace = mindspore_flat.read_trace(tmp_path)
    assert batches(trace, "receive").select("time_ns", "wait_ns", "queue_size").rows() == [(5000, 3000, 3)]
    assert trace.rank == 2
    assert "damaged_records" in checks(trace)


def test_ranks_must_be_named_where_there_are_several(tmp_path: Path) -> None:
    assert not minddata.detect(tmp_path)
    for rank in (0, 3):
        (tmp_path / f"device_queue_profiling_{rank}.txt").write_text("1 64 1 0 10\n")
    assert minddata.detect(tmp_path)
    assert minddata.ranks(tmp_path) == [0, 3]
    with pytest.raises(InputError, match="ranks 0, 3"):
        mindspore_flat.read_trace(tmp_path)
    assert mindspore_flat.read_trace(tmp_path, 3).rank == 3
    assert [path.name for path in minddata.sources(tmp_path, 3)] == ["device_queue_profiling_3.txt"]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"{", b'{"op_info": 3}', b'{"op_info": [3, {"op_id": -1}, {"op_id": "0"}, {"op_id": 5000000000}]}',
        b"\xff\xfe\x00",
        b'{"op_info": [{"op_id": 0, "children": [0, 1, "x", 9]}, {"op_id": 1, "children": [0]}], "sampling_interval": "a"}',
        b'{"op_info": [{"op_id": 0, "metrics": {"output_queue": {"length": -5, "size": [1e400, "a", null, 2]}}}]}',
    ],
)  # fmt: skip
def test_damaged_pipelines_are_findings(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pipeline_profiling_0.json").write_bytes(content)
    (tmp_path / "device_queue_profiling_0.txt").write_text("1 64 1 0 10\n")
    trace = mindspore_flat.read_trace(tmp_path)
    assert batches(trace, "send").height == 1
    table = data_pipeline.operations(trace)
    assert table.height <= 2
    assert trace.health is not None


@pytest.mark.parametrize("seed", range(10))
def test_mutated_files_never_crash(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for path in list(newer(tmp_path).iterdir()):
        data = bytearray(path.read_bytes())
        for _ in range(rng.randint(0, 8)):
            data[rng.randrange(len(data))] = rng.choice(b'0123456789-.eE{}[],:" \n\xffa')
        path.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.3 else data)
    try:
        trace = mindspore_flat.read_trace(tmp_path)
    except InputError:
        return
    data_pipeline.operations(trace)
    assert data_pipeline.host_queue(trace) is None or data_pipeline.host_queue(trace).batches > 0  # type: ignore[union-attr]


def test_cpu_samples_take_any_json(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    odd: list[Any] = [{"time_stamp": 1}, {"time_stamp": ["a", 1e300, -4]}, {"device_info": [1]}, {"op_info": {"a": 1}}, [1]]
    for content in odd:
        path.write_text(json.dumps(content))
        found, times, processors = cpu_samples(path, HealthLog())
        assert found.height == 0 and times.null_count() == len(times) and processors is None
