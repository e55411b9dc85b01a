"""What the black box costs a training: steps with and without it, in turns within one process.

Usage: ``python benchmarks/blackbox.py [--steps 2000] [--rounds 31] [--recorder off] [--json FILE]``

A step takes about 10 ms of CPU. With the black box on, the time between two steps, which ``step()`` takes, belongs to the step.
Steps without and with it alternate in blocks, in an order that changes, so that a change of the machine's speed meets both. A
block with operators is one window of the ring, so it pays for one closing. CPU time of the training thread is compared, which
does not see other programs, and what ``step()`` itself takes is timed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from overhead import network, operators_per_step, quiet

STEP_MS = 10.0


def training() -> tuple[Callable[[], None], int]:
    """A step of about 10 ms and how many operators it calls: the small network several times over."""
    once = network("cpu")
    for _ in range(20):
        once()
    begin = time.thread_time()
    for _ in range(50):
        once()
    times = max(1, round(STEP_MS / ((time.thread_time() - begin) / 50 * 1e3)))

    def step() -> None:
        for _ in range(times):
            once()

    return step, operators_per_step(step)


def block(step: Callable[[], None], recorder: Any, steps: int) -> float:
    """CPU ms of the thread per step."""
    begin = time.thread_time_ns()
    for _ in range(steps):
        step()
        if recorder is not None:
            recorder.step()
    return (time.thread_time_ns() - begin) / steps / 1e6


def call_us(folder: str, calls: int) -> float:
    """Microseconds that ``step()`` takes between steps that do nothing; the median of blocks."""
    import steplens

    found = []
    with steplens.BlackBox(folder, record_operators=False, on_slow_step=False) as recorder:
        for _ in range(31):
            begin = time.perf_counter_ns()
            for _ in range(calls // 31):
                recorder.step()
            found.append((time.perf_counter_ns() - begin) / (calls // 31) / 1e3)
    return statistics.median(found)


def call_in_training_us(step: Callable[[], None], folder: str, steps: int) -> float:
    """Microseconds that ``step()`` takes after a training step, with its caches cold; the median."""
    import steplens

    found = []
    with steplens.BlackBox(folder, record_operators=False, on_slow_step=False) as recorder:
        for _ in range(steps):
            step()
            begin = time.perf_counter_ns()
            recorder.step()
            found.append((time.perf_counter_ns() - begin) / 1e3)
    return statistics.median(found)


def compare(step: Callable[[], None], folder: str, rounds: int, steps: int, **options: Any) -> dict[str, float]:
    """Milliseconds of a step without and with the black box, and the median of their differences."""
    import steplens

    off, on = [], []
    for number in range(rounds):

        def without() -> None:
            off.append(block(step, None, steps))

        def with_it() -> None:
            with steplens.BlackBox(folder, analyse_flag=False, **options) as recorder:
                for _ in range(steps):
                    step()
                    recorder.step()
                on.append(block(step, recorder, steps))

        for part in (without, with_it) if number % 2 else (with_it, without):
            part()
    added = statistics.median(a - b for a, b in zip(on, off, strict=True))
    return {"off_ms": statistics.median(off), "on_ms": statistics.median(on), "added_ms": added}


def quiet_steps(step: Callable[[], None], folder: str, steps: int) -> dict[str, Any]:
    """How often the black box writes in a training that goes its way, on this machine as it is."""
    import steplens

    with steplens.BlackBox(folder, record_operators=False, analyse_flag=False, max_captures=1000) as recorder:
        for _ in range(steps):
            step()
            recorder.step()
    ratios = []
    for capture in recorder.captures:
        event = json.loads((capture / "black_box.json").read_text())
        ratios.append(event["steps"][-1]["duration_ns"] / event["median_step_ns"])
    return {"steps": steps, "captures": len(ratios), "ratios": ratios}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000, help="steps of the search for false alarms")
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--recorder", choices=("off", "auto"), default="off", help="off: operators are kept with Kineto")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    os.environ["STEPLENS_RECORDER"] = given.recorder
    print(f"STEPLENS_RECORDER={given.recorder}\n")
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stack.enter_context(quiet())
        step, operators = training()
        found: dict[str, Any] = {
            "operators": operators,
            "call_us": call_us(folder, 31_000),
            "call_in_training_us": call_in_training_us(step, folder, 400),
            "numbers only": compare(step, folder, 5 * given.rounds, 4, record_operators=False),
            "operators, windows of 8": compare(step, folder, given.rounds, 8, keep_steps=8),
            "operators, windows of 2": compare(step, folder, given.rounds, 2, keep_steps=2),
            "quiet": quiet_steps(step, folder, given.steps),
        }
    off = found["numbers only"]["off_ms"]
    print(f"A step of {off:.1f} ms with {operators:,} operator calls; load {os.getloadavg()[0]:.1f}.\n")
    print("| kept of every step | added | share of the step |\n|---|---|---|")
    for name, added in (("one after the other", found["call_us"]), ("each after a step", found["call_in_training_us"])):
        print(f"| numbers only, `step()` timed, {name} | {added:.1f} us | {added / off / 10:.2f} % |")
    for name in ("numbers only", "operators, windows of 8", "operators, windows of 2"):
        added, base = found[name]["added_ms"], found[name]["off_ms"]
        print(f"| {name}, difference of steps with and without | {added * 1e3:.0f} us | {added / base:.1%} |")
    quiet_found = found["quiet"]
    shown = ", ".join(f"{ratio:.1f}" for ratio in quiet_found["ratios"]) or "none"
    kept = quiet_found["captures"]
    print(f"\n{quiet_found['steps']:,} steps in which nothing was made slow: {kept} written (times the median: {shown}).")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
