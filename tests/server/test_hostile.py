"""Damaged runs, hostile names, and runs that change while they are shown."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from steplens.run import Run, open_run
from steplens.server import runs
from steplens.server.tables import tables
from steplens.server.tables.tables import Table

from .conftest import DEADLINE_S, Client, Start, sample

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "\x1b[31mred\x1b[0m\x00\x07",
    "\u202egnp.exe\u2066",
    '"; DROP TABLE ops; --',
    '=HYPERLINK("http://evil")',
    "../../etc/passwd",
    "{title}{0}%s",
    "名前 🎉 \u0301",
    "x" * 1_000_000,
]


def event(name: str, start_us: float, duration_us: float, tid: int = 7, category: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": tid, "ts": start_us, "dur": duration_us, "args": {}}


def trace_file(folder: Path, events: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


@pytest.fixture(scope="module")
def hostile(serve: Start, tmp_path_factory: pytest.TempPathFactory) -> Client:
    events = [event(f"ProfilerStep#{step}", 1000.0 + 100_000 * step, 90_000, category="user_annotation") for step in range(3)]
    events += [event(name, 1100.0 + 50 * place, 40) for place, name in enumerate(HOSTILE)]
    return serve([trace_file(tmp_path_factory.mktemp("hostile") / "<b>folder</b>", events)])


def test_hostile_names_come_through_as_text(hostile: Client) -> None:
    answer = hostile.ask("/api/runs/0/tables/operators", method="POST", body=b'{"limit": 1000}')
    assert answer.headers["content-type"] == "application/json"
    names = {row[0] for row in answer.json["rows"]}
    # a lone NUL and a name in pieces are the reader's to judge; everything else is there as it was
    assert set(HOSTILE) - {HOSTILE[2]} <= names
    overview = hostile.get("/api/runs/0/overview")
    assert overview["ranks"][0]["path"].endswith("<b>folder</b>/trace.json")


def test_hostile_names_are_found_and_drawn(hostile: Client) -> None:
    timeline = hostile.get("/api/runs/0/timeline")
    tile = hostile.get(
        "/api/runs/0/timeline/tile", start_ns=timeline["start_ns"], end_ns=timeline["end_ns"], pixels=20_000, format="json"
    )
    labels = set(tile["names"].values())
    for name in HOSTILE:
        if name == HOSTILE[2]:
            continue
        assert name[:256] in labels
        if len(name) < 1000:
            found = hostile.get("/api/runs/0/timeline/search", text=name, whole=True)
            assert found["total"] >= 1
            details = hostile.get(f"/api/runs/0/timeline/events/{found['next']['event']}")
            assert details["name"] == name
    longest = next(int(number) for number, name in tile["names"].items() if name == "x" * 256)
    place = tile["columns"]["name"].index(longest)
    assert hostile.get(f"/api/runs/0/timeline/events/{int(tile['columns']['event'][place])}")["name"] == HOSTILE[-1]


def test_a_csv_file_holds_no_formula(hostile: Client) -> None:
    text = hostile.ask("/api/runs/0/tables/operators/csv").body.decode()
    assert "\"'=HYPERLINK" in text
    assert not any(line.startswith(("=", "+", "-", "@")) for line in text.splitlines()[1:])


@pytest.mark.parametrize("name", HOSTILE[:-1])
def test_hostile_words_in_questions(hostile: Client, name: str) -> None:
    for path in ("search?text=", "timeline/search?text=", "timeline/occurrences?text=", "tables/", "tables/operators/csv?query="):
        answer = hostile.ask(f"/api/runs/0/{path}{quote(name, safe='')}")
        assert answer.status in (200, 404, 405, 422), (path, answer.body[:300])
        assert answer.headers["content-type"].startswith(("application/json", "text/csv"))
    body = json.dumps({"where": [{"column": name, "contains": name}], "sort": [{"column": name}]}).encode()
    assert hostile.ask("/api/runs/0/tables/operators", method="POST", body=body).status == 422
    body = json.dumps({"where": [{"column": "name", "contains": name}]}).encode()
    assert hostile.ask("/api/runs/0/tables/operators", method="POST", body=body).status == 200


def nested(depth: int) -> bytes:
    return b'{"where":' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"[[[[", b"\xff\xfe", b'{"limit": 1e400}', b'{"where":' + b"[" * 100_000]
    + [nested(depth) for depth in (150, 400, 900, 1_000, 100_000)],
)
def test_a_body_that_is_no_question(hostile: Client, body: bytes) -> None:
    answer = hostile.ask("/api/runs/0/tables/operators", method="POST", body=body)
    assert answer.status in (400, 422)
    assert answer.json["problem"]


def test_damaged_runs_say_what_is_wrong(serve: Start, tmp_path: Path) -> None:
    whole = gzip.decompress(sample("kineto", "cuda_alexnet.json.gz").read_bytes())
    damaged = {
        "cut": whole[: len(whole) // 2],
        "empty": b"",
        "no json": b"hello",
        "wrong": b'{"traceEvents": 5}',
        "binary": bytes(range(256)) * 100,
    }
    paths = []
    for name, content in damaged.items():
        path = tmp_path / f"{name}.json"
        path.write_bytes(content)
        paths.append(path)
    (tmp_path / "nothing").mkdir()
    client = serve([*paths, tmp_path / "nothing", tmp_path / "missing"])
    for run in client.get("/api/session")["runs"]:
        progress = run["progress"]
        if progress["state"] == "ready":
            # what could be read is shown, and what is wrong with it
            assert client.get(f"/api/runs/{run['run']}/health"), run["path"]
            assert client.get(f"/api/runs/{run['run']}/overview")["health"]
            continue
        assert progress["problem"]["problem"]
        assert Path(progress["problem"]["where"]).name == Path(run["path"]).name
        for path in ("overview", "steps", "tables", "timeline", "advice", "health"):
            assert client.get(f"/api/runs/{run['run']}/{path}", expect=409) == progress["problem"]
    states = {Path(run["path"]).name: run["progress"]["state"] for run in client.get("/api/session")["runs"]}
    assert states["cut.json"] == "ready"
    assert states["missing"] == states["nothing"] == states["no json.json"] == "failed"


def test_one_unreadable_window_does_not_hide_the_others(serve: Start, tmp_path: Path) -> None:
    for rank in (0, 1):
        shutil.copy(sample("kineto", f"cuda_sampled_rank{rank}.json.gz"), tmp_path / f"rank{rank}.json.gz")
    (tmp_path / "rank2.json").write_text('{"schemaVersion": 1, "traceEvents": 7}')
    client = serve([tmp_path])
    overview = client.get("/api/runs/0/overview")
    assert len(overview["ranks"]) == 2
    assert any("rank2" in finding["source"] for finding in client.get("/api/runs/0/health"))


def test_a_run_that_grows_is_noticed_and_read_again(serve: Start, tmp_path: Path) -> None:
    shutil.copy(sample("kineto", "cuda_sampled_rank0.json.gz"), tmp_path / "rank0.json.gz")
    client = serve([tmp_path])
    assert len(client.get("/api/runs/0/ranks")) == 1
    before = client.get("/api/runs/0/live")
    assert not before["changed"]
    shutil.copy(sample("kineto", "cuda_sampled_rank1.json.gz"), tmp_path / "rank1.json.gz")
    assert client.get("/api/runs/0/live")["changed"]
    client.post("/api/runs/0/reopen", {})
    client.opened()
    assert len(client.get("/api/runs/0/ranks")) == 2
    after = client.get("/api/runs/0/live")
    assert not after["changed"]
    assert after["generation"] == before["generation"] + 1
    assert client.get("/api/runs/0/timeline", trace=1)["events"] > 0


@pytest.mark.slow
def test_questions_are_answered_while_a_run_is_opened(
    serve: Start, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is open, every address about it says so at once, and the progress names what is read."""
    asked = threading.Event()

    def opened_once_asked(path: Path, progress: Any, *reports: Any, **options: Any) -> Run:
        """Reading begins when somebody has looked: on a busy machine it may be over before."""

        def told(number: int, total: int, what: Path) -> None:
            progress(number, total, what)
            asked.wait(DEADLINE_S)

        return open_run(path, told, *reports, **options)

    monkeypatch.setattr(runs, "open_run", opened_once_asked)
    events = [event(f"aten::op{place % 50}", 1000.0 + 3 * place, 2) for place in range(100_000)]
    path = trace_file(tmp_path / "large", events)
    client = serve([path, recorded], wait=False)
    seen = set()
    deadline = time.monotonic() + DEADLINE_S
    while "ready" not in seen:
        assert time.monotonic() < deadline
        state = client.get("/api/runs/0")["progress"]
        seen.add(state["state"])
        if state["state"] == "opening":
            answer = client.ask("/api/runs/0/overview")
            if state["total"]:
                asked.set()
            if answer.status == 503:
                assert answer.headers["retry-after"] == "1"
                assert answer.json["problem"]
            if state["total"]:
                assert state["what"] == str(path)
                assert state["bytes"] == path.stat().st_size
    assert "opening" in seen
    client.opened()
    assert client.get("/api/runs/0/timeline")["events"] >= 100_000


