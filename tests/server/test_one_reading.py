"""An answer is of one reading of a run, though the run is read again while it is made."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.server import requests
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
