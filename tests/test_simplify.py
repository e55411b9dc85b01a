"""Data simplification on the golden capture: what goes, what stays, and that the run can be analysed again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens import offline
from steplens.analysis.steps.ascend_step_times import ascend_step_times
from steplens.offline import settings
from steplens.offline.simplify import recorded_option, simplify
from steplens.readers import detect
from steplens.readers.ascend.capture.ascend_raw import read_trace
from steplens.readers.ascend.database import database_captures
from steplens.readers.ascend.msprof_command import export_device_data
from steplens.readers.ascend.text import text_captures
from steplens.run import open_run
from steplens.writers.exports.formats import FORMATS

from .readers.ascend_fixture import PROF_NAME, write_golden, write_msprof

WORKING = ("host/sqlite", "host/summary", "host/timeline", "device_0/sqlite", "device_0/summary", "device_0/timeline")
LOGS = ("mindstudio_profiler_log", "msprof_analysis_1.log")
EXPORTED = ("analyze", "mindstudio_profiler_output")


def fill(prof: Path) -> None:
    """What a run of msprof leaves beside the raw data."""
    for name in WORKING:
        (prof / name).mkdir(parents=True)
        (prof / name / "x.db").write_bytes(b"x" * 100)
    (prof / "mindstudio_profiler_log").mkdir()
    (prof / "msprof_analysis_1.log").write_text("log")
    for part in ("host", "device_0"):
        (prof / part / "data").mkdir(parents=True, exist_ok=True)
        (prof / part / "data" / "raw.slice_0").write_bytes(b"raw")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = write_golden(tmp_path / "result")
    fill(path / PROF_NAME)
    (path / "logs").mkdir()
    (path / "ASCEND_PROFILER_OUTPUT").mkdir()
    (path / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").write_text("[]")
    return path


@pytest.fixture
def cann(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """CANN's msprof on PATH."""
    folder = write_msprof(tmp_path / "cann")
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder


