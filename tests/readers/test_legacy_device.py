"""Raw device logs of the first Ascend generation: the recorded ones against their golden results, made ones, damaged ones."""

from __future__ import annotations

import csv
import json
import random
import struct
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from steplens.analysis.cluster.cluster_steps import stored_parts
from steplens.common.errors import InputError
from steplens.readers.mindspore.device_logs import legacy_device, legacy_framework, legacy_hwts, legacy_step_trace
from steplens.readers.mindspore.legacy_files import find_logs, join_slices
from steplens.readers.mindspore.results import mindspore_flat
from steplens.trace.health import HealthLog
from steplens.trace.trace import Trace

from .mindspore_data import shared, sliced, step_record, task_record, track_record

CAST, MATMUL = "Default/net/Cast-op1", "Default/net/MatMul-op2"
TRAINING_TRACE = "training_trace.46.dev.profiler_default_tag.3"
HWTS = "hwts.log.data.45.dev.profiler_default_tag.3"


def checks(trace: Trace) -> set[str]:
    return set() if trace.health is None else set(trace.health["check"])


def write_framework(folder: Path) -> None:
    tasks = f"{CAST} 32 30001 5\n{MATMUL} 16 7 6\n"
    graph = (
        f'op_name:{CAST} op_type:Cast input_id:0 input_format:ND input_data_type:40 input_shape:"2,3" '
        f'output_id:0 output_format:ND output_data_type:39 output_shape:"2,3"\n'
        f'op_name:{MATMUL} op_type:MatMul input_id:0 input_format:ND input_data_type:39 input_shape:"2,3" '
        f'input_id:1 input_format:NZ input_data_type:99 input_shape:"3,4"\n'
    )
    (folder / "Framework.host.vm.task_desc_info.3.slice_0").write_text(tasks)
    (folder / "Framework.host.vm.graph_desc_info.3.slice_0").write_text(graph)


def job(folder: Path) -> Path:
    """A job with two steps, four runs of two operators, cut into slices inside records."""
    write_framework(folder)
    steps = b"".join(
        [
            *(step_record(*r) for r in [(0, 0, 1000), (1, 0, 1010), (3, 9, 1020), (3, 9, 1040), (2, 0, 1050), (255, 0, 1100)]),
            *(step_record(*r) for r in [(0, 0, 1100), (1, 0, 1130), (2, 0, 1190), (255, 0, 1200)]),
        ]
    )
    sliced(folder, TRAINING_TRACE, steps, [33, 90])
    runs = [
        task_record(0, 30001, 5, 1015),
        task_record(1, 30001, 5, 1018),
        b"\0" * 64,
        task_record(0, 7, 6, 1020),
        task_record(4, 7, 6, 1021),
        task_record(1, 7, 6, 1030),
        b" " * 64,
        task_record(6, 7, 6, 1031),
        task_record(0, 99, 6, 1032),
        task_record(0, 30001, 5, 1140),
        task_record(1, 30001, 5, 1150),
        task_record(0, 7, 6, 1160),
        task_record(1, 7, 6, 1170),
    ]
    sliced(folder, HWTS, b"".join(runs), [100])
    return folder


@pytest.mark.parametrize(("name", "device", "count", "collectives"), [("JOB1", 0, 20, 80), ("ERROR_JOB", 10, 40, 80)])
def test_recorded_step_traces_hold_what_a_plain_loop_finds(name: str, device: int, count: int, collectives: int) -> None:
    folder = shared(name)
    trace = legacy_device.read_trace(folder)
    records = struct.iter_unpack("<QHHQ", next(folder.glob("training_trace*")).read_bytes())
    forward, backward, ends = [], [], []
    marks = 0
    for tag, _, _, tick in records:
        for wanted, times in ((1, forward), (2, backward), (255, ends)):
            if tag == wanted:
                times.append(tick * 10)
        marks += 3 <= tag <= 254
    points = trace.step_points
    assert points is not None and trace.step_collectives is not None
    assert points.height == count
    assert points["forward_ns"].to_list() == forward
    assert points["backward_ns"].to_list() == backward
    assert points["end_ns"].to_list() == ends
    assert points["start_ns"].to_list() == [forward[0], *ends[:-1]]
    assert trace.step_collectives.height == collectives == marks // 2
    assert trace.steps is not None and trace.steps["id"].to_list() == list(range(1, count + 1))
    assert trace.meta_values()["device_ids"] == [device]
    assert checks(trace) == {"device_clock"}


