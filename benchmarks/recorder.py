"""What recording costs: steplens' own recorder beside Kineto with the same options, in turns in one process.

Usage: ``python benchmarks/recorder.py [--rounds 7] [--calls 200000] [--steps 15] [--million 10]``

Tiny operators show the price of one call, steps of small transformers what that comes to in a training. Every figure is the
median of rounds, each of which measures everything once. ``--million`` records so many million calls in one window.
"""

from __future__ import annotations

import argparse
import platform
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler import profile

from steplens.collect.recorder import recorder_library as recorder

NAMES = 0
ALL = recorder.WITH_SHAPES | recorder.WITH_MEMORY
STACKS = recorder.WITH_PYTHON
MB = 1e6


class Recorder:
    """A recording of ours, with what its end takes."""

    def __init__(self, folder: Path, options: int) -> None:
        self._path, self._options = folder / "operators.rec", options
        self.stop_s = self.finish_s = 0.0
        self.bytes = 0
        self.totals: recorder.RecordingTotals | None = None

    def __enter__(self) -> Recorder:
        self._path.unlink(missing_ok=True)
        recorder.start_recorder(self._path, self._options, {})
        return self

    def __exit__(self, *_: object) -> None:
        begin = time.perf_counter()
        recorder.stop_recorder()
        self.stop_s = time.perf_counter() - begin
        self.totals = recorder.finish_recorder({})
        self.finish_s = time.perf_counter() - begin
        self.bytes = self._path.stat().st_size


class Kineto:
    """A recording of PyTorch's, likewise; its file is what it saves."""

    def __init__(self, folder: Path, *, shapes_and_memory: bool = False, stacks: bool = False) -> None:
        self._path = folder / "trace.json"
        self._profile = profile(
            use_kineto=True, record_shapes=shapes_and_memory, profile_memory=shapes_and_memory, with_stack=stacks
        )
        self.stop_s = 0.0
        self.bytes = 0

    def __enter__(self) -> Kineto:
        self._profile.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        begin = time.perf_counter()
        self._profile.__exit__(None, None, None)
        self.stop_s = time.perf_counter() - begin
        self._profile.kineto_results.save(str(self._path))
        self.bytes = self._path.stat().st_size


