"""The database of a run recorded with ``ExportType.Db``: it holds what the text files hold."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl
import pytest

import steplens
from steplens.trace.trace import Trace

from .conftest import Run

pytestmark = pytest.mark.slow

PROGRAM = """
from steplens.mindspore import ExportType, _ExperimentalConfig, mstx, profile, schedule, tensorboard_trace_handler
mode(sys.argv[1])
step = stepper()
config = _ExperimentalConfig(export_type=[getattr(ExportType, name) for name in sys.argv[2:]], mstx=True)
with profile(
    schedule=schedule(wait=1, warmup=0, active=3, repeat=1, skip_first=0), profile_memory=True, record_shapes=True,
    on_trace_ready=tensorboard_trace_handler("result"), experimental_config=config,
) as prof:
    prof.add_metadata("purpose", "test")
    for data in pipeline(6).create_dict_iterator():
        mstx.mark("a batch")
        step(data["data"], data["label"])
        prof.step()
"""


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*/ASCEND_PROFILER_OUTPUT/*")}


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_database_alone_is_written_and_opened(run: Run, tmp_path: Path, mode: str) -> None:
    run(PROGRAM, mode, "Db")
    written = files(tmp_path / "result")
    assert {name for name in written if name.endswith((".db", ".csv", "view.json"))} == {"ascend_mindspore_profiler_0.db"}
    assert not list((tmp_path / "result").glob("*/FRAMEWORK"))
    (path,) = (tmp_path / "result").glob("*/ASCEND_PROFILER_OUTPUT/*.db")
    with sqlite3.connect(path) as database:
        assert database.execute("select value from META_DATA where name = 'purpose'").fetchall() == [('"test"',)]
    (trace,) = steplens.open(tmp_path / "result").traces
    assert trace.rank == 0 and trace.required("steps").collect()["id"].to_list() == [1, 2, 3]
    assert trace.required("marks").collect().height == 3


def test_database_and_text_hold_the_same(run: Run, tmp_path: Path) -> None:
    run(PROGRAM, "graph", "Text", "Db")
    assert {"ascend_mindspore_profiler_0.db", "trace_view.json", "step_trace_time.csv"} <= files(tmp_path / "result")
    (folder,) = (tmp_path / "result").glob("*/ASCEND_PROFILER_OUTPUT")
    (exact,) = steplens.open(tmp_path / "result").traces
    (folder / "ascend_mindspore_profiler_0.db").unlink()
    (text,) = steplens.open(tmp_path / "result").traces

    def launches(trace: Trace) -> list[tuple[str, int, int]]:
        columns = (pl.col("name").cast(pl.String), "start_ns", "end_ns")
        return trace.required("kernels").sort("start_ns").select(columns).collect().rows()

    assert launches(exact) == launches(text)
    assert len(launches(exact)) > 20
