"""Does ``steplens history`` cry wolf? Series of versions of an unchanged program, and of one that changes, whose truth is known.

Usage: ``python benchmarks/history_noise.py [RECORDINGS]`` prints, per kind of noise, how many of so many series without any
change have one, and of series with one change how often it is found, how often its interval holds the truth, and how often the
versions that are named hold its place. RECORDINGS is a folder of recordings of one program (``compare_noise.py`` makes one):
versions are then drawn from them at random, too.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from steplens.comparison.difference import assumed_variance
from steplens.comparison.history.change_points import find_change_points
from steplens.comparison.noise import Floats, sample_median

SPREAD = 0.02
LENGTHS = (20, 100, 300)
CHANGES = (0.05, 0.1)
Noise = Callable[[np.random.Generator, int], Floats]


def _resembling(random: np.random.Generator, count: int, resemblance: float) -> Floats:
    values = random.normal(size=count)
    for place in range(1, count):
        values[place] = resemblance * values[place - 1] + math.sqrt(1 - resemblance**2) * values[place]
    return SPREAD * values


def _outliers(random: np.random.Generator, count: int) -> Floats:
    return SPREAD * np.where(random.random(count) < 0.05, random.exponential(15.0, count), random.normal(size=count))


KINDS: dict[str, Noise] = {
    "normal": lambda random, count: SPREAD * random.normal(size=count),
    "heavy tails (Student, 3)": lambda random, count: SPREAD * random.standard_t(3, size=count),
    "1 of 20 far slower": _outliers,
    "neighbours alike, 0.3": lambda random, count: _resembling(random, count, 0.3),
    "neighbours alike, 0.6": lambda random, count: _resembling(random, count, 0.6),
    "a drift beside it": lambda random, count: SPREAD * (random.normal(size=count) + np.cumsum(0.2 * random.normal(size=count))),
    "slow and fast weeks": lambda random, count: (
        SPREAD * (random.normal(size=count) + 1.5 * np.sin(np.arange(count) / 8.0 + 6.3 * random.random()))
    ),
}


def recorded_noise(folder: Path, steps: int) -> tuple[Noise, Noise]:
    """Medians of recordings drawn at random, and the deviations that are assumed of them, drawn in the same way."""
    import steplens
    from steplens.comparison.recordings import find_recordings

    medians, deviations = [], []
    for place in sorted(folder.iterdir()):
        run = steplens.open(place)
        (recording,) = find_recordings(run.traces, run.paths)
        lengths = np.log(recording.steps["step_time_ns"].to_numpy().astype(np.float64))
        if lengths.size >= steps:
            sample = sample_median(lengths[-steps:], recording.waited_share or 0.0)
            medians.append(sample.usual)
            deviations.append(math.sqrt(assumed_variance([sample])))
    values, apart = np.array(medians), np.array(deviations)
    # as ``history`` assumes them
    apart = np.maximum(apart, np.median(apart))
    return lambda random, count: _draw(random, values, count), lambda random, count: _draw(random, apart, count)


def _draw(random: np.random.Generator, values: Floats, count: int) -> Floats:
    return values[random.integers(0, values.size, count)]


def print_row(kind: str, noise: Noise, assumed: Noise, length: int, series: int) -> None:
    alarms = 0
    found, covered, placed = np.zeros(len(CHANGES)), np.zeros(len(CHANGES)), np.zeros(len(CHANGES))
    for number in range(series):
        random = np.random.default_rng([number, length])
        values, deviations = noise(random, length), assumed(np.random.default_rng([number, length]), length)
        alarms += bool(find_change_points(values, deviations).changes)
        place = int(random.integers(length // 4, length - length // 4))
        for row, change in enumerate(CHANGES):
            moved = values + math.log1p(change) * (np.arange(length) >= place)
            changes = find_change_points(moved, deviations).changes
            near = [one for one in changes if abs(one.place - place) <= max(3, length // 20) and one.difference > 0]
            if near:
                found[row] += 1
                covered[row] += near[0].low_end <= math.log1p(change) <= near[0].high_end
                placed[row] += near[0].earliest <= place <= near[0].latest
    shares = [f"{100 * alarms / series:.1f} %"]
    for row in range(len(CHANGES)):
        least = max(found[row], 1.0)
        shares += [
            f"{100 * found[row] / series:.0f} %",
            f"{100 * covered[row] / least:.0f} %",
            f"{100 * placed[row] / least:.0f} %",
        ]
    print("|", " | ".join([kind, str(length), *shares]), "|", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, nargs="?", help="a folder of recordings of one program")
    parser.add_argument("--series", type=int, default=300, help="of each row")
    given = parser.parse_args()
    heads = ["noise", "versions", "false alarms"]
    for change in CHANGES:
        heads += [f"finds {100 * change:.0f} %", "interval holds it", "place is named"]
    print("|", " | ".join(heads), "|")
    print("|", " | ".join(["---"] * len(heads)), "|")
    kinds = [(kind, noise, lambda random, count: np.full(count, SPREAD)) for kind, noise in KINDS.items()]
    if given.recordings is not None:
        for steps in (30, 200):
            kinds.append((f"recorded, {steps} steps", *recorded_noise(given.recordings, steps)))
    for kind, noise, assumed in kinds:
        for length in LENGTHS:
            print_row(kind, noise, assumed, length, given.series)


if __name__ == "__main__":
    main()
