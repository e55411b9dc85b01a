"""A run of many ranks: its pages' answers are from what is kept of each rank, and add up."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.analysis.cluster.stragglers.own_work import own_work
from steplens.server.http.page_store import pack_page, read_pages, unpack_page
from steplens.server.runs import OpenedRun

from ..many_ranks import RANKS, SLOW, STAGES, STEPS, count_readings, many_ranks
from .conftest import Client, Start

PAGES = ("overview", "ranks", "communication", "advice", "health", "cluster/heat", "cluster/steps", "communication/costs")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return many_ranks(tmp_path_factory)


@pytest.fixture(scope="module")
def client(job: Path, serve: Start) -> Client:
    return serve([job])


@pytest.fixture(scope="module")
def work(client: Client) -> pl.DataFrame:
    """What each rank does itself in each step, of devices alone: from another analysis."""
    return own_work(client.library.runs[0].run.traces)


def test_opening_says_how_far_it_is(job: Path, serve: Start) -> None:
    client = serve([job], wait=False)
    told = set()
    while (progress := client.get("/api/runs/0")["progress"])["state"] in ("waiting", "opening"):
        told.add(progress["doing"])
        time.sleep(0.005)
    assert progress["state"] == "ready" and progress["doing"] == "comparing"
    assert progress["done"] == progress["total"] == RANKS
    assert told <= {"reading", "analysing", "comparing"}


def test_figures_of_ranks_are_those_of_their_steps(client: Client, work: pl.DataFrame) -> None:
    found = client.get("/api/runs/0/cluster/side-by-side")
    assert found["rank"] == list(range(RANKS)) and found["stages"] == STAGES
    assert found["host"] == [f"node{rank // 8:04d}" for rank in range(RANKS)]
    means = dict(work.group_by("rank").agg(pl.col("own_ns").mean()).iter_rows())
    assert found["figures"]["own_ns"] == [pytest.approx(means[rank], abs=1) for rank in found["rank"]]
    assert max(found["rank"], key=lambda rank: found["figures"]["own_ns"][rank]) == SLOW
    # as the page of ranks itself says
    ranks = client.get("/api/runs/0/ranks")
    assert [row["step_ns"] for row in ranks] == [pytest.approx(value, abs=1) for value in found["figures"]["step_time_ns"]]
    for rank, stage in zip(found["rank"], found["stage"], strict=True):
        assert work.filter(rank=rank)["stage"].unique().to_list() == [stage]
    members = [rank for group in found["groups"] for rank in group["ranks"]]
    assert set(members) == set(range(RANKS)) and all(1 < len(group["ranks"]) < RANKS for group in found["groups"])


def test_steps_of_ranks(client: Client, work: pl.DataFrame) -> None:
    found = client.get("/api/runs/0/cluster/rank-steps")
    assert found["metric"] == "own_ns" and len(found["steps"]) == STEPS and found["steps"] == found["last_steps"]
    for rank, row in zip(found["rank"], found["values"], strict=True):
        assert row == work.filter(rank=rank).sort("step")["own_ns"].to_list()
    columns = list(zip(*found["values"], strict=True))
    assert found["spread"][0] == [min(column) for column in columns]
    assert found["spread"][-1] == [max(column) for column in columns]
    other = client.get("/api/runs/0/cluster/rank-steps", metric="step_time_ns")
    assert other["metric"] == "step_time_ns" != client.get("/api/runs/0/cluster/rank-steps", metric="nonsense")["metric"]


def differences(one: Any, other: Any, place: str) -> Iterator[str]:
    """Where two answers differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for name in one:
            yield from differences(one[name], other[name], f"{place}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (item, beside) in enumerate(zip(one, other, strict=True)):
            yield from differences(item, beside, f"{place}[{number}]")
    elif one != other:
        yield f"{place}: {one!r} {other!r}"


def test_answers_are_kept_and_read_no_events(client: Client, job: Path, serve: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    # the server keeps what it has asked ahead
    run = client.library.runs[0].run
    deadline = time.monotonic() + 120
    # written once all are there
    while not read_pages(run):
        assert time.monotonic() < deadline, "nothing is kept"
        time.sleep(0.1)
    # the overview has some of it
    client.get("/api/runs/0/advice")
    asked = {page: client.get(f"/api/runs/0/{page}") for page in PAGES}
    counts = count_readings(monkeypatch)
    # that of the first rank is laid out ahead, which pages are not made of
    monkeypatch.setattr(OpenedRun, "timeline", lambda *_: None)
    monkeypatch.setattr(OpenedRun, "save_timeline", lambda *_: None)
    again = serve([job])
    for page in PAGES:
        assert next(differences(again.get(f"/api/runs/0/{page}"), asked[page], page), None) is None
    # the server before may still lay out the timeline of the first rank
    assert {name.split()[0] for name in counts} <= {run.traces[0].source.name}
    packed = again.ask("/api/runs/0/ranks", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(packed.body)) == asked["ranks"]


def test_what_is_kept_is_bounded_and_checked() -> None:
    body = b'{"rows": []}' * 100
    assert unpack_page(pack_page(body)) == body
    assert unpack_page(b"no gzip") is None
    assert unpack_page(pack_page(body)[:-9]) is None
