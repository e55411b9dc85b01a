"""A draft of a run that is being read: it can be looked at, is never mixed with the run, and goes when all is there."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import steplens
from steplens.readers.common import json_sample
from steplens.run import Run, open_run
from steplens.server import runs

from .conftest import DEADLINE_S, Client, Start
from .test_hostile import event, trace_file


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trace that is worth a draft."""
    monkeypatch.setattr(json_sample, "_LEAST_BYTES", 1 << 20)
    monkeypatch.setattr(json_sample, "_END_BYTES", 8 << 10)
    events = [event(f"aten::op{place % 50}", 1000.0 + 3 * place, 2) for place in range(40_000)]
    return trace_file(tmp_path / "large", events)


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Nothing is read before this is set."""
    let = threading.Event()

    def later(path: Path, *reports: Any, **options: Any) -> Run:
        let.wait(DEADLINE_S)
        return open_run(path, *reports, **options)

    monkeypatch.setattr(runs, "open_run", later)
    return let


def draft_of(client: Client) -> dict[str, Any]:
    deadline = time.monotonic() + DEADLINE_S
    while (draft := client.get("/api/runs/0")["draft"]) is None:
        assert time.monotonic() < deadline, "there is no draft"
        time.sleep(0.02)
    return dict(draft)


def starts(client: Client, address: str, origin_ns: int) -> set[int]:
    """When the calls of one operator began, Unix ns."""
    (lane,) = [lane["lane"] for lane in client.get(address)["lanes"] if lane["source"] == "operators"]
    found = client.get(f"{address}/occurrences", text="aten::op7", lanes=lane, limit=1000)
    assert len(found["events"]) == found["total"]
    return {one["start_ns"] + origin_ns for one in found["events"]}


def test_a_draft_is_there_until_the_timeline_is(serve: Start, large: Path, reading: threading.Event) -> None:
    client = serve([large], wait=False)
    draft = draft_of(client)
    assert draft["run"] > 1, "runs may be added beside those of the command line"
    assert 1 < draft["one_of"] < 40
    address = f"/api/runs/{draft['run']}/timeline"
    drawn = client.get(address)
    assert 1000 < drawn["events"] < 40_000
    # what is worked out of all events is not worked out of some, and the CPU's tasks are its operators
    assert {lane["source"] for lane in drawn["lanes"]} == {"operators"}
    tile = client.get(f"{address}/tile", start_ns=0, end_ns=drawn["end_ns"], pixels=800, format="json")
    assert tile
    assert client.ask("/api/runs/0/timeline").status == 503
    assert [run["run"] for run in client.get("/api/session")["runs"]] == [0], "a draft is no run"
    some = starts(client, address, int(draft["origin_ns"]))
    reading.set()
    client.opened()
    whole = client.get("/api/runs/0/timeline")
    assert whole["events"] > drawn["events"]
    every = starts(client, "/api/runs/0/timeline", int(whole["origin_ns"]))
    assert len(every) == 800
    assert some < every and len(some) > 10
    deadline = time.monotonic() + DEADLINE_S
    while client.get("/api/runs/0")["draft"] is not None:
        assert time.monotonic() < deadline, "the draft stays"
        time.sleep(0.02)
    # what is under way is still answered
    assert client.get(address)["events"] == drawn["events"]
    assert client.ask("/api/runs/2/timeline").status == 404


def test_reading_waits_for_whoever_looks(serve: Start, large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_DRAFT_WAITS_S_PER_BYTE", DEADLINE_S)
    client = serve([large], wait=False)
    draft = draft_of(client)
    assert client.get("/api/runs/0")["progress"]["state"] == "waiting"
    client.get(f"/api/runs/{draft['run']}/timeline/tile", start_ns=0, end_ns=1000, pixels=8, format="json")
    client.opened()


def test_reading_does_not_wait_for_nobody(serve: Start, large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_DRAFT_WAITS_S_PER_BYTE", 1e-9)
    client = serve([large], wait=False)
    client.opened()
    assert client.get("/api/runs/0/timeline")["events"] >= 40_000


def test_tables_without_a_timeline_have_a_draft(serve: Start, large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steplens.open(large)
    # whoever does not look is not waited for before reading, which takes no time
    monkeypatch.setattr(runs, "_DRAFT_WAITS_S_PER_BYTE", DEADLINE_S)
    monkeypatch.setattr(runs, "_DRAFT_WAITS_S", DEADLINE_S)
    client = serve([large])
    draft = client.get("/api/runs/0")["draft"]
    assert draft is not None
    client.get(f"/api/runs/{draft['run']}/timeline/tile", start_ns=0, end_ns=1000, pixels=8, format="json")
    deadline = time.monotonic() + DEADLINE_S
    while client.get("/api/runs/0")["draft"] is not None:
        assert time.monotonic() < deadline, "it is not laid out"
        time.sleep(0.02)


def test_a_run_that_fails_has_no_draft(serve: Start, large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Run:
        raise RuntimeError("cannot be")

    monkeypatch.setattr(runs, "open_run", fails)
    client = serve([large])
    state = client.get("/api/runs/0")
    assert state["progress"]["state"] == "failed"
    assert state["draft"] is None


def test_a_draft_that_fails_holds_nothing_up(serve: Start, large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("cannot be")

    monkeypatch.setattr(runs, "open_draft", fails)
    client = serve([large])
    assert client.get("/api/runs/0")["draft"] is None
    assert client.get("/api/runs/0/timeline")["events"] >= 40_000


def test_a_run_that_is_read_again_has_no_draft(serve: Start, large: Path) -> None:
    client = serve([large])
    client.post("/api/runs/0/reopen", {})
    client.opened()
    assert client.get("/api/runs/0")["draft"] is None
