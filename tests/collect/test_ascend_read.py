"""From recording to reading: what Kineto recorded of the host and CANN of the device becomes one trace.

The device data is what an NPU would have recorded: one kernel for every matrix multiplication that Kineto saw, launched
inside it and run a moment later. Exporting is done here by hand, in the format of ``msprof``.
"""

import csv
import json
import os
import shutil

import polars as pl
import pytest

import steplens
from steplens import ProfilerActivity, profile, schedule, tensorboard_trace_handler
from steplens.readers import detect
from steplens.readers.ascend.text import text_captures

from .ascend_library.build import Stand

pytest.importorskip("torch")

NPU = [ProfilerActivity.CPU, ProfilerActivity.NPU]
STAMP = "20261121163637"
OPERATOR = "aten::addmm"
WAIT_NS, LENGTH_NS = 20_000, 7_250


@pytest.fixture
def recorded(monkeypatch, tmp_path, train, look):
    """A run of two steps with host and device data."""
    for name in ("DEVICE_ID", "ASCEND_DEVICE_ID"):
        monkeypatch.delenv(name, raising=False)
    Stand(monkeypatch, tmp_path)()
    plan = schedule(wait=0, warmup=1, active=2, repeat=1)
    handler = tensorboard_trace_handler("out", analyse_flag=False)
    with profile(activities=NPU, schedule=plan, on_trace_ready=handler, profile_memory=True) as prof:
        train(4, prof)
    (run,) = look.runs("out")
    return run


def operators(look, run):
    """(start, end, thread) of every call of the operator, in Unix ns, from Kineto's own file."""
    trace = look.raw(run)
    base = int(trace.get("baseTimeNanoseconds", 0))
    return [
        (base + round(event["ts"] * 1000), base + round((event["ts"] + event["dur"]) * 1000), event["tid"])
        for event in trace["traceEvents"]
        if event["name"] == OPERATOR
    ]


def microseconds(ns):
    return f"{ns // 1000}.{ns % 1000:03d}"