def test_framework_files_equal_the_golden_table() -> None:
    trace = legacy_device.read_trace(shared("JOB1"))
    table = trace.source_table("framework_raw")
    assert table is not None
    with shared("profiler", "framework_raw_0.csv").open(newline="") as handle:
        golden = list(csv.DictReader(handle))
    assert table.to_dicts() == [{**row, "op_info": json.dumps(json.loads(row["op_info"]))} for row in golden]
    assert table["task_id"].to_list() == ["51517", "51518", "51519", "51522"]


def test_tasks_are_known_by_stream_and_number_below_25000() -> None:
    logs = find_logs(shared("JOB4"))
    tasks = legacy_framework.read_tasks(logs.of("task_desc", 0), HealthLog())
    assert tasks["key"].to_list() == ["0_1", "0_2", "0_3", "0_4"]
    points = legacy_framework.read_points(logs.of("point", 0), HealthLog())
    assert points == {1: "Default/Cast-op6", 2: "Default/TransData-op7"}
    trace = legacy_device.read_trace(shared("JOB4"))
    assert trace.meta_values()["fp_start"] == "Default/Cast-op6"
    assert trace.meta_values()["bp_end"] == "Default/TransData-op7"


def test_ai_cpu_kernels_equal_the_expected_text() -> None:
    trace = legacy_device.read_trace(shared("JOB_AICPU"))
    table = trace.source_table("aicpu_intermediate")
    assert table is not None and trace.kernels is not None
    lines = shared("JOB_AICPU", "expect", "output_data_preprocess_aicpu_0.txt").read_text().splitlines()
    expected = [line.split() for line in lines[2:5]]
    columns = ["serial_num", "kernel_type", "total_time", "dispatch_time", "run_start", "run_end"]
    assert [list(row) for row in table.select(columns).iter_rows()] == expected
    assert f"{table['total_time'].cast(pl.Float64).sum():.6f}" == lines[-1].split()[-1] == "4.122000"
    kernels = trace.kernels.filter(pl.col("name").cast(pl.String) == "GetNext")
    # from the counter before the run to the one after it, which are of the AI Cores' clock
    assert kernels["start_ns"].to_list() == [438067373630]
    assert kernels["end_ns"].to_list() == [438068275510]
    assert kernels["wait_ns"].to_list() == [87_000]
    assert set(trace.kernels["core"].cast(pl.String)) == {"AI_CPU"}


def test_text_form_of_the_scheduler_log_gives_every_stored_average() -> None:
    folder = shared("run_2", "normal_run", "profiler")
    health = HealthLog()
    records = legacy_hwts.read_text(folder / "output_format_data_hwts_1.txt", health)
    assert records.height == 268
    assert (records["kind"] == 0).sum() == 136
    assert (records["kind"] == 1).sum() == 132
    framework = pl.read_csv(folder / "framework_raw_1.csv")
    tasks = framework.select(key=legacy_hwts.task_key(pl.col("task_id"), pl.col("stream_id")), name="full_op_name")
    assert records.filter(pl.col("key").is_in(tasks["key"].implode())).height == 214
    runs = legacy_hwts.pair_executions(records, tasks, health)
    assert runs.height == 107
    # MindSpore divides by the runs of an operator's first task
    first = tasks.unique("name", keep="first").select("name", first="key")
    lengths = runs.join(first, on="name").with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
    means = lengths.group_by("name").agg(mean_ms=pl.col("ns").sum() / (pl.col("key") == pl.col("first")).sum() / 1e6)
    assert means.height == 105
    stored = [line.split() for line in (folder / "output_op_compute_time_1.txt").read_text().splitlines()[3:-1]]
    assert len(stored) == 105
    computed = dict(means.iter_rows())
    assert {name: float(mean) for name, mean, _ in stored} == pytest.approx(computed, abs=1e-12)


def test_slices_are_joined_before_they_are_cut_into_records(tmp_path: Path) -> None:
    trace = legacy_device.read_trace(job(tmp_path))
    points = trace.step_points
    assert points is not None and trace.kernels is not None and trace.step_collectives is not None
    assert points.select("step", "start_ns", "forward_ns", "backward_ns", "end_ns").rows() == [
        (1, 10100, 10100, 10500, 11000),
        (2, 11000, 11300, 11900, 12000),
    ]
    assert trace.step_collectives.select("step", "stream", "index", "start_ns", "end_ns").rows() == [(1, 9, 0, 10200, 10400)]
    kernels = trace.kernels.select(pl.col("name", "type", "input_shapes", "input_types").cast(pl.String), "start_ns", "end_ns")
    assert kernels.sort("start_ns").rows() == [
        (CAST, "Cast", "2,3", "FLOAT32", 10150, 10180),
        (MATMUL, "MatMul", "2,3;3,4", "FLOAT16;UNKNOWN", 10200, 10300),
        (CAST, "Cast", "2,3", "FLOAT32", 11400, 11500),
        (MATMUL, "MatMul", "2,3;3,4", "FLOAT16;UNKNOWN", 11600, 11700),
    ]
    assert trace.kernels.sort("start_ns")["step"].to_list() == [1, 1, 2, 2]
    assert trace.kernels.sort("start_ns")["blocks"].to_list() == [32, 16, 32, 16]
    # the record of kind 6 and the start of a task nobody named
    assert checks(trace) == {"device_clock", "damaged_records", "unnamed_tasks"}


