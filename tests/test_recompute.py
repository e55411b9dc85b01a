"""Recomputed results of real captures beside the captures' own, and what the comparison says of differences."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

from steplens import offline, rundir
from steplens.recompute import _compare_frames

CAPTURES = Path(__file__).parents[2] / "shared" / "data" / "ascend_pytorch"

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
    if not CAPTURES.is_dir():
        pytest.skip("the shared test data is not beside the project")
    output = tmp_path_factory.mktemp("recomputed")
    results = offline.analyse(CAPTURES, 1, recompute=True, output=output)
    assert list(CAPTURES.rglob(rundir.CACHE_DIRECTORY)) == [], "a folder closed to writing gets no cache"
    return {str(result.path.relative_to(CAPTURES)).removesuffix("_ascend_pt"): result for result in results}


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
        expected |= {"op_statistic.csv", "api_statistic.csv"}
    assert expected <= set(compared)
    for file, comparison in compared.items():
        assert not comparison.problem
        assert comparison.rows[0] == comparison.rows[1] > 0
        assert comparison.largest <= ROUNDING.get(file, 0.0), comparison
        if file not in ROUNDING:
            assert comparison.equal == comparison.cells, comparison


def test_a_capture_that_holds_results_only_is_left_alone(tmp_path: Path) -> None:
    if not CAPTURES.is_dir():
        pytest.skip("the shared test data is not beside the project")
    run = tmp_path / "rank0_ascend_pt"
    shutil.copytree(CAPTURES / "text_level0" / "rank0_ascend_pt", run)
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


def test_times_are_compared_as_distances_and_rows_by_time() -> None:
    name = "Start Time(us)"
    own = frame(**{"Name": ["b", "a"], name: ["1736405443881420.500", "1736405443881410.320"], "Duration(us)": ["2.5", "1.5"]})
    moved = frame(**{"Name": ["a", "b"], name: ["10.320", "20.500"], "Duration(us)": ["1.500", "2.500"]})
    found = _compare_frames("x", own, moved)
    assert (found.cells, found.equal) == (6, 6)
