"""Sampled Python stacks in files of the recorder: tables, threads, and what damage or hostility does to them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.analysis.operators.python_hotspots import python_hotspots
from steplens.formats import recorder as layout
from steplens.readers.recorder.recorder_file import read_recording
from steplens.trace.trace import Trace

from . import recorder_files as files
from .recorder_files import (
    BEGIN_NS,
    Recording,
    clocks,
    end_with_samples,
    python_names,
    python_samples,
    python_stacks,
    sampled_threads,
    thread,
)

MS = 1_000_000
MAIN = {"file": "train.py", "line": 1, "function": "<module>"}
STEP = {"file": "train.py", "line": 7, "function": "step"}
LAYER = {"module": "Linear", "class": 0, "object": 100}
OTHER_LAYER = {"module": "Linear", "class": 0, "object": 200}
WAIT = {"file": "threading.py", "line": 295, "function": "wait"}
NAMES = python_names(MAIN, STEP, OTHER_LAYER, LAYER, WAIT)
THREADS = sampled_threads(
    {"native_id": 77, "name": "MainThread"}, {"native_id": 78, "name": ""}, {"native_id": 78, "name": "helper"}
)
STACKS = python_stacks((-1, 0, 20), (0, 1, 9), (1, 3, 1500), (1, 2, 1500), (-1, 4, 327), (0, 1, 8))
UNKNOWN = layout.NO_PROCESSOR_TIME


def begin(*blocks: bytes) -> Recording:
    """A file up to its samples."""
    described = files.metadata({"stack_sampling_hz": 100.0})
    return Recording([files.header(options=16)]).add(described, clocks(0, 100 * MS), *(blocks or (NAMES, STACKS, THREADS)))


def rows(trace: Trace, table: str, *columns: str) -> list[tuple[Any, ...]]:
    frame = trace.table(table)
    if frame is None:
        return []
    return frame.select(pl.col(pl.Categorical).cast(pl.String), pl.exclude(pl.Categorical)).select(columns).rows()


def findings(trace: Trace) -> list[tuple[Any, ...]]:
    return rows(trace, "health", "check", "severity", "count")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.rec"


def test_samples_become_rows(path: Path) -> None:
    samples = python_samples(
        (1 * MS, 2 * MS, 1000, 2, 0, 1),
        (3 * MS, 23 * MS, 50, 4, 1, 3),
        (12 * MS, 12 * MS, 7_001_000, 3, 0, 1),
        (33 * MS, 36 * MS, 50, 4, 2, 1),
        (22 * MS, 25 * MS, 9_001_000, layout.NO_STACK, 0, 2),
        (43 * MS, 44 * MS, UNKNOWN, 5, 0, 1),
        (53 * MS, 54 * MS, 9_002_000, 5, 0, 1),
    )
    recording = begin().add(thread(1, 77, 5), samples, end_with_samples(7))
    trace = read_recording(recording.write(path))
    assert rows(trace, "python_stacks", "id", "parent", "depth", "name", "line") == [
        (0, None, 0, "train.py(1): <module>", 20),
        (1, 0, 1, "train.py(7): step", 9),
        # numbered as they were met, and without the line of PyTorch that they are at
        (2, 1, 2, "nn.Module: Linear_0", 0),
        (3, 1, 2, "nn.Module: Linear_1", 0),
        (4, None, 0, "threading.py(295): wait", 327),
        (5, 0, 1, "train.py(7): step", 8),
    ]
    found = rows(trace, "python_samples", "time_ns", "wanted_ns", "tid", "stack", "samples", "processor_ns")
    assert [(time - BEGIN_NS, wanted - BEGIN_NS, *rest) for time, wanted, *rest in found] == [
        (2 * MS, 1 * MS, 77, 2, 1, None),
        (12 * MS, 12 * MS, 77, 3, 1, 7 * MS),
        (25 * MS, 22 * MS, 77, None, 2, 2 * MS),
        (44 * MS, 43 * MS, 77, 5, 1, None),
        (54 * MS, 53 * MS, 77, 5, 1, None),
        (23 * MS, 3 * MS, 78, 4, 3, None),
        # of both texts that the thread has
        (36 * MS, 33 * MS, 78, 4, 1, 0),
    ]
    assert rows(trace, "threads", "tid", "name") == [(77, "thread 77 (MainThread)"), (78, "thread 78 (helper)")]
    assert findings(trace) == []
    assert python_hotspots(trace).select("thread", "name", "self_samples", "total_samples", "self_ns").rows() == [
        ("thread 77 (MainThread)", "train.py(7): step", 2, 4, 20 * MS),
        ("thread 77 (MainThread)", None, 2, 2, 20 * MS),
        ("thread 77 (MainThread)", "nn.Module: Linear_0", 1, 1, 10 * MS),
        ("thread 77 (MainThread)", "nn.Module: Linear_1", 1, 1, 10 * MS),
        ("thread 77 (MainThread)", "train.py(1): <module>", 0, 4, 0),
        ("thread 78 (helper)", "threading.py(295): wait", 4, 4, 40 * MS),
    ]
    assert python_hotspots(trace, "line").select("line", "self_samples", "total_samples").rows()[:2] == [
        ("train.py(8): step", 2, 2),
        (None, 2, 2),
    ]
    of_threads = python_hotspots(trace, "thread").select("thread", "samples", "time_ns", "cpu_ns", "name").rows()
    assert of_threads == [
        ("thread 77 (MainThread)", 6, 60 * MS, 9 * MS, "train.py(7): step"),
        ("thread 78 (helper)", 4, 40 * MS, 0, "threading.py(295): wait"),
    ]


def test_what_was_lost_is_said(path: Path) -> None:
    sample = python_samples((1 * MS, 2 * MS, 1, 0, 0, 1))
    trace = read_recording(begin().add(sample, end_with_samples(3, dropped=4, stackless=5, cut=6)).write(path))
    lost = [("dropped_records", "warning", 4), ("dropped_records", "warning", 5), ("dropped_records", "info", 6)]
    assert findings(trace) == [*lost, ("damaged_records", "error", 2)]


def test_records_that_cannot_be_are_left_out(path: Path) -> None:
    good = (1 * MS, 2 * MS, 1, 0, 0, 1)
    samples = python_samples(
        good,
        (2 * MS, 1 * MS, 1, 0, 0, 1),
        (1 * MS, 1 << 60, 1, 0, 0, 1),
        (1 * MS, 2 * MS, 1, 0, 3, 1),
        (1 * MS, 2 * MS, 1, 0, 0, 0),
        (1 * MS, 2 * MS, 1, 0, 0, (1 << 32) - 1),
        # a sample, of no stack that there is
        (3 * MS, 3 * MS, 1, 6, 0, 1),
    )
    trace = read_recording(begin().add(samples, end_with_samples(7)).write(path))
    assert rows(trace, "python_samples", "stack", "samples") == [(0, 1), (None, 1)]
    assert findings(trace) == [("damaged_records", "error", 6)]


@pytest.mark.parametrize(
    ("stacks", "kept", "damaged"),
    [
        # around themselves and one another, of a larger number, and inside of such
        ([(0, 0, 1), (-1, 0, 1)], [1], 1),
        ([(-1, 0, 1), (2, 0, 1), (1, 0, 1), (2, 1, 1)], [0], 3),
        ([(-1, 0, 1), (900, 0, 1), (0, 1, 2)], [0, 2], 1),
        # of a name that is not there
        ([(-1, 1 << 31, 5)], [0], 0),
        # deeper than any
        ([(number - 1, 0, number) for number in range(3000)], range(1025), 1975),
    ],
)
def test_stacks_that_lead_nowhere_are_none(path: Path, stacks: Any, kept: Any, damaged: int) -> None:
    samples = [(number * 1000, number * 1000, 1, number, 0, 1) for number in range(len(stacks))]
    recording = begin(NAMES, THREADS, python_stacks(*stacks)).add(python_samples(*samples), end_with_samples(len(samples)))
    trace = read_recording(recording.write(path))
    assert [row for (row,) in rows(trace, "python_stacks", "id")] == list(kept)
    assert [stack for (stack,) in rows(trace, "python_samples", "stack")] == [
        number if number in kept else None for number in range(len(stacks))
    ]
    assert findings(trace) == ([("damaged_records", "error", damaged)] if damaged else [])
    for by in ("function", "line", "thread"):
        assert python_hotspots(trace, by).height


def test_damaged_blocks_and_texts(path: Path) -> None:
    sample = python_samples((1 * MS, 2 * MS, 1, 0, 0, 1), (3 * MS, 3 * MS, 1, 4, 0, 1), (4 * MS, 4 * MS, 1, 2, 1, 1))
    # the block of the stacks 1 to 3 is missing
    stacks = python_stacks((-1, 0, 20)), python_stacks((3, 1, 9), (-1, 1, 9), first=4), python_stacks((-1, 0, 1), first=1 << 30)
    recording = begin(NAMES, *stacks, sampled_threads(b"{", {"native_id": -3})).add(sample, end_with_samples(3))
    trace = read_recording(recording.write(path))
    assert rows(trace, "python_stacks", "id") == [(0,), (5,)]
    assert rows(trace, "python_samples", "stack") == [(0,), (None,), (None,)]
    assert len(rows(trace, "threads", "tid")) == 2
    assert findings(trace)[0][0] == "damaged_records"


def test_a_file_that_breaks_off_gives_what_is_there(path: Path) -> None:
    samples = python_samples(*((number * MS, number * MS, 1, 1, 0, 1) for number in range(1, 9)))
    content = b"".join(begin().add(samples).parts)
    for cut in range(layout.HEADER_BYTES, len(content), 7):
        path.write_bytes(content[:cut])
        try:
            trace = read_recording(path)
        except Exception as error:
            assert "breaks off" in str(error)  # noqa: PT017 - of every length
            continue
        assert trace.table("health") is not None
        python_hotspots(trace)
    path.write_bytes(content[:-60])
    assert len(rows(read_recording(path), "python_samples", "stack")) == 6


def test_no_damage_is_more_than_a_finding(path: Path) -> None:
    """Any byte may be another one."""
    samples = python_samples(*((number * MS, number * MS, number, number % 6, number % 3, 1) for number in range(1, 60)))
    content = b"".join(begin().add(samples, end_with_samples(59)).parts)
    chance = random.Random(7)
    body = len(b"".join(Recording([files.header()]).add(files.metadata({"stack_sampling_hz": 100.0}), clocks(0, 100 * MS)).parts))
    for _ in range(150):
        damaged = bytearray(content)
        for _ in range(chance.randint(1, 12)):
            damaged[chance.randrange(body, len(damaged))] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
        path.write_bytes(damaged)
        trace = read_recording(path)
        for by in ("function", "line", "thread"):
            python_hotspots(trace, by)
