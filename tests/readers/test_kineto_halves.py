"""Chrome traces whose calls are two events, one where they begin and one where they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.readers.kineto import kineto, two_processes
from steplens.trace.trace import Trace

#: a time whose nanoseconds a double of microseconds does not hold
EPOCH_US = 1_790_857_026_000_000


def call(name: str, start: float, duration: float, cat: str = "cpu_op", tid: object = 11, **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 10, "tid": tid, "ts": start, "dur": duration, "args": args}


def calls() -> list[dict[str, Any]]:
    """A step whose calls begin and end together, lie inside one another and follow each other without a gap."""
    return [
        call("ProfilerStep#5", 0, 100, "user_annotation"),
        call("aten::linear", 0, 20.501, **{"External id": 3, "Input Dims": [[2, 3], []], "Input type": ["float", ""]}),
        call("aten::addmm", 10, 10.501, **{"External id": 4, "Sequence number": 7, "Fwd thread id": 0}),
        call("aten::empty", 20.501, 0),
        call("aten::relu", 20.501, 30.25),
        call("aten::mm", 55, 10, tid="worker"),
        call("cudaLaunchKernel", 60, 2, "cuda_runtime", correlation=9),
        call("gemm", 63, 5, "kernel", tid=7, device=0, stream=7, correlation=9, grid=[2, 1, 1], block=[32, 1, 1]),
    ]


def halves(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls in two events, in the order of their threads and, on each, of time. The end tells half of the arguments."""
    made: list[dict[str, Any]] = []
    for lane in dict.fromkeys(item["tid"] for item in items):
        opened: list[dict[str, Any]] = []
        for item in [item for item in items if item["tid"] == lane]:
            while opened and round(opened[-1]["ts"] + opened[-1]["dur"], 3) <= item["ts"] and opened[-1] is not items[0]:
                made.append(_end(opened.pop()))
            args = dict(list(item["args"].items())[::2])
            made.append({**{key: item[key] for key in ("cat", "name", "pid", "tid", "ts")}, "ph": "B", "args": args})
            opened.append(item)
        made.extend(_end(opened.pop()) for _ in range(len(opened)))
    return made


def _end(item: dict[str, Any]) -> dict[str, Any]:
    args = dict(list(item["args"].items())[1::2])
    return {"ph": "E", "pid": item["pid"], "tid": item["tid"], "ts": round(item["ts"] + item["dur"], 3), "args": args}


def written(path: Path, items: list[dict[str, Any]], shift_us: int = 0, form: str = "numbers") -> Path:
    """A trace of the events. ``shift_us`` is added to their times without a loss of digits."""
    text = json.dumps({"traceEvents": [{**item, "ts": f"@{item['ts']:.3f}@"} for item in items]})
    for item in items:
        whole, fraction = f"{item['ts']:.3f}".split(".")
        time = f"{int(whole) + shift_us}.{fraction}"
        text = text.replace(f'"@{item["ts"]:.3f}@"', json.dumps(time) if form == "quoted" else time)
    path.write_text(text)
    return path


def tables(trace: Trace) -> dict[str, pl.DataFrame]:
    return {name: trace.table(name) for name in ("ops", "steps", "kernels", "api", "threads")}


def findings(trace: Trace) -> list[tuple[str, int]]:
    return [] if trace.health is None else trace.health.select("check", "count").rows()


@pytest.mark.parametrize("form", ["numbers", "quoted"])
@pytest.mark.parametrize("shift_us", [0, EPOCH_US])
def test_calls_in_two_events_are_those_in_one(tmp_path: Path, shift_us: int, form: str) -> None:
    whole = kineto.read(written(tmp_path / "whole.json", calls(), shift_us, form))
    split = kineto.read(written(tmp_path / "split.json", halves(calls()), shift_us, form))
    assert whole.ops.height == 6
    assert whole.kernels["name"].to_list() == ["gemm"]
    for name, table in tables(whole).items():
        assert tables(split)[name].equals(table), name
    assert findings(split) == findings(whole)


def test_threads_and_halves_in_any_order_of_the_file(tmp_path: Path) -> None:
    whole = kineto.read(written(tmp_path / "whole.json", calls()))
    by_time = sorted(halves(calls()), key=lambda item: item["ts"])
    apart = [item for item in halves(calls()) if item["ph"] == "B" and item["ts"] not in (20.501,)]
    apart += [item for item in halves(calls()) if item["ph"] == "E" or item["ts"] == 20.501]
    # on one thread, what lies at the same time keeps the order of the file
    for number, items in enumerate((by_time, apart)):
        split = kineto.read(written(tmp_path / f"split{number}.json", items))
        assert split.ops["name"].sort().to_list() == whole.ops["name"].sort().to_list()
        if items is by_time:
            assert split.ops.equals(whole.ops)
            assert findings(split) == findings(whole)


