"""Speedscope files: the rules of its schema, and every call with its own time."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.run import open_run
from steplens.trace.trace import Trace
from steplens.writers.common.output import NothingToWriteError
from steplens.writers.exports.flame import speedscope
from steplens.writers.exports.subject import Subject

from ...readers.ascend_fixture import write_golden
from ...writers.builder import BACKWARD, MAIN, build, frame, kernel, op, synthetic, training_step


def document(trace: Trace) -> dict[str, Any]:
    handle = io.BytesIO()
    speedscope.write(Subject(trace, Path("result/host_1_ascend_pt")), handle)
    found = json.loads(handle.getvalue())
    check(found)
    return found  # type: ignore[no-any-return]


def check(found: dict[str, Any]) -> None:
    """The rules of https://www.speedscope.app/file-format-schema.json and of its importer."""
    assert found["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert set(found) == {"$schema", "exporter", "name", "activeProfileIndex", "shared", "profiles"}
    frames = found["shared"]["frames"]
    for item in frames:
        assert set(item) in ({"name"}, {"name", "file", "line"})
        assert isinstance(item["name"], str)
    assert 0 <= found["activeProfileIndex"] < len(found["profiles"])
    for profile in found["profiles"]:
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "events"}
        assert (profile["type"], profile["unit"], profile["startValue"]) == ("evented", "nanoseconds", 0)
        stack, now = [], 0
        for event in profile["events"]:
            assert set(event) == {"type", "frame", "at"}
            assert now <= event["at"] <= profile["endValue"]
            now = event["at"]
            assert 0 <= event["frame"] < len(frames)
            if event["type"] == "O":
                stack.append(event["frame"])
            else:
                assert event["type"] == "C"
                assert stack.pop() == event["frame"]
        assert not stack


def totals(found: dict[str, Any], profile: dict[str, Any]) -> Counter[str]:
    """Time between beginning and end of every name, each nesting of it counted."""
    sums: Counter[str] = Counter()
    opened: list[int] = []
    for event in profile["events"]:
        if event["type"] == "O":
            opened.append(event["at"])
        else:
            sums[found["shared"]["frames"][event["frame"]]["name"]] += event["at"] - opened.pop()
    return sums


def test_a_training_step() -> None:
    found = document(training_step())
    assert found["name"] == "host_1"
    assert [profile["name"] for profile in found["profiles"]] == [f"thread {MAIN}", f"thread {BACKWARD}"]
    main, backward = found["profiles"]
    assert totals(found, main) == {
        "<module>": 98_500,
        "ProfilerStep#7": 99_000 - 1_000,
        "nn.Module: Linear_0": 29_500,
        "aten::linear": 28_000,
        "aten::mm": 16_001,
        "aten::add": 11_500,
    }
    assert totals(found, backward) == {"LinearBackward0": 30_000}
    assert {"name": "<module>", "file": "train.py", "line": 9} in found["shared"]["frames"]
    # a call in the module's frame, which is in the step: outermost first
    names = [found["shared"]["frames"][event["frame"]]["name"] for event in main["events"] if event["type"] == "O"]
    assert names == ["<module>", "ProfilerStep#7", "nn.Module: Linear_0", "aten::linear", "aten::mm", "aten::add"]


def test_streams_of_a_device_are_profiles() -> None:
    kernels = [kernel("k", 1, 3, core="CUDA", stream=7), kernel("k", 2, 5, core="CUDA", stream=9)]
    found = document(build(ops=[op("a", 1, 2)], kernels=kernels))
    assert [profile["name"] for profile in found["profiles"]] == [f"thread {MAIN}", "CUDA stream 7", "CUDA stream 9"]
    assert [totals(found, profile)["k"] for profile in found["profiles"][1:]] == [2_000, 3_000]


def test_a_call_that_reaches_into_the_next_one_is_closed_first() -> None:
    found = document(build(ops=[op("a", 0, 10), op("b", 5, 15)]))
    assert [(event["type"], event["at"]) for event in found["profiles"][0]["events"]] == [
        ("O", 0),
        ("C", 10_000),
        ("O", 10_000),
        ("C", 15_000),
    ]


def test_a_call_that_ends_a_little_late_is_cut() -> None:
    # a range around everything that the clock of another recorder ends 1 us before its content
    found = document(build(python=[frame("f", 0, 99)], ops=[op("step", 1, 100), op("a", 2, 50), op("b", 60, 99.5)]))
    assert totals(found, found["profiles"][0]) == {"f": 99_000, "step": 98_000, "a": 48_000, "b": 39_000}


def test_a_range_that_a_function_opens_and_leaves_open() -> None:
    found = document(build(python=[frame("step", 0, 3), frame("train", 4, 90)], ops=[op("ProfilerStep#1", 2, 100)]))
    assert totals(found, found["profiles"][0]) == {"step": 3_000, "ProfilerStep#1": 97_000, "train": 86_000}


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.booleans()), min_size=1, max_size=30))
def test_any_calls_give_a_valid_file(spans: list[tuple[int, int, bool]]) -> None:
    calls = [op(f"o{start}", start, start + length) for start, length, python in spans if not python]
    frames = [frame(f"p{start}", start, start + length) for start, length, python in spans if python]
    found = document(build(ops=calls, python=frames))
    assert sum(len(profile["events"]) for profile in found["profiles"]) == 2 * len(spans)


@given(st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=4), max_leaves=25))
def test_nested_calls_keep_their_times(tree: list[Any]) -> None:
    """Calls that nest properly, some of them as long as their only child: no time is moved."""
    calls: list[dict[str, Any]] = []

    def place(children: list[Any], at: int) -> int:
        start = at
        number = len(calls)
        calls.append(op(f"c{number}", start, start))
        for child in children:
            at = place(child, at)
        end = max(at, start + 1)
        calls[number] = op(f"c{number}", start, end)
        return end

    place(tree, 0)
    found = document(build(ops=calls))
    (profile,) = found["profiles"]
    assert totals(found, profile) == {call["name"]: call["end_ns"] - call["start_ns"] for call in calls}


def test_many_calls() -> None:
    trace = synthetic(ops=120_000, kernels=10, memory_events=20, steps=2)
    found = document(trace)
    (profile,) = found["profiles"]
    assert len(profile["events"]) == 240_000
    durations = trace.ops["end_ns"] - trace.ops["start_ns"]
    assert sum(totals(found, profile).values()) == durations.sum()


def test_an_ascend_capture(tmp_path: Path) -> None:
    found = document(open_run(write_golden(tmp_path)).trace())
    assert [profile["name"] for profile in found["profiles"] if profile["name"].startswith("NPU stream")]


def test_nothing_to_write() -> None:
    with pytest.raises(NothingToWriteError):
        speedscope.write(Subject(build(meta={"rank": 0}), Path("x")), io.BytesIO())
