"""A job of MindSpore that MindInsight and steplens both show, and MindInsight's answers about it (part of ``timeline.py``)."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PEER = ROOT / ".bench" / "mindinsight"

RANK = 1
OPERATORS = 50_000
EVENTS = 400_000
#: how long its server may take to answer anything
_DEADLINE_S = 120


def make(folder: Path) -> Path:
    """Write the results of a job as MindSpore's profiler leaves them: 400 thousand events, 50 thousand operators."""
    profiler = folder / "summaries" / "job" / "profiler"
    profiler.mkdir(parents=True)
    generator = random.Random(3)
    tensor = {"format": "NC1HWC0", "data_type": "NUMBER_TYPE_FLOAT16", "shape": "32,4,112,112,16"}
    info = {"input_0": tensor, "input_1": {**tensor, "shape": "64,16"}, "output_0": tensor}
    types = [f"Type{number}" for number in range(60)]
    names = [f"Default/network/layer{number // 50}/{types[number % 60]}-op{number}" for number in range(OPERATORS)]
    with (profiler / f"framework_raw_{RANK}.csv").open("w", newline="") as file:
        out = csv.writer(file)
        head = ["task_id", "stream_id", "block_dim", "full_kernel_name", "op_name", "kernel_name", "kernel_type", "subgraph"]
        out.writerow([*head, "op_info"])
        for number, name in enumerate(names):
            out.writerow([number, 0, 32, name, name, name.rsplit("/", 1)[1], types[number % 60], "Default", json.dumps(info)])
    times = [round(generator.uniform(0.001, 0.2), 6) for _ in names]
    with (profiler / f"aicore_intermediate_{RANK}_detail.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["full_kernel_time", "execution_time", "execution_frequency"], *zip(names, times, [8] * len(names), strict=True)]
        )
    with (profiler / f"aicore_intermediate_{RANK}_type.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["kernel_type", "total_time", "execution_frequency", "percent"])
        for place, name in enumerate(types):
            part = sum(times[place::60])
            out.writerow([name, round(part * 8, 6), 8 * len(times[place::60]), round(part / sum(times) * 100, 2)])
    at = 0.0
    events = []
    for number in range(EVENTS):
        place = number % OPERATORS
        length = times[place] * 1000
        args = {"type": types[place % 60], "fullname": names[place], **info}
        events.append(
            {"name": names[place].rsplit("/", 1)[1], "ph": "X", "tid": "519", "ts": at, "dur": length, "pid": RANK, "args": args}
        )
        at += length + generator.uniform(0.1, 5)
    (profiler / f"ascend_timeline_display_{RANK}.json").write_text(json.dumps(events))
    summary = {"total_time": at, "num_of_streams": 1, "num_of_ops": OPERATORS, "op_exe_times": EVENTS, "max_scope_name_num": 0}
    (profiler / f"ascend_timeline_summary_{RANK}.json").write_text(json.dumps(summary))
    (profiler / f"profiler_info_{RANK}.json").write_text(json.dumps({"context_mode": "graph", "rank_id": str(RANK)}))
    return profiler


class MindInsight:
    """Its server over the summaries in a folder."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.workspace = folder / "workspace"
        self.environment = {
            **os.environ,
            "PATH": f"{PEER / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "MINDINSIGHT_WORKSPACE": str(self.workspace),
        }
        self.options = ["--workspace", str(self.workspace), "--port", str(self.port)]
        self._command("start", *self.options, "--summary-base-dir", str(folder / "summaries"))

    def _command(self, *arguments: str) -> None:
        done = subprocess.run(
            [str(PEER / "bin" / "mindinsight"), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
        )
        if done.returncode or "success" not in done.stdout:
            raise RuntimeError(f"mindinsight {arguments[0]}: {done.stdout} {done.stderr}")

    def ask(self, path: str, body: Any = None) -> tuple[float, bytes]:
        """Milliseconds until the whole answer is there, and the answer."""
        begin = time.perf_counter()
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/mindinsight/profile/{path}", data)
        with urllib.request.urlopen(request, timeout=_DEADLINE_S) as answer:
            content = answer.read()
        return (time.perf_counter() - begin) * 1000, content

    def close(self) -> None:
        """End it, and what it started."""
        for entry in Path("/proc").iterdir():
            try:
                ours = entry.name.isdigit() and str(self.workspace).encode() in (entry / "environ").read_bytes()
            except OSError:
                continue
            if ours:
                os.kill(int(entry.name), signal.SIGTERM)


def bench(folder: Path, rounds: int) -> dict[str, Any]:
    """How long MindInsight takes for a timeline of 400 thousand events and for pages of 50 thousand operators."""
    shutil.rmtree(folder / "workspace", ignore_errors=True)
    peer = MindInsight(folder)
    try:
        pages = []
        for number in range(2 * rounds):
            text = f"op{number}" if number % 2 else ""
            asked = {
                "op_type": "aicore_detail",
                "device_id": str(RANK),
                "filter_condition": {"op_name": {"partial_match_str_in": [text]}} if text else {},
                "sort_condition": {"name": "avg_execution_time", "type": "descending"},
                "group_condition": {"limit": 10, "offset": 0},
            }
            pages.append(peer.ask("ops/search?train_id=./job&profile=profiler", asked))
            size = json.loads(pages[-1][1])["size"]
            if size != sum(text in f"op{one}" for one in range(OPERATORS)):
                raise RuntimeError(f"MindInsight finds {size} operators")
        timelines = [peer.ask(f"timeline?dir=./job&device_id={RANK}&device_type=ascend") for _ in range(rounds)]
        if len(json.loads(timelines[0][1])) != EVENTS:
            raise RuntimeError("MindInsight does not give the whole timeline")
        return {
            "pages_ms": [taken for taken, _ in pages],
            "timeline_ms": [taken for taken, _ in timelines],
            "timeline_mb": len(timelines[0][1]) / 1e6,
        }
    finally:
        peer.close()
