"""The list of tables: complete, documented, and with the same columns whether there is data or not."""

from __future__ import annotations

import inspect
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from steplens.analysis import verdict as verdicts
from steplens.analysis.answer_columns import ANSWERS, OF_SEVERAL, columns_of_table, is_of_one_trace
from steplens.analysis.catalogue import ANALYSES, Analysis, analyses, find_analysis
from steplens.cli.main import main
from steplens.cli.table import rows_of_table
from steplens.common.extensions import load_extensions
from steplens.run import Run, Source, open_run
from steplens.server.tables import tables
from steplens.server.tables.tables import STORED_PREFIX, every_table
from steplens.trace.schema import SCHEMA
from steplens.trace.trace import Trace

from ..shared_data import shared
from ..writers.builder import build, training_step

PAGE = Path(__file__).parents[2] / "docs" / "analyses.md"
#: answer with a table, and are no analyses
_OTHERS = {"advise", "sql", "table", "unsafe"}
#: have rows without data
_WITH_ROWS = {"health", "step_trace_averages"}


def run_of(*traces: Trace) -> Run:
    return Run(Path("run"), [(Source(Path(f"window{number}")), trace) for number, trace in enumerate(traces)], [])


def every() -> list[tuple[str, str | None]]:
    return [(one.name, by) for one in ANALYSES for by in one.groups or (None,)]


def test_every_method_of_a_run_that_gives_a_table_is_listed() -> None:
    methods = {
        name
        for name, method in inspect.getmembers(Run, inspect.isfunction)
        if not name.startswith("_") and inspect.signature(method).return_annotation in ("pl.DataFrame", pl.DataFrame)
    }
    assert {one.name for one in ANALYSES} == methods - _OTHERS
    for one in ANALYSES:
        by = inspect.signature(getattr(Run, one.name)).parameters.get("by")
        assert (by.default if by else None) == (one.groups[0] if one.groups else None), one.name


def test_a_name_is_one_table_everywhere() -> None:
    """Of ``Run``, of ``steplens table`` and of the server, whichever of its names is asked for."""
    run = run_of(training_step())
    served = {name: table for name, table in every_table().items() if not name.startswith(("recorded_", STORED_PREFIX))}
    names = [name for one in ANALYSES for name, _ in one.tables()]
    of_a_step = [name + tables.PER_STEP for one in ANALYSES for name, by in one.tables() if one.has_step_rows(by)]
    assert list(served) == names + of_a_step
    for one in ANALYSES:
        name_of = {by: name for name, by in one.tables()}
        for name, by in one.names().items():
            table = tables.find_table(name)
            assert table.name == name_of[by]
            expected = getattr(run, one.name)(*([by] if by else []))
            page = table.of_run(run) if table.of_run else table.of_trace(run.trace()) if table.of_trace else None
            for answer in (run.table(name), rows_of_table(run, name), page):
                assert answer is not None and answer.columns == expected.columns and answer.height == expected.height, name
    names = [name for one in ANALYSES for name in one.names()]
    assert len(set(names)) == len(names)


def test_the_list_imports_no_analysis() -> None:
    code = "import sys; from steplens.analysis.catalogue import analyses; analyses(); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in modules if name.startswith("steplens.analysis.")] == ["steplens.analysis.catalogue"]


def test_columns_are_known_without_data() -> None:
    assert [*ANSWERS] == [name for one in ANALYSES for name, _ in one.tables()]
    for name, columns in SCHEMA.items():
        assert columns_of_table(f"recorded_{name}") == tuple(columns)
    assert columns_of_table("modules") == columns_of_table("operators", "module")
    # of a group that is asked for beside the name of another one, as ``Run.table`` takes it
    assert columns_of_table("operators_by_shape", "line") == columns_of_table("operators", "line")


def test_the_verdict_names_tables() -> None:
    assert set(verdicts._TABLES.values()) <= {one.name for one in ANALYSES}


def test_every_table_is_on_the_page_with_its_columns() -> None:
    sections = dict(re.findall(r"(?ms)^## (\w+)\n(.*?)(?=^## |\Z)", PAGE.read_text()))
    assert list(sections) == [one.name for one in ANALYSES]
    for one in ANALYSES:
        text = " ".join(sections[one.name].split())
        assert text.lower().startswith(one.question.lower())
        assert re.findall(r'`by="(\w+)"`', text) == list(one.groups)
        named = set(re.findall(r"`(\w+)`", text.split("Source:")[1]))
        for by in one.groups or (None,):
            missing = set(one(run_of(build()), by).columns) - named
            assert not missing, f"{one.name} by {by}: {missing}"


