"""Sizes of collectives from PyTorch's flight recorder: never a wrong one, on simulated threads of a library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.readers.steplens_run.flight_recorder import _Entry, _Event, _match_entries, with_sizes
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, build, op

OPERATIONS = ("allreduce", "broadcast")


def simulated(asked: list[tuple[int, str, int]], held_up: list[int], lengths: list[int]) -> tuple[list[_Entry], list[_Event]]:
    """A group of two threads that take collectives in order; each may be held up before its event begins.

    Args:
        asked: per collective the time since the one before, its operation and its size.
        held_up: per collective the time between being taken and the begin of its event.
        lengths: of the events.

    Returns:
        the entries, and the events; the row of an event is the number of its true entry.
    """
    entries, events, free, created = [], [], [0, 0], 0
    taken = 0
    for number, ((gap, operation, size), wait, length) in enumerate(zip(asked, held_up, lengths, strict=True)):
        created += gap
        entries.append(_Entry(operation, "g", created, size, "Float", 2))
        thread = 0 if free[0] <= free[1] else 1
        # a queue gives out in order: never before it gave out the one before
        taken = max(taken, created, free[thread])
        start = taken + wait
        free[thread] = start + length + 1
        events.append(_Event(number, operation, 100 + thread, start, start + length))
    return entries, sorted(events, key=lambda event: event.start_ns)


@given(
    st.lists(
        st.tuples(
            st.tuples(st.integers(1, 30), st.sampled_from(OPERATIONS), st.sampled_from([1, 2, 3])),
            st.integers(0, 25),
            st.integers(0, 40),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_a_size_that_is_told_is_the_true_one(rows: list[tuple[tuple[int, str, int], int, int]]) -> None:
    entries, events = simulated([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])
    starts = [event.start_ns for event in events]
    if len(set(starts)) < len(starts):
        return
    for row, entry in _match_entries(events, entries):
        assert entry.elements in (None, entries[row].elements)


def test_of_collectives_that_follow_one_another_every_size_is_told() -> None:
    entries, events = simulated([(100, OPERATIONS[n % 2], n) for n in range(10)], [7] * 10, [30] * 10)
    assert {row: entry.elements for row, entry in _match_entries(events, entries)} == {n: n for n in range(10)}


def test_while_the_other_thread_is_busy_nothing_can_be_swapped() -> None:
    entries = [_Entry("allreduce", "g", n, n, "Float", 2) for n in range(3)]
    events = [_Event(0, "allreduce", 1, 3, 500), _Event(1, "allreduce", 2, 4, 50), _Event(2, "allreduce", 2, 60, 90)]
    # thread 2 was idle while thread 1 began, with the next collective there: these two may be each other's
    assert [entry.elements for _, entry in _match_entries(events, entries)] == [None, None, 2]
    sized = [_Entry("allreduce", "g", n, 7, "Float", 2) for n in range(3)]
    assert [entry.elements for _, entry in _match_entries(events, sized)] == [7, 7, 7]


def test_threads_of_two_groups_are_told_apart_only_where_nothing_else_fits() -> None:
    entries = [_Entry("allreduce", "a", 0, 1, "Float", 2), _Entry("broadcast", "b", 10, 2, "Float", 2)]
    events = [_Event(0, "allreduce", 1, 5, 6), _Event(1, "broadcast", 2, 15, 16)]
    assert {row: entry.group for row, entry in _match_entries(events, entries)} == {0: "a", 1: "b"}
    same = [_Entry("allreduce", "a", 0, 1, "Float", 2), _Entry("allreduce", "b", 1, 2, "Float", 2)]
    both = [_Event(0, "allreduce", 1, 5, 6), _Event(1, "allreduce", 2, 7, 8)]
    assert list(_match_entries(both, same)) == []


ENTRY = {
    "is_p2p": False, "process_group": ["0", "default_pg"], "profiling_name": "gloo:all_reduce", "input_sizes": [[3, 4]],
    "input_dtypes": ["Double"], "time_created_ns": BASE_NS + 1_500, "record_id": 0,
}  # fmt: skip


def recorded(tmp_path: Path, content: Any, **values: Any) -> Trace:
    (tmp_path / "collectives.json").write_text(content if isinstance(content, str) else json.dumps(content))
    event = {"name": "gloo:all_reduce", "kind": "collective", "start_ns": BASE_NS + 2_000, "end_ns": BASE_NS + 3_000, "stream": 9}
    trace = build(
        meta={"distributedInfo": {"pg_config": [{"pg_name": "0", "pg_size": 4}]}},
        ops=[op("c10d::allreduce_", 1, 1.8)],
        communication=[{**event, **values}],
    )
    return with_sizes(trace, tmp_path)


def told(trace: Trace) -> tuple[Any, ...]:
    columns = ("group", "ranks", "elements", "bytes", "dtype")
    return trace.required("communication").select(columns).cast({pl.Categorical: pl.String}).collect().row(0)


def test_an_event_gets_size_type_and_group(tmp_path: Path) -> None:
    assert told(recorded(tmp_path, {"entries": [ENTRY]})) == ("default_group", 4, 12, 96, "Double")
    # what the event tells itself stays
    assert told(recorded(tmp_path, {"entries": [ENTRY]}, elements=5, bytes=20, dtype="float"))[2:] == (5, 20, "float")


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "{}", '{"entries": 7}', '{"entries": [7]}', {"entries": []},
        {"entries": [{**ENTRY, "profiling_name": "gloo:broadcast"}]},
        {"entries": [{**ENTRY, "time_created_ns": BASE_NS + 1_900}]},
        {"entries": [{**ENTRY, "time_created_ns": "x"}]},
        {"entries": [{**ENTRY, "input_sizes": [["a"]]}]},
        {"entries": [{**ENTRY, "input_sizes": 7}]},
        {"entries": [{**ENTRY, "process_group": []}]},
        {"entries": [ENTRY, ENTRY]},
        {"entries": [{**ENTRY, "is_p2p": True}]},
    ],
)  # fmt: skip
def test_a_damaged_record_or_one_that_does_not_fit_tells_nothing(tmp_path: Path, content: Any) -> None:
    assert told(recorded(tmp_path, content)) == (None, None, None, None, None)