def test_a_defect_is_told_in_one_sentence(hostile: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Any) -> Any:
        raise RuntimeError("cannot be")

    monkeypatch.setitem(tables.every_table(), "broken", Table("broken", "Broken", fails))
    answer = hostile.ask("/api/runs/0/tables/broken", method="POST", body=b"{}")
    assert answer.status == 500
    assert "cannot be" in answer.json["problem"]
    assert "Traceback" not in answer.body.decode()
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert hostile.get("/api/runs/0/overview")["steps"] >= 1


def test_a_folder_named_in_another_encoding_is_shown(serve: Start, tmp_path: Path) -> None:
    """GBK, in a system of UTF-8: such a name is no text for JSON."""
    folder = tmp_path / os.fsdecode(b"\xd1\xb5\xc1\xb7")
    trace_file(folder, [event("aten::mm", 1000, 10)])
    client = serve([folder, folder / "missing"])
    first, second = client.get("/api/session")["runs"]
    assert (first["progress"]["state"], second["progress"]["state"]) == ("ready", "failed")
    assert "\ufffd" in first["path"] and "\ufffd" in first["name"]
    assert [row["name"] for row in client.get("/api/runs/0/overview")["work"]] == ["aten::mm"]
    assert "\ufffd" in client.get("/api/runs/0/ranks")[0]["path"]
    for address in ("download?to=chrome", "tables/operators/csv"):
        answer = client.ask(f"/api/runs/0/{address}")
        assert answer.status == 200, answer.body
        assert "%EF%BF%BD" in answer.headers["content-disposition"]
