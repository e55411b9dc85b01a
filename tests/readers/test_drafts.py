"""Drafts of large traces: events of the file and no others, evenly from all of it, whatever its layout."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import steplens
from steplens.readers import drafts
from steplens.readers.common import json_sample
from steplens.readers.common.json_events import JsonEventFile
from steplens.readers.common.json_sample import write_sample
from steplens.run import open_draft

EVENTS = 6000
#: what looks like the end of an event, inside of one
AWKWARD = '},\n  {"ph": "X", "name": "inside"'


def events(count: int = EVENTS) -> list[dict[str, Any]]:
    names = [{"ph": "M", "name": "thread_name", "pid": 1, "tid": 7, "ts": 0, "args": {"name": "main thread"}}]
    return names + [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": AWKWARD if number % 50 == 0 else f"aten::op_{number % 9}",
            "pid": 1,
            "tid": 7,
            "ts": 1000 + 10 * number,
            "dur": 5,
            "args": {"number": number, "shapes": [[1, 2], []], "more": {"text": '"}]{'}},
        }
        for number in range(count)
    ]


def lines_of_kineto(items: list[dict[str, Any]]) -> str:
    body = ",".join("\n  " + json.dumps(item, indent=4).replace("\n", "\n  ") for item in items)
    return f'{{\n  "schemaVersion": 1,\n  "traceEvents": [{body}\n  ],\n  "traceName": "made"\n}}\n'


def one_line(items: list[dict[str, Any]]) -> str:
    return json.dumps({"schemaVersion": 1, "traceEvents": items, "traceName": "made"})


def without_blanks(items: list[dict[str, Any]]) -> str:
    return json.dumps({"schemaVersion": 1, "traceEvents": items, "traceName": "made"}, separators=(",", ":"))


def a_list(items: list[dict[str, Any]]) -> str:
    return json.dumps(items)


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_sample, "_LEAST_BYTES", 100_000)
    monkeypatch.setattr(json_sample, "_END_BYTES", 8 << 10)
    monkeypatch.setattr(json_sample, "_STRETCH_BYTES", 2 << 10)
    monkeypatch.setattr(json_sample, "_STRETCHES", 64)


def never(folder: Path) -> bool:
    """Nothing is laid out."""
    return False


def read(path: Path) -> tuple[list[dict[str, Any]], JsonEventFile]:
    file = JsonEventFile(path)
    return [event for piece in file for event in json.loads(bytes(piece))], file


@pytest.mark.parametrize("layout", [lines_of_kineto, one_line, without_blanks, a_list])
def test_a_sample_has_events_of_the_file_evenly(tmp_path: Path, layout: Callable[[list[dict[str, Any]]], str]) -> None:
    every = events()
    path, target = tmp_path / "trace.json", tmp_path / "sample.json"
    path.write_text(layout(every))
    sample = write_sample(path, target)
    assert sample is not None
    taken, file = read(target)
    assert not file.truncated and not file.damaged
    if layout is not a_list:
        assert file.header == {"schemaVersion": 1}
        assert file.footer == {"traceName": "made"}
    assert taken[0] == every[0], "names of threads are among the first events"
    numbers = [event["args"]["number"] for event in taken[1:]]
    assert numbers == sorted(set(numbers)), "in the order of the file, none twice"
    assert all(event == every[event["args"]["number"] + 1] for event in taken[1:])
    assert numbers[-1] == EVENTS - 1
    # every thirtieth of the file is there
    assert {30 * number // EVENTS for number in numbers} == set(range(30))
    assert sample.of_bytes == path.stat().st_size
    # "one of so many": within a tenth of the truth
    assert sample.of_bytes / sample.bytes == pytest.approx(EVENTS / len(taken), rel=0.1)


def test_a_slow_disk_gives_fewer_stretches_as_evenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr(json_sample.time, "monotonic", lambda: next(ticks))
    # one look at the clock after each of them
    monkeypatch.setattr(json_sample, "_MOST_S", 7)
    path, target = tmp_path / "trace.json", tmp_path / "sample.json"
    path.write_text(lines_of_kineto(events()))
    assert write_sample(path, target) is not None
    numbers = [event["args"]["number"] for event in read(target)[0][1:]]
    assert {round(8 * number / EVENTS) for number in numbers} == set(range(9))
    assert not any(900 < number < 1400 for number in numbers), "eight stretches, not 64"


def test_files_that_give_no_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "sample.json"
    small = tmp_path / "small.json"
    small.write_text(lines_of_kineto(events(10)))
    assert write_sample(small, target) is None
    monkeypatch.setattr(json_sample, "_LEAST_BYTES", 10_000)
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(lines_of_kineto(events()).encode(), 1))
    assert packed.stat().st_size > 10_000
    assert write_sample(packed, target) is None
    for name, text in (
        ("text.json", "no trace " * 9000),
        ("other.json", json.dumps({"rows": [1] * 9000})),
        ("numbers.json", json.dumps([1] * 9000)),
    ):
        (tmp_path / name).write_text(text)
        assert write_sample(tmp_path / name, target) is None, name


def test_a_file_that_breaks_off_gives_what_it_has(tmp_path: Path) -> None:
    path, target = tmp_path / "trace.json", tmp_path / "sample.json"
    text = lines_of_kineto(events())
    path.write_text(text[: len(text) // 2])
    assert write_sample(path, target) is not None
    taken, file = read(target)
    assert file.truncated
    assert len(taken) > 300


def test_a_draft_of_a_trace_that_was_not_read(tmp_path: Path) -> None:
    path = tmp_path / "rank3.pt.trace.json"
    path.write_text(lines_of_kineto(events()))
    drawn = open_draft(path, never)
    assert drawn is not None and not drawn.is_read
    assert drawn.of_bytes == path.stat().st_size
    draft, whole = drawn.run.trace(), steplens.open(path).trace()
    assert draft.kept is None
    columns = ["name", "start_ns", "end_ns", "pid", "tid"]
    some, all_of_them = (set(trace.required("ops").select(columns).collect().rows()) for trace in (draft, whole))
    assert some < all_of_them and len(some) > 300
    # it has been read now, and is open within a moment; laying it out takes longer
    asked = []
    again = open_draft(path, lambda folder: bool(asked.append(folder)))
    assert again is not None and again.is_read
    assert asked == [tmp_path / ".steplens" / path.name]
    assert open_draft(path, lambda folder: True) is None


def test_a_draft_of_a_timeline_of_ascend(tmp_path: Path) -> None:
    process = {"ph": "M", "name": "process_name", "pid": 9, "tid": 0, "args": {"name": "Ascend Hardware"}}
    tasks = [
        {
            "ph": "X",
            "name": f"MatMul{number % 5}",
            "pid": 9,
            "tid": 3,
            "ts": str(1000 + 10 * number),
            "dur": 4,
            "args": {"Task Type": "AI_CORE"},
        }
        for number in range(EVENTS)
    ]
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps([process, *tasks]))
    drawn = open_draft(path, never)
    assert drawn is not None
    assert drawn.run.sources[0].format == "Ascend timeline"
    kernels = drawn.run.trace().required("kernels").select("start_ns").collect()
    whole = steplens.open(path).trace().required("kernels").select("start_ns").collect()
    assert 300 < kernels.height < whole.height
    assert set(kernels["start_ns"]) <= set(whole["start_ns"])


def test_what_cannot_be_drawn_is_left_to_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_draft(tmp_path / "missing", never) is None
    (tmp_path / "empty").mkdir()
    assert open_draft(tmp_path / "empty", never) is None
    path = tmp_path / "trace.json"
    path.write_text(lines_of_kineto(events()))

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(drafts, "write_sample", full)
    assert open_draft(path, never) is None