def test_first_step_fills_the_queue_where_the_graph_says_so(tmp_path: Path) -> None:
    job(tmp_path)
    tasks = tmp_path / "Framework.host.vm.task_desc_info.3.slice_0"
    tasks.write_text(tasks.read_text() + "Default/InitDataSetQueue-op0 1 8 6\n")
    points = legacy_device.read_trace(tmp_path).step_points
    assert points is not None
    assert points.select("step", "start_ns").rows() == [(2, 11300)]


def test_newer_step_trace_keeps_models_apart(tmp_path: Path) -> None:
    records = [track_record(*r) for r in [(0, 1, 4, 90), (2, 1, 4, 100), (3, 1, 4, 150), (4, 1, 4, 200)]]
    records += [track_record(*r) for r in [(2, 1, 7, 300), (3, 1, 7, 340), (4, 1, 7, 360), (2, 2, 7, 370), (3, 2, 7, 380)]]
    records += [track_record(10000, 1, 7, 310, 5), track_record(10001, 1, 7, 330, 5), track_record(4, 2, 7, 390)]
    records.append(track_record(2, 1, 7, 305, type_=3))
    (tmp_path / "ts_track.data.0.dev.profiler_default_tag.0.slice_0").write_bytes(b"".join(records))
    trace = legacy_device.read_trace(tmp_path)
    assert trace.step_points is not None and trace.steps is not None and trace.step_collectives is not None
    assert trace.step_points.height == 3
    # the model with two steps trains
    assert trace.steps.select("id", "start_ns", "end_ns").rows() == [(1, 3000, 3600), (2, 3600, 3900)]
    assert trace.step_collectives.select("step", "model_id", "stream", "start_ns", "end_ns").rows() == [(1, 7, 5, 3100, 3300)]


def test_queues_of_the_ai_cpu(tmp_path: Path) -> None:
    get_next = b"\0".join(
        [
            b"Node:GetNext_dequeue_wait, Run start:100, Run end:130, queue size:4",
            b"noise",
            b"Node:x, Run start:9, Run end:1, queue size:0",
        ]
    )
    (tmp_path / "DATA_PREPROCESS.dev.AICPUMI.0").write_bytes(get_next)
    enqueued = (
        b"[77] Enqueue data to dp, source:1f-2a, index:6, size:12\0[78] Enqueue data to dp, source:1f-2a, index:7, size:13\0"
    )
    (tmp_path / "DATA_PREPROCESS.dev.TDT.0").write_bytes(enqueued)
    trace = legacy_device.read_trace(tmp_path)
    batches = trace.pipeline_batches
    assert batches is not None
    columns = ["batch", "time_ns", "wait_ns", "queue_size"]
    kinds = batches.with_columns(pl.col("kind").cast(pl.String))
    assert kinds.filter(kind="receive").select(columns).rows() == [(1, 100_000, 30_000, 4)]
    assert kinds.filter(kind="send").select(columns).rows() == [(6, 77_000, None, 12), (7, 78_000, None, 13)]
    assert "damaged_records" in checks(trace)


def test_what_is_cut_or_missing_is_a_finding(tmp_path: Path) -> None:
    job(tmp_path)
    last = tmp_path / f"{TRAINING_TRACE}.slice_2"
    last.write_bytes(last.read_bytes()[:-5])
    (tmp_path / f"{HWTS}.slice_0").unlink()
    trace = legacy_device.read_trace(tmp_path)
    assert trace.step_points is not None and trace.step_points.height == 1
    assert {"truncated_file", "incomplete_steps", "missing_slices"} <= checks(trace)


def test_scheduler_log_without_the_list_of_tasks_is_a_finding(tmp_path: Path) -> None:
    job(tmp_path)
    (tmp_path / "Framework.host.vm.task_desc_info.3.slice_0").unlink()
    trace = legacy_device.read_trace(tmp_path)
    assert trace.kernels is None and trace.step_points is not None
    assert "missing_file" in checks(trace)


