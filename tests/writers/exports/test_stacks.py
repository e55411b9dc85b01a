"""Call stacks in the format of FlameGraph."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from steplens.common.errors import InputError
from steplens.run import open_run
from steplens.trace.trace import Trace
from steplens.writers.exports.flame import stacks
from steplens.writers.exports.subject import Subject

from ...readers.ascend_fixture import write_golden
from ...writers.builder import build, kernel, op


def lines(trace: Trace, metric: str = stacks.SELF_CPU) -> list[str]:
    handle = io.BytesIO()
    stacks.write(Subject(trace, Path("run")), handle, metric)
    return handle.getvalue().decode().splitlines()


def test_the_golden_capture(tmp_path: Path) -> None:
    trace = open_run(write_golden(tmp_path)).trace()
    assert set(lines(trace)) == {"b.py(2): g;a.py(1): f 12", "b.py(2): g;a.py(9): h 16"}
    assert lines(trace, "self_npu_time_total") == ["b.py(2): g;a.py(9): h 5"]
    assert lines(trace, "self_cuda_time_total") == ["b.py(2): g;a.py(9): h 5"]


def test_equal_stacks_are_added_up_before_they_are_cut_to_microseconds() -> None:
    calls = [
        op("a", 0, 1.6, stack="inner;outer"),
        op("b", 2, 3.5, stack="inner;outer"),
        op("c", 4, 4.9, stack="short;outer"),
        op("d", 5, 9, stack="outer"),
        op("e", 10, 12),
        op("f", 13, 14, stack=""),
    ]
    assert lines(build(ops=calls)) == ["outer 4", "outer;inner 3"]


def test_every_line_can_be_parsed() -> None:
    calls = [op("a", 0, 5, stack="x\ny(1): f\t;two words;\x00"), op("b", 6, 8, stack="x y(1): f ;two words;\t")]
    found = lines(build(ops=calls))
    assert found == [";two words;x y(1): f 7"]
    assert all(re.fullmatch(r".* \d+", line) for line in found)


def test_what_cannot_be_written() -> None:
    with pytest.raises(InputError, match=r"no call stacks.*with_stack"):
        lines(build(ops=[op("a", 0, 1)]))
    on_cpu = build(ops=[op("a", 0, 1, stack="f")], kernels=[kernel("a", 0, 1)])
    with pytest.raises(InputError, match="no device tasks"):
        lines(on_cpu, "self_npu_time_total")
    with pytest.raises(InputError, match="no metric 'x'"):
        lines(on_cpu, "x")
