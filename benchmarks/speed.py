"""How fast a recorded run becomes tables and files, beside PyTorch's own summary and HolisticTraceAnalysis.

Usage: ``python benchmarks/speed.py [--events 1000000] [--rounds 3] [--json FILE] [--keep FOLDER]``

One process trains a small network under ``torch.profiler`` until the trace has the wanted number of events, saves it
with Kineto's writer and times ``key_averages()`` on the very same result. Fresh processes then read the saved file:
steplens (to its Parquet store, then on to all text outputs at Level1) and HolisticTraceAnalysis, when its environment
(``.bench/hta``, made by ``make bench``) is there. Times of steplens are whole processes, imports included, the best of
the rounds and the median; its memory is the sum of the peaks of its two processes.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HTA_PYTHON = ROOT / ".bench" / "hta" / "bin" / "python"

#: how many times faster than the peer each pass is to be
TARGETS = {"store": 40, "outputs": 8, "load": 40}

HTA_LOAD = """
import json, resource, sys, time
from hta.common.trace import parse_trace_file
begin = time.perf_counter()
_, frame, _ = parse_trace_file(sys.argv[1])
seconds = time.perf_counter() - begin
peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
print(json.dumps({"seconds": seconds, "rows": len(frame), "peak_mb": peak_mb}))
"""


def record(folder: Path, wanted: int) -> dict[str, Any]:
    """Train under torch.profiler, save the result as a run directory below ``folder``, and time ``key_averages()`` on it."""
    import torch

    import steplens

    torch.set_num_threads(1)
    layers: list[torch.nn.Module] = []
    for _ in range(12):
        layers += [torch.nn.Linear(16, 16), torch.nn.LayerNorm(16), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, foreach=False)

    def train() -> None:
        optimizer.zero_grad()
        network(torch.randn(8, 16)).sum().backward()
        optimizer.step()

    # a real window of steplens gives the run directory; the large result takes the place of its raw trace
    os.environ["STEPLENS_RECORDER"] = "off"
    level = steplens._ExperimentalConfig(profiler_level=steplens.ProfilerLevel.Level1)
    ready = steplens.tensorboard_trace_handler(str(folder), analyse_flag=False)
    with steplens.profile(record_shapes=True, profile_memory=True, experimental_config=level, on_trace_ready=ready):
        train()
    (run,) = folder.glob("*_ascend_pt")

    steps = max(wanted // 3509, 2)
    profiler = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        record_shapes=True,
        profile_memory=True,
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=steps, repeat=1),
    )
    profiler.start()
    for _ in range(steps + 1):
        train()
        profiler.step()
    result = profiler.profiler.kineto_results
    begin = time.perf_counter()
    result.save(str(run / "KINETO" / "trace.json"))
    save_seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    rows = len(profiler.key_averages())
    return {"run": str(run), "save_seconds": save_seconds, "key_averages_seconds": time.perf_counter() - begin, "rows": rows}


def measure_ours(run: Path, *, outputs: bool) -> dict[str, Any]:
    """One cold pass of steplens over ``run``: the store, or the store and all text outputs."""
    import resource

    begin = time.perf_counter()
    if outputs:
        from steplens.offline import analyse_run

        result = analyse_run(run, force=True)
        assert result.ok, result
        events = 0
    else:
        from steplens.run import open_run

        opened = open_run(run)
        events = opened.sql("select count(*) as n from ops")["n"][0]
    seconds = time.perf_counter() - begin
    peaks = [resource.getrusage(who).ru_maxrss / 1000 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {"inner_seconds": seconds, "ops": events, "peak_mb": sum(peaks)}


def measure_queries(run: Path) -> dict[str, float]:
    """Opening the cached run and asking it, in a process of its own; imports are reported apart."""
    begin = time.perf_counter()
    import polars  # noqa: F401

    imported = time.perf_counter()
    from steplens.run import open_run

    opened = open_run(run)
    times = {"import polars": imported - begin, "open": time.perf_counter() - imported}
    questions: dict[str, Callable[[], object]] = {"steps()": opened.steps, "memory()": opened.memory}
    for by in ("name", "shape", "stack", "module"):
        questions[f'operators(by="{by}")'] = functools.partial(opened.operators, by)
    for name, ask in questions.items():
        begin = time.perf_counter()
        ask()
        times[name] = time.perf_counter() - begin
    return times


def child(*arguments: str, script: Path = Path(__file__)) -> dict[str, Any]:
    """Run this file (or ``script``) again with ``arguments`` in a process of its own; its JSON, and the process's wall time."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, script, *arguments], stdout=subprocess.PIPE, check=True, stderr=subprocess.DEVNULL)
    value: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    value["seconds"] = time.perf_counter() - begin
    return value


