"""JSON that is nested deeper than any profiler writes it: one such event costs one event, and a file beside it nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import steplens
from steplens import rundir

EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1000 + 10 * number, "dur": 5, "args": {}}
    for number in range(3)
]
REST = json.dumps(EVENTS)[1:-1]
BAD = '{"ph":"X","cat":"cpu_op","name":"bad","pid":1,"tid":1,"ts":1,"dur":1,"args":{%s}}'


def texts(deep: str) -> dict[str, str]:
    return {
        "args": '{"schemaVersion":1,"traceEvents":[' + BAD % f'"x":{deep}' + f",{REST}]}}",
        "shapes": '{"schemaVersion":1,"traceEvents":[' + BAD % f'"Input Dims":{deep}' + f",{REST}]}}",
        "event": f'{{"schemaVersion":1,"traceEvents":[{deep},{REST}]}}',
        "header": f'{{"schemaVersion":1,"x":{deep},"traceEvents":[{REST}]}}',
        "footer": f'{{"schemaVersion":1,"traceEvents":[{REST}],"x":{deep}}}',
    }


@pytest.mark.parametrize("depth", [1_000, 30_000])
@pytest.mark.parametrize("place", texts(""))
def test_one_event_costs_one_event(place: str, depth: int, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(texts("[" * depth + "]" * depth)[place])
    (tmp_path / "good.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}))
    run = steplens.open(tmp_path)
    assert [trace.required("ops").filter(name="aten::add").collect().height for trace in run.traces] == [3, 3]
    assert place == "footer" or "error" in run.health()["severity"].to_list() or "warning" in run.health()["severity"].to_list()


def test_a_manifest_of_any_depth_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}))
    steplens.open(path)
    (manifest,) = (tmp_path / rundir.CACHE_DIRECTORY).rglob("manifest.json")
    manifest.write_text('{"key":' + "[" * 100_000 + "]" * 100_000 + "}")
    assert steplens.open(path).operators()["calls"].max() == 3
