"""Traces as files for other tools."""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens

from .conftest import DEADLINE_S, TOKEN, Client, Start, sample


@pytest.fixture(scope="module")
def path() -> Path:
    return sample("kineto", "cuda_alexnet.json.gz")


@pytest.fixture(scope="module")
def client(serve: Start, path: Path) -> Client:
    return serve([path, sample("mindspore", "JOB2")])


@contextlib.contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Waits at its end until every folder that was made within it is gone; those of other tests are none of its business."""
    with tempfile.TemporaryDirectory() as own, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", own)
        yield
        deadline = time.monotonic() + DEADLINE_S
        while left := list(Path(own).iterdir()):
            assert time.monotonic() < deadline, left
            time.sleep(0.02)


def test_the_timeline_is_a_file_for_perfetto_and_leaves_nothing_behind(client: Client, path: Path) -> None:
    with nothing_left_behind():
        answer = client.ask("/api/runs/0/download")
    assert answer.status == 200
    assert "attachment" in answer.headers["content-disposition"]
    assert ".json.gz" in answer.headers["content-disposition"]
    document = json.loads(gzip.decompress(answer.body))
    events = document["traceEvents"] if isinstance(document, dict) else document
    trace = steplens.open(path).trace()
    names = [event["name"] for event in events if event.get("ph") == "X"]
    for name, count in trace.required("ops").group_by(pl.col("name").cast(pl.String)).len().collect().iter_rows():
        assert names.count(name) >= count, name


@pytest.mark.parametrize(("first", "last"), [(0.3, 0.4), (0.97, 0.985), (0.0, 1.0)])
def test_a_window_holds_exactly_the_events_that_overlap_it(client: Client, path: Path, first: float, last: float) -> None:
    timeline = client.get("/api/runs/0/timeline")
    length = timeline["end_ns"] - timeline["start_ns"]
    low, high = (timeline["start_ns"] + int(length * part) for part in (first, last))
    answer = client.ask(f"/api/runs/0/download?start_ns={low}&end_ns={high}")
    assert answer.status == 200, answer.body
    events = json.loads(gzip.decompress(answer.body))
    base = events[0]["args"]["base_time_ns"]
    found: dict[str, list[tuple[str, int, int]]] = {"cpu_op": [], "python_function": [], "task": []}
    for event in events:
        kind = "task" if "Task Type" in event.get("args", {}) else event.get("cat")
        if event["ph"] == "X" and kind in found:
            found[kind].append((event["name"], base + round(event["ts"] * 1000), round(event["dur"] * 1000)))
    origin = int(timeline["origin_ns"])
    trace = steplens.open(path).trace()
    for kind, table in (("cpu_op", "ops"), ("python_function", "python"), ("task", "kernels")):
        rows = trace.required(table).select(pl.col("name").cast(pl.String), "start_ns", "end_ns").collect()
        expected = [
            (name, start, end - start)
            for name, start, end in rows.iter_rows()
            if start < origin + high and (end > origin + low or start >= origin + low)
        ]
        assert sorted(found[kind]) == sorted(expected), kind
    assert found["cpu_op"] and bool(found["task"]) == (last > 0.9)


@pytest.fixture(scope="module")
def job(serve: Start, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """Three ranks on one clock; the last is the first's file once more, so that every id in it is taken."""
    folder = tmp_path_factory.mktemp("job")
    for number in (0, 1):
        shutil.copy(sample("kineto", f"cuda_sampled_rank{number}.json.gz"), folder / f"rank{number}.json.gz")
    shutil.copy(sample("kineto", "cuda_sampled_rank0.json.gz"), folder / "rank2.json.gz")
    return serve([folder, sample("mindspore", "JOB2")])


def strict(body: bytes) -> list[dict[str, Any]]:
    """The events of a file; NaN and infinities are no JSON."""
    return list(json.loads(gzip.decompress(body), parse_constant=pytest.fail))


