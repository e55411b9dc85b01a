"""An answer is of one reading of a run, though the run is read again while it is made."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.server import requests, runs
from steplens.server.runs import RunLibrary
from steplens.server.tables import tables
from steplens.trace.trace import Trace


def rank(folder: Path, number: int) -> None:
    events = [{"ph": "X", "cat": "cpu_op", "name": f"aten::of_{number}", "pid": 1, "tid": 1, "ts": 5.0, "dur": 2.0}]
    folder.mkdir(parents=True, exist_ok=True)
    content = {"distributedInfo": {"rank": number, "world_size": 3}, "traceEvents": events}
    (folder / f"rank{number}.json").write_text(json.dumps(content))


def asked(library: RunLibrary) -> Any:
    """The run as an address gets it."""
    return asyncio.run(requests.as_read(asyncio.run(requests.run_by_number(0, library))))


@pytest.mark.parametrize("name", ["recorded_ops", "idle"])
def test_a_table_of_all_ranks_is_of_one_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for number in (1, 2):
        rank(tmp_path / "run", number)
    library = RunLibrary([tmp_path / "run"])
    library.runs[0].open()
    chosen = asked(library)
    looked: list[int] = []
    of_trace = tables._of_trace

    def and_read_again(*arguments: Any) -> pl.LazyFrame:
        # behind the first rank another one comes in front of it, and the last one goes
        if not looked:
            rank(tmp_path / "run", 0)
            (tmp_path / "run" / "rank2.json").unlink()
            shutil.rmtree(tmp_path / "run" / ".steplens")
            library.runs[0].open()
        looked.append(1)
        return of_trace(*arguments)

    monkeypatch.setattr(tables, "_of_trace", and_read_again)
    found = tables.table_rows(chosen, tables.find_table(name), None, told=True).collect()
    assert len(looked) == 2
    if name == "recorded_ops":
        names = found.select("rank", pl.col("name").cast(pl.String)).rows()
        assert names == [(1, "aten::of_1"), (2, "aten::of_2")]
    assert [trace.rank for trace in chosen.run.traces] == [1, 2]
    # who asks now is answered of what is there now
    now = asked(library)
    assert [trace.rank for trace in now.run.traces] == [0, 1] and now.generation == chosen.generation + 1
    assert isinstance(now.trace(1), Trace)


def test_how_much_of_a_file_was_read_is_told_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part that the opening page shows, by a reading of a real file of several pieces."""
    parts: list[float] = []

    class Noting(runs.Opening):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == "part":
                parts.append(value)

    monkeypatch.setattr(runs, "Opening", Noting)
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::of_1" + "x" * 400, "pid": 1, "tid": 1, "dur": 2.0}
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": [{**event, "ts": 5.0 * number} for number in range(15_000)]}))
    library = RunLibrary([tmp_path / "a.json"])
    library.runs[0].open()
    assert library.runs[0].opening.state == "ready"
    told = parts[1:-1]
    assert len({part for part in told if 0 < part < 1}) >= 2 and told == sorted(told), parts
    assert parts[-1] == 0.0
