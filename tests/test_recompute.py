"""Recomputed results of real captures beside the captures' own, and what the comparison says of differences."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from steplens import offline
from steplens.common import rundir
from steplens.offline.recompute import Comparison, _compare_frames, _compare_json

from .shared_data import shared

#: computing, communication not overlapped, communication, free, stage, preparing in µs: exact values, from the captures'
#: own events; the text captures' files hold the last two rounded to a quarter of a µs
STEP_50 = {
    "text_level0/rank0": (8827.473, 81515.607, 85516.889, 25908.102, 116251.182, 19358.190),
    "text_level1/rank0": (8873.756, 101963.203, 105991.878, 25744.050, 136581.009, 17902.502),
    "text_level1/rank1": (8878.295, 96359.047, 100375.286, 26675.274, 131912.616, 20433.190),
    "db_level0/rank0": (8843.91, 85881.122, 89880.576, 25900.158, 120625.19, 16681.808),
    "db_level2/rank0": (8900.456, 90080.699, 94107.521, 25238.587, 124219.742, 17894.588),
}
COLUMNS = ("Computing", "Communication(Not Overlapped)", "Communication", "Free", "Stage", "Preparing")

#: largest difference that the rounding of the captures' own files explains, in the unit of the column
ROUNDING = {
    "step_trace_time.csv": 0.25,  # epoch µs in doubles
    "op_statistic.csv": 0.005,  # sums of durations that were rounded one by one
    "kernel_details.csv": 0.001,
    "operator_details.csv": 0.005,
}


@pytest.fixture(scope="module")
def recomputed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, offline.RunResult]:
    captures = shared("ascend_pytorch")
    output = tmp_path_factory.mktemp("recomputed")
    results = offline.analyse(captures, 1, recompute=True, output=output)
    assert list(captures.rglob(rundir.CACHE_DIRECTORY)) == [], "a folder closed to writing gets no cache"
    return {str(result.path.relative_to(captures)).removesuffix("_ascend_pt"): result for result in results}


@pytest.mark.parametrize("name", STEP_50)
def test_step_times_are_those_of_the_capture(recomputed: dict[str, offline.RunResult], name: str) -> None:
    result = recomputed[name]
    assert result.ok
    assert result.written_to is not None
    row = pl.read_csv(result.written_to / rundir.OUTPUT_DIRECTORY / "step_trace_time.csv").row(0, named=True)
    assert row["Step"] == 50
    assert row["Bubble"] == 0
    for column, expected in zip(COLUMNS, STEP_50[name], strict=True):
        assert row[column] == pytest.approx(expected, abs=1e-9), column
    assert row["Overlapped"] == pytest.approx(row["Communication"] - row["Communication(Not Overlapped)"], abs=1e-9)


@pytest.mark.parametrize("name", STEP_50)
def test_every_number_of_the_capture_is_reproduced(recomputed: dict[str, offline.RunResult], name: str) -> None:
    compared = {comparison.name: comparison for comparison in recomputed[name].comparison}
    expected = {"analysis.db: StepTraceTime"} if name.startswith("db") else {"step_trace_time.csv", "kernel_details.csv"}
    if name.startswith("text"):
        expected |= {"operator_details.csv", "operator_memory.csv", "memory_record.csv", "npu_module_mem.csv"}
    if "level1" in name:
        expected |= {"op_statistic.csv", "api_statistic.csv", "communication.json", "communication_matrix.json"}
    assert expected <= set(compared)
    for file, comparison in compared.items():
        assert not comparison.problem
        assert not comparison.matters
        assert comparison.rows[0] == comparison.rows[1] > 0
        assert comparison.largest <= ROUNDING.get(file, 0.0), comparison
        if file not in ROUNDING:
            assert comparison.equal == comparison.cells, comparison


def test_a_capture_that_holds_results_only_is_left_alone(tmp_path: Path) -> None:
    run = tmp_path / "rank0_ascend_pt"
    shutil.copytree(shared("ascend_pytorch", "text_level0", "rank0_ascend_pt"), run)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    (result,) = offline.analyse(run)
    assert result.ok
    assert result.already_complete
    assert "--recompute" in result.note
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()} == before


def frame(**columns: list[str]) -> pl.DataFrame:
    return pl.DataFrame(columns)


def test_the_comparison_finds_what_differs() -> None:
    own = frame(Name=["a", "b"], Count=["1", "2"], Sum=["1.50", "2.25"])
    same = _compare_frames("x", own, frame(Name=["a", "b"], Count=["1", "2"], Sum=["1.501", "2.25"]))
    assert (same.cells, same.equal, same.largest) == (6, 6, 0.0)
    other = _compare_frames("x", own, frame(Name=["a", "c"], Count=["1", "4"], Sum=["1.5", "2.2"]))
    assert (other.cells, other.equal, other.largest, other.column) == (6, 4, 2.0, "Count")
    assert "rows" in _compare_frames("x", own, frame(Name=["a"])).problem
    assert _compare_frames("x", own, frame(Name=["a", "b"])).cells == 2


def test_times_are_compared_with_their_bases_and_rows_by_time() -> None:
    name = "Start Time(us)"
    own = frame(**{"Name": ["b", "a"], name: ["1736405443881420.500", "1736405443881410.320"], "Duration(us)": ["2.5", "1.5"]})
    moved = frame(**{"Name": ["a", "b"], name: ["10.320", "21.000"], "Duration(us)": ["1.500", "2.500"]})
    found = _compare_frames("x", own, moved, (Decimal(0), Decimal(1736405443881400)))
    assert (found.cells, found.equal, found.largest) == (6, 5, 0.5), "the later one is not where it was"
    moved = moved.with_columns(pl.Series(name, ["10.320", "20.500"]))
    found = _compare_frames("x", own, moved, (Decimal(0), Decimal(1736405443881400)))
    assert (found.cells, found.equal, found.matters) == (6, 6, False)


BASE_NS = 1736412474730135222


def results(path: Path, wait_ms: float = 5.6, start_us: float = 1736412474730145.5, name: str = "a@1") -> Path:
    """A communication.json with one collective."""
    times = {"Start Timestamp(us)": start_us, "Wait Time(ms)": wait_ms}
    link = {"HCCS": {"Transit Size(MB)": 28.5, "Size Distribution": {"2.064384": [12, 1.5]}}}
    operation = {"Communication Time Info": times, "Communication Bandwidth Info": link}
    path.write_text(json.dumps({"step1": {"p2p": {}, "collective": {name: operation}}}))
    return path


def compared(tmp_path: Path, own: dict[str, object], again: dict[str, object]) -> Comparison:
    files = [results(tmp_path / f"{side}.json", **values) for side, values in (("own", own), ("again", again))]  # type: ignore[arg-type]
    return _compare_json("communication.json", *files, (Decimal(0), Decimal(BASE_NS) / 1000))


def test_communication_is_compared_with_its_time_base(tmp_path: Path) -> None:
    same = compared(tmp_path, {}, {"start_us": 10.278})
    assert (same.rows, same.cells, same.equal, same.matters) == ((3, 3), 5, 5, False)
    late = compared(tmp_path, {}, {"start_us": 15.278})
    assert (late.equal, late.column, round(late.largest, 3)) == (4, "Start Timestamp(us)", 5.0)
    longer = compared(tmp_path, {}, {"start_us": 10.278, "wait_ms": 5.7})
    assert (longer.equal, longer.column, longer.matters) == (4, "Wait Time(ms)", True)
    assert not compared(tmp_path, {}, {"start_us": 10.278, "wait_ms": 5.64}).matters, "less than 1 %"
    other = compared(tmp_path, {}, {"name": "b@1"})
    assert other.problem and other.matters
    (tmp_path / "own.json").write_text("{")
    assert _compare_json("x", tmp_path / "own.json", tmp_path / "again.json", (Decimal(0), Decimal(0))).problem


@pytest.mark.parametrize(
    ("own", "again", "matters"),
    [("100.0", "102.0", True), ("100.0", "100.9", False), ("0.2", "0.6", False), ("100", "", False), ("N/A", "3", False)],
)
def test_what_of_a_difference_matters(own: str, again: str, matters: bool) -> None:
    def steps(computing: str) -> pl.DataFrame:
        return frame(Step=["1"], Computing=[computing], Free=["1"])

    assert _compare_frames("step_trace_time.csv", steps(own), steps(again)).matters is matters


def test_numbers_that_name_things_and_known_mistakes_do_not_matter() -> None:
    own = frame(**{"Step": ["1"], "Free": ["1.5"], "Stream ID": ["2"]})
    again = frame(**{"Step": ["2"], "Free": ["9.5"], "Stream ID": ["8"]})
    found = _compare_frames("step_trace_time.csv", own, again)
    assert (found.equal, found.largest, found.matters) == (0, 8.0, False)
    assert _compare_frames("analysis.db: StepTraceTime", own, again).matters
    assert _compare_frames("x", own, frame(Step=["1", "2"])).matters


@pytest.mark.parametrize(
    ("file", "cell", "by"),
    [("step_trace_time.csv", b",8873.756", b",9873.756"), ("op_statistic.csv", b",1959.079", b",3959.079")],
)
def test_a_capture_that_contradicts_its_events_ends_with_3(tmp_path: Path, file: str, cell: bytes, by: bytes) -> None:
    run = tmp_path / "rank0_ascend_pt"
    shutil.copytree(shared("ascend_pytorch", "text_level1", "rank0_ascend_pt"), run)
    table = run / rundir.OUTPUT_DIRECTORY / file
    for path in (table.parent, table):
        path.chmod(0o755)
    (result,) = offline.analyse(run, recompute=True, output=tmp_path / "first")
    assert offline.exit_code([result]) == 0
    table.write_bytes(table.read_bytes().replace(cell, by))
    (result,) = offline.analyse(run, recompute=True, output=tmp_path / "second")
    assert [comparison.name for comparison in result.comparison if comparison.matters] == [file]
    assert "contradicted_figures" in {finding.check for finding in result.findings}
    assert offline.exit_code([result]) == 3


@pytest.mark.slow
def test_a_machine_with_one_processor_writes_the_same(tmp_path: Path) -> None:
    """Polars takes other ways where it has one thread."""
    capture = shared("ascend_pytorch", "text_level1", "rank0_ascend_pt")
    folders = []
    for threads in ("1", "2"):
        output = tmp_path / threads
        command = [sys.executable, "-m", "steplens", "analyse", str(capture), "--recompute", "--output", str(output)]
        environment = {**os.environ, "POLARS_MAX_THREADS": threads}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert "[ERROR]" not in done.stderr, done.stderr
        folders.append(next(output.glob("*/ASCEND_PROFILER_OUTPUT")))
    one, two = ({file.name: file.read_bytes() for file in folder.iterdir() if file.suffix == ".csv"} for folder in folders)
    assert one == two and {"npu_module_mem.csv", "kernel_details.csv"} <= set(one)
