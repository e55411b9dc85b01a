"""What recording costs the training loop: no profiler, torch.profiler and steplens side by side.

Usage: ``python benchmarks/overhead.py [--steps 10] [--rounds 31] [--device cuda] [--recorder off] [--json FILE]``

Every round records one window of each kind right after the other, in an order that changes from round to round,
so that a change of the machine's speed meets all of them. Only the loop is timed, with the ``step()`` calls in it,
on a GPU until it has done its work; stopping and saving come after it. A window is preceded by a warm-up step. The
medians are over rounds. The ratio is given for wall time and for CPU time of the training thread; the second does
not see other programs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIANTS: dict[str, dict[str, bool]] = {
    "operators": {},
    "shapes": {"record_shapes": True},
    "shapes, memory": {"record_shapes": True, "profile_memory": True},
    "shapes, memory, stacks": {"record_shapes": True, "profile_memory": True, "with_stack": True},
}


def network(device: str) -> Callable[[], None]:
    """A training step of a small network with many short operators: most of its time is the framework's own."""
    import torch

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(32, 32)
            self.norm = torch.nn.LayerNorm(32)

        def forward(self, x: Any) -> Any:
            return x + torch.relu(self.norm(self.line(x))) * 0.5

    torch.manual_seed(0)
    model = torch.nn.Sequential(*[Layer() for _ in range(24)]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    x = torch.randn(16, 32, device=device)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def timed_loop(step: Callable[[], None], steps: int, profiler: Any) -> tuple[float, float]:
    """Wall and CPU seconds of ``steps`` steps after one warm-up step; without a profiler the loop has no ``step()`` calls."""
    import torch

    wait_for_device = torch.cuda.synchronize if torch.cuda.is_initialized() else contextlib.nullcontext
    step()
    if profiler is not None:
        profiler.step()
    wait_for_device()
    begin, begin_cpu = time.perf_counter(), time.thread_time()
    for _ in range(steps - 1):
        step()
        if profiler is not None:
            profiler.step()
    # The last step() would close the window; that is not the loop's.
    step()
    wait_for_device()
    return time.perf_counter() - begin, time.thread_time() - begin_cpu


def operators_per_step(step: Callable[[], None]) -> int:
    """How many operator calls a training step makes, as Kineto counts them."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        step()
    return len(profiler.events())


def import_ms(module: str, tries: int = 5) -> float:
    """Milliseconds that importing ``module`` takes in a new process; the best of some tries."""
    code = f"import time; b = time.perf_counter(); import {module}; print((time.perf_counter() - b) * 1e3)"
    return min(
        float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
        for _ in range(tries)
    )


@contextlib.contextmanager
def quiet() -> Any:
    """Send what PyTorch and the profilers print to stderr to nowhere."""
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


Loops = dict[str, list[tuple[float, float]]]


def measure(step: Callable[[], None], options: dict[str, bool], steps: int, rounds: int, folder: str, device: str) -> Loops:
    """Wall and CPU seconds of the loops of every kind, one per round."""
    import torch

    import steplens

    recorded = ("CPU", "CUDA") if device == "cuda" else ("CPU",)

    def bare() -> tuple[float, float]:
        return timed_loop(step, steps, None)

    def peer() -> tuple[float, float]:
        plan = torch.profiler.schedule(wait=0, warmup=1, active=steps, repeat=1)
        activities = [getattr(torch.profiler.ProfilerActivity, name) for name in recorded]
        with torch.profiler.profile(activities=activities, schedule=plan, **options) as profiler:
            return timed_loop(step, steps, profiler)

    def ours(**more: bool) -> tuple[float, float]:
        plan = steplens.schedule(wait=0, warmup=1, active=steps, repeat=1)
        ready = steplens.tensorboard_trace_handler(folder, analyse_flag=False)
        activities = [getattr(steplens.ProfilerActivity, name) for name in recorded]
        with steplens.profile(activities=activities, schedule=plan, on_trace_ready=ready, **options, **more) as profiler:
            return timed_loop(step, steps, profiler)

    kinds = {"bare": bare, "torch.profiler": peer, "steplens": ours, "steplens, modules": lambda: ours(with_modules=True)}
    for run in kinds.values():
        run()
    seconds: Loops = {kind: [] for kind in kinds}
    order = list(kinds)
    for number in range(rounds):
        shift = number % len(order)
        for kind in order[shift:] + order[:shift]:
            seconds[kind].append(kinds[kind]())
    return seconds


def main() -> None:
    """Measure, print a table and write it down."""
    parser = argparse.ArgumentParser(description="Cost of recording in the training loop.")
    parser.add_argument("--steps", type=int, default=10, help="recorded steps of a window")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the network trains")
    # beside torch.profiler, what steplens adds to Kineto; benchmarks/recorder.py measures the recorder
    parser.add_argument("--recorder", choices=("off", "auto"), default="off", help="off: steplens records with Kineto too")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    os.environ["STEPLENS_RECORDER"] = arguments.recorder
    print(f"STEPLENS_RECORDER={arguments.recorder}\n")
    import torch

    torch.set_num_threads(1)
    step = network(arguments.device)
    for _ in range(20):
        step()
    with quiet():
        operators = operators_per_step(step)
    result: dict[str, Any] = {
        "recorder": arguments.recorder,
        "command": " ".join(["python", *sys.argv]),
        "machine": {"cpu_count": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__},
        "steps": arguments.steps,
        "rounds": arguments.rounds,
        "operators_per_step": operators,
        "variants": {},
        "import_ms": {"steplens": import_ms("steplens"), "torch": import_ms("torch", 1)},
    }
    print(f"{operators} operators a step, {arguments.steps} steps, median of {arguments.rounds} rounds;")
    print("us per operator; ratio of the loop under steplens to the loop under torch.profiler\n")
    columns = ("options", "bare", "torch.profiler adds", "steplens adds", "with modules", "wall ratio", "CPU ratio")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for name, options in VARIANTS.items():
        with tempfile.TemporaryDirectory() as folder, quiet():
            seconds = measure(step, options, arguments.steps, arguments.rounds, folder, arguments.device)
        events = operators * arguments.steps
        median = {kind: statistics.median(wall for wall, _ in values) for kind, values in seconds.items()}
        added = {kind: (median[kind] - median["bare"]) / events * 1e6 for kind in median if kind != "bare"}
        # Rounds are compared one by one: both of a round ran within the same second.
        pairs = list(zip(seconds["steplens"], seconds["torch.profiler"], strict=True))
        wall_ratio, cpu_ratio = (statistics.median(ours[clock] / peer[clock] for ours, peer in pairs) for clock in (0, 1))
        result["variants"][name] = {
            "bare_us_per_operator": median["bare"] / events * 1e6,
            "added_us_per_operator": added,
            "wall_ratio_to_torch_profiler": wall_ratio,
            "cpu_ratio_to_torch_profiler": cpu_ratio,
            "seconds": seconds,
        }
        cells = [
            f"{median['bare'] / events * 1e6:.2f}",
            *(f"{added[kind]:.2f}" for kind in added),
            f"{wall_ratio:.3f}",
            f"{cpu_ratio:.3f}",
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(
        f"\n`import steplens`: {result['import_ms']['steplens']:.1f} ms (`import torch`: {result['import_ms']['torch']:.0f} ms)"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
