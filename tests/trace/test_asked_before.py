"""Tables that were asked for before: the same again without what works them out, of these very tables and this program alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.analysis.operators import operators
from steplens.common.step_points import FORWARD_POINT_VARIABLES
from steplens.run import Run
from steplens.trace.cache import asked_before, kept_answers


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four steps, which take no time to analyse."""
    monkeypatch.setattr(asked_before, "_WORTH_S", 0.0)
    return write_trace(tmp_path / "trace.json", 30)


@pytest.fixture
def grouped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """By what operators were grouped, each time that this was done."""
    groups: list[str] = []
    group = operators._group_calls
    monkeypatch.setattr(
        operators, "_group_calls", lambda trace, by, *rest, **how: groups.append(by) or group(trace, by, *rest, **how)
    )
    return groups


def write_trace(path: Path, length: int) -> Path:
    common = {"ph": "X", "pid": 1, "tid": 1}
    rows: list[dict[str, Any]] = []
    for step in range(4):
        at = 1000 + step * 5000
        rows.append({**common, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 4900, "args": {}})
        calls = [{**common, "cat": "cpu_op", "name": f"aten::op_{n % 3}", "ts": at + 100 * n, "dur": length} for n in range(20)]
        rows += [{**call, "args": {"Input Dims": [[n % 2]]}} for n, call in enumerate(calls)]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": rows}))
    return path


def ask(run: Run) -> list[pl.DataFrame]:
    tables = [run.steps(), run.operators(), run.operators("shape"), run.table("operators", per_step=True), run.health()]
    return [*tables, pl.DataFrame({"basis": [run.step_basis(), run.step_basis(apart=True)]})]


def test_is_the_same(trace: Path, grouped: list[str]) -> None:
    first, again = ask(steplens.open(trace)), ask(steplens.open(trace))
    assert len(grouped) == 3
    assert all(one.equals(other) and one.schema == other.schema for one, other in zip(first, again, strict=True))
    # what is wrong with a question is said each time
    for _ in range(2):
        with pytest.raises(ValueError, match="by must be one of"):
            steplens.open(trace).operators("colour")


def test_is_worked_out_again_where_something_changed(trace: Path, grouped: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = steplens.open(trace).operators()
    for name, change in (
        ("named points", lambda patch: patch.setenv(FORWARD_POINT_VARIABLES[0], "aten::op_1")),
        ("packages", lambda patch: patch.setattr(asked_before, "installed_versions", lambda: ("more 1.0",))),
        ("program", lambda patch: patch.setattr(kept_answers, "program_digest", lambda: "another")),
    ):
        grouped.clear()
        with monkeypatch.context() as patch:
            change(patch)
            assert steplens.open(trace).operators().equals(before) and grouped == ["name"], name
    write_trace(trace, 40)
    assert steplens.open(trace).operators()["self_ns"].sum() == before["self_ns"].sum() // 3 * 4
    (kept,) = trace.parent.rglob("asked-*")
    kept.write_bytes(kept.read_bytes()[:-1])
    grouped.clear()
    steplens.open(trace).operators()
    assert grouped == ["name"]


def test_of_several_traces_nothing_is_kept_here(trace: Path) -> None:
    write_trace(trace.with_name("second.json"), 30)
    run = steplens.open(trace.parent)
    assert ask(run)[1].equals(ask(steplens.open(trace.parent))[1])
    assert not [*trace.parent.rglob("asked-*")]


def test_a_notebook_imports_no_analysis_for_them(trace: Path) -> None:
    run = steplens.open(trace)
    before = [run.steps().to_dicts(), run.operators().to_dicts()]
    program = """
import json, sys, steplens
run = steplens.open(sys.argv[1])
answers = [run.steps().to_dicts(), run.operators().to_dicts()]
heavy = [name for name in sys.modules if name == "numpy" or name.startswith("steplens.analysis.steps")]
print(json.dumps([answers, heavy]))
"""
    done = subprocess.run([sys.executable, "-c", program, trace], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [before, []]