class Nothing:
    """No recording."""

    stop_s = 0.0
    bytes = 0

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def resident_bytes(which: str = "VmRSS") -> int:
    """Memory of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(which))
    return int(line.split()[1]) << 10


def time_tiny_operators(calls: int) -> float:
    """Seconds per call of an operator on four numbers that allocates its result."""
    left, right = torch.ones(4), torch.ones(4)
    begin = time.perf_counter()
    for _ in range(calls):
        torch.add(left, right)
    return (time.perf_counter() - begin) / calls


def make_transformer(width: int, tokens: int) -> Callable[[], None]:
    """A training step of a transformer of four layers on eight sequences: 4,200 operators, of whatever size."""
    layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 4)
    model = torch.nn.Sequential(torch.nn.Embedding(1000, width), encoder, torch.nn.Linear(width, 1000))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    inputs, targets = torch.randint(0, 1000, (8, tokens)), torch.randint(0, 1000, (8 * tokens,))

    def step() -> None:
        loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def recordings(folder: Path) -> dict[str, Callable[[], Any]]:
    """What is compared, by what it is called."""
    return {
        "nothing": Nothing,
        "recorder, names": lambda: Recorder(folder, NAMES),
        "Kineto, bare": lambda: Kineto(folder, shapes_and_memory=False),
        "recorder, shapes and memory": lambda: Recorder(folder, ALL),
        "Kineto, shapes and memory": lambda: Kineto(folder, shapes_and_memory=True),
        "recorder, with stacks": lambda: Recorder(folder, STACKS),
        "Kineto, with stacks": lambda: Kineto(folder, stacks=True),
    }


def compare_tiny_operators(folder: Path, rounds: int, calls: int) -> None:
    """Print a row for each way to record tiny operators."""
    kinds = recordings(folder)
    costs: defaultdict[str, list[float]] = defaultdict(list)
    stops: defaultdict[str, list[float]] = defaultdict(list)
    sizes: dict[str, int] = {}
    time_tiny_operators(calls)
    for _ in range(rounds):
        for name, make in kinds.items():
            with make() as recording:
                costs[name].append(time_tiny_operators(calls))
            stops[name].append(recording.stop_s)
            sizes[name] = recording.bytes
            del recording
    # the cost of one round is told from the loop without a recording of the same round
    added = {
        name: statistics.median(cost - without for cost, without in zip(values, costs["nothing"], strict=True))
        for name, values in costs.items()
    }
    print(f"{calls} calls a round, {rounds} rounds; a call alone {statistics.median(costs['nothing']) * 1e6:.2f} us\n")
    print("| recorded | added per call | `stop()` | raw file |\n| --- | --- | --- | --- |")
    for name in kinds:
        if name != "nothing":
            stop = statistics.median(stops[name])
            print(f"| {name} | {added[name] * 1e6:.3f} us | {stop * 1e3:.2f} ms | {sizes[name] / MB:.1f} MB |")
    ours, theirs = "recorder, shapes and memory", "Kineto, shapes and memory"
    print(f"\nadded per call, shapes and memory: {added[ours] / added[theirs]:.2f} of Kineto's (goal 0.5)")
    print(f"added per call, names: {added['recorder, names'] / added['Kineto, bare']:.2f} of bare Kineto's (goal 1.1)")
    stop_ratio = statistics.median(stops[ours]) / statistics.median(stops[theirs])
    print(f"stop(): {stop_ratio * 100:.3f} % of Kineto's (goal 1 %)")
    print(f"raw file: {sizes[ours] / sizes[theirs]:.3f} of Kineto's JSON (goal 0.25)\n")


def time_functions(calls: int) -> float:
    """Seconds per call of a function of Python that does nothing."""

    def function() -> None:
        pass

    begin = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - begin) / calls


def time_builtins(calls: int) -> float:
    """Seconds per call of a method of C that does next to nothing."""
    values: list[int] = []
    begin = time.perf_counter()
    for _ in range(calls):
        values.count(1)
    return (time.perf_counter() - begin) / calls


def compare_python_calls(folder: Path, rounds: int, calls: int) -> None:
    """Print what recording adds to calls of Python, with what its end takes and how large its file is."""
    kinds = {name: make for name, make in recordings(folder).items() if name == "nothing" or name.endswith("with stacks")}
    for what, measure in (("function of Python", time_functions), ("method of C", time_builtins)):
        costs: defaultdict[str, list[float]] = defaultdict(list)
        stops: defaultdict[str, list[float]] = defaultdict(list)
        sizes: dict[str, int] = {}
        for _ in range(rounds):
            for name, make in kinds.items():
                with make() as recording:
                    costs[name].append(measure(calls))
                stops[name].append(recording.stop_s)
                sizes[name] = recording.bytes
        without = statistics.median(costs["nothing"])
        print(f"{calls:,} calls of a {what}, {without * 1e6:.3f} us each\n")
        print("| recorded | added per call | stop() | raw file |\n| --- | --- | --- | --- |")
        for name in kinds:
            if name != "nothing":
                more, stop = statistics.median(costs[name]) - without, statistics.median(stops[name])
                print(f"| {name} | {more * 1e6:.3f} us | {stop * 1e3:.2f} ms | {sizes[name] / MB:.1f} MB |")
        print()


def compare_steps(folder: Path, width: int, tokens: int, rounds: int) -> None:
    """Print what recording adds to a step of a small transformer, in processor time of the thread that trains.

    Each round has a recording of each kind, in an order that changes, with four steps behind one that is not counted: the first
    step of a window makes what calls have in common.
    """
    step = make_transformer(width, tokens)
    for _ in range(5):
        step()
    costs: defaultdict[str, list[float]] = defaultdict(list)
    names = list(recordings(folder))
    calls = 0.0
    for _ in range(rounds):
        random.shuffle(names)
        for name in names:
            with recordings(folder)[name]() as recording:
                step()
                for _ in range(4):
                    begin = time.thread_time()
                    step()
                    costs[name].append(time.thread_time() - begin)
            if isinstance(recording, Recorder) and recording.totals is not None:
                calls = recording.totals.calls / 5
    without = statistics.median(costs["nothing"])
    print(f"a step of a transformer, width {width}, 8 x {tokens} tokens: {without * 1e3:.1f} ms, {calls:,.0f} calls\n")
    print("| recorded | added | of the step | per call |\n| --- | --- | --- | --- |")
    for name in recordings(folder):
        more = statistics.median(costs[name]) - without
        if name != "nothing":
            print(f"| {name} | {more * 1e3:.2f} ms | {more / without * 100:.1f} % | {more / calls * 1e6:.2f} us |")
    print()


def record_millions(folder: Path, millions: int) -> None:
    """Print what a long window takes."""
    time_tiny_operators(100_000)
    before = resident_bytes()
    highest = 0
    slowest = 0.0
    with Recorder(folder, ALL) as recording:
        for _ in range(millions * 10):
            slowest = max(slowest, time_tiny_operators(100_000))
            highest = max(highest, resident_bytes())
    totals = recording.totals
    assert totals is not None
    print(f"{millions} million calls in one window: {totals.calls} calls and {totals.memory_events} memory events in the file,")
    print(f"{totals.dropped_calls + totals.dropped_memory_events} dropped; {totals.file_bytes / MB:.0f} MB; memory at most")
    print(
        f"{max(0, highest - before) / MB:.1f} MB more than before (goal 64); slowest 100,000 calls {slowest * 1e6:.2f} us each;"
    )
    print(f"stop {recording.stop_s * 1e3:.2f} ms, everything on its way to the disk after {recording.finish_s * 1e3:.1f} ms")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--steps", type=int, default=15, help="rounds of training steps")
    parser.add_argument("--million", type=int, default=10)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    begin = time.perf_counter()
    recorder.load_recorder()
    load = time.perf_counter() - begin
    print(f"{platform.machine()}, PyTorch {torch.__version__}; the library was there after {load:.1f} s\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if chosen.rounds:
            compare_tiny_operators(folder, chosen.rounds, chosen.calls)
            compare_python_calls(folder, chosen.rounds, chosen.calls)
        if chosen.steps:
            compare_steps(folder, 128, 64, chosen.steps)
            compare_steps(folder, 256, 128, chosen.steps)
        if chosen.million:
            record_millions(folder, chosen.million)


if __name__ == "__main__":
    main()
