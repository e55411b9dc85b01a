"""Targets that cannot be written: full, read-only, a file in place of a folder, unknown formats.

Each ends in one clear error and a non-zero exit status, and leaves neither a half-written nor a temporary file.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import steplens
from steplens.common import rundir
from steplens.common.errors import InputError, SteplensError
from steplens.writers import result
from steplens.writers.common.output import LEVEL1, Output, time_base_ns
from steplens.writers.exports.export import export
from steplens.writers.exports.formats import FORMATS

from .command_line import Completed, run_command
from .writers.ascend import ascend_run
from .writers.builder import build, op, synthetic

FULL = r"No space left on device|disk is full|disk I/O error|File too large"


def mount(folder: Path, options: str) -> None:
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("a small file system cannot be mounted here")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A place for file systems; what is mounted there goes away again."""
    folder = tmp_path / "disk"
    yield folder
    subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


@pytest.fixture
def full(disk: Path) -> Path:
    """A disk without a free byte."""
    mount(disk, "size=64k")
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as handle:
        while handle.write(b"x" * 4096):
            pass
    assert os.statvfs(disk).f_bavail == 0
    return disk


def steplens_command(*arguments: str | Path) -> Completed:
    return run_command(*arguments, folder=Path.cwd())


def limited_command(*arguments: str | Path, file_bytes: int) -> Completed:
    """A command in a process that may write no larger files."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    return subprocess.run(
        [sys.executable, "-m", "steplens", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(steplens.__file__).parents[1])},
        preexec_fn=limit,
    )


def trace_file(path: Path, calls: int = 3000) -> Path:
    """A CUDA trace whose results are some hundred KB."""
    events: list[dict[str, Any]] = []
    for number in range(calls):
        args = {"External id": number + 1, "correlation": number + 1}
        start = 10.0 * number
        common = {"ph": "X", "pid": 1, "tid": 1}
        events += [
            {**common, "cat": "cpu_op", "name": f"aten::op_{number}", "ts": start, "dur": 8, "args": args},
            {**common, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start + 1, "dur": 1, "args": args},
            {
                "ph": "X", "cat": "kernel", "name": f"kernel_{number}", "pid": 0, "tid": 7, "ts": start + 3, "dur": 5,
                "args": {**args, "device": 0, "stream": 7},
            },
        ]  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": events}))
    return path


def assert_whole(folder: Path) -> None:
    """Nothing half-written: no temporary file, no marker of completion, and every result can be read to its end."""
    for file in folder.rglob("*"):
        assert "partial" not in file.name and not file.name.endswith(("-journal", "-wal", ".tmp")), file
        assert file.name != rundir.COMPLETION_MARKER
        if file.suffix == ".json":
            json.loads(file.read_bytes())
        elif file.suffix == ".csv":
            assert file.read_bytes().endswith(b"\r\n")
        elif file.suffix == ".db":
            connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            connection.close()


def passed_on() -> list[dict[str, Any]]:
    names = [file.name.removesuffix(".csv") for file in result.OUTPUT_FILES if file.name.endswith(".csv")]
    return [{"table": name, "row": 0, "record": '{"a": "1"}'} for name in names]


@pytest.mark.parametrize("file", result.OUTPUT_FILES, ids=lambda file: file.name)
def test_an_output_on_a_full_disk(full: Path, tmp_path: Path, file: result.OutputFile) -> None:
    trace = ascend_run(source_tables=passed_on())
    output = Output(trace, time_base_ns(trace), LEVEL1)
    failures: list[str] = []
    here = result.write_file(
        tmp_path / file.name_for(trace), partial(file.write, output), lambda name, error: failures.append(name)
    )
    assert here.status == result.DONE, here
    name = file.name_for(trace)
    status = result.write_file(full / name, partial(file.write, output), lambda name, error: failures.append(name))
    assert status.status == result.FAILED and failures == [name]
    assert re.search(FULL, status.reason)
    assert [path.name for path in full.iterdir()] == ["filler"]


@pytest.mark.parametrize(("size", "codes"), [("8k", {2}), ("120k", {2, 3}), ("700k", {3})])
@pytest.mark.parametrize("form", ["text", "db"])
def test_an_analysis_on_a_disk_that_fills(disk: Path, tmp_path: Path, size: str, codes: set[int], form: str) -> None:
    source = trace_file(tmp_path / "trace.json")
    mount(disk, f"size={size}")
    done = steplens_command("analyse", source, "--output", disk / "out", "--export-type", form)
    assert done.returncode in codes, done.stderr
    lines = done.stderr.splitlines()
    assert lines and all("[ERROR]" in line or "[WARNING]" in line for line in lines), done.stderr
    assert "No space left on device" in done.stderr or "full" in done.stderr
    assert_whole(disk)
    if codes == {3}:
        # with room it goes on
        again = steplens_command("analyse", source, "--output", tmp_path / "out", "--export-type", form)
        assert again.returncode == 0, again.stderr


def test_an_analysis_whose_files_may_not_grow(tmp_path: Path) -> None:
    source = trace_file(tmp_path / "trace.json")
    done = limited_command("analyse", source, "--output", tmp_path / "out", file_bytes=200_000)
    assert done.returncode == 3, done.stderr
    assert "trace_view.json was not written: OSError: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert_whole(tmp_path / "out")
    status = json.loads(next((tmp_path / "out").rglob(rundir.STATUS_FILE)).read_bytes())
    assert not status["complete"]
    assert status["outputs"]["trace_view.json"]["status"] == "failed"
    assert status["outputs"]["step_trace_time.csv"]["status"] == "done"


def test_an_analysis_of_a_read_only_place(disk: Path, tmp_path: Path) -> None:
    source = trace_file(tmp_path / "trace.json", 10)
    mount(disk, "size=1m")
    run = disk / "host_1_20260101000000000_ascend_pt"
    (run / rundir.RAW_DIRECTORY).mkdir(parents=True)
    (run / rundir.RAW_DIRECTORY / rundir.RAW_TRACE).write_bytes(source.read_bytes())
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    for arguments in ((run,), (source, "--output", disk / "new")):
        done = steplens_command("analyse", *arguments)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert "cannot be read or written: Read-only file system. " in line and str(disk) in line
    # reading needs no room
    assert steplens_command("summary", run).returncode in (0, 2)
    assert steplens_command("export", run, "--to", "kineto", "-o", tmp_path / "twin.json").returncode == 0


def test_a_target_that_is_a_file(tmp_path: Path) -> None:
    source = trace_file(tmp_path / "trace.json", 10)
    mine = tmp_path / "mine"
    mine.write_text("mine")
    for arguments in (
        ("analyse", source, "--output", mine),
        ("analyse", source, "--output", mine / "below"),
        ("export", source, "--to", "kineto", "-o", mine / "twin.json"),
        ("export", source, "--to", "db", "-o", mine),
        ("export", source, "--to", "parquet", "-o", mine),
    ):
        done = steplens_command(*arguments)
        assert done.returncode == 2, arguments
        (line,) = done.stderr.splitlines()
        assert str(mine) in line and line.count(". ") >= 1, line
        assert mine.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != ".steplens") == ["mine", "trace.json"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyse", "--export-type", "xml"),
        ("export", "--to", "svg"),
        ("export", "--to", "stacks", "--metric", "seconds"),
        ("export", "--to", "kineto", "--rank", "7"),
    ],
)
def test_unknown_words(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    source = trace_file(tmp_path / "trace.json", 10)
    done = steplens_command(arguments[0], source, *arguments[1:])
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("steplens: ") and arguments[-1].partition(":")[0] in line
    assert [path.name for path in tmp_path.iterdir() if path.name != ".steplens"] == ["trace.json"]


def test_an_unknown_export_type_of_the_function(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A wrong value is reset with a warning, as every option of the profiler."""
    source = trace_file(tmp_path / "trace.json", 10)
    (done,) = steplens.analyse(source, export_type="xml", output=tmp_path / "out")
    assert done.ok and "trace_view.json" in done.outputs
    assert "export_type 'xml' is not 'text', 'db' or a list of them" in capfd.readouterr().err
    with pytest.raises(ValueError, match="export_types must be some of"):
        result.write_result(build(ops=[op("a", 0, 1)]), tmp_path, result.Settings(), export_types=("xml",))


