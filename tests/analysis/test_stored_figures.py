"""What a capture's own tables say beside what its events give."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.analysis.stored_figures import CONTRADICTED, find_contradictions
from steplens.common import rundir
from steplens.readers.ascend.text import ascend_text
from steplens.run import Run, Source
from steplens.trace.building.build import conform_to_schema
from steplens.trace.health import WARNING, HealthFinding
from steplens.trace.trace import Trace
from steplens.writers.result import TEXT, Settings, with_databases, write_result

from ..shared_data import shared
from ..writers.ascend import ascend_run


def trace(*, steps: bool = True, **source: list[dict[str, Any]]) -> Trace:
    """Two steps of 100 us each: 40 us of MatMul, 10 of Add, and a collective of 30 us, 10 of them beside the MatMul."""
    kernels = [
        (start + 1000 * offset, start + 1000 * end, type_, kind, step)
        for step, start in ((1, 0), (2, 100_000))
        for offset, end, type_, kind in ((0, 40, "MatMul", "compute"), (70, 80, "Add", "compute"), (30, 60, "x", "communication"))
    ]
    frame = pl.DataFrame(kernels, schema=["start_ns", "end_ns", "type", "kind", "step"], orient="row")
    records = [(name, row, json.dumps(values)) for name, rows in source.items() for row, values in enumerate(rows)]
    tables = {
        "kernels": conform_to_schema("kernels", frame),
        "communication": conform_to_schema(
            "communication", frame.filter(kind="communication").with_columns(kind=pl.lit("collective"))
        ),
        "source_tables": pl.DataFrame(records, schema=["table", "row", "record"], orient="row"),
    }
    if steps:
        ranges = pl.DataFrame({"id": [1, 2], "start_ns": [0, 100_000], "end_ns": [100_000, 200_000]})
        tables["steps"] = conform_to_schema("steps", ranges)
    return Trace(Path("x"), tables)


def row(step: str = "1", **changed: str) -> dict[str, str]:
    """What a text file says of a step: its own figures but for ``changed``."""
    figures = {"Computing": "50.0", "Communication": "30.0", "Free": "10.0", "Stage": "80.0"}
    return {"Step": step, "Communication(Not Overlapped)": "20.0", **figures, **changed}


def found(trace: Trace) -> list[tuple[int, str]]:
    return [(finding.count, finding.message) for finding in find_contradictions(trace)]


@pytest.mark.parametrize("steps", [True, False], ids=["with steps", "with the steps of the kernels"])
def test_figures_that_agree(steps: bool) -> None:
    statistic = [{"OP Type": "MatMul", "Total Time(us)": "80.01"}, {"OP Type": "Add", "Total Time(us)": "20.0"}]
    assert found(trace(steps=steps, step_trace_time=[row(), row("2", Computing="50.4")], op_statistic=statistic)) == []
    assert found(trace(steps=steps)) == []


@pytest.mark.parametrize("steps", [True, False], ids=["with steps", "with the steps of the kernels"])
def test_a_step_that_the_events_contradict(steps: bool) -> None:
    (finding,) = find_contradictions(
        trace(steps=steps, step_trace_time=[row(), row("2", Computing="20.0", Communication="29.0")])
    )
    assert finding == HealthFinding(
        CONTRADICTED,
        WARNING,
        2,
        "the capture's own step_trace_time.csv says 0.020 ms of Computing in step 2 and its events 0.050 ms: "
        "one of them is wrong",
        "device time of steps, overlap and idle time",
    )


def test_free_time_is_compared_where_the_format_counts_it_alike() -> None:
    assert found(trace(step_trace_time=[row(Free="40.0", Stage="120.0")])) == []
    database = {"deviceId": 0, "step": "1", "computing": 50.0, "communication": 30.0, "free": 40.0, "stage": 80.0}
    assert [count for count, _ in found(trace(StepTraceTime=[database]))] == [1]
    assert found(trace(StepTraceTime=[{**database, "free": 10.0}])) == []


def test_a_database_beside_the_text_file_is_a_check_of_it() -> None:
    """Also where no event is left that could tell which of the two is right."""
    same = {"deviceId": "0", "step": "1", "computing": "50.0", "communication": "30.0", "communication_not_overlapped": "20.0"}
    other = {**same, "step": "2", "computing": "52.0"}
    text = [row(Device_id="0"), row("2", Device_id="0")]
    assert found(trace(step_trace_time=text, StepTraceTime=[same, {**same, "step": "2", "free": "999.0"}])) == []
    both = trace(step_trace_time=text, StepTraceTime=[same, other])
    alone = Trace(Path("x"), {"source_tables": both.required("source_tables").collect()})
    for one in (both, alone):
        assert found(one) == [
            (
                1,
                "the capture's own step_trace_time.csv says 0.050 ms of Computing in step 2 and its analysis.db 0.052 ms: "
                "one of them is wrong",
            )
        ]
    # another device, a step that only one has, and a table with a step twice say nothing of each other
    for rows in ([{**other, "deviceId": "1"}], [{**other, "step": "3"}], [other, other]):
        assert found(trace(step_trace_time=text, StepTraceTime=rows)) == []


def test_a_table_of_all_without_steps() -> None:
    whole = {"Step": "", "Computing": "100.0", "Communication": "60.0"}
    stepless = trace(step_trace_time=[whole])
    tables = {name: stepless.required(name).collect() for name in ("kernels", "communication", "source_tables")}
    tables["kernels"] = tables["kernels"].with_columns(step=pl.lit(None, dtype=pl.Int64))
    tables["communication"] = tables["communication"].with_columns(step=pl.lit(None, dtype=pl.Int64))
    assert found(Trace(Path("x"), tables)) == []


def test_types_of_operators() -> None:
    wrong = [{"OP Type": "MatMul", "Total Time(us)": "70.0"}, {"OP Type": "Add", "Total Time(us)": "20.0"}]
    ((count, message),) = found(trace(op_statistic=wrong))
    assert count == 2
    assert "op_statistic.csv says 0.070 ms of operators of type MatMul and its events 0.080 ms" in message
    ((count, message),) = found(trace(op_statistic=wrong[1:]))
    assert count == 1
    assert "0.020 ms of operators and its events 0.100 ms" in message


@pytest.mark.parametrize(
    "damaged",
    [
        [{"Step": "1", "Computing": "many"}],
        [{"Computing": "1.0"}],
        [{"Step": "nan", "Computing": "inf"}],
        [{"Step": "1" * 400, "Computing": "1.0"}],
        [row(Device_id="0"), {**row(), "Device_id": "1", "Computing": "1"}, {**row(), "Device_id": "0"}],
    ],
)
def test_damaged_tables_say_nothing(damaged: list[dict[str, str]]) -> None:
    assert found(trace(step_trace_time=damaged, op_statistic=[{"OP Type": "MatMul"}])) == []


def test_it_is_part_of_the_health_of_a_run() -> None:
    doubtful = trace(step_trace_time=[row(Computing="20.0")])
    run = Run(Path("x"), [(Source(Path("x")), doubtful)], [])
    assert run.health()["check"].to_list() == [CONTRADICTED]
    assert run.unsafe("device time of steps").height == 1
    assert run.unsafe("memory").height == 0


@pytest.mark.parametrize(("share", "contradicts"), [(1.0, False), (1.005, False), (1.05, True)])
def test_the_database_beside_text_results_is_read_as_a_check(tmp_path: Path, share: float, contradicts: bool) -> None:
    write_result(ascend_run(), tmp_path, Settings(level="Level1"), export_types=with_databases([TEXT]))
    output = tmp_path / rundir.OUTPUT_DIRECTORY
    connection = sqlite3.connect(output / "analysis.db")
    connection.execute("UPDATE StepTraceTime SET computing = computing * ?", (share,))
    connection.commit()
    connection.close()
    messages = [finding.message for finding in find_contradictions(ascend_text.read_trace(output, tmp_path))]
    assert any("its analysis.db" in message for message in messages) is contradicts


@pytest.mark.parametrize(("share", "contradicts"), [(1.0, False), (1.005, False), (1.05, True)])
def test_collectives_of_the_database_are_a_check_of_the_text(tmp_path: Path, share: float, contradicts: bool) -> None:
    write_result(ascend_run(), tmp_path, Settings(level="Level1"), export_types=with_databases([TEXT]))
    output = tmp_path / rundir.OUTPUT_DIRECTORY
    before = ascend_text.read_trace(output, tmp_path)
    connection = sqlite3.connect(output / "analysis.db")
    connection.execute("UPDATE CommAnalyzerTime SET elapse_time = elapse_time * ?", (share,))
    connection.commit()
    connection.close()
    after = ascend_text.read_trace(output, tmp_path)
    messages = [finding.message for finding in find_contradictions(after)]
    assert any(
        re.search(r"communication.json says .* of collectives in step \d+ and its analysis.db", text) for text in messages
    ) is (contradicts)
    # the text is what is read
    times = [one.required("communication_times").collect() for one in (before, after)]
    assert times[0].equals(times[1]) and times[0].height


def test_real_captures_agree_with_their_events() -> None:
    assert CONTRADICTED not in steplens.open(shared("ascend_pytorch")).health()["check"].to_list()
