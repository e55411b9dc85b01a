"""What a server keeps: answers made once, bounded memory, advice that does not hold up the first page."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import polars as pl
import pytest

from steplens.server import session
from steplens.server.memo import AnswerCache
from steplens.server.runs import OpenedRun, Opening, RunLibrary
from steplens.timeline.time_origin import trace_origins
from steplens.trace.schema import SCHEMA
from steplens.trace.trace import Trace

from .conftest import DEADLINE_S


def test_an_answer_is_made_once_whoever_asks() -> None:
    memo = AnswerCache(1000)
    made = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        assert memo.get("key", lambda: (time.sleep(0.05), made.append(1), 7)[2], lambda _: 10) == 7

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


def test_the_longest_unused_answer_is_forgotten_first() -> None:
    memo = AnswerCache(100)
    for key in "abc":
        memo.get(key, lambda key=key: key * 2, lambda _: 40)
        memo.get("a", lambda: "aa", lambda _: 40)
    assert memo.known("a") == "aa"
    assert memo.known("b") is None
    assert memo.known("c") == "cc"
    assert memo.size_bytes <= 100
    assert memo.get("huge", lambda: "h", lambda _: 10**6) == "h"
    assert memo.known("huge") == "h"
    assert memo.known("a") is None


def test_an_answer_that_takes_less_takes_the_place_of_one_that_is_there() -> None:
    memo = AnswerCache(100)
    memo.get("a", lambda: "large", lambda _: 90)
    memo.replace("a", "small", 5)
    memo.replace("b", "nobody asked", 5)
    assert memo.known("a") == "small"
    assert memo.known("b") is None
    assert memo.size_bytes == 5


def test_what_fails_is_tried_again() -> None:
    memo = AnswerCache(100)
    tries = []

    def fails_once() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")
        return 5

    with pytest.raises(ValueError, match="not yet"):
        memo.get("key", fails_once, lambda _: 1)
    assert memo.get("key", fails_once, lambda _: 1) == 5


def test_what_takes_long_goes_on_in_the_background() -> None:
    library = RunLibrary([Path("nothing")])
    shown = library.runs[0]
    go_on = threading.Event()

    def slow() -> str:
        go_on.wait(DEADLINE_S)
        return "done"

    assert shown.soon(("slow",), slow, 0.01) is None
    go_on.set()
    deadline = time.monotonic() + DEADLINE_S
    while shown.soon(("slow",), slow, 1) is None:
        assert time.monotonic() < deadline
    assert shown.soon(("slow",), lambda: "again", 1) == "done"


def trace_at(*starts_ns: int) -> Trace:
    """A trace whose tables begin at these times."""
    columns = {"steps": "start_ns", "marks": "start_ns", "counters": "time_ns"}
    tables = {
        name: pl.DataFrame({column: [start + 5, start]}).select(
            pl.col(key).cast(dtype) if key == column else pl.lit(None, dtype=dtype).alias(key)
            for key, dtype in SCHEMA[name].items()
        )
        for (name, column), start in zip(columns.items(), starts_ns, strict=False)
    }
    return Trace(Path("made"), tables)


DAY_NS = 86_400 * 10**9
UNIX_NS = 1_700_000_000 * 10**9


def test_traces_on_one_clock_have_one_origin() -> None:
    assert trace_origins([trace_at(UNIX_NS + 7), trace_at(UNIX_NS + DAY_NS, UNIX_NS + 3)]) == (UNIX_NS + 3, UNIX_NS + 3)


def test_ticks_and_unix_times_have_origins_of_their_own() -> None:
    assert trace_origins([trace_at(UNIX_NS), trace_at(1000), trace_at(UNIX_NS + 1), trace_at()]) == (UNIX_NS, 0, UNIX_NS, 0)


def test_the_latest_clock_of_a_trace_counts() -> None:
    assert trace_origins([trace_at(UNIX_NS + 9, 50, UNIX_NS)]) == (UNIX_NS,)


def test_a_run_that_is_ready_has_its_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened while somebody is told of it: who is told that it is ready does not ask again."""
    chosen = OpenedRun(0, tmp_path, Opening(state="opening"))

    def finish(asked: OpenedRun, *_: object) -> bool:
        asked.opening.state = "ready"
        return False

    monkeypatch.setattr(session, "is_watched", finish)
    told = session.state_of_run(chosen, None)  # type: ignore[arg-type]
    assert (chosen.opening.state, told.progress.state, told.traces, told.generation) == ("ready", "opening", [], 0)
