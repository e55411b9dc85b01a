"""trace_view.json of real jobs and recorded traces as viewers of Chrome's format want it: numbers, ids, arrows, nesting."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import runs

pytestmark = pytest.mark.slow

#: a larger integer is no longer exact in JavaScript
EXACT = 2**53
PHASES = {"X", "M", "s", "f", "i", "C"}


def refuse_constant(text: str) -> None:
    raise AssertionError(f"{text} is no JSON")


def events_of(run: Path) -> list[dict[str, Any]]:
    text = (runs.output(run) / "trace_view.json").read_bytes()
    assert not any(byte < 32 and byte not in (9, 10, 13) for byte in text), "control characters"
    found = json.loads(text, parse_constant=refuse_constant)
    assert isinstance(found, list) and found
    return found


def check(events: list[dict[str, Any]]) -> None:
    assert {event["ph"] for event in events} <= PHASES
    lanes: dict[tuple[int, int], list[tuple[int, int, str]]] = defaultdict(list)
    arrows: dict[tuple[str, Any], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        for name in ("pid", "tid"):
            assert type(event.get(name, 0)) is int and 0 <= event.get(name, 0) < EXACT
        if event["ph"] == "M":
            continue
        assert type(event["ts"]) in (int, float) and event["ts"] > 0
        start = round(event["ts"] * 1000)
        if event["ph"] == "X":
            assert type(event["dur"]) in (int, float) and event["dur"] >= 0
            lanes[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000), event["name"]))
        if event["ph"] in "sf":
            assert type(event["id"]) is int and 0 < event["id"] < EXACT
            arrows[event["cat"], event["id"]].append(event)
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert set(lanes) <= named, set(lanes) - named
    for lane, rows in lanes.items():
        check_nesting(lane, rows)
    for (category, number), ends in arrows.items():
        starts = [event for event in ends if event["ph"] == "s"]
        assert len(starts) == 1 and len(ends) >= 2, (category, number)
        for event in ends:
            # an arrow is tied to the event of its lane that holds its time
            time = round(event["ts"] * 1000)
            held = any(first - 1 <= time <= last + 1 for first, last, _ in lanes[event["pid"], event["tid"]])
            assert held, (category, number, event)


def check_nesting(lane: tuple[int, int], rows: list[tuple[int, int, str]]) -> None:
    around: list[tuple[int, int, str]] = []
    # times are us with three digits: the product with 1000 can be one ns off
    for start, end, name in sorted(rows, key=lambda row: (row[0], -row[1])):
        while around and around[-1][1] <= start + 1:
            around.pop()
        assert not around or end <= around[-1][1] + 2, (lane, around[-1], (start, end, name))
        around.append((start, end, name))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_data_parallel_job(job: Callable[[int], Path], ranks: int) -> None:
    for run in runs.run_directories(job(ranks) / "both"):
        check(events_of(run))


@pytest.mark.parametrize("part", ["pipeline", "groups"])
def test_a_pipeline(pipeline: Path, part: str) -> None:
    """Sends and receives end long after the calls that begin them: they have lanes of their own."""
    moved = 0
    for run in runs.run_directories(pipeline / part):
        events = events_of(run)
        check(events)
        names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
        moved += sum(
            names[event["pid"], event["tid"]].startswith("Asynchronous communication")
            for event in events
            if event["ph"] == "X" and event["name"] in ("gloo:send", "gloo:recv")
        )
    assert moved > 0


def test_recorded_cuda_traces(cuda: Path) -> None:
    for run in runs.run_directories(cuda / "text"):
        check(events_of(run))
