"""The first forward and the last backward operator of recorded graphs: found, named while recording, named for the analysis."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import steplens
from steplens.analysis.step_trace.step_trace import step_trace
from steplens.cli.main import app

from .conftest import Recorded, Run

pytestmark = pytest.mark.slow

PROGRAM = """
from steplens.mindspore import Profiler
mode("graph")
profiler = Profiler(output_path="result", data_simplification=False)
model().train(1, pipeline(6), dataset_sink_mode=False)
profiler.analyse()
"""


def points(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / "step_trace_point_info_0.json").read_text())
    return found


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "step_trace_raw_0_detail_time.csv").open() as handle:
        return list(csv.DictReader(handle))


def launches(folder: Path) -> pl.DataFrame:
    (trace,) = steplens.open(folder).traces
    return trace.required("kernels").select("step", "start_ns", "end_ns", name=pl.col("name").cast(pl.String)).collect()


def test_forward_begins_with_an_operator_of_forward(recorded_once: Recorded) -> None:
    folder = recorded_once("points", PROGRAM) / "result" / "profiler"
    assert not points(folder)["fp_start"].startswith("Gradients/")
    assert "/optimizer-" not in points(folder)["fp_start"]
    assert points(folder)["bp_end"].startswith("Gradients/")


def test_points_named_while_recording_or_analysing(
    run: Run, recorded_once: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(recorded_once("points", PROGRAM) / "result", tmp_path / "result")
    folder = tmp_path / "result" / "profiler"
    found, before = points(folder), rows(folder)
    tasks = launches(folder)
    relu = tasks.filter(pl.col("name").str.contains("/relu-ReLU/") & ~pl.col("name").str.starts_with("Gradients/"))["name"][0]

    monkeypatch.setenv("FP_POINT", relu.rpartition("relu-ReLU/")[2] and "relu-ReLU/" + relu.rpartition("relu-ReLU/")[2])
    result = CliRunner().invoke(app, ["table", str(folder), "step_trace", "--json"])
    assert result.exit_code == 0, result.output
    first = tasks.filter(pl.col("name") == relu).group_by("step").agg(pl.col("start_ns").min()).sort("step")["start_ns"].to_list()
    (trace,) = steplens.open(folder).traces
    named = step_trace(trace)
    assert named["forward_ns"].to_list() == first
    shown = [row["forward_ns"] for row in json.loads(result.output)["rows"]]
    assert shown == first

    assert CliRunner().invoke(app, ["analyse", "--force", str(folder)]).exit_code == 0
    assert points(folder) == {**found, "fp_start": relu}
    after = rows(folder)
    assert [row["bp_point"] for row in after] == [row["bp_point"] for row in before]
    assert [row["tail"] for row in after] == [row["tail"] for row in before]
    # MindSpore's clock has whole microseconds: what is in front of it in one step may take less
    later = [int(new["fp_point"]) - int(old["fp_point"]) for new, old in zip(after, before, strict=True)]
    assert min(later) >= 0 and max(later) > 0

    monkeypatch.setenv("FP_POINT", "no/such/operator")
    assert CliRunner().invoke(app, ["analyse", "--force", str(folder)]).exit_code == 0
    assert points(folder) == found
    info = json.loads((folder / "profiler_info_0.json").read_text())
    assert [finding["check"] for finding in info["health"] if "no/such/operator" in finding["message"]] == ["absent_point"]

    # named while recording, the point stays with the results
    monkeypatch.delenv("FP_POINT")
    run(PROGRAM, FP_POINT=relu)
    assert points(folder) == {**found, "fp_start": relu}
    (trace,) = steplens.open(folder).traces
    again = launches(folder).filter(pl.col("name") == relu)["start_ns"].to_list()
    assert step_trace(trace)["forward_ns"].to_list() == again
