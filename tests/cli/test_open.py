"""``steplens open``: what a path holds, in words and as JSON."""

from __future__ import annotations

import json
import os
from typing import Any


def kernel(name: str, start: float, duration: float, correlation: int) -> dict[str, Any]:
    args = {"device": 0, "stream": 7, "correlation": correlation, "External id": 1}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": duration, "args": args}


def launch(start: float, correlation: int) -> dict[str, Any]:
    args = {"correlation": correlation, "External id": 1}
    return {
        "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": 5, "ts": start, "dur": 2, "args": args
    }  # fmt: skip


def gpu_events(*, step: bool) -> list[dict[str, Any]]:
    common = {"ph": "X", "pid": 5, "tid": 5}
    events = [
        {**common, "cat": "cpu_op", "name": "aten::mm", "ts": 1000.0, "dur": 50.0, "args": {"External id": 1}},
        launch(1010.0, 3),
        kernel("ampere_sgemm_128x64_tn", 1020.0, 30.0, 3),
    ]
    if step:
        events.append({**common, "cat": "user_annotation", "name": "ProfilerStep#4", "ts": 990.0, "dur": 100.0})
    return events


DEVICE = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}]


def test_says_what_each_trace_is_and_why_it_is_read_so(cli: Any) -> None:
    cli.trace("job/rank1.json", gpu_events(step=True), distributedInfo={"rank": 1, "world_size": 2}, deviceProperties=DEVICE)
    cli.trace("job/deep/er/rank0.json", gpu_events(step=True), distributedInfo={"rank": 0, "world_size": 2})
    cli.write("job/broken.json", '{"traceEvents": [')
    cli.write("job/notes.txt", "hello")
    text = cli.run("open", "job").stdout
    assert "3 traces" in text
    for expected in (
        "Kineto trace, because",
        "rank 1, CUDA 0 (NVIDIA A100-SXM4-80GB), step 4",
        "rank 0, CUDA 0, step 4",
        "kernels 1",
    ):
        assert expected in text
    assert "holds no events" in text
    assert "next: steplens summary job" in text
    found = cli.json("open", "job")
    assert sorted(trace["rank"] for trace in found["traces"]) == [0, 1]
    assert all(trace["format"] == "Kineto trace" and trace["reason"] for trace in found["traces"])
    assert {trace["duration_ns"] for trace in found["traces"]} == {100_000}
    assert any(finding["check"] == "unreadable" and finding["source"].endswith("broken.json") for finding in found["health"])


def test_bad_paths_end_in_one_sentence(cli: Any) -> None:
    assert "does not exist" in cli.refused("open", "missing")
    (cli.folder / "empty").mkdir()
    assert "no run" in cli.refused("open", "empty")
    assert "notes.txt" in cli.refused("open", cli.write("notes.txt", "hello"))


def test_names_in_a_trace_cannot_reach_the_terminal(cli: Any) -> None:
    path = cli.trace("a.json", gpu_events(step=True), deviceProperties=[{"id": 0, "name": "evil \x1b[31m GPU"}])
    assert "\x1b" not in cli.run("open", path).stdout


def test_device_work_without_steps_is_summed_up_as_a_whole(cli: Any) -> None:
    path = cli.trace("a.json", gpu_events(step=False))
    text = cli.run("summary", path).stdout
    assert "whole trace" in text
    assert "No steps were recorded" in text
    (row,) = cli.json("summary", path)["steps"]
    assert row["step"] is None
    assert row["duration_ns"] == 50_000
    assert row["computing_ns"] == 30_000
    # from the first task to the last one
    assert row["device_period_ns"] == 30_000


def test_a_trace_file_is_recomputed_into_a_folder_of_its_own(cli: Any) -> None:
    path = cli.trace("rank1.json", gpu_events(step=True), distributedInfo={"rank": 1, "world_size": 2})
    assert "--out FOLDER" in cli.refused("analyse", path)
    cli.run("analyse", path, "--recompute")
    folder = cli.folder / "recomputed" / "rank1_ascend_pt"
    assert (folder / "profiler_info_1.json").is_file()
    rows = (folder / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv").read_text().splitlines()
    assert rows[1].split(",")[:3] == ["0", "4", "30.000"]
    found = cli.json("analyse", path, "--output", "there")
    assert found["runs"][0]["written_to"] == "there/rank1_ascend_pt"
    assert json.loads((cli.folder / "there/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json").read_text())


def test_a_folder_named_in_another_encoding(cli: Any, events: Any) -> None:
    """GBK, in a system of UTF-8: such a name is no text for polars and for JSON."""
    folder = os.fsdecode(b"\xd1\xb5\xc1\xb7")
    cli.trace("trace.json", events)
    (cli.folder / folder).mkdir()
    (cli.folder / "trace.json").rename(cli.folder / folder / "trace.json")
    assert "1 trace" in cli.run("open", folder).stdout
    assert "aten::mm" in cli.run("summary", folder).stdout
    cli.run("table", folder, "operators", "--csv", f"{folder}/out.csv")
    assert "aten::mm" in (cli.folder / folder / "out.csv").read_text()
    for form in ("text", "db", "parquet"):
        cli.run("export", folder, "--to", form, "-o", f"{folder}/{form}")
        assert (cli.folder / folder / form).is_dir()
    for form in ("text", "db"):
        assert "aten::mm" in cli.run("summary", f"{folder}/{form}").stdout
