"""What sampling Python stacks adds to a recording of a small training step: the same recorder with and without, in turns.

Usage: ``python benchmarks/stack_sampling.py [--rounds 25] [--steps 8] [--threads 4]``

Every round records the same steps once with each rate, in random order; what is told is the median over rounds of the time more
than that of the round without samples: of the median step, and of the processor time of all threads. Beside the training so many
threads wait, as those of loaders do. Where others use the machine the second figure is the better one.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

import torch
from benchmarks.recorder import make_transformer

from steplens.collect.recorder import recorder_library as recorder

RATES = (0.0, 10.0, 100.0, 1000.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("--rounds", 25), ("--steps", 8), ("--threads", 4)):
        parser.add_argument(name, type=int, default=default)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    step = make_transformer(64, 32)
    ends = threading.Event()
    helpers = [threading.Thread(target=ends.wait) for _ in range(arguments.threads)]
    for helper in helpers:
        helper.start()
    for _ in range(5):
        step()
    wall: defaultdict[float, list[float]] = defaultdict(list)
    processor: defaultdict[float, list[float]] = defaultdict(list)
    samples: defaultdict[float, int] = defaultdict(int)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.rounds):
            for rate in random.sample(RATES, len(RATES)):
                path = Path(folder) / "operators.rec"
                path.unlink(missing_ok=True)
                recorder.start_recorder(path, 0, {}, stack_sampling_hz=rate)
                times, begin = [], time.process_time()
                for _ in range(arguments.steps):
                    before = time.perf_counter()
                    step()
                    times.append(time.perf_counter() - before)
                processor[rate].append((time.process_time() - begin) / arguments.steps)
                wall[rate].append(statistics.median(times))
                samples[rate] += recorder.finish_recorder({}).python_samples
    ends.set()
    for helper in helpers:
        helper.join()
    print(f"recorder without samples: {1e3 * statistics.median(wall[0.0]):.1f} ms a step, {len(helpers)} other threads")
    for rate in RATES[1:]:
        added = [_quartiles([one / other - 1 for one, other in zip(of[rate], of[0.0], strict=True)]) for of in (wall, processor)]
        of_step, of_processor = (f"{middle:+.2%} (quartiles {low:+.2%}, {high:+.2%})" for low, middle, high in added)
        print(f"{rate:g} Hz: {of_step} of the step, {of_processor} of the processor time, {samples[rate]} records of samples")


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


if __name__ == "__main__":
    main()
