"""Offline analysis of run directories: what is due, what happens to what fails, and what is left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import steplens
from steplens import offline
from steplens.common import rundir
from steplens.common.errors import InputError
from steplens.offline import processes
from steplens.offline.__main__ import main as command_line
from steplens.writers import result
from steplens.writers.common.output import TIME_BASE_UNIT_NS, NothingToWriteError, Output
from steplens.writers.result import OutputFile, Settings, write_result
from steplens.writers.tables import kernel_details

from .readers import ascend_fixture
from .writers.builder import BASE_NS, training_step

US = 1000


def kineto_trace() -> dict[str, Any]:
    """What Kineto writes for one step of two operators, an allocation and its release."""
    common = {"ph": "X", "pid": 1000, "tid": 1001}
    base = (BASE_NS + 5_000_000) // US
    events = [
        {**common, "cat": "user_annotation", "name": "ProfilerStep#3", "ts": base, "dur": 100.0, "args": {"External id": 1}},
        {**common, "cat": "cpu_op", "name": "aten::linear", "ts": base + 2, "dur": 40.0, "args": {"External id": 2}},
        {**common, "cat": "cpu_op", "name": "aten::mm", "ts": base + 4, "dur": 30.5, "args": {"External id": 3}},
    ]
    for at, size in ((5, 4096), (20, -4096)):
        args = {
            "Device Type": 0,
            "Device Id": -1,
            "Addr": 64,
            "Bytes": size,
            "Total Allocated": max(size, 0),
            "Total Reserved": 0,
        }
        instant = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1000, "tid": 1001}
        events.append({**instant, "ts": base + at, "args": args})
    return {"schemaVersion": 1, "traceEvents": events}


def info(level: str = "Level1", **common: Any) -> dict[str, Any]:
    defaults = {"activities": ["ProfilerActivity.CPU"], "profile_memory": True}
    experimental = {"_profiler_level": level, "_export_type": ["text"]}
    return {"config": {"common_config": {**defaults, **common}, "experimental_config": experimental}, "rank_id": 0}


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str = "host_1000_20240101000000000_ascend_pt", settings: dict[str, Any] | None = None) -> Path:
        path = tmp_path / "result" / name
        (path / rundir.RAW_DIRECTORY).mkdir(parents=True)
        (path / rundir.RAW_DIRECTORY / rundir.RAW_TRACE).write_text(json.dumps(kineto_trace()))
        (path / rundir.RAW_DIRECTORY / rundir.STATE_FILE).write_text(json.dumps({"state": rundir.STATE_COLLECTED, "pid": 1000}))
        (path / "profiler_info_0.json").write_text(json.dumps(info() if settings is None else settings))
        return path

    return make


def lose(path: Path) -> None:
    """Leave of a run what a kill while its window was open leaves."""
    (path / rundir.RAW_DIRECTORY / rundir.RAW_TRACE).unlink()
    state = {"state": rundir.STATE_RECORDING, "pid": 1000, "first_step": 8}
    (path / rundir.RAW_DIRECTORY / rundir.STATE_FILE).write_text(json.dumps(state))


def written(path: Path) -> set[str]:
    return {file.name for file in (path / rundir.OUTPUT_DIRECTORY).iterdir()}


def status(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((path / rundir.OUTPUT_DIRECTORY / rundir.STATUS_FILE).read_bytes())
    return value


DATABASE = "ascend_pytorch_profiler_0.db"
ALWAYS = {"trace_view.json", "operator_details.csv", DATABASE, rundir.STATUS_FILE, rundir.COMPLETION_MARKER}
MEMORY = {"memory_record.csv", "operator_memory.csv"}
DEVICE = {"kernel_details.csv", "step_trace_time.csv", "analysis.db"}
DETAILED = {"op_statistic.csv", "api_statistic.csv"}


@pytest.mark.parametrize(
    ("level", "memory", "expected"),
    [
        ("Level_none", True, ALWAYS | MEMORY),
        ("Level_none", False, ALWAYS),
        ("Level0", True, ALWAYS | MEMORY | DEVICE),
        ("Level0", False, ALWAYS | DEVICE),
        ("Level1", True, ALWAYS | MEMORY | DEVICE | DETAILED),
        ("Level2", False, ALWAYS | DEVICE | DETAILED),
    ],
)
def test_the_files_of_each_level(make_run: Callable[..., Path], level: str, memory: bool, expected: set[str]) -> None:
    path = make_run(settings=info(level, profile_memory=memory))
    (found,) = offline.analyse(path)
    assert found.ok
    assert written(path) == expected
    if not memory:
        assert status(path)["outputs"]["memory_record.csv"]["reason"] == "profile_memory was off"


def test_a_run_without_the_cpu_activity_has_no_operator_details(make_run: Callable[..., Path]) -> None:
    path = make_run(settings=info(activities=["ProfilerActivity.NPU"]))
    offline.analyse(path)
    assert "CPU activity" in status(path)["outputs"]["operator_details.csv"]["reason"]


def test_modes_and_time_base(make_run: Callable[..., Path]) -> None:
    path = make_run()
    (path / rundir.METADATA_FILE).write_text('{"mine": [1]}')
    before = os.umask(0o077)
    try:
        offline.analyse(path)
    finally:
        os.umask(before)
    folder = path / rundir.OUTPUT_DIRECTORY
    assert folder.stat().st_mode & 0o777 == 0o750
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o640}
    assert (folder / rundir.COMPLETION_MARKER).read_bytes() == b""
    assert json.loads((path / rundir.METADATA_FILE).read_bytes()) == {"mine": [1], "base_time_ns": BASE_NS}
    assert BASE_NS % TIME_BASE_UNIT_NS == 0
    assert json.loads((folder / "trace_view.json").read_bytes())[0]["args"]["base_time_ns"] == BASE_NS


def test_damaged_metadata_is_left_alone(make_run: Callable[..., Path]) -> None:
    path = make_run()
    (path / rundir.METADATA_FILE).write_text("{damaged")
    assert offline.analyse(path)[0].ok
    assert (path / rundir.METADATA_FILE).read_text() == "{damaged"


@pytest.mark.parametrize("error", [RuntimeError("disk\nfull"), MemoryError(), OSError(28, "No space left on device")])
def test_one_failing_output_neither_hides_nor_removes_another(tmp_path: Path, error: Exception) -> None:
    def broken(output: Output, path: Path) -> None:
        path.write_text("half of a")
        raise error

    def absent(output: Output, path: Path) -> None:
        path.write_text("half of a")
        raise NothingToWriteError("nothing was recorded")

    folder = rundir.make_directory(tmp_path / rundir.OUTPUT_DIRECTORY)
    for stale in ("broken.csv", "not_due.csv", rundir.COMPLETION_MARKER):
        (folder / stale).write_text("from an older analysis")
    files = [
        OutputFile("broken.csv", broken, ("Level0",)),
        OutputFile("absent.csv", absent, ("Level0",)),
        OutputFile("not_due.csv", broken, ("Level2",)),
        OutputFile("kernel_details.csv", kernel_details.write, ("Level0",)),
    ]
    failures: list[str] = []
    found = write_result(training_step(), tmp_path, Settings(), files=files, on_failure=lambda name, _: failures.append(name))
    assert {name: entry.status for name, entry in found.items()} == {
        "broken.csv": "failed",
        "absent.csv": "skipped",
        "not_due.csv": "skipped",
        "kernel_details.csv": "done",
    }
    assert failures == ["broken.csv"]
    assert "\n" not in found["broken.csv"].reason
    assert type(error).__name__ in found["broken.csv"].reason
    assert {file.name for file in folder.iterdir()} == {"kernel_details.csv", rundir.STATUS_FILE}
    assert status(tmp_path)["complete"] is False


def test_a_failed_output_is_said_and_logged(
    make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(output: Output, path: Path) -> None:
        raise RuntimeError("no way")

    files = (OutputFile("broken.csv", broken, ("Level1",)), *result.OUTPUT_FILES)
    monkeypatch.setattr(write_result, "__kwdefaults__", {**(write_result.__kwdefaults__ or {}), "files": files})
    path = make_run()
    (found,) = offline.analyse(path)
    assert not found.ok
    assert rundir.COMPLETION_MARKER not in written(path)
    assert "trace_view.json" in written(path)
    assert "broken.csv was not written: RuntimeError: no way" in capsys.readouterr().err
    assert offline.exit_code([found]) == 3
    (log,) = (path / rundir.LOG_DIRECTORY).iterdir()
    lines = log.read_text().splitlines()
    assert str(path) in lines[0]
    assert log.name.startswith("profiler_")
    assert any("Traceback" in line for line in lines)


def test_a_complete_run_is_left_alone(make_run: Callable[..., Path]) -> None:
    path = make_run()
    marker = path / rundir.OUTPUT_DIRECTORY / rundir.COMPLETION_MARKER

    def analysed_again(**options: Any) -> bool:
        (found,) = offline.analyse(path, **options)
        assert found.ok
        return not found.already_complete

    assert analysed_again()
    assert not analysed_again()
    assert analysed_again(force=True)
    # later than the result by the least there is: "now" may be the very time of the result, as file systems count
    later = marker.stat().st_mtime_ns + 1
    os.utime(path / rundir.RAW_DIRECTORY / rundir.RAW_TRACE, ns=(later, later))
    assert analysed_again()
    (path / rundir.OUTPUT_DIRECTORY / "kernel_details.csv").unlink()
    assert analysed_again()
    status_file = path / rundir.OUTPUT_DIRECTORY / rundir.STATUS_FILE
    status_file.write_text(status_file.read_text().replace("Level1", "Level0"))
    assert analysed_again()
    marker.unlink()
    assert analysed_again()
    assert not analysed_again()


def test_a_killed_window_does_not_keep_the_others_back(
    make_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost, whole = make_run("a_1_20240101000000000_ascend_pt"), make_run("b_1_20240101000000001_ascend_pt")
    offline.analyse(lost)
    lose(lost)
    results = offline.analyse(tmp_path / "result", max_process_number=1)
    assert [entry.ok for entry in results] == [False, True]
    assert [finding.check for finding in results[0].findings] == ["window_lost"]
    assert rundir.COMPLETION_MARKER not in written(lost)
    assert status(lost)["health"][0]["severity"] == "error"
    assert "step 8" in status(lost)["problem"]
    assert "step 8" in capsys.readouterr().err
    assert rundir.COMPLETION_MARKER in written(whole)
    assert offline.exit_code(results) == 3
    assert offline.exit_code(results[:1]) == 2


@pytest.mark.parametrize("later", ["killed", "empty", "truncated", "no file"])
def test_a_later_window_takes_nothing_from_finished_results(make_run: Callable[..., Path], tmp_path: Path, later: str) -> None:
    """Every window has a run directory of its own: what is wrong with a later one is said, and the finished one stays."""
    finished = make_run("a_1_20240101000000000_ascend_pt")
    assert offline.analyse(finished)[0].ok
    output = finished / rundir.OUTPUT_DIRECTORY
    files = {path: path.read_bytes() for path in output.iterdir()}
    steps = steplens.open(finished).steps()
    broken = make_run("b_1_20240101000000001_ascend_pt")
    raw = broken / rundir.RAW_DIRECTORY / rundir.RAW_TRACE
    if later == "killed":
        lose(broken)
    elif later == "no file":
        raw.unlink()
    else:
        raw.write_bytes(b"" if later == "empty" else raw.read_bytes()[:200])
    opened = steplens.open(tmp_path / "result")
    assert opened.sources[0].path == finished and opened.traces[0].required("steps").collect().height == steps.height
    assert all(broken in (error.path, *error.path.parents) for error in opened.unreadable)
    assert len(opened.unreadable) + len(opened.traces) == 2
    results = {entry.path: entry for entry in offline.analyse(tmp_path / "result", max_process_number=1)}
    assert results[finished].ok and results[finished].already_complete
    assert results[broken].problem or results[broken].findings
    assert {path: path.read_bytes() for path in output.iterdir()} == files
    assert steplens.open(finished).steps().equals(steps)


def test_a_damaged_trace_is_one_line(make_run: Callable[..., Path]) -> None:
    path = make_run()
    (path / rundir.RAW_DIRECTORY / rundir.RAW_TRACE).write_bytes(b"\x00\xff not json")
    (found,) = offline.analyse(path)
    assert not found.ok
    assert found.problem
    assert "\n" not in found.problem


def test_missing_profiler_info_is_said_in_the_status(make_run: Callable[..., Path]) -> None:
    path = make_run()
    (path / "profiler_info_0.json").unlink()
    assert offline.analyse(path)[0].ok
    assert written(path) == {name.replace("_0.db", ".db") for name in ALWAYS | MEMORY | DEVICE}
    assert "profiler_info.json is missing" in status(path)["notes"][0]


@pytest.mark.parametrize("content", ["[]", "{}", '{"config": 3}', '{"config": {"common_config": {"activities": 7}}}', "\x00"])
def test_strange_profiler_info_means_level0(make_run: Callable[..., Path], content: str) -> None:
    path = make_run()
    (path / "profiler_info_0.json").write_text(content)
    settings, exports = offline.read_settings(path)
    assert settings.level == "Level0"
    assert exports == ["text"]
    assert "profiler_info_0.json" in settings.notes[0]


def test_text_has_the_databases_beside_it_and_db_is_databases_alone(make_run: Callable[..., Path]) -> None:
    path = make_run()
    folder = path / rundir.OUTPUT_DIRECTORY
    databases = {DATABASE, "analysis.db"}
    (recorded,) = offline.analyse(path)
    assert recorded.ok
    assert databases <= {file.name for file in folder.iterdir()}
    assert (folder / "trace_view.json").is_file()
    assert offline.analyse(path, export_type="text")[0].already_complete
    assert offline.analyse(path, export_type=["db", "text"])[0].already_complete
    (only,) = offline.analyse(path, export_type="db")
    assert not only.already_complete
    assert {name for name, status in only.outputs.items() if status.status == "done"} == databases
    assert {file.name for file in folder.iterdir()} == {*databases, rundir.COMPLETION_MARKER, rundir.STATUS_FILE}


def test_device_data_that_only_cann_can_read_leaves_the_result_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    path = ascend_fixture.write_golden(tmp_path, exported=False)
    folder = path / rundir.OUTPUT_DIRECTORY
    (found,) = offline.analyse(path)
    assert not found.ok
    assert found.outputs["operator_details.csv"].status == "done"
    assert found.outputs["kernel_details.csv"].status == "skipped"
    assert any("msprof --export=on" in finding.message for finding in found.findings)
    assert "not been exported" in json.loads((folder / rundir.STATUS_FILE).read_text())["missing"]
    assert not (folder / rundir.COMPLETION_MARKER).exists()
    monkeypatch.setenv("PATH", f"{ascend_fixture.write_msprof(tmp_path / 'cann')}:{os.environ['PATH']}:/usr/bin:/bin")
    (again,) = offline.analyse(path)
    assert again.ok, again
    assert again.outputs["kernel_details.csv"].status == "done"
    assert (folder / rundir.COMPLETION_MARKER).exists()


def test_results_of_another_profiler_stay_as_they_are(make_run: Callable[..., Path], tmp_path: Path) -> None:
    path = make_run()
    folder = path / rundir.OUTPUT_DIRECTORY
    folder.mkdir()
    (folder / "trace_view.json").write_text("[]")
    (found,) = offline.analyse(path, force=True)
    assert found.ok
    assert "another analysis" in found.note
    assert [file.name for file in folder.iterdir()] == ["trace_view.json"]
    (again,) = offline.analyse(path, recompute=True, output=tmp_path / "again")
    assert again.written_to == tmp_path / "again" / path.name
    assert len((folder / "trace_view.json").read_text()) == 2


def test_more_processes_than_cores_are_all_cores(capsys: pytest.CaptureFixture[str]) -> None:
    cores = os.cpu_count() or 1
    assert [processes.process_number(value) for value in (10**6, cores + 1, cores, 1)] == [cores, cores, cores, 1]
    assert processes.process_number(None) == processes.process_number(0) == max(cores // 2, 1)
    assert "max_process_number 0" in capsys.readouterr().err


@pytest.mark.parametrize("value", [0, -1, 2.0, "2", True])
def test_a_wrong_process_number_is_reset(value: Any, make_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert offline.analyse(make_run(), max_process_number=value)[0].ok
    assert "max_process_number" in capsys.readouterr().err


def test_a_wrong_export_type_is_reset(make_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert offline.analyse(make_run(), export_type="excel")[0].ok
    assert "excel" in capsys.readouterr().err


def test_unusable_paths(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        offline.analyse(tmp_path / "nothing")
    with pytest.raises(InputError, match="holds no run"):
        offline.analyse(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="trace file"):
        offline.analyse(tmp_path / "file")


@pytest.mark.parametrize("name", [rundir.OUTPUT_DIRECTORY, rundir.LOG_DIRECTORY])
def test_a_link_in_place_of_a_folder_is_refused(make_run: Callable[..., Path], tmp_path: Path, name: str) -> None:
    path = make_run()
    (tmp_path / "elsewhere").mkdir()
    (path / name).symlink_to(tmp_path / "elsewhere")
    (found,) = offline.analyse(path)
    assert "Remove it" in found.problem
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_several_runs_in_several_processes(
    make_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [make_run(f"w{number}_1_2024010100000000{number}_ascend_pt") for number in range(3)]
    lose(paths[1])
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    results = offline.analyse(tmp_path / "result", max_process_number=2)
    assert [entry.path for entry in results] == paths
    assert [entry.ok for entry in results] == [True, False, True]
    pids = {log.name.split("_")[2] for path in paths for log in (path / rundir.LOG_DIRECTORY).iterdir()}
    assert str(os.getpid()) not in pids


def test_a_script_without_a_main_guard_still_gets_its_results(make_run: Callable[..., Path], tmp_path: Path) -> None:
    paths = [make_run(f"w{number}_1_2024010100000000{number}_ascend_pt") for number in range(2)]
    script = tmp_path / "script.py"
    script.write_text(
        "import os; os.cpu_count = lambda: 4\n"
        "import steplens\n"
        "print([run.ok for run in steplens.analyse('result', max_process_number=2)])\n"
    )
    source = Path(offline.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.strip() == "[True, True]", done.stderr
    assert all(rundir.COMPLETION_MARKER in written(path) for path in paths)


def test_command_line(make_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_run()
    assert command_line(["analyse", str(path)]) == 0
    capsys.readouterr()
    assert command_line(["analyse", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    lose(path)
    assert command_line(["analyse", str(path)]) == 2


def test_halves_of_surrogate_pairs_in_side_files(make_run: Callable[..., Path]) -> None:
    """JSON can write them and no text can hold them."""
    path = make_run()
    lone = '{"check": "x\\ud800", "severity": "warning", "count": 1, "message": "\\ud800 lost", "unsafe": ""}'
    state = path / rundir.RAW_DIRECTORY / rundir.STATE_FILE
    state.write_text(state.read_text()[:-1] + f', "health": [{lone}], "\\udfff": "\\ud800"' + "}")
    (found,) = offline.analyse(path)
    assert found.ok, found
    assert "? lost" in steplens.open(path).health()["message"].to_list()
