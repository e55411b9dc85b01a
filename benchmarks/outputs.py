"""How fast tables become files: the timeline in MB/s and with how much memory, the database in rows/s, the other files beside.

Usage: ``python benchmarks/outputs.py [--calls 550000] [--rounds 3] [--json FILE]``

The trace is made, not recorded: calls of 300 operators with shapes and stacks, device tasks, allocator events. Each round is a
process of its own that makes the trace and then writes each file once; memory is what a write adds to the peak of that process.
Times are wall times on one machine that does nothing else, the best of the rounds and the median.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

TARGET_MB_PER_S = 100
TARGET_ROWS_PER_S = 300_000

WRITE = """
import csv, json, resource, sqlite3, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.writers.builder import synthetic
from steplens.writers.common.output import LEVEL1, NothingToWriteError, Output, time_base_ns
from steplens.writers.result import OUTPUT_FILES

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000

calls = int(sys.argv[2])
trace = synthetic(ops=calls, kernels=calls * 6 // 11, memory_events=calls * 6 // 11)
output = Output(trace, time_base_ns(trace), LEVEL1)
found = {}
for file in OUTPUT_FILES:
    path = Path(sys.argv[3]) / file.name_for(trace)
    before, begin = peak_mb(), time.perf_counter()
    try:
        file.write(output, path)
    except NothingToWriteError:
        continue
    row = {"seconds": time.perf_counter() - begin, "added_mb": peak_mb() - before, "mb": path.stat().st_size / 1e6}
    if path.suffix == ".db":
        connection = sqlite3.connect(path)
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        row["rows"] = sum(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables)
    elif path.suffix == ".csv":
        with path.open(newline="") as handle:
            row["rows"] = sum(1 for _ in csv.reader(handle)) - 1
    elif path.name == "trace_view.json":
        row["rows"] = path.read_bytes().count(b'"ph":')
    path.unlink()
    found[file.name_for(trace)] = row
print(json.dumps(found))
"""


def measure(calls: int, rounds: int) -> list[dict[str, dict[str, float]]]:
    """One process per round; file name -> seconds, added_mb, mb and rows of each."""
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", WRITE, str(ROOT), str(calls), folder]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            found.append(json.loads(done.stdout))
    return found


def table(results: list[dict[str, dict[str, float]]]) -> str:
    """The results as a table in Markdown, one line per file."""
    lines = [
        "| file | rows | MB | s, best (median) | MB/s | rows/s | memory added, MB | goal |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in results[0]:
        runs = [result[name] for result in results]
        seconds = [run["seconds"] for run in runs]
        best, size, rows = min(seconds), runs[0]["mb"], runs[0].get("rows", 0)
        if name == "trace_view.json":
            goal = verdict(size / best, TARGET_MB_PER_S, "MB/s")
        elif name.endswith(".db") and name != "analysis.db":
            goal = verdict(rows / best, TARGET_ROWS_PER_S, "rows/s")
        else:
            goal = ""
        memory = max(run["added_mb"] for run in runs)
        lines.append(
            f"| {name} | {rows:,.0f} | {size:.1f} | {best:.2f} ({statistics.median(seconds):.2f}) | {size / best:.0f} | "
            f"{rows / best:,.0f} | {memory:.0f} | {goal} |"
        )
    return "\n".join(lines)


def verdict(value: float, goal: float, unit: str) -> str:
    """Whether a goal is reached."""
    return f"{goal:,.0f} {unit}: {'reached' if value >= goal else 'missed'}"


def main() -> None:
    """Measure, print the table, and save the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=550_000, help="operator calls of the trace; 550000 give 1.5 million events")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="save the numbers here")
    given = parser.parse_args()
    results = measure(given.calls, given.rounds)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {given.calls:,} operator calls\n")
    print(table(results))
    if given.json is not None:
        summary: dict[str, Any] = {"calls": given.calls, "rounds": results}
        given.json.write_text(json.dumps(summary, indent=2))


if __name__ == "__main__":
    main()