@pytest.mark.parametrize("json_output", [False, True])
def test_several_traces_of_which_one_cannot_be_written(tmp_path: Path, disk: Path, json_output: bool) -> None:
    """What was written before stays, and the exit status says that it is not all."""
    trace_file(tmp_path / "job" / "a.json", 20)
    trace_file(tmp_path / "job" / "b.json", 3000)
    mount(disk, "size=100k")
    options = ["--json"] if json_output else []
    done = steplens_command("export", tmp_path / "job", "--to", "speedscope", "-o", disk / "twins", *options)
    assert done.returncode == 3, done.stderr
    (written,) = (disk / "twins").iterdir()
    assert written.name.startswith("a") and str(written) in done.stdout
    if json_output:
        said = json.loads(done.stdout)
        assert said["written"] == [str(written)] and "No space left on device" in said["notes"][0] and not done.stderr
    else:
        (line,) = done.stderr.splitlines()
        assert line.startswith("steplens: ") and "cannot be written: No space left on device" in line


@pytest.mark.parametrize("to", FORMATS)
def test_an_export_on_a_full_disk(full: Path, to: str) -> None:
    trace = synthetic(ops=400, kernels=200, memory_events=300, steps=3)
    if to == "stacks":
        trace = build(ops=[op(f"operator {number}", number, number + 1, stack=f"frame {number}") for number in range(400)])
    name = "run_ascend_pt" if FORMATS[to].is_run else f"new{FORMATS[to].suffix}"
    with pytest.raises(SteplensError, match=FULL):
        export(trace, to, full / name)
    assert [path.name for path in full.iterdir()] == ["filler"]


def test_methods_of_the_profiler_on_a_full_disk(full: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    with steplens.profile(
        on_trace_ready=steplens.tensorboard_trace_handler(str(tmp_path / "runs"), analyse_flag=False),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
    ) as profiler:
        torch.randn(64, 64) @ torch.randn(64, 64)
    capfd.readouterr()
    for method, name in (
        (profiler.export_chrome_trace, "trace.json"),
        (profiler.export_stacks, "stacks.log"),
        (profiler.export_memory_timeline, "memory.html"),
    ):
        method(str(full / name))
        said = capfd.readouterr()
        errors = [line for line in (said.out + said.err).splitlines() if "[ERROR]" in line or "failed" in line]
        assert len(errors) == 1 and "No space left on device" in errors[0], said
        assert "Traceback" not in said.out + said.err
        assert [path.name for path in full.iterdir()] == ["filler"]


def test_functions_say_what_is_wrong_with_the_target(tmp_path: Path) -> None:
    trace = synthetic(ops=50, kernels=20, memory_events=30, steps=1)
    (tmp_path / "file").write_text("x")
    for function in (steplens.export_chrome_trace, steplens.export_memory_timeline):
        with pytest.raises(InputError, match="is a folder, a file is to be written"):
            function(trace, tmp_path)
        with pytest.raises(InputError, match="cannot be written: Not a directory"):
            function(trace, tmp_path / "file" / "x.json")
