"""How long each command takes to refuse each kind of bad input.

Usage: ``python benchmarks/bad_input.py [--rounds 3] [--run PATH]``

The kinds are those of ``tests/cli/test_bad_input.py``; with a recorded run also those that only its data tells: a column or rank
that it does not have. Each is a process of its own, imports included; of its rounds the best counts, because the machine may be
busy. The goal is 0.5 s, of wall time or of processor time.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.cli.test_bad_input import BAD, write_bad_files  # noqa: E402

GOAL_S = 0.5


def measure_refusal(arguments: tuple[str, ...], folder: Path) -> tuple[float, float, int]:
    """Wall time and processor time in s, and the exit code, of one command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "steplens", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, busy, done.returncode


def main() -> None:
    """Print the table, the slowest first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", type=Path, help="a recorded run that was opened before")
    options = parser.parse_args()
    kinds = [arguments for arguments, _ in BAD]
    if options.run is not None:
        run = str(options.run.resolve())
        kinds += [
            ("table", run, "operators", "--columns", "nosuch"),
            ("table", run, "operators", "--sort", "nosuch"),
            ("table", run, "operators", "--rank", "4095"),
            ("export", run, "--to", "chrome", "--rank", "4095"),
            ("sql", run, "SELECT nosuch FROM ops"),
        ]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_bad_files(folder)
        for arguments in kinds:
            taken = [measure_refusal(arguments, folder) for _ in range(options.rounds)]
            rows.append((min(wall for wall, _, _ in taken), min(busy for _, busy, _ in taken), taken[0][2], arguments))
    rows.sort(key=lambda row: -row[1])
    reached = sum(min(wall, busy) <= GOAL_S for wall, busy, _, _ in rows)
    print(f"{len(rows)} kinds, {os.cpu_count()} cores, Python {platform.python_version()}; within {GOAL_S} s: {reached}\n")
    print("| command | wall | processor | exit code |\n| --- | --- | --- | --- |")
    for wall, busy, code, arguments in rows:
        print(f"| `steplens {shlex.join(arguments)}` | {wall:.2f} s | {busy:.2f} s | {code} |")


if __name__ == "__main__":
    main()
