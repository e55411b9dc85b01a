"""Ranks of which only another analysis' results were kept: steplens beside msprof-analyze, in processor time.

Usage: ``python benchmarks/results_only.py`` (needs the shared captures and ``make .bench/msprof/.setup-done``). Every rank is a
copy of one of two of an Ascend capture, cut down to ``communication.json``, ``communication_matrix.json`` and
``step_trace_time.csv``.
Both tools run as a user runs them, with their modules compiled; in the runs called "first time" nothing is kept of the ranks.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CAPTURES = Path(os.environ.get("STEPLENS_SHARED_DATA") or ROOT.parent / "shared" / "data") / "ascend_pytorch" / "text_level1"
MSPROF = ROOT / ".bench" / "msprof" / "bin" / "msprof-analyze"
OUTPUT = "ASCEND_PROFILER_OUTPUT"
FILES = ("communication.json", "communication_matrix.json", "step_trace_time.csv")
#: what is asked of steplens: all that a summary says, and the tables of the recipe's three files
COMMANDS = (("summary",), ("table", "steps"), ("table", "communication_times"), ("table", "links"))


def make_job(top: Path, ranks: int) -> Path:
    """Ranks with nothing but some result files."""
    for rank in range(ranks):
        folder = top / f"worker_{rank}_202401020304{rank % 60:02d}_ascend_pt"
        (folder / OUTPUT).mkdir(parents=True)
        for name in FILES:
            shutil.copyfile(CAPTURES / f"rank{rank % 2}_ascend_pt" / OUTPUT / name, folder / OUTPUT / name)
        (folder / f"profiler_info_{rank}.json").write_text("{}")
    return top


def processor_seconds(command: Sequence[str | Path], environment: dict[str, str]) -> float:
    """Processor time of a command and all processes that it starts, s."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def forget_kept(job: Path) -> None:
    """Remove what steplens keeps beside the ranks."""
    for kept in job.rglob(".steplens"):
        shutil.rmtree(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many counts")
    rounds = parser.parse_args().rounds
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    steplens = {**environment, "PYTHONPATH": str(ROOT / "src")}
    print("| ranks | command | processor time | times faster |\n| --- | --- | --- | --- |")
    for ranks in (2, 64):
        with tempfile.TemporaryDirectory() as folder:
            job = make_job(Path(folder) / "job", ranks)
            theirs: list[str | Path] = [MSPROF, "cluster", "-m", "all", "-d", job, "-o"]
            # the first round compiles modules
            peer_s = [processor_seconds([*theirs, Path(folder, f"out{turn}")], environment) for turn in range(rounds + 1)]
            usual_s = min(peer_s[1:])
            print(f"| {ranks} | msprof-analyze cluster -m all | {usual_s:.2f} s | |", flush=True)
            for name, *table in COMMANDS:
                own: list[str | Path] = [sys.executable, "-m", "steplens", name, job, *table]
                first: list[float] = []
                again: list[float] = []
                for _ in range(rounds + 1):
                    forget_kept(job)
                    first.append(processor_seconds(own, steplens))
                    again.append(processor_seconds(own, steplens))
                for label, taken in (("first time", min(first[1:])), ("again", min(again[1:]))):
                    print(
                        f"| {ranks} | steplens {' '.join((name, *table))}, {label} | {taken:.2f} s | {usual_s / taken:.1f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
