"""How a trace of a gigabyte is read: time, processor time and memory, from JSON to the cached tables.

Usage: ``python benchmarks/large.py [--megabytes 1000] [--rounds 3] [--cuda RECORDED.json.gz] [--json FILE] [--keep FOLDER]``

Two files are made by repeating a recorded trace (``benchmarks/enlarge.py``): one of a training on CUDA with NCCL, which is
not part of this repository (``--cuda``; left out where there is none), and one of a training on the CPU with shapes and
memory, which is recorded first. A fresh process opens each file, which reads it and writes its Parquet cache. Memory is the
sum over the process and its helper, sampled every 10 ms; processor time is that of both. HolisticTraceAnalysis, when its
environment (``.bench/hta``) is there, loads a tenth of the CUDA file, since it needs several times the file in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from enlarge import enlarge
from speed import HTA_LOAD, HTA_PYTHON, ROOT, child, row

CUDA = ROOT.parent / "shared" / "data" / "kineto" / "cuda_nccl_distributed.json.gz"

#: at least this much per second of processor time, at most this much memory in all
TARGET_MB_PER_CPU_SECOND = 100
TARGET_PEAK_MB = 1500

OPEN = """
import sys
from steplens.run import open_run
trace = open_run(sys.argv[1]).trace()
print(sum(trace.lazy(name).select("*").collect().height for name in trace if name not in ("meta", "health")))
"""


def tree(pid: int) -> list[int]:
    """The process and all below it."""
    found = [pid]
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            for below in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                found += tree(int(below))
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def resident_mb(pid: int) -> float:
    """Resident memory of the process and all below it; pages that they share count in each."""
    total = 0
    for one in tree(pid):
        try:
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError, IndexError):
            continue
    return total * os.sysconf("SC_PAGE_SIZE") / 1e6


def measured(command: list[str]) -> dict[str, float]:
    """Run a command: wall and processor time (s) and the peak of its memory (MB)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, resident_mb(process.pid))
        time.sleep(0.01)
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return {"wall": wall, "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, "peak_mb": peak}


def bench(file: Path, rounds: int) -> dict[str, Any]:
    """Open ``file`` anew in every round."""
    results = []
    for _ in range(rounds):
        shutil.rmtree(file.parent / ".steplens", ignore_errors=True)
        results.append(measured([sys.executable, "-c", OPEN, str(file)]))
    cache = file.parent / ".steplens"
    return {
        "json_mb": file.stat().st_size / 1e6,
        "cache_mb": sum(one.stat().st_size for one in cache.rglob("*.parquet")) / 1e6,
        "wall": [one["wall"] for one in results],
        "cpu": [one["cpu"] for one in results],
        "peak_mb": max(one["peak_mb"] for one in results),
        "events": count(file),
    }


def count(file: Path) -> int:
    """Number of events."""
    with file.open("rb") as handle:
        return sum(block.count(b'"ph": ') for block in iter(lambda: handle.read(1 << 24), b""))


def bench_all(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Make the files and measure."""
    result: dict[str, Any] = {"rounds": given.rounds, "load": os.getloadavg()[0], "cases": {}}
    if given.cuda.is_file():
        file = folder / "cuda" / "trace.json"
        file.parent.mkdir()
        enlarge(given.cuda, file, given.megabytes * 1_000_000)
        result["cases"]["CUDA and NCCL"] = bench(file, given.rounds)
        if HTA_PYTHON.exists():
            tenth = folder / "tenth" / "trace.json"
            tenth.parent.mkdir()
            enlarge(given.cuda, tenth, given.megabytes * 100_000)
            result["cases"]["a tenth of it"] = bench(tenth, given.rounds)
            done = subprocess.run([HTA_PYTHON, "-c", HTA_LOAD, str(tenth)], capture_output=True, text=True, check=True)
            result["hta"] = json.loads(done.stdout.splitlines()[-1])
        shutil.rmtree(file.parent)
    recorded = child("--record", str(folder), "--events", "60000", script=ROOT / "benchmarks" / "speed.py")
    file = folder / "cpu" / "trace.json"
    file.parent.mkdir()
    enlarge(Path(recorded["run"]) / "KINETO" / "trace.json", file, given.megabytes * 1_000_000)
    result["cases"]["CPU with shapes and memory"] = bench(file, given.rounds)
    return result


def table(result: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = [
        f"{os.cpu_count()} cores, Python {platform.python_version()}, {result['rounds']} rounds; "
        f"load of the machine before: {result['load']:.1f}.",
        "",
        row("trace", "JSON", "events", "cache", "wall, median (best)", "CPU, median (best)", "MB per CPU second", "peak memory"),
        row(*["---"] * 8),
    ]
    for name, case in result["cases"].items():
        wall, cpu = (f"{statistics.median(case[key]):.2f} s ({min(case[key]):.2f} s)" for key in ("wall", "cpu"))
        rate = f"{case['json_mb'] / statistics.median(case['cpu']):.0f} ({case['json_mb'] / min(case['cpu']):.0f})"
        size, events, cache = f"{case['json_mb']:.0f} MB", f"{case['events']:,}", f"{case['cache_mb']:.0f} MB"
        lines.append(row(name, size, events, cache, wall, cpu, rate, f"{case['peak_mb']:.0f} MB"))
    lines += ["", f"Targets: {TARGET_MB_PER_CPU_SECOND} MB per CPU second, {TARGET_PEAK_MB} MB."]
    if "hta" in result:
        hta, mine = result["hta"], result["cases"]["a tenth of it"]
        ratio = hta["seconds"] / statistics.median(mine["wall"])
        lines.append(
            f"HolisticTraceAnalysis 0.5 loads the tenth in {hta['seconds']:.1f} s with {hta['peak_mb']:.0f} MB: "
            f"steplens is {ratio:.0f} times faster."
        )
    return "\n".join(lines)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cuda", type=Path, default=CUDA, help="a recorded trace with GPU events")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="leave the files in this folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="steplens-bench-") as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = bench_all(folder, given)
    print(table(result))
    if given.json:
        given.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
