"""Calls of Python in files of the recorder: names, nesting, modules, stacks of operators, what is open, damaged or missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.formats import recorder as layout
from steplens.readers.recorder.recorder_file import read_recording
from steplens.trace.trace import Trace

from . import recorder_files as files
from .recorder_files import BEGIN_NS, Recording, call, calls, clocks, python_calls, python_names, signatures, thread

MS = 1_000_000
MAIN = {"file": "train.py", "line": 7, "function": "<module>"}
FORWARD = {"file": "torch/nn/modules/linear.py", "line": 130, "function": "forward"}
BUILTIN = {"builtin": "<built-in method sum of Tensor object at 0x7f00>"}
FIRST = {"module": "Linear", "class": 0, "object": 100}
SECOND = {"module": "Linear", "class": 0, "object": 200}
OTHER = {"module": "Linear", "class": 1, "object": 300}
TEXTS = (MAIN, FORWARD, BUILTIN, SECOND, FIRST, OTHER)


def begin() -> Recording:
    """A file up to its calls of Python."""
    blocks = clocks(0, 30 * MS), thread(1, 77, 5), thread(2, 78, 6), signatures({"name": "aten::sum"}), python_names(*TEXTS)
    return Recording([files.header(options=15)]).add(*blocks)


def rows(trace: Trace, table: str, *columns: str) -> list[tuple[Any, ...]]:
    frame = trace.table(table)
    if frame is None:
        return []
    return frame.select(pl.col(pl.Categorical).cast(pl.String), pl.exclude(pl.Categorical)).select(columns).rows()


def findings(trace: Trace) -> list[tuple[Any, ...]]:
    return rows(trace, "health", "check", "count")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.rec"


def test_calls_become_rows_and_stacks(path: Path) -> None:
    recording = begin().add(
        python_calls((3 * MS, 5 * MS, 2, 2), (2 * MS, 6 * MS, 4, 1), (0, 9 * MS, 0, 0)),
        python_calls((MS, 2 * MS, 3, 0), (7 * MS, 8 * MS, 4, 0), (8 * MS, 9 * MS, 5, 0), thread=2),
        calls(call(4 * MS, 5 * MS - 1, 0)),
        files.end_with_python(1, 6),
    )
    trace = read_recording(recording.write(path))
    assert rows(trace, "python", "id", "name", "tid", "start_ns", "end_ns", "parent", "module_id") == [
        (1, "train.py(7): <module>", 77, BEGIN_NS, BEGIN_NS + 9 * MS, None, None),
        # of both threads the module of number 3 was called first
        (2, "nn.Module: Linear_1", 77, BEGIN_NS + 2 * MS, BEGIN_NS + 6 * MS, 1, 1),
        (3, BUILTIN["builtin"], 77, BEGIN_NS + 3 * MS, BEGIN_NS + 5 * MS, 2, None),
        (4, "nn.Module: Linear_0", 78, BEGIN_NS + MS, BEGIN_NS + 2 * MS, None, 0),
        (5, "nn.Module: Linear_1", 78, BEGIN_NS + 7 * MS, BEGIN_NS + 8 * MS, None, 1),
        # another class of the same name has numbers of its own
        (6, "nn.Module: Linear_0", 78, BEGIN_NS + 8 * MS, BEGIN_NS + 9 * MS, None, 0),
    ]
    ((stack,),) = rows(trace, "ops", "stack")
    assert stack == "<built-in method sum of Tensor object>;nn.Module: Linear_1;train.py(7): <module>"
    assert trace.meta_value("with_stack") == 1
    assert not findings(trace)


def test_calls_of_one_tick_nest_by_their_depth(path: Path) -> None:
    recording = begin().add(python_calls((0, 4 * MS, 1, 1), (0, 9 * MS, 0, 0)), files.end_with_python(0, 2))
    trace = read_recording(recording.write(path))
    assert rows(trace, "python", "name", "parent") == [
        ("train.py(7): <module>", None), ("torch/nn/modules/linear.py(130): forward", 1)
    ]  # fmt: skip


def test_open_calls_end_with_the_recording(path: Path) -> None:
    recording = begin().add(
        # a look in the middle, one of whose calls has ended since
        python_calls((0, 5 * MS, 0, 0), (0, 5 * MS, 3, 1), (2 * MS, 5 * MS, 1, 2), thread=1, kind=layout.OPEN_PYTHON_CALLS),
        python_calls((2 * MS, 8 * MS, 1, 2)),
    )
    trace = read_recording(recording.write(path))
    assert rows(trace, "python", "name", "end_ns") == [
        ("train.py(7): <module>", BEGIN_NS + 30 * MS),
        ("nn.Module: Linear_0", BEGIN_NS + 30 * MS),
        ("torch/nn/modules/linear.py(130): forward", BEGIN_NS + 8 * MS),
    ]
    messages = dict(rows(trace, "health", "check", "message"))
    assert "thread 77: nn.Module: Linear_0 in train.py(7): <module>" in messages["open_calls"]
    # whoever ended a recording was in something, which is nothing to tell
    ended = recording.add(files.end_with_python(0, 1))
    assert not findings(read_recording(ended.write(path)))


def test_calls_without_a_name_and_damage(path: Path) -> None:
    recording = begin().add(
        python_names(b"{no json", first=6),
        python_calls((MS, 2 * MS, 6, 0), (3 * MS, 4 * MS, 99, 0), (6 * MS, 5 * MS, 0, 0)),
        files.end_with_python(0, 5),
    )
    trace = read_recording(recording.write(path))
    assert rows(trace, "python", "name") == [("(unnamed)",), ("(unnamed)",)]
    assert ("damaged_records", 2) in findings(trace)


@pytest.mark.parametrize("cut", range(1, 200, 13))
def test_a_file_that_breaks_off(cut: int, path: Path) -> None:
    whole = begin().add(python_calls((MS, 2 * MS, 1, 1), (0, 9 * MS, 0, 0)), files.end_with_python(0, 2)).write(path)
    content = whole.read_bytes()
    path.write_bytes(content[:-cut])
    trace = read_recording(path)
    assert len(rows(trace, "python", "name")) <= 2
    assert findings(trace)


def test_what_is_missing_is_told(path: Path) -> None:
    recording = begin().add(python_calls((0, 9 * MS, 0, 0)), files.end_with_python(0, 3, dropped=4, refused=2, lost=1))
    counts = findings(read_recording(recording.write(path)))
    assert sorted(counts) == [
        ("damaged_records", 2), ("dropped_records", 4), ("missing_python_calls", 1), ("missing_python_calls", 2)
    ]  # fmt: skip
