"""A number that no column holds is damage: it counts as unknown and is reported, and costs neither its file nor the others."""

from __future__ import annotations

import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import steplens
from steplens.cli.main import app, main
from steplens.common.errors import DefectError, InputError
from steplens.readers.kineto import kineto_captures
from steplens.readers.mindspore.results import mindspore_cluster
from steplens.run import Run
from steplens.trace.health import HealthLog

from ..shared_data import shared

OUTPUT = "ASCEND_PROFILER_OUTPUT"


def events(at_us: float) -> list[dict[str, Any]]:
    call = {"ph": "X", "pid": 1, "tid": 1, "ts": at_us + 10, "dur": 50, "cat": "cpu_op", "name": "aten::mm", "args": {}}
    step = {"ph": "X", "pid": 1, "tid": 1, "ts": at_us, "dur": 100, "cat": "user_annotation", "name": "ProfilerStep#0"}
    launch = {**call, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": 9}}
    members = {"device": 0, "stream": 9, "correlation": 9, "Collective name": "allreduce", "Process Group Name": "0"}
    reduce = {"ph": "X", "pid": 0, "tid": 9, "ts": at_us + 70, "dur": 20, "cat": "kernel", "args": members}
    return [step, call, launch, {**reduce, "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL"}]


def write_kineto(path: Path, at_us: float, **members: Any) -> None:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events(at_us), **members}))


def damage(run: Run, check: str) -> dict[str, Any]:
    found = run.health().filter(pl.col("check") == check)
    assert found.height == 1, run.health()["check", "message"].rows()
    return found.row(0, named=True)


def ask_everything(path: Path) -> None:
    shown = CliRunner().invoke(app, ["summary", str(path)])
    assert (shown.exception, shown.exit_code) == (None, 0), shown.output


@pytest.mark.parametrize(("rank", "in_description"), [(1 << 31, True), (1 << 63, False), (1 << 70, True), (-2, True)])
def test_a_rank_that_no_job_has_is_unknown(tmp_path: Path, rank: int, in_description: bool) -> None:
    told = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}} if in_description else {"rank": rank}
    write_kineto(tmp_path / "bad.json", 1000, **told)
    write_kineto(tmp_path / "good.json", 9e6, distributedInfo={"backend": "nccl", "rank": 1, "world_size": 2})
    run = steplens.open(tmp_path)
    assert [trace.rank for trace in run.traces] == [-1, 1] and not run.unreadable
    finding = damage(run, "damaged_header")
    assert str(rank) in finding["message"] and finding["source"].endswith("bad.json")
    assert finding["unsafe"] == "comparison of ranks, options of the run"
    assert sorted(run.communication_operations()["rank"].unique()) == [-1, 1]
    ask_everything(tmp_path)


def test_minus_one_is_what_sources_write_that_do_not_know_their_rank(tmp_path: Path) -> None:
    write_kineto(tmp_path / "trace.json", 1000, distributedInfo={"backend": "nccl", "rank": -1, "world_size": 2})
    run = steplens.open(tmp_path)
    assert run.traces[0].rank == -1 and "damaged_header" not in run.health()["check"].to_list()


@pytest.mark.parametrize("size", [1 << 31, -5])
def test_a_number_of_ranks_that_no_job_has_is_unknown(tmp_path: Path, size: int) -> None:
    groups = [{"pg_name": "0", "pg_size": size}]
    info = {"backend": "nccl", "rank": 0, "world_size": size, "pg_config": groups}
    write_kineto(tmp_path / "trace.json", 1000, distributedInfo=info)
    run = steplens.open(tmp_path)
    assert str(size) in damage(run, "damaged_header")["message"]
    (trace,) = run.traces
    assert "world_size" not in trace.meta_values() and trace.communication is not None
    assert trace.communication["ranks"].to_list() == [None]
    ask_everything(tmp_path)


def test_a_rank_of_ascend_that_no_job_has_is_unknown(tmp_path: Path) -> None:
    run_directory = tmp_path / "run"
    shutil.copytree(shared("ascend_pytorch", "text_level1", "rank0_ascend_pt"), run_directory, copy_function=shutil.copyfile)
    info = run_directory / "profiler_info_0.json"
    info.write_text(json.dumps({**json.loads(info.read_text()), "rank_id": 1 << 70}))
    run = steplens.open(run_directory)
    assert run.traces[0].recorded_rank == -1
    assert str(1 << 70) in damage(run, "damaged_header")["message"]
    ask_everything(run_directory)


