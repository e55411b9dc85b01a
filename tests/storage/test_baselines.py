"""Baselines behind a URL: saved, listed, shown and compared there, without the secrets of the address."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import steplens
from steplens.cli.main import main

from .conftest import Place


def write_program(path: Path, mm_us: float) -> Path:
    """Ten steps, each aten::mm and nothing else."""
    common: dict[str, Any] = {"ph": "X", "pid": 5, "tid": 5}
    events = []
    for step in range(10):
        begin = 1000 + step * mm_us
        events.append({**common, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": begin, "dur": mm_us - 1})
        events.append({**common, "cat": "cpu_op", "name": "aten::mm", "ts": begin + 1, "dur": mm_us - 3 + step % 3 / 10})
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_a_baseline_behind_a_url(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place: Place = request.getfixturevalue(kind)
    where = f"{place.url}/deep/baselines"
    before, after = (str(write_program(tmp_path / f"{length}.json", length)) for length in (1000, 1500))

    def said(*arguments: str, expect: int = 0) -> str:
        assert main(arguments) == expect
        shown = capsys.readouterr()
        return shown.err if expect == 2 else shown.out

    assert f"no baselines in {where}" in said("baseline", "list", "--from", where)
    assert f"{where}/main.baseline, " in said("baseline", "save", "main", before, "--into", where)
    assert "there is a baseline of this name" in said("baseline", "save", "main", after, "--into", where, expect=2)
    assert said("baseline", "list", "--from", where).startswith("main ")
    file = f"{where}/main.baseline"
    assert json.loads(said("compare", file, after, "--json"))["comparisons"][0]["step"]["ratio"] == pytest.approx(0.5, abs=0.01)
    monkeypatch.setenv("STEPLENS_BASELINES", where)
    assert steplens.compare("baseline:main", after).step == steplens.compare(file, after).step
    assert "10 steps" in said("baseline", "show", "main")
    said("baseline", "save", "main", after, "--replace")
    assert "both sides hold the same 1 recording" in said("compare", "baseline:main", after)
    refusal = said("compare", f"{where}/other.baseline", after, expect=2)
    assert f"{where}/other.baseline: there is no such baseline" in refusal and len(refusal.splitlines()) == 1
