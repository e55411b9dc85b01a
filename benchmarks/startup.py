"""How long commands take to start, and to answer about a run that was opened before.

Usage: ``python benchmarks/startup.py [--rounds 15] [--run PATH] [--only NAME]``

Each is a process of its own, all of them one after the other in every round, so that whatever else the machine does meets all of
them. Of its rounds the least counts, of wall time and of processor time, and is told beside that of a Python that only imports
what the command rests on. Without ``--run`` a small network is recorded on the CPU first, as ``make demo`` does.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

NOTEBOOK = "import steplens, sys; run = steplens.open(sys.argv[1]); run.steps(); run.operators()"


#: stands for another number in each round
_NEW = "{new}"


@dataclass
class Program:
    """A program; with a goal it may take ``factor`` times what the program ``beside`` takes, and ``more_s``."""

    name: str
    arguments: list[str]
    beside: str = ""
    factor: float | None = None
    more_s: float = 0.0
    walls: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)

    def run(self, number: int) -> None:
        """Run it once and note how long it took."""
        command = [sys.executable, *(word.replace(_NEW, str(number)) for word in self.arguments)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        # modules are read as they were compiled, as they are where steplens is installed
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        self.walls.append(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.busy.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def list_programs(run: str) -> list[Program]:
    """What is measured, of a run that was opened before."""
    steplens = ["-m", "steplens"]
    typer, polars = "import typer, rich", "import polars"
    return [
        Program("", ["-c", ""]),
        Program(typer, ["-c", typer]),
        Program(polars, ["-c", polars]),
        Program("steplens --help", [*steplens, "--help"], typer, 1.5),
        Program("steplens table --help", [*steplens, "table", "--help"], typer),
        Program("steplens summary RUN", [*steplens, "summary", run], polars, 1.5, 0.05),
        Program("open, steps(), operators()", ["-c", NOTEBOOK, run], polars, 1.5, 0.05),
        # of so many operators nobody has asked before
        Program("steplens summary RUN --top N, the first time", [*steplens, "summary", run, "--top", _NEW], polars),
        Program("steplens advise RUN", [*steplens, "advise", run], polars),
        Program("steplens table RUN operators", [*steplens, "table", run, "operators"], polars),
        Program("steplens open RUN", [*steplens, "open", run], polars),
        Program("steplens compare RUN RUN", [*steplens, "compare", run, run], polars),
    ]


def record_demo(folder: Path) -> str:
    """The run directory of a small network, its results written."""
    subprocess.run([sys.executable, ROOT / "examples" / "demo.py", "--out", folder], check=True, stdout=subprocess.DEVNULL)
    return str(next(folder.glob("*_ascend_pt")))


def print_table(programs: list[Program]) -> None:
    """A row for each program."""
    by_name = {program.name: program for program in programs}
    print("| program | wall | processor | beside | ratio of wall | of processor | goal |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for program in programs:
        name = f"`{program.name}`" if program.name else "Python alone"
        wall, busy = min(program.walls), min(program.busy)
        times = f"{1e3 * wall:.0f} ms | {1e3 * busy:.0f} ms"
        if not program.beside:
            print(f"| {name} | {times} | | | | |")
            continue
        beside = by_name[program.beside]
        goal = ""
        if program.factor is not None:
            goal = f"{program.factor} times" + (f" and {1e3 * program.more_s:.0f} ms" if program.more_s else "")
            reached = busy <= program.factor * min(beside.busy) + program.more_s
            goal += ": reached" if reached else ": missed"
        ratios = f"{wall / min(beside.walls):.2f} | {busy / min(beside.busy):.2f}"
        print(f"| {name} | {times} | `{program.beside}` | {ratios} | {goal} |")


def main() -> None:
    """Run all of them in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--run", type=Path, help="a recorded run")
    parser.add_argument("--only", help="only programs with this in their names, and those beside them")
    given = parser.parse_args()
    load = f"load of the machine before: {os.getloadavg()[0]:.1f}"
    with tempfile.TemporaryDirectory() as name:
        run = str(given.run.resolve()) if given.run is not None else record_demo(Path(name))
        programs = list_programs(run)
        if given.only:
            named = [program for program in programs if given.only in program.name]
            programs = [program for program in programs if program in named or program.name in {one.beside for one in named}]
        for number in range(given.rounds + 1):
            for program in programs:
                program.run(1000 + number)
        for program in programs:
            # the first time modules may have to be compiled, and answers worked out
            del program.walls[0], program.busy[0]
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; {given.rounds} rounds; {load}.\n")
    print_table(programs)


if __name__ == "__main__":
    main()
