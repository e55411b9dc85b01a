"""``steplens table``: every table of a run in the terminal, as CSV and as JSON."""

from __future__ import annotations

import csv
import io
import os
from typing import Any

import pytest
from rich.console import Console

import steplens
from steplens.analysis.catalogue import ANALYSES
from steplens.cli.table import rows_of_table
from steplens.cli.text.table_text import show_table


def test_the_list_names_every_table(cli: Any) -> None:
    lines = cli.run("table").stdout.splitlines()
    assert [line.split()[0] for line in lines[:-2]] == [one.name for one in ANALYSES]
    assert cli.json("table")["tables"][0]["name"] == "steps"


def test_every_table_of_a_real_run(recorded: Any) -> None:
    """Each can be shown, and is what the notebook shows."""
    run = steplens.open(recorded.folder / "result")
    out = Console(file=io.StringIO(), width=100)
    for analysis in ANALYSES:
        for by in analysis.groups or (None,):
            expected = analysis(run, by)
            found = rows_of_table(run, analysis.name, by=by)
            assert found.shape == expected.shape
            show_table(out, found, 20, analysis.name)
    document = recorded.json("table", "result", "bound", "--by", "operator")
    assert document["rows"] == run.table("bound", "operator", per_step=True).to_dicts()
    assert document["basis"] == "per step (mean of steps 2-4)"
    document = recorded.json("table", "result", "bound", "--by", "operator", "--whole")
    assert (document["rows"], document["basis"]) == (run.bound("operator").to_dicts(), None)
    assert document["of"] == len(document["rows"])


def test_rows_in_the_terminal(recorded: Any) -> None:
    text = recorded.run("table", "result", "operators", "--by", "module", "--top", "3").stdout
    assert "operators by module, per step (mean of steps 2-4): 3 of" in text
    assert "Sequential" in text and "self_ns" in text
    text = recorded.run("table", "result", "steps").stdout
    assert "not shown: " in text and "+ counts from the earliest time shown" in text
    # one row is shown line by line
    assert "  peak_allocated " in recorded.run("table", "result", "memory").stdout
    narrow = recorded.run("table", "result", "flops", env={"COLUMNS": "40"}).stdout
    assert (
        max(len(line) for line in narrow.splitlines() if "shown" not in line and "row" not in line and "value" not in line) <= 40
    )


def test_csv_sorting_and_columns(recorded: Any) -> None:
    line = recorded.run(
        "table", "result", "operators", "--sort", "calls", "--columns", "name,calls", "--whole", "--csv", "out.csv"
    ).stdout
    expected = steplens.open(recorded.folder / "result").operators().sort("calls", descending=True, maintain_order=True)
    with (recorded.folder / "out.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert line.strip() == f"out.csv: {expected.height} rows"
    assert [(row["name"], int(row["calls"])) for row in rows] == expected.select("name", "calls").rows()
    recorded.run("table", "result", "operators", "--sort", "+calls", "--top", "2", "--csv", "out.csv")
    assert len((recorded.folder / "out.csv").read_text().splitlines()) == 3


def test_one_rank_of_several(cli: Any, events: list[dict[str, Any]]) -> None:
    for rank in (0, 1):
        cli.trace(f"job/rank{rank}.json", events, distributedInfo={"rank": rank, "world_size": 2})
    assert [row["rank"] for row in cli.json("table", "job", "steps")["rows"]] == [0, 0, 1, 1]
    assert len(cli.json("table", "job", "steps", "--rank", "1")["rows"]) == 2
    assert "holds no rank 7" in cli.refused("table", "job", "steps", "--rank", "7")


def test_names_of_a_trace_are_shown_as_they_are(cli: Any, events: list[dict[str, Any]]) -> None:
    events.append({**events[1], "name": "=HYPERLINK(1)\x1b[31m[red]", "ts": 1150.0})
    cli.trace("trace.json", events)
    assert "\x1b" not in cli.run("table", "trace.json", "operators").stdout
    cli.run("table", "trace.json", "operators", "--csv", "out.csv")
    assert "'=HYPERLINK" in (cli.folder / "out.csv").read_text()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("operatos",), "there is no table 'operatos'; perhaps 'operators' or"),
        (("operators", "--by", "colour"), "one of name, category, shape"),
        (("waits", "--by", "name"), "it must be left out"),
        (("operators", "--sort", "nothing"), "has no column 'nothing'"),
        (("operators", "--columns", "name,nothing"), "has no column 'nothing'"),
        (("operators", "--csv", "missing/out.csv"), "folder that does not exist"),
    ],
)
def test_wrong_arguments_end_in_one_sentence(
    cli: Any, events: list[dict[str, Any]], arguments: tuple[str, ...], expected: str
) -> None:
    cli.trace("trace.json", events)
    assert expected in cli.refused("table", "trace.json", *arguments)


def test_a_pipe_is_not_replaced_by_a_file(cli: Any, events: list[dict[str, Any]]) -> None:
    cli.trace("trace.json", events)
    os.mkfifo(cli.folder / "pipe")
    assert "it is a device or a pipe" in cli.refused("table", "trace.json", "steps", "--csv", "pipe")
    assert "it is a device or a pipe" in cli.refused("export", "trace.json", "--to", "chrome", "-o", "pipe")
    assert (cli.folder / "pipe").is_fifo()
    for name in ("/dev/null", "/dev/stdout"):
        before = os.lstat(name)
        assert "it is a device or a pipe" in cli.refused("table", "trace.json", "steps", "--csv", name)
        assert (os.lstat(name).st_mode, os.lstat(name).st_ino) == (before.st_mode, before.st_ino)
