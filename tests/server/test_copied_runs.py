"""Runs that arrive file by file while they are shown: what is there counts, and all of it once it is there."""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from typing import Any

from .conftest import DEADLINE_S, Client, Start, sample


def recorded(number: int) -> bytes:
    return gzip.decompress(sample("kineto", f"cuda_sampled_rank{number}.json.gz").read_bytes())


def place(folder: Path, number: int) -> Path:
    """Where a run directory has its raw trace; there is none yet."""
    raw = folder / f"host_{number}_20260101000000000_ascend_pt" / "KINETO"
    raw.mkdir(parents=True)
    return raw / "trace.json"


def read_again(client: Client, changed: bool = True) -> dict[str, Any]:
    """Do what the page does when it follows a run: look whether there is more, and read it."""
    assert client.get("/api/runs/0/live")["changed"] == changed
    client.post("/api/runs/0/reopen", {})
    deadline = time.monotonic() + DEADLINE_S
    while (run := client.get("/api/runs/0"))["progress"]["state"] in ("waiting", "opening"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return dict(run)


def checks(client: Client) -> set[str]:
    return {one["check"] for one in client.get("/api/runs/0/health")}


def test_a_run_that_is_still_copied_comes_right(serve: Start, tmp_path: Path) -> None:
    place(tmp_path, 0).write_bytes(recorded(0))
    client = serve([tmp_path])
    good = checks(client)
    arriving, whole = place(tmp_path, 1), recorded(1)
    # its folder is there and no file in it
    run = read_again(client, changed=False)
    assert run["progress"]["state"] == "ready" and [one["rank"] for one in run["traces"]] == [0]
    assert "unreadable" in checks(client)
    # a half of it: opened as far as it reaches, and said to break off
    arriving.write_bytes(whole[: len(whole) // 2])
    run = read_again(client)
    assert len(run["traces"]) == 2
    assert "truncated_file" in checks(client)
    half = client.get("/api/runs/0/timeline", trace=1)["events"]
    # all of it
    arriving.write_bytes(whole)
    run = read_again(client)
    assert [one["rank"] for one in run["traces"]] == [0, 1]
    assert not checks(client) & {"truncated_file", "unreadable", "damaged_events"}
    assert client.get("/api/runs/0/timeline", trace=1)["events"] > half
    assert not client.get("/api/runs/0/live")["changed"]
    assert good <= checks(client) | {"missing_ranks"}


def test_the_only_run_that_is_still_copied_comes_right(serve: Start, tmp_path: Path) -> None:
    arriving = place(tmp_path, 0)
    client = serve([tmp_path])
    assert client.get("/api/runs/0")["progress"]["state"] == "failed"
    arriving.write_bytes(recorded(0))
    run = read_again(client)
    assert run["progress"]["state"] == "ready" and run["progress"]["problem"] is None
    assert "truncated_file" not in checks(client)
