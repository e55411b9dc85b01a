"""What dynamic profiling costs while nothing is captured, how fast a trigger acts, and what a thousand captures leave in memory.

Usage: ``python benchmarks/dynamic.py [--rounds 201] [--ranks 4] [--triggers 50] [--windows 1000] [--json FILE]``

The cost of ``dp.step()`` is the difference to a call of an empty function, in blocks that alternate within one process. The
latency is the time from writing the request to the last rank that records; ranks are real gloo processes that train together.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS = 5_000

RANK = """
import os, time, torch
import torch.distributed as dist
from steplens import dynamic_profile as dp
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
dp.init(os.environ["CONFIG"])
while True:
    optimizer.zero_grad()
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    time.sleep(float(os.environ["PAUSE"]))
    dp.step()
"""


def empty() -> None:
    """What a call costs anyway."""


def block(call: Callable[[], None]) -> float:
    """Nanoseconds per call."""
    begin = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - begin) / CALLS


def added_ns(call: Callable[[], None], rounds: int) -> dict[str, float]:
    """What ``call`` costs more than an empty function: medians and fastest of alternating blocks."""
    times: dict[Callable[[], None], list[float]] = {call: [], empty: []}
    for number in range(rounds):
        for function in (call, empty) if number % 2 else (empty, call):
            times[function].append(block(function))
    median = statistics.median(ours - bare for ours, bare in zip(times[call], times[empty], strict=True))
    return {"median": median, "fastest": min(times[call]) - min(times[empty])}


def measure_steps(rounds: int, folder: Path) -> dict[str, Any]:
    """The cost of ``dp.step()`` in a process that watches, and of watching itself."""
    from steplens import dynamic_profile as dp
    from steplens.collect.dynamic import process_agent

    found: dict[str, Any] = {"not initialised": added_ns(dp.step, rounds)}
    dp.init(folder)
    dp.step()
    found["idle"] = added_ns(dp.step, rounds)
    begin, begin_cpu = time.perf_counter(), time.process_time()
    time.sleep(5)
    found["watching_cpu_ms_per_s"] = (time.process_time() - begin_cpu) / (time.perf_counter() - begin) * 1e3
    document = json.loads((folder / "profiler_config.json").read_text())
    (folder / "profiler_config.json").write_text(json.dumps({**document, "start_step": 10**15}))
    time.sleep(0.5)
    dp.step()
    agent = process_agent.agent
    assert agent is not None
    assert agent.record()["state"] == "ready"
    found["waiting for its step"] = added_ns(dp.step, rounds)
    process_agent.end_agent()
    return found


def measure_latency(ranks: int, triggers: int, pause_s: float, folder: Path) -> dict[str, Any]:
    """Milliseconds from the request to the last rank that records, for requests at random moments."""
    from steplens.collect.dynamic import client

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    environment |= {"CONFIG": str(folder), "PAUSE": str(pause_s)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK],
            env={**os.environ, **environment, "RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(ranks)
    ]
    try:
        while sum((item.step or 0) > 5 for item in client.find_participants(folder)) < ranks:
            time.sleep(0.1)
        begin, first = time.monotonic(), client.find_participants(folder)[0].step or 0
        time.sleep(3)
        step_ms = (time.monotonic() - begin) / ((client.find_participants(folder)[0].step or 0) - first) * 1e3
        latencies, same, dice = [], 0, random.Random(1)
        for _ in range(triggers):
            time.sleep(dice.uniform(0.1, 0.4))
            asked_ns = time.time_ns()
            id, _found = client.send_request(folder, {"start_step": -1, "active": 1, "prof_dir": str(folder / "results")})
            while True:
                requests = [item.request(id) for item in client.find_participants(folder)]
                if all(request is not None and request["state"] in ("done", "failed", "missed") for request in requests):
                    break
                time.sleep(0.02)
            assert all(request is not None and request["state"] == "done" for request in requests), requests
            latencies.append(max(request["began_ns"] for request in requests if request) / 1e6 - asked_ns / 1e6)
            same += len({request["start_step"] for request in requests if request}) == 1
        return {"step_ms": step_ms, "latency_ms": sorted(latencies), "same_steps": same}
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure_memory(windows: int, folder: Path) -> dict[str, Any]:
    """Resident memory after the tenth and after the last of many captures."""
    import torch

    from steplens import dynamic_profile as dp

    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 8)
    dp.init(folder)
    document = json.loads((folder / "profiler_config.json").read_text())
    configuration = folder / "start.json"
    configuration.write_text(json.dumps({**document, "prof_dir": str(folder / "results")}))
    sizes = []
    for _ in range(windows):
        dp.start(configuration)
        model(torch.ones(2, 8)).sum().backward()
        dp.step()
        sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20)
    return {"after_10_mib": sizes[min(9, len(sizes) - 1)], "after_all_mib": sizes[-1]}


def in_a_process(part: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One measurement in a process of its own; what it prints at the end is the result."""
    command = [sys.executable, __file__, "--part", part, "--rounds", str(arguments.rounds), "--windows", str(arguments.windows)]
    command += ["--ranks", str(arguments.ranks), "--triggers", str(arguments.triggers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def histogram(latencies: list[float]) -> str:
    """How many requests took how long."""
    limits = [10, 20, 50, 100, 200, 500, 1000, float("inf")]
    counts = [sum(low <= value < high for value in latencies) for low, high in zip([0, *limits], limits, strict=False)]
    return "\n".join(f"| < {limit:g} ms | {count} |" for limit, count in zip(limits, counts, strict=True) if count)


def show(found: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Print everything."""
    steps = found["steps"]
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}")
    print(f"\ndp.step(), added to an empty call, {arguments.rounds} blocks of {CALLS} calls\n")
    print("| state | median | fastest block |\n|---|---|---|")
    for name in ("not initialised", "idle", "waiting for its step"):
        print(f"| {name} | {steps[name]['median']:.0f} ns | {steps[name]['fastest']:.0f} ns |")
    print(f"\nthe watching thread: {steps['watching_cpu_ms_per_s']:.2f} ms of CPU time per second")
    for name in ("short steps", "long steps"):
        latency = found[name]
        values = latency["latency_ms"]
        print(f"\n{name} ({latency['step_ms']:.1f} ms), {arguments.ranks} gloo ranks, {len(values)} requests:")
        same = f"all ranks the same steps: {latency['same_steps']}"
        print(f"median {statistics.median(values):.0f} ms, longest {values[-1]:.0f} ms, {same}\n")
        print("| latency | requests |\n|---|---|")
        print(histogram(values))
    memory = found["memory"]
    print(
        f"\n{arguments.windows} captures: {memory['after_10_mib']:.1f} MiB after 10, {memory['after_all_mib']:.1f} MiB at the end"
    )


def main() -> None:
    """Measure, print tables and write them down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=201)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--triggers", type=int, default=50)
    parser.add_argument("--windows", type=int, default=1000)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part is None:
        found = {part: in_a_process(part, arguments) for part in ("steps", "short steps", "long steps", "memory")}
        show(found, arguments)
        if arguments.json:
            arguments.json.write_text(json.dumps(found, indent=1) + "\n")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "config"
        measurements: dict[str, Callable[[], dict[str, Any]]] = {
            "steps": lambda: measure_steps(arguments.rounds, folder),
            "short steps": lambda: measure_latency(arguments.ranks, arguments.triggers, 0.01, folder),
            "long steps": lambda: measure_latency(arguments.ranks, arguments.triggers, 0.3, folder),
            "memory": lambda: measure_memory(arguments.windows, folder),
        }
        print(json.dumps(measurements[arguments.part]()))


if __name__ == "__main__":
    main()