def export(run, calls):
    """What ``msprof --export=on`` makes of the device data."""
    (prof,) = run.glob("PROF_*")
    folder = prof / "mindstudio_profiler_output"
    folder.mkdir()
    cann, hardware = (os.getpid() << 10) | (7 << 5) | 31, (os.getpid() << 10) | (14 << 5)
    events = []
    for pid, name, label in ((cann, "CANN", "CPU"), (hardware, "Ascend Hardware", "NPU 0")):
        events.append({"name": "process_name", "pid": pid, "tid": 0, "ph": "M", "args": {"name": name}})
        events.append({"name": "process_labels", "pid": pid, "tid": 0, "ph": "M", "args": {"labels": label}})
    rows = []
    for number, (_, end, thread) in enumerate(calls, 1):
        # behind the calls inside the operator
        launch = end - 100
        begin = end + WAIT_NS
        flow = str(number << 32)
        link = {"cat": "HostToDevice", "name": f"HostToDevice{flow}", "id": flow}
        events += [
            {"name": "Node@launch", "pid": cann, "tid": thread, "ph": "X", "ts": microseconds(launch), "dur": 0.5,
             "args": {"connection_id": number}},
            {**link, "ph": "s", "pid": cann, "tid": thread, "ts": microseconds(launch)},
            {"name": "MatMulV3", "pid": hardware, "tid": 2, "ph": "X", "ts": microseconds(begin), "dur": LENGTH_NS / 1000,
             "args": {"Task Type": "AI_CORE", "connection_id": number, "Task Id": number, "Stream Id": 2}},
            {**link, "ph": "f", "bp": "e", "pid": hardware, "tid": 2, "ts": microseconds(begin)},
        ]  # fmt: skip
        rows.append([0, 4294967295, number, 2, "MatMulV3", "MatMulV3", "AI_CORE", f"{microseconds(begin)}\t",
                     LENGTH_NS / 1000, 0, 20, "4,8;8,16"])  # fmt: skip
    (folder / f"msprof_{STAMP}.json").write_text(json.dumps(events))
    columns = ["Device_id", "Model ID", "Task ID", "Stream ID", "Op Name", "OP Type", "Task Type", "Task Start Time(us)",
               "Task Duration(us)", "Task Wait Time(us)", "Block Num", "Input Shapes"]  # fmt: skip
    with (folder / f"op_summary_{STAMP}.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([columns, *rows])
    with (folder / f"memory_record_{STAMP}.csv").open("w", newline="") as handle:
        header = ["Device_id", "Component", "Timestamp(us)", "Total Allocated(KB)", "Total Reserved(KB)", "Device"]
        csv.writer(handle).writerows([header, [0, "GE", f"{microseconds(calls[0][0])}\t", 1024, 2048, "NPU:0"]])
    return prof


def test_host_and_device_become_one_trace(recorded, look):
    calls = operators(look, recorded)
    assert len(calls) == 4  # two layers, two steps
    export(recorded, calls)
    trace = detect.load(detect.find_one(recorded))
    kernels = trace.kernels.sort("start_ns")
    assert kernels["name"].cast(pl.String).unique().to_list() == ["MatMulV3"]
    assert kernels["core"].cast(pl.String).unique().to_list() == ["AI_CORE"]
    expected = sorted((end + WAIT_NS, end + WAIT_NS + LENGTH_NS) for _, end, _ in calls)
    assert kernels.select("start_ns", "end_ns").rows() == expected
    # Every kernel belongs to the operator inside which it was launched, and to its step.
    ops = trace.ops
    names = kernels.join(ops.select(op="id", operator=pl.col("name").cast(pl.String)), on="op")["operator"].to_list()
    assert names == [OPERATOR] * 4
    steps = trace.steps.select(step="id", begin="start_ns", end="end_ns")
    placed = kernels.join(steps, on="step", how="left")
    assert placed["begin"].null_count() == 0
    launched = ops.join(kernels.select(id="op"), on="id").join(steps, on="step", suffix="_of_step")
    assert (launched["start_ns"] >= launched["begin"]).all()
    assert sorted(placed["step"].to_list()) == sorted(launched["step"].to_list())
    # Memory of both halves is there: PyTorch's on the CPU, the graph engine's on the NPU.
    memory = trace.memory
    assert memory.filter(pl.col("component").cast(pl.String) == "GE").height == 1
    assert memory.height > 1


def test_the_results_of_such_a_run(recorded, look):
    calls = operators(look, recorded)
    export(recorded, calls)
    steplens.analyse(str(recorded))
    output = recorded / "ASCEND_PROFILER_OUTPUT"
    details = list(csv.DictReader((output / "kernel_details.csv").open()))
    assert [row["Name"] for row in details] == ["MatMulV3"] * 4
    assert {row["Duration(us)"] for row in details} == {"7.250"}
    steps = list(csv.DictReader((output / "step_trace_time.csv").open()))
    assert sum(float(row["Computing"]) for row in steps) == pytest.approx(4 * 7.25)
    assert (output / "analyse.done").exists()


def test_results_whose_device_data_was_simplified_away_are_read(recorded, look):
    prof = export(recorded, operators(look, recorded))
    (done,) = steplens.analyse(str(recorded))
    assert done.ok
    # data simplification kept what nothing here could export again
    assert (prof / "mindstudio_profiler_output").is_dir()
    before = detect.load(detect.find_one(recorded))
    shutil.rmtree(prof / "mindstudio_profiler_output")
    found = detect.find_one(recorded)
    assert found.reader is text_captures.READER
    assert "KINETO" in found.ignored
    after = detect.load(found)
    columns = ["name", "start_ns", "end_ns", "step", "core"]
    one, other = (trace.kernels.select(columns).cast({"name": pl.String, "core": pl.String}) for trace in (before, after))
    assert other.sort("start_ns").rows() == one.sort("start_ns").rows()
    assert after.ops.height == before.ops.height
    assert after.ops["device_self_ns"].sum() == before.ops["device_self_ns"].sum() > 0
    (again,) = steplens.analyse(str(recorded))
    assert again.ok and again.already_complete


def test_device_data_that_is_not_exported(recorded):
    """The CPU's work must not pass for that of the NPU."""
    trace = detect.load(detect.find_one(recorded))
    assert trace.ops.height
    assert trace.kernels is None
    health = {row["check"]: row for row in trace.health.iter_rows(named=True)}
    finding = health["no_device_data"]
    assert finding["severity"] == "error"
    assert "msprof --export=on --output=" in finding["message"]
    assert "no_framework_data" not in health
    assert "missing_profiler_info" not in health


def test_exporting_later_makes_the_cached_trace_stale(recorded, look):
    assert detect.load(detect.find_one(recorded)).kernels is None
    export(recorded, operators(look, recorded))
    assert detect.load(detect.find_one(recorded)).kernels.height == 4


def test_a_run_without_device_data_is_that_of_the_host_alone(monkeypatch, tmp_path, train, look):
    stand = Stand(monkeypatch, tmp_path)
    stand()
    stand.fail(Start=500005)
    with profile(activities=NPU, on_trace_ready=tensorboard_trace_handler("out", analyse_flag=False)):
        train(2)
    (run,) = look.runs("out")
    trace = detect.load(detect.find_one(run))
    assert trace.kernels is None
    found = trace.health.filter(pl.col("check") == "device_data_missing")
    assert found.height == 1
    assert "aclprofStart failed with 500005" in found["message"][0]