@pytest.mark.parametrize(("name", "by"), every())
def test_no_data_has_the_columns_of_data(name: str, by: str | None) -> None:
    empty = run_of(build()).table(name, by)
    assert empty.is_empty() or name in _WITH_ROWS
    full = run_of(training_step()).table(name, by)
    assert full.schema == empty.schema
    assert columns_of_table(name, by) == tuple(empty.columns)
    # of several traces
    both = run_of(build(meta={"rank": 0}), training_step()).table(name, by)
    assert both.columns == [*empty.columns, *(OF_SEVERAL if is_of_one_trace(name) else ())]


@pytest.mark.parametrize("sample", ["kineto/cuda_sampled_rank0.json.gz", "ascend_pytorch/text_level1", "mindspore/run_2"])
def test_every_table_of_recorded_samples(sample: str) -> None:
    run = open_run(shared(sample))
    for name, by in every():
        found = run.table(name, by)
        expected = run_of(build()).table(name, by).schema
        assert {column: found.schema[column] for column in expected} == dict(expected), name
        for column, dtype in found.schema.items():
            # slower_percent is a difference
            if (
                column.endswith("percent")
                and column != "slower_percent"
                and dtype.is_numeric()
                and found[column].drop_nulls().len()
            ):
                assert found[column].min() >= 0, (name, column)  # type: ignore[operator]


def test_wrong_names_are_answered_with_right_ones() -> None:
    with pytest.raises(ValueError, match="perhaps 'memory_peak'"):
        find_analysis("memory_peek")
    with pytest.raises(ValueError, match="one of name, shape"):
        run_of(build()).table("flops", "colour")
    with pytest.raises(ValueError, match="perhaps 'operators"):
        run_of(build()).table("operatos_by_shape")
    with pytest.raises(ValueError, match="left out"):
        run_of(build()).table("waits", "name")


@pytest.mark.parametrize("name", ["Long", "long tasks", "", "1st", "_long", "löng", "recorded_ops"])
def test_a_name_is_one_that_addresses_and_commands_can_have(name: str) -> None:
    with pytest.raises(ValueError, match="no name of a table"):
        Analysis(name, "which tasks are long", ".device.kernels:kernel_statistics")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with two analyses of its own, one with a name that is taken, and one that is none."""
    (tmp_path / "steplens_tasks.py").write_text(PACKAGE)
    information = tmp_path / "steplens_tasks-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: steplens-tasks\nVersion: 1.0\n")
    lines = [f"{name} = steplens_tasks:{name}" for name in ("LONG", "COUNT", "TAKEN", "wrong")]
    (information / "entry_points.txt").write_text("\n".join(["[steplens.analyses]", *lines, ""]))
    monkeypatch.syspath_prepend(tmp_path)
    for cache in (load_extensions, analyses, every_table):
        cache.cache_clear()
    yield
    for cache in (load_extensions, analyses, every_table):
        cache.cache_clear()


PACKAGE = """
import polars as pl
from steplens.analysis.catalogue import Analysis

def long_tasks(trace, by):
    tasks = trace.required("kernels").group_by(by).agg(longest_ns=(pl.col("end_ns") - pl.col("start_ns")).max(), at=pl.len())
    return tasks.sort("longest_ns", descending=True).collect()

def ranks(traces):
    return pl.DataFrame({"traces": [len(traces)], "at": [10**18]})

LONG = Analysis("long_tasks", "which device tasks took longest", long_tasks, groups=("name", "kind"))
COUNT = Analysis("trace_count", "how many traces there are", ranks, "traces", units={"at": "moment"})
TAKEN = Analysis("modules", "what an earlier name means", ranks, "traces")
wrong = 1
"""


@pytest.mark.usefixtures("installed")
def test_analyses_of_installed_packages_are_tables_everywhere(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.WARNING, "steplens"):
        assert [one.name for one in analyses()][len(ANALYSES) :] == ["trace_count", "long_tasks"]
    messages = "\n".join(record.getMessage() for record in caplog.records)
    assert "'modules' is left out: there is a table modules already" in messages
    assert "'wrong' of steplens-tasks is left out" in messages
    run = run_of(build(meta={"rank": 0}), training_step())
    longest = run.table("long_tasks")
    assert longest.columns == ["name", "longest_ns", "at", "rank", "window"] and longest.height
    assert run.table("long_tasks_by_kind").equals(run.table("long_tasks", "kind"))
    assert rows_of_table(run, "long_tasks", sort="at").height == longest.height
    assert rows_of_table(run, "trace_count")["traces"].to_list() == [2]
    main(["table"])
    assert "long_tasks  " in capsys.readouterr().out
    served = every_table()
    assert served["long_tasks_by_kind"].title == "Which device tasks took longest, by kind"
    assert served["trace_count"].units == {"at": "moment"}
