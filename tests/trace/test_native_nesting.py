"""The library nests calls exactly as the columns of numpy do, whatever the times."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steplens.common.native.build import build_library, find_compiler
from steplens.trace.building import native_nesting
from steplens.trace.building.nesting import innermost_calls, lane_numbers, nest_calls

#: lane, start and length; some end before they start, as damaged sources have them
calls = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(-3, 15)), min_size=1, max_size=40)
same_fixture = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", autouse=True)
def _built() -> Iterator[None]:
    if find_compiler() is None:
        pytest.skip("there is no C++ compiler")
    build_library(native_nesting.LIBRARY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_nesting, "_LEAST_CALLS", 0)
        yield


def sorted_columns(raw: list[tuple[int, int, int]]) -> tuple[np.ndarray, ...]:
    rows = sorted(((lane, start, start + length) for lane, start, length in raw), key=lambda row: (row[0], row[1], -row[2]))
    lane, start, end = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return lane_numbers(lane), start, end


@same_fixture
@given(calls)
def test_the_library_nests_as_numpy_does(raw: list[tuple[int, int, int]]) -> None:
    columns = sorted_columns(raw)
    assert native_nesting.load_library(len(raw)) is not None
    native = nest_calls(*columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_nesting, "load_library", lambda count: None)
        plain = nest_calls(*columns)
    for name in ("parent", "depth", "subtree_end"):
        assert getattr(native, name).tolist() == getattr(plain, name).tolist(), name


@same_fixture
@given(calls, st.lists(st.integers(-3, 50), min_size=1, max_size=30), st.booleans())
def test_the_library_finds_the_same_innermost_calls(raw: list[tuple[int, int, int]], times: list[int], is_sorted: bool) -> None:
    lane, start, end = sorted_columns([(0, start, max(length, 0)) for _, start, length in raw])
    parent = nest_calls(lane, start, end).parent
    time = np.array(sorted(times) if is_sorted else times, dtype=np.int64)
    native = innermost_calls(start, end, parent, time)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_nesting, "load_library", lambda count: None)
        plain = innermost_calls(start, end, parent, time)
    assert native.tolist() == plain.tolist()


def test_calls_in_calls_to_any_depth_take_one_pass() -> None:
    count = 1 << 17
    start = np.arange(count, dtype=np.int64)
    nesting = nest_calls(np.zeros(count, dtype=np.int64), start, 2 * count - start)
    assert nesting.depth[-1] == count - 1
    assert (nesting.subtree_end == count).all()
    innermost = innermost_calls(start, 2 * count - start, nesting.parent, np.array([count, 2 * count, 2 * count + 1]))
    assert innermost.tolist() == [count - 1, 0, -1]


def test_columns_of_another_layout_are_read_all_the_same() -> None:
    lane, start = np.zeros(4, dtype=np.int32), np.arange(8, dtype=np.int64)[::2]
    end = np.array([9, 3, 9, 8], dtype=np.int64)
    assert nest_calls(lane, start, end).parent.tolist() == [-1, 0, 0, 2]
    assert innermost_calls(start, end, np.array([-1, 0, 0, 2]), np.arange(10)[::3].astype(np.int32)).tolist() == [0, 1, 3, 2]


def test_many_calls_have_the_library_built_for_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []
    native_nesting._build_once.cache_clear()
    monkeypatch.setattr(native_nesting, "load_built", lambda library: None)
    monkeypatch.setattr(native_nesting, "build_in_background", named.append)
    assert native_nesting.load_library(1000) is None
    assert named == []
    for _ in range(2):
        assert native_nesting.load_library(1 << 20) is None
    assert named == ["nesting"]
    native_nesting._build_once.cache_clear()