def test_a_member_in_both_halves_is_that_of_the_end(tmp_path: Path) -> None:
    begin = {"ph": "B", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "args": {"External id": 3}}
    path = tmp_path / "both.json"
    for args, expected in (({"External id": 4}, 4), ({}, 3), (None, 3), ([5], 3), ({"other": {"a": "}"}}, 3)):
        path.write_text(json.dumps([begin, {"ph": "E", "pid": 1, "tid": 1, "ts": 5, "args": args}]))
        assert kineto.read(path).ops["external_id"].to_list() == [expected]


def test_halves_without_the_other_are_counted_and_spoil_no_call(tmp_path: Path) -> None:
    good = halves(calls())
    lane = {"cat": "cpu_op", "pid": 10, "tid": 11}
    odd = [
        # inside aten::relu, which ends by its name; and an end of a call that was never open
        {**lane, "ph": "B", "name": "aten::unfinished", "ts": 22},
        {**lane, "ph": "E", "name": "aten::nobody", "ts": 23},
        {**lane, "ph": "E", "ts": 500},
        {**lane, "ph": "B", "name": "aten::open", "ts": 600},
        {**lane, "ph": "E", "tid": 99, "ts": 5},
    ]
    for item in good:
        if item["ph"] == "E" and item["ts"] == 50.751:
            item["name"] = "aten::relu"
    expected = kineto.read(written(tmp_path / "good.json", good))
    found = kineto.read(written(tmp_path / "odd.json", [*good, *odd]))
    for name, table in tables(expected).items():
        assert tables(found)[name].equals(table), name
    unpaired = found.health.filter(check="unpaired_events")
    assert unpaired["count"].to_list() == [2, 3]
    assert unpaired["severity"].unique().to_list() == ["warning"]
    assert all("operator calls" in text for text in unpaired["unsafe"])


def test_a_half_without_a_time_is_damaged(tmp_path: Path) -> None:
    items = [{**item, "ts": None} if item["ph"] == "B" and item["name"] == "aten::relu" else item for item in halves(calls())]
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(items))
    trace = kineto.read(path)
    assert ("damaged_events", 1) in findings(trace)
    assert "aten::relu" not in trace.ops["name"].cast(pl.String).to_list()


def test_twenty_thousand_calls_inside_one_another(tmp_path: Path) -> None:
    depth = 20_000
    lane = {"cat": "cpu_op", "pid": 1, "tid": 1}
    items = [{**lane, "ph": "B", "name": "aten::a", "ts": number} for number in range(depth)]
    items += [{**lane, "ph": "E", "name": "aten::a", "ts": depth + number} for number in range(depth)]
    path = tmp_path / "deep.json"
    path.write_text(json.dumps(items))
    trace = kineto.read(path)
    assert trace.ops.height == depth
    assert trace.ops["depth"].max() == depth - 1
    # each end looks for a name that is not open: no search through all that are
    path.write_text(json.dumps([*items[:depth], *({**item, "name": "aten::b"} for item in items[depth:])]))
    columns, _ = two_processes.read_columns(path)
    columns.convert()
    assert (columns.unended, columns.unbegun) == (depth, depth)


def test_two_processes_read_the_same_calls(tmp_path: Path) -> None:
    lane = {"cat": "cpu_op", "pid": 1}
    # one call from the first to the last event, over both parts of the file
    items = [{**lane, "tid": "a", "ph": "B", "name": "aten::outer", "ts": 0}]
    for number in range(2_000):
        tid = "ab"[number % 2]
        items.append(
            {**lane, "tid": tid, "ph": "B", "name": "aten::inner", "ts": 10 * number + 1, "args": {"External id": number}}
        )
        items.append({**lane, "tid": tid, "ph": "E", "ts": 10 * number + 8})
    items.append({**lane, "tid": "a", "ph": "E", "ts": 10 * 2_000})
    path = tmp_path / "large.json"
    text = ",".join("\n  " + json.dumps(item, indent=4).replace("\n", "\n  ") for item in items)
    path.write_text(f'{{\n  "traceEvents": [{text}\n  ]}}')
    together, _ = two_processes.read_columns(path, parallel_bytes=0)
    alone, _ = two_processes.read_columns(path)
    for columns in (together, alone):
        columns.convert()
        assert columns.frame("operators").height == 2_001
        assert (columns.unended, columns.unbegun, columns.damaged, columns.skipped) == (0, 0, 0, 0)
    assert together.frame("operators").equals(alone.frame("operators"))
    assert together.lane_names == alone.lane_names
    assert sorted(alone.lane_names.values()) == ["a", "b"]
