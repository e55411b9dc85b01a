"""Launch points move through the task queue to the operator's thread; checked against a plain search."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from steplens.readers.ascend.ascend_link import through_queue

BASE = 1_700_000_000_000_000_001
LAUNCH = {"launch_ns": pl.Int64, "launch_pid": pl.Int64, "launch_tid": pl.Int64}
QUEUE = ("pid", "enqueue_tid", "enqueue_start_ns", "dequeue_tid", "dequeue_start_ns", "dequeue_end_ns")

points = st.tuples(
    st.none() | st.integers(0, 60).map(lambda time: BASE + time), st.sampled_from([1, 2]), st.sampled_from([7, 8, 9])
)


@st.composite
def queues(draw: st.DrawFn) -> list[tuple[int, ...]]:
    rows = []
    for pid in (1, 2):
        for tid in (7, 8):
            borders = sorted(draw(st.sets(st.integers(0, 60), max_size=8)))
            for number, (start, end) in enumerate(zip(borders[::2], borders[1::2], strict=False)):
                rows.append((pid, 100 + number % 2, BASE - 1000 + number, tid, BASE + start, BASE + end))
    return draw(st.permutations(rows))


@given(st.lists(points, max_size=20), queues())
def test_equals_a_plain_search(launches: list[tuple[int | None, int, int]], queue: list[tuple[int, ...]]) -> None:
    tasks = pl.DataFrame(launches, schema=LAUNCH, orient="row").with_row_index("number")
    moved = through_queue(tasks, pl.DataFrame(queue, schema=dict.fromkeys(QUEUE, pl.Int64), orient="row"))
    for (time, pid, tid), row in zip(launches, moved.iter_rows(named=True), strict=True):
        around = [
            (enqueued, thread)
            for queue_pid, thread, enqueued, queue_tid, start, end in sorted(queue, key=lambda item: item[4])
            if (pid, tid) == (queue_pid, queue_tid) and time is not None and start <= time <= end
        ]
        expected = around[-1] if around else (time, tid)
        assert (row["launch_ns"], row["launch_tid"]) == expected
        assert row["launch_pid"] == pid


def test_unmatched_dequeues_move_nothing() -> None:
    tasks = pl.DataFrame([(BASE, 1, 7)], schema=LAUNCH, orient="row")
    queue = pl.DataFrame([(1, None, None, 7, BASE, BASE + 5)], schema=dict.fromkeys(QUEUE, pl.Int64), orient="row")
    assert through_queue(tasks, queue).equals(tasks)
    assert through_queue(tasks, None).equals(tasks)
