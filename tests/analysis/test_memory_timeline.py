"""Memory events and their sums, against a walk over the allocator's events one by one."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from steplens.analysis.memory.memory_categories import (
    ACTIONS,
    BEFORE,
    CATEGORIES,
    CREATE,
    DESTROY,
    EVENTS,
    INCREMENT_VERSION,
    PREEXISTING,
    UNKNOWN,
    uncategorised_events,
)
from steplens.analysis.memory.memory_timeline import category_timeline

from ..writers.builder import BASE_NS, build, memory


def events(*rows: tuple[int, int, int, int]) -> pl.DataFrame:
    """Events of (time, action, bytes, category) on one device."""
    columns = ("time_ns", "action", "bytes", "category")
    frame = pl.DataFrame(rows, schema={name: EVENTS[name] for name in columns}, orient="row")
    return frame.with_columns(device_type=pl.lit("CPU"), device=pl.lit(0, dtype=pl.Int32))


def test_actions_are_numbered_as_files_have_them() -> None:
    assert [ACTIONS[number] for number in (PREEXISTING, CREATE, INCREMENT_VERSION, DESTROY)] == list(ACTIONS)


def test_allocator_events() -> None:
    rows = [
        memory(1, 64, 100, allocated=1100, reserved=0),
        # from before the window: nobody allocated it here
        memory(2, 128, -300, allocated=800, reserved=0),
        memory(3, 64, -100, allocated=700, reserved=0),
        memory(4, 64, 50, allocated=750, reserved=0),
        memory(4.5, 64, -50, allocated=700, reserved=0, event="block_free"),
        memory(5, None, None, allocated=700, reserved=0),
    ]
    found = uncategorised_events(build(memory=rows))
    assert found.schema == EVENTS
    # 1000 bytes were there before the first event: 300 that are released, 700 that are not
    assert [(row[0], row[1], row[2]) for row in found.iter_rows()] == [
        (BEFORE, PREEXISTING, 300),
        (BEFORE, PREEXISTING, 700),
        (BASE_NS + 1_000, CREATE, 100),
        (BASE_NS + 2_000, DESTROY, -300),
        (BASE_NS + 3_000, DESTROY, -100),
        (BASE_NS + 4_000, CREATE, 50),
    ]
    assert set(found["category"]) == {UNKNOWN}
    assert category_timeline(found).sizes[:, UNKNOWN].tolist() == [1000, 1100, 800, 700, 750]


def test_no_events() -> None:
    assert uncategorised_events(build(memory=[])).schema == EVENTS
    assert category_timeline(events()).sizes.shape == (0, 8)


def test_points() -> None:
    found = category_timeline(
        events(
            (BEFORE, PREEXISTING, 10, 0),
            (BEFORE, PREEXISTING, 5, 7),
            (5_999, CREATE, 3, 3),
            (6_000, CREATE, 4, 4),
            (6_100, INCREMENT_VERSION, -4, 4),
            (6_100, INCREMENT_VERSION, 4, 5),
            (9_000, DESTROY, -3, 3),
        )
    )
    # what was there before the window stands at the time of the first event; events of one microsecond are one point
    assert found.time_us.tolist() == [5, 5, 6, 9]
    assert found.sizes.tolist() == [
        [10, 0, 0, 0, 0, 0, 0, 5],
        [10, 0, 0, 3, 0, 0, 0, 5],
        [10, 0, 0, 3, 0, 4, 0, 5],
        [10, 0, 0, 0, 0, 4, 0, 5],
    ]


@given(st.lists(st.tuples(st.integers(-1, 5), st.integers(0, 3), st.integers(-9, 9), st.integers(0, 7)), min_size=1, max_size=40))
def test_points_are_sums_of_events(given_rows: list[tuple[int, int, int, int]]) -> None:
    rows = sorted((time * 700 if time >= 0 else BEFORE, action, size, category) for time, action, size, category in given_rows)
    found = category_timeline(events(*rows))
    expected: dict[int, list[int]] = {}
    sizes = [0] * len(CATEGORIES)
    for time, _, size, category in rows:
        sizes[category] += size
        expected[time // 1000 if time >= 0 else BEFORE] = list(sizes)
    assert found.sizes.tolist() == list(expected.values())
    first = min((time for time in expected if time >= 0), default=0)
    assert found.time_us.tolist() == [first if time == BEFORE else time for time in expected]


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.integers(1, 50)), max_size=30), st.integers(0, 500))
def test_the_sum_is_what_the_allocator_counted(steps: list[tuple[int, bool, int]], before: int) -> None:
    """Blocks come and go, some of them from before the window; the timeline follows the allocator's own count."""
    rows: list[dict[str, Any]] = []
    held: dict[int, int] = {}
    old = dict.fromkeys((901, 902), 40)
    total = before + sum(old.values())
    for number, (address, frees_old, size) in enumerate(steps):
        if frees_old and old:
            address, size = old.popitem()
            change = -size
        elif address in held:
            change = -held.pop(address)
        else:
            held[address] = change = size
        total += change
        rows.append(memory(number + 1, address, change, allocated=total, reserved=0))
    found = category_timeline(uncategorised_events(build(memory=rows)))
    assert found.sizes.sum(axis=1).tolist()[-len(rows) or 1 :] == [row["allocated"] for row in rows]
