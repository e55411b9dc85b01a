"""``steplens sql`` and recorded tables: what is asked is what Python finds in the same tables."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import polars as pl
import pytest
from rich.console import Console

import steplens
from steplens.analysis.queries import check_columns
from steplens.cli.recording.trigger import CAPTURES, capture_configuration
from steplens.cli.text.table_text import show_table
from steplens.collect.dynamic.configuration import TEMPLATE


def test_queries(cli: Any, events: list[dict[str, Any]]) -> None:
    for rank in (0, 1):
        cli.trace(f"job/rank{rank}.json", events, distributedInfo={"rank": rank, "world_size": 2})
    query = "SELECT rank, name, count(*) AS n FROM ops GROUP BY rank, name ORDER BY rank, name"
    found = cli.json("sql", "job", query)
    run = steplens.open(cli.folder / "job")
    ops = run.table("recorded_ops").with_columns(pl.col("name").cast(pl.String))
    expected = Counter(ops.select("rank", "name").rows())
    assert {(row["rank"], row["name"]): row["n"] for row in found["rows"]} == expected and len(expected) > 2
    assert cli.json("sql", "job", "SELECT count(*) AS n FROM ops", "--rank", "1")["rows"] == [{"n": ops.height // 2}]
    # an answer of the catalogue, and a recorded table that an analysis is called like
    calls = {row["name"]: row["calls"] for row in cli.json("sql", "job", "SELECT name, calls FROM operators")["rows"]}
    assert calls["aten::mm"] == 4
    recorded = cli.json("sql", "job", "SELECT * FROM steps")
    answer = cli.json("sql", "job", "SELECT * FROM analysis_steps")
    assert "duration_ns" in answer["columns"] and "duration_ns" not in recorded["columns"]
    assert cli.json("table", "job", "recorded_steps")["of"] == recorded["of"] == 4
    assert "nothing of it was recorded" in cli.run("table", "job", "marks").stdout
    assert cli.run("sql", "job", query, "--csv", "out.csv").stdout == f"out.csv: {len(expected)} rows\n"
    listed = cli.run("sql", "job").stdout
    assert f"ops: {ops.height} rows" in listed and "operators_by_shape" in listed
    for wrong, sentence in (
        ("SELECT * FROM operatrs", "there is no table 'operatrs'; perhaps 'operators'"),
        ("SELECT * FROM marks", "the table marks was not recorded"),
        ("SELECT nme FROM ops", "there is no column 'nme'; perhaps 'name'"),
        ("DROP TABLE ops", "the query begins with DROP"),
        ("SELECT 1; SELECT 2", "the query cannot be answered"),
        ("SELECT name FROM ops WHERE", "the query cannot be answered"),
        ("/* nothing */", "the query is empty"),
    ):
        assert sentence in cli.refused("sql", "job", wrong)


@pytest.mark.parametrize(("width", "first"), [(40, ["rank", "window"]), (200, ["step", "name"])])
def test_rank_and_window_come_first_where_not_all_fits(width: int, first: list[str]) -> None:
    names = [f"host_41_2026010203040{number}_ascend_pt" for number in range(2)]
    rows = pl.DataFrame({"step": [1, 2], "name": ["a" * 30, "b" * 30], "rank": [0, 1], "window": names})
    out = io.StringIO()
    show_table(Console(file=out, width=width), rows, 20, "rows")
    lines = out.getvalue().splitlines()
    assert lines[1].split()[:2] == first
    assert "window: host_41_...ascend_pt" in out.getvalue().replace("..._", "...")


def test_what_a_trigger_asks_for(tmp_path: Any) -> None:
    base = {**TEMPLATE, "start_step": 0}

    def ask(**changes: Any) -> tuple[Any, ...]:
        asked = capture_configuration(tmp_path, base, {"start_step": -1, **changes})
        return asked["start_step"], asked["warmup"], asked["prof_dir"]

    captures = str(tmp_path / CAPTURES)
    assert ask() == (-1, 1, captures)
    assert ask(warmup=0, prof_dir="/there") == (-1, 0, "/there")
    # recording begins with the step that was asked for
    assert ask(start_step=20) == (19, 1, captures)
    assert ask(start_step=1) == (1, 0, captures)
    assert ask(start_step=20, warmup=3) == (20, 3, captures)
    # what the file says counts
    base.update(warmup=2, prof_dir="/elsewhere")
    assert ask() == (-1, 2, "/elsewhere")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT nothing FROM nosuch",
        "SELECT name, rank, window FROM ops",
        "WITH long AS (SELECT name AS n FROM operators) SELECT l.n FROM long l",
        "SELECT count(*) AS n, name FROM ops GROUP BY name HAVING n > 3 ORDER BY n",
        "SELECT sum(total_ns) FROM operators",
        "SELECT kind FROM analysis_kernels JOIN recorded_steps ON id = count",
        "SHOW TABLES",
    ],
)
def test_only_a_column_that_no_run_has_is_refused_before_reading(query: str) -> None:
    check_columns(query)