@pytest.mark.parametrize("part", [None, (0.3, 0.5)])
def test_several_ranks_in_one_file(job: Client, part: tuple[float, float] | None) -> None:
    timeline = job.get("/api/runs/0/timeline")
    length, window = timeline["end_ns"] - timeline["start_ns"], ""
    if part is not None:
        window = "".join(
            f"&{name}={timeline['start_ns'] + int(length * at)}" for name, at in zip(("start_ns", "end_ns"), part, strict=True)
        )
    with nothing_left_behind():
        answer = job.ask(f"/api/runs/0/download?traces=0,1,2{window}")
    assert answer.status == 200, answer.body
    assert "0-1-2_chrome.json.gz" in answer.headers["content-disposition"]
    merged = strict(answer.body)
    base = merged[0]["args"]["base_time_ns"]
    singles = [strict(job.ask(f"/api/runs/0/download?trace={number}{window}").body) for number in range(3)]

    def counted(events: list[dict[str, Any]]) -> Counter[Any]:
        shown = base - events[0]["args"]["base_time_ns"]
        return Counter(
            (event["ph"], event["name"], event["tid"], round(event["ts"] * 1000) - shown, round(event.get("dur", 0) * 1000))
            for event in events
            if event["ph"] != "M"
        )

    assert counted(merged) == sum((counted(single) for single in singles), Counter())
    assert len(counted(merged)) > 100
    names = {event["pid"]: event["args"]["name"] for event in merged if event["name"] == "process_name"}
    assert {name.partition(": ")[0] for name in names.values()} == {"Rank 0 (trace 0)", "Rank 1", "Rank 0 (trace 2)"}
    for number, told in enumerate(("Rank 0 (trace 0)", "Rank 1", "Rank 0 (trace 2)")):
        own = [event for event in merged if event["ph"] != "M" and names[event["pid"]].startswith(f"{told}: ")]
        assert counted([merged[0], *own]) == counted(singles[number]), told
    ends: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for event in merged:
        if event["ph"] in "sf":
            ends.setdefault((event["cat"], event["id"]), []).append(event)
    assert ends
    for start, end in ends.values():
        assert (start["ph"], end["ph"]) == ("s", "f")
        assert names[start["pid"]].partition(": ")[0] == names[end["pid"]].partition(": ")[0], "an arrow leaves its rank"


def test_ranks_on_other_clocks_lie_where_the_timeline_shows_them(serve: Start, tmp_path: Path) -> None:
    for name, shift_us in (("a", 0), ("b", 400 * 86_400 * 10**6)):
        document = json.loads(gzip.decompress(sample("kineto", "cuda_sampled_rank0.json.gz").read_bytes()))
        for event in document["traceEvents"]:
            if "ts" in event:
                event["ts"] += shift_us
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    client = serve([tmp_path])
    first, second = (client.get("/api/runs/0/timeline", trace=number) for number in (0, 1))
    assert first["origin_ns"] != second["origin_ns"]
    merged = strict(client.ask("/api/runs/0/download?traces=0,1").body)
    names = {event["pid"]: event["args"]["name"] for event in merged if event["name"] == "process_name"}
    begins = [
        min(event["ts"] for event in merged if event["ph"] == "X" and names[event["pid"]].startswith(f"Rank 0 (trace {number})"))
        for number in (0, 1)
    ]
    # a file that counts from 400 days earlier cannot tell the last ns in a double
    assert abs(begins[0] - begins[1]) < 1


def test_traces_that_are_not_there_or_have_one_form_are_refused(job: Client) -> None:
    with nothing_left_behind():
        for asked, status in (
            ("traces=0,9", 404),
            ("traces=0,1&to=pprof", 422),
            ("traces=", 422),
            ("traces=0;1", 422),
            ("traces=-1", 422),
        ):
            answer = job.ask(f"/api/runs/0/download?{asked}")
            assert answer.status == status, (asked, answer.body)
            assert answer.json["problem"]
        # a window before everything
        assert job.ask("/api/runs/0/download?traces=0,1&start_ns=-9000000&end_ns=-8000000").status == 409


def test_a_window_that_ends_before_it_starts_is_refused(client: Client) -> None:
    assert client.ask("/api/runs/0/download?start_ns=5&end_ns=4").status == 422


@pytest.mark.parametrize("to", ["kineto", "speedscope", "pprof"])
def test_other_forms(client: Client, to: str) -> None:
    answer = client.ask(f"/api/runs/0/download?to={to}")
    assert answer.status == 200
    assert gzip.decompress(answer.body)


def test_what_a_trace_does_not_have_is_said(client: Client) -> None:
    with nothing_left_behind():
        for path, status in (("/api/runs/1/download?to=pprof", 409), ("/api/runs/0/download?to=exe", 422)):
            answer = client.ask(path)
            assert answer.status == status, answer.body
            assert answer.json["problem"]
        assert client.ask("/api/runs/0/download?trace=7").status == 404


def test_a_part_of_a_file_leaves_nothing_behind_either(client: Client) -> None:
    with nothing_left_behind():
        for part, status in (("bytes=0-9", 206), ("bytes=999999999999-", 416), ("bytes=x", 400)):
            answer = client.ask("/api/runs/0/download?to=pprof", headers={"Range": part})
            assert answer.status == status, answer.body


def test_a_receiver_that_leaves_leaves_nothing_behind(client: Client) -> None:
    with nothing_left_behind(), socket.create_connection(("127.0.0.1", client.port), timeout=DEADLINE_S) as connection:
        asked = f"GET /api/runs/0/download HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        connection.sendall(asked.encode())
        assert connection.recv(16)