def content(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*")}


def set_option(run: Path, value: Any) -> None:
    file = run / "profiler_info_0.json"
    info = json.loads(file.read_text())
    info["config"]["experimental_config"]["_data_simplification"] = value
    file.write_text(json.dumps(info))


def table_sizes(run: Path) -> dict[str, int]:
    trace = read_trace(run, allow_msprof=True)
    return {name: trace.table(name).height for name in trace if name != "health"}


@pytest.mark.usefixtures("cann")
def test_everything_that_can_be_made_again_goes(run: Path) -> None:
    before, expected = content(run), table_sizes(run)
    set_option(run, True)
    done = simplify(run)
    gone = {f"{PROF_NAME}/{name}" for name in (*WORKING, *LOGS, *EXPORTED)}
    assert set(done.removed) == gone
    assert done.kept == []
    assert content(run) == {name for name in before if not any(name == top or name.startswith(f"{top}/") for top in gone)}
    for name in ("FRAMEWORK", "profiler_info_0.json", "profiler_metadata.json", "logs", "ASCEND_PROFILER_OUTPUT"):
        assert (run / name).exists()
    assert (run / PROF_NAME / "device_0" / "data" / "raw.slice_0").read_bytes() == b"raw"
    # a second time there is nothing left to do
    assert simplify(run).removed == []
    # and the analysis exports what it needs
    assert table_sizes(run) == expected


@pytest.mark.usefixtures("cann")
def test_without_the_option_only_working_databases_go(run: Path) -> None:
    set_option(run, False)
    assert set(simplify(run).removed) == {f"{PROF_NAME}/host/sqlite", f"{PROF_NAME}/device_0/sqlite"}
    assert table_sizes(run)["kernels"] > 0


def test_exported_data_stays_where_nothing_could_export_it_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    expected = table_sizes(run)
    done = simplify(run, True)
    assert set(done.removed) == {f"{PROF_NAME}/{name}" for name in (*WORKING, *LOGS)}
    assert len(done.kept) == 1
    assert "analyze, mindstudio_profiler_output" in done.kept[0] or "mindstudio_profiler_output, analyze" in done.kept[0]
    assert "msprof is not on PATH" in done.kept[0]
    assert table_sizes(run) == expected


@pytest.mark.usefixtures("cann")
def test_exported_data_stays_without_raw_data(run: Path) -> None:
    for file in (run / PROF_NAME).glob("*/data/*"):
        file.unlink()
    done = simplify(run, True)
    assert (run / PROF_NAME / "mindstudio_profiler_output").is_dir()
    assert "there is no raw device data" in done.kept[0]


@pytest.mark.usefixtures("cann")
def test_nothing_outside_the_run_is_touched(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links out of the run, and the folders of the same names in the current directory."""
    outside = tmp_path / "elsewhere"
    fill(outside)
    prof = run / PROF_NAME
    for name in ("host/sqlite", "mindstudio_profiler_output", "device_0"):
        path = prof / name
        path.rename(tmp_path / name.replace("/", "_"))
        path.symlink_to(outside)
    (run / "PROF_2_2_ABC").symlink_to(outside)
    monkeypatch.chdir(outside)
    before = content(outside)
    done = simplify(run, True)
    assert content(outside) == before
    assert (prof / "host" / "sqlite").is_symlink()
    assert not any("device_0" in name or name.endswith("host/sqlite") for name in done.removed)
    linked = tmp_path / "linked_ascend_pt"
    linked.symlink_to(run)
    assert simplify(linked, True).removed == []


def test_runs_that_have_nothing_to_lose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("host/sqlite", "device_0/summary"):
        (tmp_path / name).mkdir(parents=True)
    cpu_only = write_golden(tmp_path / "result", cpu_only=True)
    kineto = tmp_path / "kineto_ascend_pt"
    (kineto / "KINETO").mkdir(parents=True)
    (kineto / "KINETO" / "trace.json").write_text("{}")
    for path in (cpu_only, kineto):
        before = content(path)
        assert simplify(path, True).removed == []
        assert content(path) == before
    assert (tmp_path / "host" / "sqlite").is_dir() and (tmp_path / "device_0" / "summary").is_dir()


def test_a_recorded_cpu_run_keeps_everything(tmp_path: Path) -> None:
    """It consists of raw data, results and logs: of what the option asks to keep."""
    torch = pytest.importorskip("torch")
    with steplens.profile(
        on_trace_ready=steplens.tensorboard_trace_handler(str(tmp_path), analyse_flag=False),
        experimental_config=steplens._ExperimentalConfig(data_simplification=True),
    ):
        torch.randn(8, 8) @ torch.randn(8, 8)
    (run,) = tmp_path.iterdir()
    assert recorded_option(run) is True
    before = content(run)
    for options in ({}, {"force": True}):
        (done,) = steplens.analyse(run, **options)
        assert done.ok
        assert before <= content(run)
    assert {path.name for path in run.iterdir() if not path.name.startswith("profiler_")} == {
        "KINETO", "ASCEND_PROFILER_OUTPUT", "logs", ".steplens",
    }  # fmt: skip
    # what stays, and why, is said where the removals are
    size = sum(file.stat().st_size for file in (run / "KINETO").iterdir())
    logs = "".join(file.read_text() for file in (run / "logs").glob("*_analyse.log"))
    assert f"data simplification leaves KINETO ({size} bytes)" in logs


def test_a_cpu_run_whose_raw_data_the_user_deleted_is_read_from_its_results(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(64, 64)
    with steplens.profile(
        schedule=steplens.schedule(wait=0, warmup=0, active=2, repeat=1),
        on_trace_ready=steplens.tensorboard_trace_handler(str(tmp_path), analyse_flag=False),
        experimental_config=steplens._ExperimentalConfig(profiler_level=steplens.ProfilerLevel.Level1),
    ) as profiler:
        for _ in range(2):
            model(torch.randn(8, 64)).sum().backward()
            profiler.step()
    (run,) = tmp_path.iterdir()
    (done,) = steplens.analyse(run)
    assert done.ok

    def told() -> dict[str, Any]:
        trace = open_run(run).trace()
        calls = trace.required("ops").select(pl.col("name").cast(pl.String), "start_ns", "end_ns", "self_ns").sort(pl.all())
        steps = trace.required("steps").select("id", "start_ns", "end_ns").collect().rows()
        return {"steps": steps, "calls": calls.collect().rows(), "step times": ascend_step_times(trace).rows()}

    before = told()
    assert len(before["steps"]) == 2 and before["calls"]
    shutil.rmtree(run / "KINETO")
    assert detect.find_one(run).reader is text_captures.READER
    assert told() == before
    # and no figure of its files is said to contradict its events
    assert "contradicted_figures" not in steplens.open(run).health()["check"].to_list()


def test_without_a_recorded_option_nothing_goes(run: Path) -> None:
    set_option(run, True)
    assert recorded_option(run) is True
    set_option(run, "yes")
    assert recorded_option(run) is None
    assert simplify(run).removed == []
    (run / "profiler_info_0.json").unlink()
    assert recorded_option(run) is None
    assert simplify(run).removed == []


def results(run: Path) -> dict[str, bytes]:
    """The result files, but for the status with its wall times."""
    output = run / "ASCEND_PROFILER_OUTPUT"
    return {path.name: path.read_bytes() for path in output.iterdir() if path.name != "analyse_status.json"}


def answers(path: Path) -> dict[str, Any]:
    """What a user is told about a run, as far as both forms of results hold it.

    Neither holds allocations of the CPU, and the database none of the whole process (component APP).
    """
    trace = open_run(path).trace()
    kernels = trace.required("kernels").filter(pl.col("kind").cast(pl.String) == "compute").collect()
    memory = trace.required("memory").filter(pl.col("device_type").cast(pl.String) == "NPU")
    memory = memory.filter(pl.col("component").cast(pl.String) != "APP")
    return {
        "kernels": kernels.select("name", "start_ns", "end_ns", "step", "op").cast({"name": pl.String}).sort(pl.all()).rows(),
        "collectives": trace.required("communication").select("start_ns", "end_ns").sort(pl.all()).collect().rows(),
        "ops": trace.required("ops").select("start_ns", "end_ns", "device_self_ns").sort(pl.all()).collect().rows(),
        "steps": trace.required("steps").select("id", "start_ns", "end_ns").collect().rows(),
        "memory": memory.select("time_ns", "allocated", "reserved").sort(pl.all()).collect().rows(),
        "step times": ascend_step_times(trace).rows(),
    }


@pytest.fixture(params=["text", "db"])
def analysed(request: pytest.FixtureRequest, run: Path, cann: Path) -> tuple[Path, dict[str, bytes], dict[str, Any]]:
    """A run whose analysis has removed the exported device data; its results, and what it said before."""
    shutil.rmtree(run / "ASCEND_PROFILER_OUTPUT")
    if request.param == "db":
        for name in EXPORTED:
            shutil.rmtree(run / PROF_NAME / name)
        export_device_data(run, run / PROF_NAME, ["db"])
    before = answers(run)
    shutil.rmtree(run / ".steplens")
    set_option(run, True)
    file = run / "profiler_info_0.json"
    info = json.loads(file.read_text())
    info["config"]["experimental_config"]["_export_type"] = [request.param]
    file.write_text(json.dumps(info))
    (first,) = steplens.analyse(run)
    assert first.ok
    assert {path.name for path in (run / PROF_NAME).iterdir()} == {"host", "device_0"}
    assert not (run / PROF_NAME / "host" / "sqlite").exists()
    assert (run / PROF_NAME / "host" / "data" / "raw.slice_0").is_file()
    assert "data simplification removed" in next((run / "logs").glob("profiler_*_analyse.log")).read_text()
    files = results(run)
    assert len(files) > (8 if request.param == "text" else 2)
    return run, files, before


Analysed = tuple[Path, dict[str, bytes], dict[str, Any]]


def test_analysed_again_with_cann(analysed: Analysed) -> None:
    run, files, before = analysed
    # the results are complete; what is gone makes them no older
    (second,) = steplens.analyse(run)
    assert second.ok and second.already_complete and results(run) == files
    for options in ({"force": True}, {"recompute": True}):
        (again,) = steplens.analyse(run, **options)
        assert again.ok and not again.already_complete and not again.problem
        # exported for this, and removed again
        assert {path.name for path in (run / PROF_NAME).iterdir()} == {"host", "device_0"}
        if "step_trace_time.csv" in files:
            assert results(run) == files
        assert answers(run) == before


def test_opened_from_its_own_results_without_cann(analysed: Analysed, monkeypatch: pytest.MonkeyPatch) -> None:
    run, files, before = analysed
    monkeypatch.setenv("PATH", "/nonexistent")
    found = detect.find_one(run)
    assert found.reader is (text_captures.READER if "trace_view.json" in files else database_captures.READER)
    assert "CANN" in found.reason and "FRAMEWORK" in found.ignored
    assert answers(run) == before
    # the analysis of what cannot be exported leaves the results alone
    for options in ({}, {"force": True}, {"export_type": None, "force": True}):
        (again,) = steplens.analyse(run, **options)
        assert again.ok and again.already_complete
        assert ("data simplification" in again.note) == ("force" in options)
        assert results(run) == files
    assert answers(run) == before
    # results of an older version, too: they are all that there is
    monkeypatch.setattr(settings, "RESULT_VERSION", settings.RESULT_VERSION + 1)
    (older,) = steplens.analyse(run)
    assert older.ok and older.already_complete and "stay as they are" in older.note
    assert results(run) == files


@pytest.mark.parametrize("to", FORMATS)
def test_exported_from_its_own_results(analysed: Analysed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str) -> None:
    run, files, _ = analysed
    monkeypatch.setenv("PATH", "/nonexistent")
    name = "out_ascend_pt" if FORMATS[to].is_run else f"out{FORMATS[to].suffix}"
    (written,) = steplens.export(run, to, tmp_path / "exported" / name)
    assert written.exists()
    if to == "text" and "kernel_details.csv" in files:
        for name in ("kernel_details.csv", "step_trace_time.csv", "op_statistic.csv"):
            assert results(written)[name] == files[name]


def test_results_of_the_other_form_need_cann_or_a_folder(
    analysed: Analysed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, files, before = analysed
    monkeypatch.setenv("PATH", "/nonexistent")
    with_text = "trace_view.json" in files
    if with_text:
        # text results have the databases beside them
        assert steplens.analyse(run, export_type="db", force=True)[0].ok
    else:
        (refused,) = steplens.analyse(run, export_type="text", force=True)
        assert not refused.ok and offline.exit_code([refused]) == 2
        assert "has no complete text results" in refused.problem and "--out " in refused.problem
    assert results(run) == files
    (done,) = steplens.analyse(run, export_type=["text", "db"], output=tmp_path / "new")
    assert done.ok and done.written_to is not None
    assert answers(done.written_to) == before
    assert results(run) == files
    if with_text:
        # the same cells, though the timeline may list its events in another order
        for name in ("step_trace_time.csv", "kernel_details.csv", "operator_details.csv", "memory_record.csv"):
            assert results(done.written_to)[name] == files[name]
        assert all(item.equal == item.cells and not item.problem for item in done.comparison)


def test_a_failing_export_takes_no_results_away(analysed: Analysed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, files, before = analysed
    monkeypatch.setenv("PATH", str(write_msprof(tmp_path / "damaged", returns=1)), prepend=":")
    (again,) = steplens.analyse(run, force=True)
    assert not again.ok and "has not been exported" in again.problem and "stay as they are" in again.problem
    assert results(run) == files
    assert answers(run) == before


def test_incomplete_results_lose_nothing(run: Path, cann: Path) -> None:
    """What failed may need the exported data again."""
    shutil.rmtree(run / "ASCEND_PROFILER_OUTPUT")
    set_option(run, True)
    blocked = run / "ASCEND_PROFILER_OUTPUT" / "op_statistic.csv"
    blocked.mkdir(parents=True)
    (result,) = steplens.analyse(run)
    assert not result.ok
    assert (run / PROF_NAME / "mindstudio_profiler_output").is_dir() and (run / PROF_NAME / "host" / "sqlite").is_dir()
