"""Sampled Python stacks in flame graphs: the samples of each thread, and none where calls were recorded."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from steplens.common.errors import InputError
from steplens.trace.trace import Trace
from steplens.writers.exports.flame import speedscope, stacks
from steplens.writers.exports.subject import Subject

from ...writers.builder import build, frame, op
from .test_pprof import decode, message  # noqa: F401 - a fixture
from .test_pprof import stacks as stacks_of

STACKS = [
    {"id": 0, "parent": None, "depth": 0, "name": "train.py(1): <module>", "line": 20},
    {"id": 1, "parent": 0, "depth": 1, "name": "train.py(7): step", "line": 9},
    # one of the numbers in between was damaged
    {"id": 4, "parent": 0, "depth": 1, "name": "train.py(7): step", "line": 10},
    {"id": 5, "parent": None, "depth": 0, "name": "a;b.py(2): waits", "line": 3},
]


def sample(time: int, tid: int, stack: int | None, samples: int = 1, processor_ns: int | None = 1000) -> dict[str, Any]:
    values = {"time_ns": time, "wanted_ns": time, "pid": 1, "tid": tid, "stack": stack}
    return {**values, "samples": samples, "processor_ns": processor_ns}


SAMPLES = [
    sample(30, 7, 1), sample(10, 7, 1), sample(20, 7, 4, 2), sample(40, 7, None), sample(50, 7, 0), sample(15, 8, 5, 5, None),
]  # fmt: skip
THREADS = [{"pid": 1, "tid": 7, "name": "thread 7 (MainThread)"}]


def sampled(**tables: Any) -> Trace:
    parts: dict[str, Any] = {"python_stacks": STACKS, "python_samples": SAMPLES, "threads": THREADS, **tables}
    return build(meta={"stack_sampling_hz": 100.0}, **parts)


def written(writer: Any, trace: Trace) -> bytes:
    handle = io.BytesIO()
    writer.write(Subject(trace, Path("result/host_1_ascend_pt")), handle)
    return handle.getvalue()


def test_lines_per_stack() -> None:
    lines = written(stacks, sampled()).decode().splitlines()
    assert sorted(lines) == [
        "thread 7 (MainThread);(unknown stack) 10000",
        "thread 7 (MainThread);train.py(1): <module> 10000",
        # both lines of the function
        "thread 7 (MainThread);train.py(1): <module>;train.py(7): step 40000",
        "thread 8;a,b.py(2): waits 50000",
    ]


def test_profiles_of_samples() -> None:
    document = json.loads(written(speedscope, sampled(ops=[op("aten::add", 0, 1)])))
    names = [entry["name"] for entry in document["shared"]["frames"]]
    calls, main, other = document["profiles"]
    assert calls["type"] == "evented" and calls["events"]
    for profile in (main, other):
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert (profile["type"], profile["unit"], profile["startValue"]) == ("sampled", "nanoseconds", 0)
        assert sum(profile["weights"]) == profile["endValue"] and len(profile["weights"]) == len(profile["samples"])
    assert main["name"] == "Python samples, thread 7 (MainThread)"
    paths = [[names[place] for place in path] for path in main["samples"]]
    assert paths == [["<module>", "step"], ["(unknown stack)"], ["<module>"]]
    assert main["weights"] == [40_000_000, 10_000_000, 10_000_000]
    assert [[names[place] for place in path] for path in other["samples"]] == [["waits"]]
    assert other["weights"] == [50_000_000]
    # also without any operator
    assert [profile["type"] for profile in json.loads(written(speedscope, sampled()))["profiles"]] == ["sampled"] * 2


def test_samples_of_pprof(message: Any) -> None:  # noqa: F811 - the fixture
    profile = decode(message, sampled(ops=[op("aten::add", 0, 1)]))
    texts = profile.string_table
    kinds = [(texts[kind.type], texts[kind.unit]) for kind in profile.sample_type]
    assert kinds == [("samples", "count"), ("time", "nanoseconds"), ("cpu", "nanoseconds")]
    main, found = "thread 7 (MainThread)", stacks_of(profile)
    assert {path: values for path, values in found.items() if any(values)} == {
        (main, "<module>"): [1, 10_000_000, 1000],
        (main, "<module>", "step"): [4, 40_000_000, 3000],
        (main, "(unknown stack)"): [1, 10_000_000, 1000],
        ("thread 8", "waits"): [5, 50_000_000, 0],
    }


def test_recorded_calls_are_told_and_no_samples() -> None:
    both = sampled(python=[frame("train.py(1): <module>", 0, 5)], ops=[op("aten::add", 0, 1)])
    assert [profile["type"] for profile in json.loads(written(speedscope, both))["profiles"]] == ["evented"]
    with pytest.raises(InputError, match="with_stack=True, or with stack_sampling_hz"):
        written(stacks, both)
