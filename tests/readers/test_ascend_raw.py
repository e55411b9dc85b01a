"""Raw captures as a whole: the golden one in all its variants, and every way in which a part can be missing or damaged."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.analysis.device.kernels import core_self_ns, subtree_total_ns
from steplens.analysis.memory.memory import operator_memory
from steplens.analysis.steps.ascend_step_times import ascend_step_times
from steplens.common.errors import InputError
from steplens.readers.ascend.capture import raw_captures
from steplens.readers.ascend.capture.ascend_raw import read_trace
from steplens.readers.ascend.capture.raw_files import sources
from steplens.readers.contents import contents_of
from steplens.trace.trace import Trace

from . import ascend_fixture as fixture
from .ascend_fixture import BACKWARD, DEQUEUE, MAIN, OFF, PID, PROF_NAME, STAMP, ns, write_golden

US = 1000


def checks(trace: Trace) -> dict[str, str]:
    """Check -> message of every finding; two of one check are joined."""
    found: dict[str, str] = {}
    health = trace.health
    for row in health.iter_rows(named=True) if health is not None else ():
        found[row["check"]] = "; ".join(filter(None, [found.get(row["check"]), row["message"]]))
    return found


def text(frame: pl.DataFrame, column: str) -> list[str | None]:
    return frame[column].cast(pl.String).to_list()


def after(frame: pl.DataFrame, column: str) -> list[float | None]:
    """Times as µs after OFF."""
    return ((frame[column] - OFF) / US).to_list()


def operator_times(trace: Trace, *, on_ai_core: bool = False) -> dict[tuple[str, int], tuple[float, ...]]:
    """(name, thread) -> host self, host total, device self, device total in µs, as in operator_details.csv.

    With ``on_ai_core`` the last two are those of tasks on the cube core.
    """
    ops = trace.ops
    assert ops is not None
    device_self, device_total = ops["device_self_ns"], ops["device_total_ns"]
    if on_ai_core:
        own = core_self_ns(trace, "AI_CORE")
        assert own is not None
        device_self, device_total = pl.Series(own), pl.Series(subtree_total_ns(trace, own))
    total = ops["end_ns"] - ops["start_ns"]
    columns = [(values / US).to_list() for values in (ops["self_ns"], total, device_self, device_total)]
    keys = zip(text(ops, "name"), ops["tid"].to_list(), strict=True)
    return dict(zip(keys, zip(*columns, strict=True), strict=True))


def step_rows(trace: Trace, **options: bool) -> list[tuple[Any, ...]]:
    """Rows of step_trace_time.csv from Step on, in µs."""
    rows = ascend_step_times(trace, **options)
    columns = [
        "computing", "communication_not_overlapped", "overlapped", "communication", "free", "stage", "bubble",
        "exclude_receive", "preparing",
    ]  # fmt: skip
    return rows.select("step", *(pl.col(f"{column}_ns") / US for column in columns)).rows()


def owners(trace: Trace) -> dict[str | None, str | None]:
    """Kernel or communication operation -> name of the call that launched it."""
    table, ops = trace.kernels, trace.ops
    assert table is not None
    assert ops is not None
    table = table.filter(pl.col("kind").cast(pl.String) != "other")
    names = text(ops, "name")
    return {name: None if op is None else names[op] for name, op in zip(text(table, "name"), table["op"].to_list(), strict=True)}


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture(scope="module", params=["text", "db"])
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return read_trace(write_golden(tmp_path_factory.mktemp("golden"), export=request.param))


@pytest.fixture(scope="module")
def golden_text(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return read_trace(write_golden(tmp_path_factory.mktemp("golden")))


@pytest.fixture(scope="module")
def golden_db(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return read_trace(write_golden(tmp_path_factory.mktemp("golden"), export="db"))


# --- the golden capture ---------------------------------------------------------------------------------------------------


def test_host_and_device_time_of_operators(golden_text: Trace) -> None:
    times = operator_times(golden_text)
    assert times["aten::linear", MAIN] == (12, 28, 0, 5)
    assert times["aten::mm", MAIN] == (16, 16, 5, 5)
    assert times["autograd::engine::evaluate_function: LinearBackward0", BACKWARD] == (15, 30, 0, 7.5)
    assert times["aten::mm", BACKWARD] == (15, 15, 7.5, 7.5)
    assert times["aten::add", MAIN] == (10, 10, 2.25, 2.25)


def test_time_on_the_cube_core(golden_text: Trace) -> None:
    """The scheduler says which core a task ran on; op_summary says AI_CORE for all three."""
    times = operator_times(golden_text, on_ai_core=True)
    assert times["aten::linear", MAIN] == (12, 28, 0, 5)
    assert times["aten::mm", MAIN] == (16, 16, 5, 5)
    assert times["autograd::engine::evaluate_function: LinearBackward0", BACKWARD] == (15, 30, 0, 7.5)
    assert times["aten::mm", BACKWARD] == (15, 15, 7.5, 7.5)
    assert times["aten::add", MAIN] == (10, 10, 0, 0)
    kernels = golden_text.kernels
    assert kernels is not None
    assert text(kernels.filter(pl.col("kind").cast(pl.String) == "compute"), "core") == ["AI_CORE"] * 3


def test_step_times_from_text(golden_text: Trace) -> None:
    assert step_rows(golden_text) == [
        (0, 12.5, 7.0, 3.0, 10.0, 23.0, 38.5, 4.0, 3.0, 19.0),
        (1, 2.25, 0, 0, 0, 0, 2.25, 0, 0, 15.999),
    ]


def test_step_times_from_the_database(golden_db: Trace) -> None:
    assert step_rows(golden_db) == [
        (0, 12.5, 7.0, 3.0, 10.0, 23.0, 32.5, 10.0, 0, 19.0),
        (1, 2.25, 0, 0, 0, 0, 2.25, 0, 0, 15.999),
    ]


def test_step_times_without_steps(tmp_path: Path) -> None:
    trace = read_trace(write_golden(tmp_path, ops=fixture.stepless_ops()))
    assert trace.steps is None
    assert step_rows(trace, whole_trace_without_steps=True) == [(None, 14.75, 7.0, 3.0, 10.0, 76.5, 94.25, 4.0, 3.0, 16.0)]


def test_kernels_belong_to_steps_and_operators(golden: Trace) -> None:
    kernels = golden.kernels
    assert kernels is not None
    listed = kernels.filter(pl.col("kind").cast(pl.String) == "compute").sort("start_ns")
    assert list(zip(text(listed, "name"), listed["step"], after(listed, "start_ns"), after(listed, "end_ns"), strict=True)) == [
        ("MatMulV3", 0, 20, 25),
        ("MatMulV3b", 0, 55, 62.5),
        ("Add", 1, 116, 118.25),
    ]
    assert after(listed, "launch_ns") == [5, 47, 111]
    assert listed["blocks"].to_list() == [20, 20, 20]
    assert listed["correlation"].to_list() == [1, 2, 3]
    ops = golden.ops
    assert ops is not None
    assert [(text(ops, "name")[op], ops["tid"][op]) for op in listed["op"]] == [
        ("aten::mm", MAIN),
        ("aten::mm", BACKWARD),
        ("aten::add", MAIN),
    ]


def test_shapes_of_kernels(golden_text: Trace) -> None:
    kernels = golden_text.kernels
    assert kernels is not None
    listed = kernels.filter(pl.col("kind").cast(pl.String) == "compute")
    assert text(listed, "input_shapes") == ["2,3;3,4"] * 3
    assert text(listed, "type") == text(listed, "name")


def test_connections_of_the_database(golden_db: Trace) -> None:
    """The launch of the collective lies in the dequeue of the backward call, like that of its kernel."""
    assert owners(golden_db) == {
        "MatMulV3": "aten::mm",
        "MatMulV3b": "aten::mm",
        "Add": "aten::add",
        "hcom_receive__123_0_1": "aten::mm",
    }
    communication, ops = golden_db.communication, golden_db.ops
    assert communication is not None
    assert ops is not None
    assert [ops["tid"][op] for op in communication["op"]] == [BACKWARD]


def test_groups_of_communication(golden: Trace) -> None:
    communication = golden.communication
    assert communication is not None
    named = communication.filter(pl.col("name").cast(pl.String).str.starts_with("hcom"))
    assert (text(named, "group"), text(named, "kind")) == (["g1"], ["receive"])


def test_the_id_0_of_the_text_launch_is_an_id(tmp_path: Path) -> None:
    trace = read_trace(write_golden(tmp_path, export="db", launch_id=0))
    assert owners(trace)["Add"] == "aten::add"
    assert operator_times(trace)["aten::mm", MAIN] == (16, 16, 5, 5)


def test_memory_of_operators(golden: Trace) -> None:
    rows = operator_memory(golden, ["NPU"])
    kb = (rows["bytes"] / 1024).to_list()
    length, active = ((rows[column] - rows["allocation_ns"]) / US for column in ("release_ns", "active_release_ns"))
    assert list(zip(text(rows, "name"), kb, length, active, text(rows, "component"), strict=True)) == [
        ("aten::mm", 2048.0, 14.5, 16.5, "PTA"),
        ("aten::mm", 0.5, None, None, "WORKSPACE"),
        ("cann::GeOp", 16.0, 2.5, None, "GE"),
        ("aten::add", 1.0, None, None, "PTA"),
    ]
    first = rows.row(0, named=True)
    assert (first["allocation_allocated"], first["release_allocated"], first["release_active"]) == (2 << 20, 0, 2 << 20)
    cpu = operator_memory(golden, ["CPU"])
    assert (text(cpu, "name"), cpu["bytes"].to_list()) == (["aten::add"], [4096])


def test_totals_of_the_graph_engine_and_the_process(golden_text: Trace) -> None:
    memory = golden_text.memory
    assert memory is not None
    rows = memory.filter(pl.col("component").cast(pl.String).is_in(["GE", "APP"])).sort("time_ns")
    assert list(zip(text(rows, "component"), after(rows, "time_ns"), rows["allocated"], rows["reserved"], strict=True)) == [
        ("APP", 9, None, 2 << 20),
        ("GE", 10, 1 << 20, 2 << 20),
    ]
    counters = golden_text.counters
    assert counters is not None
    module = counters.filter(pl.col("group").cast(pl.String) == "npu_module_mem")
    assert module.select(pl.col("name", "unit").cast(pl.String), "value", "device").rows() == [("APP", "KB", 4096.0, 0)]


def test_python_and_collections(golden: Trace) -> None:
    python, gc = golden.python, golden.gc
    assert python is not None
    assert gc is not None
    assert list(zip(python["id"], python["parent"], text(python, "name"), strict=True)) == [
        (0, None, "a.py(1): f"),
        (1, 0, "nn.Module: Linear_0"),
        (2, 1, "<built-in method x>"),
    ]
    assert (after(gc, "start_ns"), after(gc, "end_ns"), gc["pid"].to_list()) == ([80], [90], [PID])


def test_measured_communication(golden_text: Trace) -> None:
    times, matrix = golden_text.communication_times, golden_text.communication_matrix
    assert times is not None
    assert matrix is not None
    names = [text(times, column) for column in ("name", "group", "kind")]
    assert list(zip(*names, after(times, "start_ns"), times["elapse_ms"], strict=True)) == [
        ("hcom_allReduce__123_0_1", "g0", "collective", 22, 2.0),
        ("hcom_allReduce__123_1_1", "g0", "collective", 23, 1.0),
        ("hcom_receive__123_0_1", "g1", "p2p", 24, 1.0),
    ]
    links = matrix.select(pl.col("name").cast(pl.String), "source", "destination", "size_mb", "transit_ms", "bandwidth_gbps")
    assert links.rows() == [
        ("hcom_allReduce__123_0_1", 0, 1, 4, 0.5, 8),
        ("hcom_allReduce__123_0_1", 1, 0, 4, 0.25, 16),
        ("hcom_allReduce__123_1_1", 0, 1, 4, 0.25, 16),
        ("hcom_receive__123_0_1", 1, 0, 1, 0.5, 2),
    ]
    bandwidth = golden_text.communication_bandwidth
    assert bandwidth is not None
    used = bandwidth.filter(pl.col("package_mb").is_not_null())
    assert (
        used.select("size_mb", "transit_ms", "bandwidth_gbps", "package_mb", "count", "duration_ms").rows()
        == [(8, 0.5, 16, 8, 1, 0.5)] * 3
    )


def test_measured_communication_from_the_database(golden_db: Trace) -> None:
    times, matrix = golden_db.communication_times, golden_db.communication_matrix
    assert times is not None
    assert matrix is not None
    assert (text(times, "name"), times["transit_ms"].to_list()) == (
        ["hcom_allReduce__123_0_1", "hcom_receive__123_0_1"],
        [0.5, 0.25],
    )
    assert matrix.select("source", "destination", "bandwidth_gbps").rows() == [(0, 1, 8)]


def test_what_the_run_says_about_itself(golden: Trace) -> None:
    values = golden.meta_values()
    assert golden.rank == 0
    assert values["source_format"] == "ascend_raw"
    assert values["k"] == {"a": 1}
    assert (values["pid"], values["device_ids"], values["cann_version"]) == (PID, [0], "8.3.RC1")
    assert values["config"]["experimental_config"]["_profiler_level"] == "Level1"
    assert golden.has_accelerator


def test_reading_changes_nothing_on_disk(tmp_path: Path) -> None:
    for export in ("text", "db"):
        run = write_golden(tmp_path / export, export=export)
        before = snapshot(tmp_path)
        read_trace(run)
        assert snapshot(tmp_path) == before


# --- variants -------------------------------------------------------------------------------------------------------------


def test_without_a_task_queue(tmp_path: Path) -> None:
    """No call runs on the thread that launches, so nothing is guessed; the workspace has no name either."""
    trace = read_trace(write_golden(tmp_path, queue=False))
    assert set(owners(trace).values()) == {None}
    assert "kernels_without_operator" in checks(trace)
    rows = operator_memory(trace, ["NPU"])
    assert dict(zip(text(rows, "component"), text(rows, "name"), strict=True))["WORKSPACE"] is None


def test_launches_on_the_thread_of_the_operator(tmp_path: Path) -> None:
    ops = [fixture.op_range("aten::mm", ns(7), ns(60), tid=DEQUEUE), fixture.op_range("aten::add", ns(110), ns(120))]
    trace = read_trace(write_golden(tmp_path, ops=ops, queue=False))
    assert owners(trace) == {"MatMulV3": "aten::mm", "MatMulV3b": "aten::mm", "Add": None, "hcom_receive__123_0_1": None}


def test_interleaved_threads_give_right_self_times(tmp_path: Path) -> None:
    trace = read_trace(write_golden(tmp_path, ops=fixture.interleaved_ops()))
    times = operator_times(trace)
    assert times["A", MAIN] == (3, 8, 0, 5)
    assert times["B", BACKWARD] == (17, 17, 0, 0)
    assert times["C", MAIN] == (5, 5, 5, 5)
    assert times["D", MAIN] == (7, 7, 0, 0)
    assert operator_times(trace, on_ai_core=True) == times


def test_several_producers_of_one_queue_are_told_apart_by_id(tmp_path: Path) -> None:
    """The second enqueue is dequeued first: pairing by position would swap the operators."""
    ops = [fixture.op_range("first", ns(1), ns(7)), fixture.op_range("second", ns(1), ns(7), tid=BACKWARD)]
    queue = ((1, 2, MAIN, 48.5, 52), (2, 4, BACKWARD, 7, 9))
    marks = [
        fixture.op_mark(category, ns(us), number, f"op{number}", tid=tid)
        for number, enqueue, tid, begin, end in queue
        for category, us, tid in ((0, enqueue, tid), (1, enqueue + 1, tid), (2, begin, DEQUEUE), (3, end, DEQUEUE))
    ]
    run = write_golden(tmp_path, ops=ops)
    (run / "FRAMEWORK" / "torch.op_mark").write_bytes(b"".join(marks))
    found = owners(read_trace(run))
    assert (found["MatMulV3"], found["MatMulV3b"]) == ("second", "first")


def test_only_the_cpu(tmp_path: Path) -> None:
    trace = read_trace(write_golden(tmp_path, cpu_only=True))
    assert trace.kernels is None
    assert not trace.has_accelerator
    assert {times[2:] for times in operator_times(trace).values()} == {(0, 0)}
    assert operator_times(trace)["aten::linear", MAIN][:2] == (12, 28)
    assert "no_device_data" not in checks(trace)


@pytest.mark.parametrize("level", ["Level_none", "Level0", "Level1", "Level2"])
def test_every_level(tmp_path: Path, level: str) -> None:
    trace = read_trace(write_golden(tmp_path, level=level))
    assert trace.meta_values()["config"]["experimental_config"]["_profiler_level"] == level
    assert owners(trace)["Add"] == "aten::add"


def test_times_from_a_counter(tmp_path: Path) -> None:
    """A counter of 50 MHz, started elsewhere: everything lands where the golden capture has it."""

    def count(us: float) -> int:
        return 7_000 + round(us * 50)

    run = write_golden(tmp_path)
    started = {"syscnt_enable": True, "freq": 33, "start_cnt": 1, "start_monotonic": 1}
    fixture.write_json(run / "profiler_info_0.json", fixture.profiler_info(start_info=started))
    fixture.write_json(run / PROF_NAME / "host" / "info.json", {"CPU": [{"Frequency": "50.0"}]})
    (run / PROF_NAME / "host" / "host_start.log").write_text("[Host]\nclock_monotonic_raw: 0\ncntvct: 7000\n")
    records = [fixture.op_range("aten::mm", count(4), count(20)), fixture.op_range("aten::add", count(110), count(120))]
    marks = [
        fixture.op_mark(category, count(us), 1, "aclnnMm", tid=MAIN if category < 2 else DEQUEUE)
        for category, us in enumerate((5, 6, 7, 9))
    ]
    shutil.rmtree(run / "FRAMEWORK")
    fixture.write_framework(run, {"torch.op_range": records, "torch.op_mark": marks})
    trace = read_trace(run)
    assert after(trace.ops, "start_ns") == [4, 110]  # type: ignore[arg-type]
    assert owners(trace)["MatMulV3"] == "aten::mm"


# --- missing and damaged parts --------------------------------------------------------------------------------------------


def test_a_truncated_file_loses_its_last_record(tmp_path: Path) -> None:
    run = write_golden(tmp_path)
    fixture.cut(run / "FRAMEWORK" / "torch.op_range", 10)
    trace = read_trace(run)
    assert ("aten::add", MAIN) not in operator_times(trace)
    assert operator_times(trace)["aten::linear", MAIN] == (12, 28, 0, 5)
    lost = len(fixture.golden_ops()[-1]) - 10
    assert f"torch.op_range breaks off inside a record; its last {lost} bytes" in checks(trace)["truncated_file"]


def test_without_framework_data(tmp_path: Path) -> None:
    for export in ("text", "db"):
        trace = read_trace(write_golden(tmp_path / export, export=export, framework=False))
        assert trace.ops is None
        assert trace.kernels is not None
        assert "the CPU activity was recorded and FRAMEWORK holds no operator calls" in checks(trace)["no_framework_data"]


def test_a_prof_directory_alone(tmp_path: Path) -> None:
    run = write_golden(tmp_path, framework=False)
    trace = read_trace(run / PROF_NAME)
    assert trace.kernels is not None
    assert trace.kernels.height == 4
    assert "this is the device alone" in checks(trace)["no_framework_data"]


def test_garbage_collections_and_python_without_operators(tmp_path: Path) -> None:
    run = write_golden(tmp_path, cpu_only=True)
    (run / "FRAMEWORK" / "torch.op_range").unlink()
    (run / "FRAMEWORK" / "torch.op_mark").unlink()
    trace = read_trace(run)
    assert trace.gc is not None
    assert trace.python is not None
    assert "no_framework_data" in checks(trace)


def test_data_that_was_not_exported_names_the_command(tmp_path: Path) -> None:
    run = write_golden(tmp_path, exported=False)
    trace = read_trace(run)
    assert trace.kernels is None
    assert operator_times(trace)["aten::linear", MAIN] == (12, 28, 0, 0)
    assert f"`msprof --export=on --output={run / PROF_NAME}`" in checks(trace)["no_device_data"]


def test_msprof_runs_only_when_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{fixture.write_msprof(tmp_path / 'cann')}{os.pathsep}/usr/bin{os.pathsep}/bin")
    for export in ("text", "db"):
        run = write_golden(tmp_path / export, export=export, exported=False)
        before = snapshot(run)
        assert read_trace(run).kernels is None
        assert not (tmp_path / "cann" / "calls.txt").exists() or export == "db"
        assert snapshot(run) == before
        trace = read_trace(run, allow_msprof=True)
        assert owners(trace)["Add"] == "aten::add"
        assert trace.communication_times is not None
        assert "device data was exported by msprof --export=on" in checks(trace)["exported"]
        changed = {name for name in snapshot(run) if name not in before}
        assert {name.split("/")[0] for name in changed} == {"logs", PROF_NAME}


def test_an_exporter_that_is_done_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{fixture.write_msprof(tmp_path / 'cann', seconds=0.0)}{os.pathsep}/usr/bin{os.pathsep}/bin")
    trace = read_trace(write_golden(tmp_path, exported=False), allow_msprof=True)
    assert trace.kernels is not None
    assert "no_device_data" not in checks(trace)


def test_a_failed_export_leaves_the_framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{fixture.write_msprof(tmp_path / 'cann', returns=1)}{os.pathsep}/usr/bin{os.pathsep}/bin")
    trace = read_trace(write_golden(tmp_path, exported=False), allow_msprof=True)
    assert trace.ops is not None
    assert "failed with status 1" in checks(trace)["export_failed"]
    assert "no_device_data" in checks(trace)


def test_no_prof_directory_although_the_npu_was_recorded(tmp_path: Path) -> None:
    trace = read_trace(fixture.without_prof(write_golden(tmp_path)))
    assert trace.ops is not None
    assert "there is no PROF_* directory" in checks(trace)["no_device_data"]


def test_nothing_readable(tmp_path: Path) -> None:
    run = write_golden(tmp_path, framework=False, exported=False)
    with pytest.raises(InputError, match=r"holds no readable raw data\. Run `msprof --export=on"):
        read_trace(run)
    with pytest.raises(InputError, match=r"holds no readable raw data\. Record the run again"):
        read_trace(fixture.without_prof(run))


def test_without_profiler_info_the_clock_is_that_of_the_host_files(tmp_path: Path) -> None:
    run = write_golden(tmp_path)
    (run / "profiler_info_0.json").unlink()
    trace = read_trace(run)
    assert "profiler_info_<rank>.json is missing" in checks(trace)["missing_profiler_info"]
    assert operator_times(trace)["aten::mm", MAIN] == (16, 16, 5, 5)
    assert [row[-1] for row in step_rows(trace)] == [19.0, 15.999]


def test_without_any_clock_host_and_device_are_not_joined(tmp_path: Path) -> None:
    run = write_golden(tmp_path)
    (run / "profiler_info_0.json").unlink()
    (run / PROF_NAME / "host" / "start_info").unlink()
    trace = read_trace(run)
    assert trace.kernels is None
    assert operator_times(trace)["aten::linear", MAIN] == (12, 28, 0, 0)
    assert trace.ops is not None
    assert trace.ops["start_ns"].min() == 1000
    assert {"no_time_base", "device_data_left_out", "missing_profiler_info"} <= set(checks(trace))
    assert "no_device_data" not in checks(trace)


def test_memory_of_a_second_process_is_kept(tmp_path: Path) -> None:
    run = write_golden(tmp_path)
    more = [
        fixture.memory_usage(0x100, ns(5), 4096, pid=PID + 1, tid=7),
        fixture.memory_usage(0x100, ns(6), -4096, event=1, pid=PID + 1),
    ]
    path = run / "FRAMEWORK" / "torch.memory_usage"
    path.write_bytes(path.read_bytes() + b"".join(more))
    rows = operator_memory(read_trace(run), ["NPU"])
    assert sorted((rows["bytes"] / 1024).to_list()) == [0.5, 1.0, 4.0, 16.0, 2048.0]
    assert rows.filter(pl.col("bytes") == 4096)["release_ns"].to_list() == [OFF + 6000]


def test_every_component_of_memory_record_is_a_row(tmp_path: Path) -> None:
    run = write_golden(tmp_path)
    path = run / PROF_NAME / "mindstudio_profiler_output" / f"memory_record_{STAMP}.csv"
    with path.open("a", newline="") as handle:
        csv.writer(handle).writerow([0, "HCCL", fixture.at(11) + "\t", 1, 2, "NPU:0"])
    memory = read_trace(run).memory
    assert memory is not None
    rows = memory.filter(pl.col("component").cast(pl.String) == "HCCL")
    assert rows.select("allocated", "reserved").rows() == [(1024, 2048)]


def test_slices_are_joined_in_numeric_order(tmp_path: Path) -> None:
    """Eleven slices, the last one with a column of its own."""
    run = write_golden(tmp_path)
    folder = run / PROF_NAME / "mindstudio_profiler_output"
    (folder / f"op_summary_{STAMP}.csv").unlink()
    (folder / f"msprof_{STAMP}.json").unlink()
    kernels = [fixture.Kernel(number, f"Op{number}", number, 10 * number, 5, "AI_CORE") for number in range(11)]
    for number, kernel in enumerate(kernels):
        rows = [list(row) for row in fixture.golden_tables([kernel])["op_summary"]]
        if number == 10:
            rows = [[*rows[0], "cycles"], [*rows[1], 7.5]]
        fixture.write_csv(folder / f"op_summary_slice_{number}_{STAMP}.csv", rows)
        task = fixture.span(kernel.name, fixture.HARDWARE_PID, 2, kernel.start_us, 5, **{"Task Type": "AI_CORE"})
        fixture.write_json(folder / f"msprof_slice_{number}_{STAMP}.json", [*fixture.timeline_head(), task])
    trace = read_trace(run)
    kernels_found = trace.kernels
    assert kernels_found is not None
    assert text(kernels_found, "name") == [kernel.name for kernel in kernels]
    metrics = trace.kernel_metrics
    assert metrics is not None
    assert metrics.select("kernel", pl.col("name").cast(pl.String), "value").rows() == [(10, "cycles", 7.5)]


def test_an_older_export_beside_a_newer_one_is_not_read_twice(tmp_path: Path) -> None:
    run = write_golden(tmp_path)
    folder = run / PROF_NAME / "mindstudio_profiler_output"
    for path in list(folder.iterdir()):
        shutil.copy(path, folder / path.name.replace(STAMP, "20231115050000"))
    kernels = read_trace(run).kernels
    assert kernels is not None
    assert kernels.height == 4
    assert all(STAMP in file.name for file in sources(run) if file.parent == folder)


def test_several_prof_directories(tmp_path: Path) -> None:
    run = write_golden(tmp_path)
    shutil.copytree(run / PROF_NAME, run / PROF_NAME.replace("PROF_000001", "PROF_000002"))
    trace = read_trace(run)
    assert f"{PROF_NAME} was read" in checks(trace)["several_prof"]
    assert owners(trace)["Add"] == "aten::add"


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "cut timeline": (f"mindstudio_profiler_output/msprof_{STAMP}.json", lambda data: data[: len(data) // 2]),
    "no timeline": (f"mindstudio_profiler_output/msprof_{STAMP}.json", lambda data: b"\x00\xff" * 50),
    "empty timeline": (f"mindstudio_profiler_output/msprof_{STAMP}.json", lambda data: b""),
    "cut op_summary": (f"mindstudio_profiler_output/op_summary_{STAMP}.csv", lambda data: data[:-20]),
    "no op_summary": (
        f"mindstudio_profiler_output/op_summary_{STAMP}.csv",
        lambda data: data.replace(b"Op Name", b"\xff\xfe\x00"),
    ),
    "no communication": ("analyze/communication.json", lambda data: b"[1, 2"),
    "no matrix": ("analyze/communication_matrix.json", lambda data: b"null"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_export_leaves_the_rest(tmp_path: Path, case: str) -> None:
    run = write_golden(tmp_path)
    name, damage = DAMAGE[case]
    path = run / PROF_NAME / name
    path.write_bytes(damage(path.read_bytes()))
    trace = read_trace(run)
    assert operator_times(trace)["aten::linear", MAIN][:2] == (12, 28)
    findings = checks(trace)
    assert {"truncated_file", "unreadable_file", "damaged_events", "unknown_layout", "incomplete_rows"} & set(findings), findings


def test_a_damaged_database_leaves_the_framework(tmp_path: Path) -> None:
    run = write_golden(tmp_path, export="db")
    (run / PROF_NAME / f"msprof_{STAMP}.db").write_bytes(b"no database at all")
    trace = read_trace(run)
    assert operator_times(trace)["aten::linear", MAIN] == (12, 28, 0, 0)
    assert {"unreadable_file", "no_device_data"} <= set(checks(trace))


def test_text_stands_in_for_a_damaged_database(tmp_path: Path) -> None:
    run = write_golden(tmp_path)
    (run / PROF_NAME / f"msprof_{STAMP}.db").write_bytes(b"no database at all")
    trace = read_trace(run)
    assert owners(trace)["Add"] == "aten::add"
    assert "unreadable_file" in checks(trace)


def test_a_database_and_text_of_one_export_are_one_set_of_tasks(tmp_path: Path) -> None:
    run = write_golden(tmp_path)
    fixture.write_db_export(run / PROF_NAME)
    trace = read_trace(run)
    kernels = trace.kernels
    assert kernels is not None
    assert sorted(owners(trace)) == ["Add", "MatMulV3", "MatMulV3b", "hcom_receive__123_0_1"]
    # four tasks, one of them the collective's, and the collective itself
    assert kernels.height == 5
    assert text(kernels.filter(pl.col("name").cast(pl.String) == "Add"), "input_shapes") == ["2,3;3,4"]
    assert text(operator_memory(trace, ["NPU"]), "name").count("cann::GeOp") == 1


def test_damaged_side_files(tmp_path: Path) -> None:
    run = write_golden(tmp_path)
    for damaged in ("{", "[" * 200_000, "7"):
        (run / "profiler_metadata.json").write_text(damaged)
        trace = read_trace(run)
        assert "profiler_metadata.json" in checks(trace)["damaged_side_file"]
    (run / "profiler_info_0.json").write_text('{"config": 7, "start_info": [], "rank_id": "x"}')
    trace = read_trace(run)
    assert trace.rank == 0
    assert operator_times(trace)["aten::mm", MAIN] == (16, 16, 5, 5)


def test_links_out_of_the_run_are_not_followed(tmp_path: Path) -> None:
    outside = write_golden(tmp_path / "outside")
    run = write_golden(tmp_path / "run", exported=False)
    out = run / PROF_NAME / "mindstudio_profiler_output"
    out.symlink_to(outside / PROF_NAME / "mindstudio_profiler_output")
    (run / PROF_NAME / "analyze").mkdir()
    (run / PROF_NAME / "analyze" / "communication.json").symlink_to(outside / PROF_NAME / "analyze" / "communication.json")
    trace = read_trace(run)
    assert trace.kernels is None
    assert trace.communication_times is None


# --- sources and detection ------------------------------------------------------------------------------------------------


def test_every_file_that_matters_is_a_source(tmp_path: Path) -> None:
    run = write_golden(tmp_path)
    names = {str(path.relative_to(run)).removeprefix(f"{PROF_NAME}/") for path in sources(run)}
    assert names == {
        *(f"FRAMEWORK/{name}" for name in fixture.golden_framework()),
        f"mindstudio_profiler_output/msprof_{STAMP}.json",
        *(f"mindstudio_profiler_output/{kind}_{STAMP}.csv" for kind in fixture.golden_tables()),
        "analyze/communication.json",
        "analyze/communication_matrix.json",
        "host/start_info",
        "host/info.json",
        "profiler_info_0.json",
        "profiler_metadata.json",
    }
    assert sources(tmp_path / "nowhere") == []


def test_detection(tmp_path: Path) -> None:
    run = write_golden(tmp_path)
    assert raw_captures.READER.find_run(contents_of(run)) is not None
    assert raw_captures.READER.find_run(contents_of(run / PROF_NAME)) is not None
    assert raw_captures.READER.find_run(contents_of(tmp_path)) is None
    assert raw_captures.READER.find_run(contents_of(run / "profiler_info_0.json")) is None


def test_world_size_of_the_default_group(tmp_path: Path) -> None:
    run = write_golden(tmp_path)
    groups = {"g0": {"group_name": "default_group", "group_rank": 0, "global_ranks": [0, 1, 2, 3]}}
    (run / "profiler_metadata.json").write_text(json.dumps({"parallel_group_info": groups}))
    assert read_trace(run).meta_values()["world_size"] == 4
