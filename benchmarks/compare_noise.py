"""Does ``steplens compare`` cry wolf? Recordings of one program compared with each other, and with a slowdown put in.

Usage: ``python benchmarks/compare_noise.py OUT --recordings 40`` records a small transformer that many times, each time in a
process of its own, and prints, for 30 and 200 steps and for 1, 3, 5 and 10 recordings a side drawn at random: how often the
interval of 95 % covers the truth, how often a gate ``step>2%`` raises a false alarm, how often a slowdown of 5 % and of 2 % is
found (the whole interval lies above 0), and what fixed gates on the ratio of medians do with the same recordings. A slowdown is
put in by making each step of one side longer by that factor.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import steplens
from steplens.comparison.difference import find_difference
from steplens.comparison.noise import Floats, Sample, sample_median
from steplens.comparison.recordings import find_recordings

ROOT = Path(__file__).resolve().parents[1]
STEPS, COUNTED = 210, (30, 200)
SIDES = (1, 3, 5, 10)
SLOWDOWNS = (0.05, 0.02)
GATE = 0.02
FIXED_GATES = (0.02, 0.05, 0.10)

TRAIN = f"""
import sys, torch, steplens
torch.set_num_threads(1)
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0)
model = torch.nn.Sequential(torch.nn.Embedding(1000, 128), layer, torch.nn.Linear(128, 1000))
optimizer = torch.optim.AdamW(model.parameters())
handler = steplens.tensorboard_trace_handler(sys.argv[1], analyse_flag=False)
schedule = steplens.schedule(wait=5, warmup=1, active={STEPS}, repeat=1)
with steplens.profile(activities=[steplens.ProfilerActivity.CPU], schedule=schedule, on_trace_ready=handler) as profiler:
    for _ in range({STEPS} + 8):
        tokens = torch.randint(0, 1000, (8, 64))
        torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        profiler.step()
"""


@dataclass(frozen=True)
class Outcome:
    """How often in all comparisons, 0 to 1."""

    covered: float
    alarms: float
    found: tuple[float, ...]
    fixed_alarms: tuple[float, ...]
    error: float


def record(out: Path, count: int) -> None:
    """Record the program as often as there are not yet recordings."""
    out.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    for number in range(len(list(out.iterdir())), count):
        subprocess.run([sys.executable, "-c", TRAIN, out / f"{number:03}"], env=environment, check=True, capture_output=True)


def step_times(out: Path) -> list[tuple[Floats, float]]:
    """The logarithms of the chosen steps of each recording, and how long it waited for a processor."""
    lengths = []
    for folder in sorted(out.iterdir()):
        run = steplens.open(folder)
        (recording,) = find_recordings(run.traces, run.paths)
        lengths.append((np.log(recording.steps["step_time_ns"].to_numpy().astype(np.float64)), recording.waited_share or 0.0))
    return lengths


def compare_alike(samples: Sequence[Sample], recordings: int, comparisons: int) -> Outcome:
    """Sides of recordings of the same program, drawn at random."""
    random = np.random.default_rng(recordings)
    covered = alarms = 0
    found, fixed = np.zeros(len(SLOWDOWNS)), np.zeros(len(FIXED_GATES))
    errors = []
    for _ in range(comparisons):
        drawn = [samples[place] for place in random.permutation(len(samples))[: 2 * recordings]]
        difference = find_difference(drawn[:recordings], drawn[recordings:])
        covered += difference.low_end <= 0.0 <= difference.high_end
        alarms += difference.low_end > math.log1p(GATE)
        found += [difference.low_end + math.log1p(slowdown) > 0.0 for slowdown in SLOWDOWNS]
        fixed += [difference.value > math.log1p(gate) for gate in FIXED_GATES]
        errors.append(difference.error)
    shares = [count / comparisons for count in (covered, alarms)]
    return Outcome(*shares, tuple(found / comparisons), tuple(fixed / comparisons), float(np.median(errors)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a folder for the recordings")
    parser.add_argument("--recordings", type=int, default=40)
    parser.add_argument("--comparisons", type=int, default=2000, help="of each row")
    given = parser.parse_args()
    record(given.out, given.recordings)
    lengths = step_times(given.out)
    waited = [100 * contention for _, contention in lengths]
    print(f"waited for a processor: {np.median(waited):.1f} % of the time (median), {max(waited):.1f} % at most")
    names = [f"fixed {100 * gate:.0f} %" for gate in FIXED_GATES]
    heads = ["steps", "recordings a side", "interval", "covers the truth", "false alarms of step>2%", "finds 5 %", "finds 2 %"]
    print("|", " | ".join([*heads, *(f"false alarms of {name}" for name in names)]), "|")
    print("|", " | ".join(["---"] * (len(heads) + len(names))), "|")
    for steps in COUNTED:
        samples = [sample_median(length[-steps:], contention) for length, contention in lengths if length.size >= steps]
        for recordings in SIDES:
            if 2 * recordings > len(samples):
                continue
            outcome = compare_alike(samples, recordings, given.comparisons)
            shares = [outcome.covered, outcome.alarms, *outcome.found, *outcome.fixed_alarms]
            cells = [str(steps), str(recordings), f"+-{100 * outcome.error:.1f} %", *(f"{100 * share:.1f} %" for share in shares)]
            print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
