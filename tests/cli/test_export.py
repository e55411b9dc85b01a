"""``steplens export``: what it writes, says and returns."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from steplens.cli.main import main

from .conftest import Cli


@pytest.fixture
def traced(cli: Cli, events: list[dict[str, Any]]) -> Cli:
    cli.trace("trace.json", events)
    return cli


def test_a_recorded_run(recorded: Cli) -> None:
    done = recorded.run("export", "result", "--to", "kineto", "-o", "twin.json")
    assert done.stdout == "twin.json: the form of PyTorch's own traces, for HolisticTraceAnalysis and Perfetto\n"
    assert done.stderr == ""
    twin = json.loads((recorded.folder / "twin.json").read_bytes())
    names = {event["name"] for event in twin["traceEvents"]}
    assert {"ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4", "aten::addmm"} <= names
    (run,) = recorded.run_directories()
    recorded.run("export", "result", "--to", "chrome", "-o", "view.json")
    own = run / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    assert (recorded.folder / "view.json").read_bytes() == own.read_bytes()
    # what was exported can be opened like the run itself
    original, again = recorded.json("summary", "result"), recorded.json("summary", "twin.json")
    assert [step["duration_ns"] for step in again["steps"]] == [step["duration_ns"] for step in original["steps"]]


def test_default_names(recorded: Cli) -> None:
    (run,) = recorded.run_directories()
    name = run.name.removesuffix("_ascend_pt")
    written = recorded.json("export", "result", "--to", "speedscope")
    assert written == {"path": "result", "to": "speedscope", "written": [f"{name}.speedscope.json"], "notes": []}
    document = json.loads((recorded.folder / f"{name}.speedscope.json").read_bytes())
    assert document["name"] == name
    recorded.run("export", "result", "--to", "db")
    assert (recorded.folder / "exported" / run.name / "ASCEND_PROFILER_OUTPUT" / "analysis.db").is_file()
    # the copy is a run of its own
    assert recorded.json("summary", f"exported/{run.name}")["steps"]
    assert "exists already" in recorded.refused("export", "result", "--to", "text")


def test_memory_says_that_categories_are_unknown(recorded: Cli) -> None:
    done = recorded.run("export", "result", "--to", "memory", "-o", "memory.raw.json.gz", "--device", "cpu")
    assert done.stderr.startswith("steplens: the categories of memory are unknown")
    events = json.loads(gzip.decompress((recorded.folder / "memory.raw.json.gz").read_bytes()))
    assert {event[3] for event in events} == {7}


def test_a_folder_with_one_that_cannot_be_read(cli: Cli, events: list[dict[str, Any]]) -> None:
    cli.trace("job/a.json", events, distributedInfo={"rank": 0})
    cli.trace("job/b.json", events, distributedInfo={"rank": 1})
    cli.write("job/c.json", '{"traceEvents": []}')
    done = cli.run("export", "job", "--to", "chrome", "-o", "out", expect=3)
    assert sorted(path.name for path in (cli.folder / "out").iterdir()) == [
        "a_rank0.trace_view.json.gz",
        "b_rank1.trace_view.json.gz",
    ]
    assert "c.json: holds no events" in done.stderr
    assert cli.json("export", "job", "--to", "pprof", "--rank", "1", "-o", "one.pb.gz", expect=3)["written"] == ["one.pb.gz"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trace.json", "--to", "svg"], "'svg' is not one of 'kineto', 'chrome', 'db', 'text', 'parquet', 'speedscope', 'pprof'"),
        (["trace.json"], "Missing option '--to'"),
        (["nothing", "--to", "kineto"], "does not exist"),
        (["trace.json", "--to", "kineto", "--rank", "7"], "holds no rank 7"),
        (["trace.json", "--to", "stacks"], "has no call stacks"),
        (["trace.json", "--to", "memory"], "holds no memory events"),
        (["trace.json", "--to", "kineto", "-o", "trace.json/x"], "cannot be written: Not a directory"),
        (["trace.json", "--to", "kineto", "-o", "trace.json"], "is what is exported"),
    ],
)
def test_bad_input(
    traced: Cli, arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(traced.folder)
    before = (traced.folder / "trace.json").read_bytes()
    assert main(["export", *arguments]) == 2
    out, err = capsys.readouterr()
    assert said in " ".join(err.split())
    assert err.startswith("steplens: ") and out == "" and len(err.splitlines()) == 1
    assert [path.name for path in traced.folder.iterdir() if path.name != ".steplens"] == ["trace.json"]
    assert (traced.folder / "trace.json").read_bytes() == before


def test_help_names_every_format(traced: Cli) -> None:
    from steplens.cli.export import OFFERED, Metric
    from steplens.writers.exports.flame.stacks import METRICS
    from steplens.writers.exports.formats import FORMATS

    assert list(OFFERED) == list(FORMATS)
    assert [item.value for item in Metric] == list(METRICS)
    text = traced.run("export", "--help").stdout
    assert all(name in text for name in FORMATS)
    assert Path(traced.folder / "trace.json").is_file()
