"""The list of tables: complete, documented, and with the same columns whether there is data or not."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import polars as pl
import pytest

from steplens.analysis.catalogue import ANALYSES, find
from steplens.trace.run import Run, Source, open_run
from steplens.trace.trace import Trace

from ..shared_data import shared
from ..writers.builder import build, training_step

PAGE = Path(__file__).parents[2] / "docs" / "analyses.md"
#: answer with a table, and are no analyses
_OTHERS = {"sql", "unsafe"}


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
    analysis = find(name)
    empty = analysis(run_of(build()), by)
    assert empty.is_empty() or name == "health"
    full = analysis(run_of(training_step()), by)
    assert full.schema == empty.schema
    # of several traces
    both = analysis(run_of(build(meta={"rank": 0}), training_step()), by)
    assert set(empty.columns) <= set(both.columns)


@pytest.mark.parametrize("sample", ["kineto/cuda_sampled_rank0.json.gz", "ascend_pytorch/text_level1", "mindspore/run_2"])
def test_every_table_of_recorded_samples(sample: str) -> None:
    run = open_run(shared(sample))
    for name, by in every():
        found = find(name)(run, by)
        expected = find(name)(run_of(build()), by).schema
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
    with pytest.raises(ValueError, match="there is memory_peak"):
        find("memory_peek")
    with pytest.raises(ValueError, match="one of name, shape"):
        find("flops")(run_of(build()), "colour")
    with pytest.raises(ValueError, match="left out"):
        find("waits")(run_of(build()), "name")