def clean(run: Path) -> None:
    """Forget all that steplens has made of ``run``."""
    for name in (".steplens", "ASCEND_PROFILER_OUTPUT"):
        shutil.rmtree(run / name, ignore_errors=True)


def bench(folder: Path, wanted: int, rounds: int) -> dict[str, Any]:
    """All measurements."""
    recorded = child("--record", str(folder), "--events", str(wanted))
    run = Path(recorded["run"])
    trace = run / "KINETO" / "trace.json"
    with trace.open("rb") as handle:
        events = sum(block.count(b'"ph": ') for block in iter(lambda: handle.read(1 << 24), b""))
    store, outputs = [], []
    for _ in range(rounds):
        clean(run)
        store.append(child("--store", str(run)))
        clean(run)
        outputs.append(child("--outputs", str(run)))
    queries = [child("--queries", str(run)) for _ in range(rounds)]
    result = {
        "events": events,
        "json_mb": trace.stat().st_size / 1e6,
        "store_mb": sum(file.stat().st_size for file in (run / ".steplens").rglob("*.parquet")) / 1e6,
        "output_mb": sum(file.stat().st_size for file in (run / "ASCEND_PROFILER_OUTPUT").iterdir()) / 1e6,
        "key_averages_seconds": recorded["key_averages_seconds"],
        "save_seconds": recorded["save_seconds"],
        "store_seconds": [row["seconds"] for row in store],
        "outputs_seconds": [row["seconds"] for row in outputs],
        "store_peak_mb": max(row["peak_mb"] for row in store),
        "outputs_peak_mb": max(row["peak_mb"] for row in outputs),
        "queries": {name: statistics.median(row[name] for row in queries) for name in queries[0] if name != "seconds"},
    }
    if HTA_PYTHON.exists():
        done = subprocess.run([HTA_PYTHON, "-c", HTA_LOAD, str(trace)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            result["hta"] = json.loads(done.stdout.splitlines()[-1])
        else:
            result["hta_error"] = done.stderr.strip().splitlines()[-1]
    return result


def row(*cells: str) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def table(result: dict[str, Any]) -> str:
    """The figures as Markdown."""
    reference = result["key_averages_seconds"]
    store, outputs = (statistics.median(result[f"{name}_seconds"]) for name in ("store", "outputs"))
    per_event = f"{reference / result['events'] * 1e6:.0f} us per event"
    size = f"{result['events']:,} events, {result['json_mb']:.0f} MB of JSON"
    lines = [
        f"{size}; {os.cpu_count()} cores, Python {platform.python_version()}, {len(result['store_seconds'])} rounds.",
        "",
        row("what", "median", "best", "peak memory", "ratio", "target"),
        row(*["---"] * 6),
        row("`key_averages()` of torch.profiler", f"{reference:.1f} s ({per_event})", "", "", "1", ""),
    ]
    for name, what, seconds, megabytes in (
        ("store", "steplens: JSON to Parquet store", store, result["store_mb"]),
        ("outputs", "steplens: JSON to store and all text outputs", outputs, result["output_mb"]),
    ):
        best, peak = f"{min(result[f'{name}_seconds']):.2f} s", f"{result[f'{name}_peak_mb']:.0f} MB"
        ratio = f"{reference / seconds:.1f} times faster"
        lines.append(row(f"{what} ({megabytes:.0f} MB)", f"{seconds:.2f} s", best, peak, ratio, f"{TARGETS[name]}, 1000 MB"))
    what = "HolisticTraceAnalysis 0.5 load"
    if "hta" in result:
        hta = result["hta"]
        ratio = f"steplens store is {hta['seconds'] / store:.1f} times faster"
        lines.append(row(what, f"{hta['seconds']:.1f} s", "", f"{hta['peak_mb']:.0f} MB", ratio, str(TARGETS["load"])))
    else:
        lines.append(row(what, f"not measured: {result.get('hta_error', 'its environment is missing')}", "", "", "", ""))
    lines += ["", row("on the cached run", "median", "target"), row(*["---"] * 3)]
    for name, seconds in result["queries"].items():
        lines.append(row(name, f"{seconds * 1000:.0f} ms", "" if name.startswith("import") else "300 ms"))
    return "\n".join(lines)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="leave the recorded run in this folder")
    for stage in ("record", "store", "outputs", "queries"):
        parser.add_argument(f"--{stage}", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.record:
        print(json.dumps(record(given.record, given.events)))
    elif given.store or given.outputs:
        print(json.dumps(measure_ours(given.store or given.outputs, outputs=bool(given.outputs))))
    elif given.queries:
        print(json.dumps(measure_queries(given.queries)))
    else:
        with tempfile.TemporaryDirectory(prefix="steplens-bench-") as temporary:
            folder = given.keep or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            result = bench(folder, given.events, given.rounds)
        print(table(result))
        if given.json:
            given.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