def test_one_of_several_devices_must_be_named(tmp_path: Path) -> None:
    job(tmp_path)
    (tmp_path / "training_trace.46.dev.profiler_default_tag.4.slice_0").write_bytes(b"")
    assert find_logs(tmp_path).devices == [3, 4]
    with pytest.raises(InputError, match="devices 3, 4"):
        legacy_device.read_trace(tmp_path)
    assert legacy_device.read_trace(tmp_path, 3).steps is not None
    with pytest.raises(InputError, match="nothing can be read"):
        legacy_device.read_trace(tmp_path, 4)
    assert {path.name.rsplit(".slice", 1)[0] for path in legacy_device.sources(tmp_path, 4)} == {
        "training_trace.46.dev.profiler_default_tag.4"
    }


def test_detection_knows_the_three_places(tmp_path: Path) -> None:
    assert not find_logs(tmp_path).slices
    data = tmp_path / "container" / "0" / "data"
    data.mkdir(parents=True)
    (data / "Framework.host.vm.point.0.slice_0.done").write_bytes(b"")
    assert not find_logs(tmp_path).slices
    (data / "Framework.host.vm.point.0.slice_0").write_text("1 a\n")
    assert find_logs(tmp_path).slices


def test_joined_reports_what_exceeds_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steplens.readers.mindspore.legacy_files.SIZE_LIMIT_BYTES", 100)
    sliced(tmp_path, TRAINING_TRACE, b"x" * 150, [60])
    health = HealthLog()
    data = join_slices(find_logs(tmp_path).of("training_trace", 3), health, "")
    assert len(data) == 100
    assert [finding.check for finding in health.findings] == ["oversized_file"]


@pytest.mark.parametrize("seed", range(12))
def test_random_and_mutated_logs_never_crash(tmp_path: Path, seed: int) -> None:
    job(tmp_path)
    rng = random.Random(seed)
    (tmp_path / "DATA_PREPROCESS.dev.AICPU.3").write_bytes(
        b"Node:a, Run tart:1, Run end:2\0Thread, a=1, b=2,c=3,d=4,e=5 us,f=6 us.\0"
    )
    for path in [path for path in tmp_path.iterdir() if path.suffix != ".done"]:
        data = bytearray(path.read_bytes())
        if rng.random() < 0.3:
            data = bytearray(rng.randbytes(len(data)))
        for _ in range(rng.randint(0, 12)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data[: rng.randint(0, len(data))] if rng.random() < 0.3 else data)
    try:
        trace = legacy_device.read_trace(tmp_path)
    except InputError:
        return
    for name in trace:
        table = trace.table(name)
        assert table is not None and table.height
        for column in (column for column in ("start_ns", "end_ns") if column in table.columns and name != "step_points"):
            assert table[column].abs().max() < 1 << 62


def test_decoders_take_nothing_and_noise() -> None:
    rng = np.random.default_rng(5)
    for size in (0, 1, 19, 20, 63, 64, 4096 + 7):
        data = rng.bytes(size)
        health = HealthLog()
        assert legacy_hwts.decode_log(data, health).height <= size // 64
        points, collectives = legacy_step_trace.decode_training_trace(data, health)
        assert points.height <= size // 20 and collectives.height <= size // 20
        track, _ = legacy_step_trace.decode_track(data, health)
        assert track.height <= size // 40
        assert bool(health.findings) == (size > 0)


def test_tasks_of_some_steps_beside_marks_of_all(tmp_path: Path) -> None:
    """The log of tasks may end after a few steps: the marks of all stay, and each task is of the step that it lies in."""
    folder = tmp_path / "job"
    folder.mkdir()
    write_framework(folder)
    begins = [1000 + 100 * step for step in range(20)]
    marks = [record for tick in begins for record in ((0, 0, tick), (1, 0, tick + 10), (2, 0, tick + 90), (255, 0, tick + 100))]
    sliced(folder, TRAINING_TRACE, b"".join(step_record(*record) for record in marks), [])
    runs = [task_record(kind, 7, 6, tick + at) for tick in begins[:3] for kind, at in ((0, 20), (1, 80))]
    sliced(folder, HWTS, b"".join(runs), [])
    trace = legacy_device.read_trace(folder)
    assert trace.steps is not None and trace.steps["id"].to_list() == list(range(1, 21))
    assert trace.step_points is not None and trace.step_points.height == 20
    assert trace.required("kernels").sort("start_ns").collect()["step"].to_list() == [1, 2, 3]


def test_parts_of_steps_that_only_a_table_tells() -> None:
    trace = mindspore_flat.read_trace(shared("cluster_propose"), 0)
    assert not trace.required("kernels").collect().height
    parts = stored_parts(trace).drop_nulls("step")
    assert parts["step"].to_list() == [1, 2, 3, 4, 5]
    assert parts["computation_ns"].to_list() == [13_820_200, 14_580_600, 14_811_900, 15_015_900, 14_697_400]