@pytest.mark.parametrize("cell", ["nan", "inf", "-inf", "1e30", "9e18", "4.7e12"])
def test_a_time_of_mindspore_that_is_none_is_missing(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "ascend_cluster_analyse_model-parallel_1_2_0.csv"
    path.write_text(f"computation_time,communication_alone_time\n1.5,{cell}\n2.5,0.5\n2,0.5\n")
    health = HealthLog()
    frame = mindspore_cluster.read_cluster(path, health)
    assert frame["communication_alone_time"].to_list() == [None, 0.5, 0.5]
    assert frame["computation_time"].to_list() == [1.5, 2.5, 2.0]
    (found,) = health.findings
    assert (found.check, found.count, found.unsafe) == ("damaged_values", 1, "device time of steps")
    assert path.name in found.message and "(communication_alone_time)" in found.message


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["nan", "9e18"])
def test_a_capture_with_a_time_that_is_none(tmp_path: Path, cell: str) -> None:
    folder = tmp_path / "profiler"
    shutil.copytree(shared("mindspore", "cluster_propose"), folder, copy_function=shutil.copyfile)
    file = folder / "ascend_cluster_analyse_pipeline-parallel_2_4_0.csv"
    lines = file.read_text().splitlines()
    before = steplens.open(folder).cluster_steps()
    cells = lines[1].split(",")
    lines[1] = ",".join([*cells[:-1], cell])
    file.write_text("\n".join(lines) + "\n")
    run = steplens.open(folder)
    finding = damage(run, "damaged_values")
    assert file.name in finding["message"] and finding["count"] == 1 and finding["unsafe"] == "device time of steps"
    after = run.cluster_steps()
    lost = [name for name in after.columns if after[name].null_count() > before[name].null_count()]
    assert len(lost) == 1 and after.drop(lost).equals(before.drop(lost))
    ask_everything(folder)


@pytest.mark.parametrize("elapsed", ["9.3e12", "-1e19"])
def test_a_length_of_communication_that_is_none_is_missing(tmp_path: Path, elapsed: str) -> None:
    output = tmp_path / "rank1_ascend_pt" / OUTPUT
    output.mkdir(parents=True)
    for name in ("step_trace_time.csv", "communication.json"):
        shutil.copyfile(shared("ascend_pytorch", "text_level1", "rank0_ascend_pt") / OUTPUT / name, output / name)
    times = output / "communication.json"
    times.write_text(re.sub(r'("Elapse Time\(ms\)"\s*:\s*)[-\d.e]+', rf"\g<1>{elapsed}", times.read_text(), count=1))
    run = steplens.open(tmp_path)
    finding = damage(run, "damaged_values")
    assert "communication.json" in finding["message"] and finding["count"] == 1
    assert finding["unsafe"] == "communication times"
    ask_everything(tmp_path)


# --- what nobody foresaw


@pytest.fixture
def defective(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two good traces, the first of which a reader fails on."""
    write_kineto(tmp_path / "bad.json", 1000)
    write_kineto(tmp_path / "good.json", 9e6)
    read = kineto_captures.READER.read

    def fail(path: Path, *, allow_msprof: bool) -> Any:
        if path.name == "bad.json":
            raise ZeroDivisionError("nobody\nforesaw this")
        return read(path, allow_msprof=allow_msprof)

    monkeypatch.setattr(kineto_captures.READER, "read", fail)
    return tmp_path


def test_a_defect_costs_one_file(defective: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "steplens"):
        run = steplens.open(defective)
    assert [source.path.name for source in run.sources] == ["good.json"]
    (error,) = run.unreadable
    assert isinstance(error, DefectError) and error.path.name == "bad.json"
    assert error.problem == "could not be read: ZeroDivisionError: nobody foresaw this; this is a defect of steplens"
    assert damage(run, "unreadable")["message"] == error.problem
    (record,) = [record for record in caplog.records if record.name == "steplens.readers"]
    assert record.exc_info is not None and record.exc_info[0] is ZeroDivisionError


def test_a_defect_is_one_sentence_where_nothing_else_can_be_read(defective: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for path in (defective / "bad.json", defective):
        (defective / "good.json").unlink(missing_ok=True)
        assert main(["summary", str(path)]) == 2
        told = capfd.readouterr().err
        assert "this is a defect of steplens. Please report it" in told and "Traceback" not in told


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_what_ends_a_program_is_no_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    write_kineto(tmp_path / "trace.json", 1000)

    def fail(path: Path, *, allow_msprof: bool) -> Any:
        raise error

    monkeypatch.setattr(kineto_captures.READER, "read", fail)
    with pytest.raises(error):
        steplens.open(tmp_path)


def test_a_disk_that_fails_costs_one_file(defective: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, *, allow_msprof: bool) -> Any:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(kineto_captures.READER, "read", fail)
    with pytest.raises(InputError, match="none can be read; the first: cannot be read"):
        steplens.open(defective)
