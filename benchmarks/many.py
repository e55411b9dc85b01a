"""What a trace among many costs: many small run directories, and many ranks of one job.

Usage: ``python benchmarks/many.py [--directories 300] [--ranks 64]``; a window and a job of two ranks are recorded on the CPU,
the others are copies of them. Prints a table. The cost per trace is the processor time that every further one adds to one alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RECORD = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
import steplens

def train(rank, world, out):
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    if world > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[3])
        dist.init_process_group("gloo", rank=rank, world_size=world)
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer, batch = torch.optim.SGD(model.parameters(), lr=0.01), torch.randn(8, 16)
    options = dict(record_shapes=world > 1, profile_memory=world > 1)
    with steplens.profile(
        schedule=steplens.schedule(wait=0, warmup=1, active=3, repeat=1),
        on_trace_ready=steplens.tensorboard_trace_handler(out, analyse_flag=False), **options,
    ) as profiler:
        for _ in range(5):
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    if world > 1:
        dist.destroy_process_group()

if __name__ == "__main__":
    world = int(sys.argv[2])
    if world > 1:
        mp.spawn(train, args=(world, sys.argv[1]), nprocs=world)
    else:
        train(0, 1, sys.argv[1])
"""


def main() -> None:
    """Record, copy, run the commands, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directories", type=int, default=300)
    parser.add_argument("--ranks", type=int, default=64)
    given = parser.parse_args()
    # what is read are Kineto's files
    os.environ["STEPLENS_RECORDER"] = "off"
    load = f"load of the machine before: {os.getloadavg()[0]:.1f}"
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; {load}.\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        window, ranks = record(folder / "window", 1), record(folder / "ranks", 2)
        of_one: dict[str, float] = {}
        cpu_and_wall(["summary", str(window[0])])
        print("| of | command | wall | processor | each further trace |\n| --- | --- | --- | --- | --- |")
        for count in sorted({1, max(given.directories // 10, 1), given.directories}):
            place = folder / f"d{count}"
            copies(window, place, count, lambda *_: None)
            table(f"{count} run director{'ies' if count > 1 else 'y'}", place, count, of_one, report=False)
        for count in sorted({1, min(8, given.ranks), given.ranks}):
            place = folder / f"r{count}"
            copies(ranks, place, count, of_rank)
            table(f"{count} rank{'s' if count > 1 else ''}", place, count, of_one, report=True)


def record(folder: Path, world: int) -> list[Path]:
    """The run directories of a training of so many ranks."""
    script = folder.with_suffix(".py")
    script.write_text(RECORD)
    port = str(20_000 + (os.getpid() + world) % 10_000)
    subprocess.run(
        [sys.executable, script, folder, str(world), port], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return sorted(folder.glob("*_ascend_pt"))


def copies(recorded: list[Path], place: Path, count: int, change: Callable[[Path, int, int], None]) -> None:
    """So many run directories in a folder, copies of those that were recorded, in turns."""
    for number in range(count):
        target = place / f"host_{30000 + number}_{20260101000000000 + number}_ascend_pt"
        shutil.copytree(recorded[number % len(recorded)], target, ignore=shutil.ignore_patterns(".steplens"))
        change(target, number, count)


def of_rank(directory: Path, rank: int, world: int) -> None:
    """Make a copied run directory that of another rank of a larger job."""
    trace = directory / "KINETO" / "trace.json"
    content = json.loads(trace.read_text())
    content["distributedInfo"].update(rank=rank, world_size=world)
    for group in content["distributedInfo"].get("pg_config", []):
        group.update(pg_size=world, ranks=list(range(world)))
    trace.write_text(json.dumps(content))
    for file in (directory / "KINETO" / "state.json", *directory.glob("profiler_*.json")):
        content = renumbered(json.loads(file.read_text()), rank, world)
        named = file.name.startswith("profiler_info")
        file.unlink()
        (file.with_name(f"profiler_info_{rank}.json") if named else file).write_text(json.dumps(content))


def renumbered(value: Any, rank: int, world: int) -> Any:
    """The content of a side file with another rank in it."""
    if isinstance(value, list):
        return [renumbered(item, rank, world) for item in value]
    if not isinstance(value, dict):
        return value
    new = {"rank": rank, "rank_id": rank, "world_size": world}
    return {key: new[key] if key in new else renumbered(item, rank, world) for key, item in value.items()}


def table(title: str, place: Path, count: int, of_one: dict[str, float], *, report: bool) -> None:
    """Run the commands over a folder and print a row for each; ``of_one``: the processor time of each for one trace alone."""
    commands = [("open, first time", ["open", str(place)]), ("open, again", ["open", str(place)])]
    commands += [(name, [name, str(place)]) for name in ("summary", "advise")]
    commands += [("report", ["report", str(place), "--output", str(place.with_suffix(".html"))])] if report else []
    for name, command in commands:
        cpu, wall = cpu_and_wall(command)
        if count == 1:
            of_one[name] = cpu
        each = f"{(cpu - of_one[name]) / (count - 1) * 1000:.0f} ms" if count > 1 else ""
        print(f"| {title} | {name} | {wall:.1f} s | {cpu:.1f} s | {each} |", flush=True)


def cpu_and_wall(command: list[str]) -> tuple[float, float]:
    """Processor time (of all threads, user and system) and wall time of a command of steplens, seconds."""
    begin = time.perf_counter()
    # modules are compiled once, as where steplens is installed
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        [sys.executable, "-m", "steplens", *command], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"steplens {' '.join(command)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime, time.perf_counter() - begin


if __name__ == "__main__":
    main()
