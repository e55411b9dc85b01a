"""Intervals against programs whose truth is known: processes that differ, and steps that depend on each other."""

from __future__ import annotations

import numpy as np
import pytest

from steplens.comparison.difference import find_difference
from steplens.comparison.noise import Floats, Sample, choose_block, sample_mean, sample_median
from steplens.comparison.student import student_quantile


@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [(0.975, 1, 12.706), (0.975, 4, 2.776), (0.975, 30, 2.042), (0.995, 10, 3.169), (0.95, 1000, 1.646), (0.6, 3, 0.277)],
)
def test_quantiles_are_those_of_printed_tables(probability: float, freedom: float, expected: float) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(expected, abs=6e-4)


def alike(steps: int, seed: int, memory: float = 0.0, between: float = 0.0) -> Floats:
    """Logarithms of steps of a process: spread 2 %, each resembling the last by ``memory``, the process off by ``between``."""
    random = np.random.default_rng(seed)
    values = random.normal(size=steps)
    for step in range(1, steps):
        values[step] = memory * values[step - 1] + np.sqrt(1 - memory**2) * values[step]
    return 0.02 * values + between * random.normal()


def test_sampling_variance_is_that_of_other_stretches() -> None:
    """Of independent steps it is known (pi / 2 of that of a mean); of dependent ones, what many stretches show."""
    independent = [sample_median(alike(200, seed)) for seed in range(60)]
    assert np.median([sample.block for sample in independent]) == 1
    assert np.mean([sample.sampling_variance for sample in independent]) == pytest.approx(np.pi / 2 * 0.02**2 / 200, rel=0.15)
    dependent = [sample_median(alike(200, seed, memory=0.8)) for seed in range(150)]
    shown = np.var([sample.usual for sample in dependent])
    assert np.median([sample.block for sample in dependent]) >= 5
    assert 0.55 * shown < np.mean([sample.sampling_variance for sample in dependent]) < 1.3 * shown


def test_a_recording_is_described_the_same_each_time() -> None:
    values = alike(50, 3, memory=0.5)
    assert sample_median(values) == sample_median(values)
    assert sample_mean(values).usual == pytest.approx(values.mean())
    assert choose_block(np.ones(30)) == choose_block(np.array([1.0, 2.0, 3.0])) == 1
    # one stall says nothing of how steps depend on each other
    stalled = alike(50, 3)
    stalled[20] += 3.0
    assert choose_block(stalled) == choose_block(alike(50, 3))


@pytest.mark.parametrize("recordings", [1, 2, 3, 5, 10])
def test_the_interval_covers_the_truth_of_processes_that_differ(recordings: int) -> None:
    """Processes that differ by half of what their steps do: the truth lies outside in one comparison of twenty at most.

    What is known of one process alone is less, so that its interval is wider than would do here.
    """
    covered = found = 0
    count = 300
    for draw in range(count):
        samples = [sample_of(draw * 40 + number, between=0.01) for number in range(2 * recordings)]
        alone = find_difference(samples[:recordings], samples[recordings:])
        covered += alone.low_end <= 0.0 <= alone.high_end
        found += alone.low_end + np.log(1.05) > 0.0
    assert covered >= 0.93 * count
    assert recordings < 10 or covered <= 0.98 * count
    assert recordings < 3 or found > 0.95 * count


def sample_of(seed: int, between: float) -> Sample:
    """A recording of 30 steps, as ``sample_median`` has it in the mean: a bootstrap of each would take minutes."""
    return Sample(30, float(np.median(alike(30, seed, between=between))), np.pi / 2 * 0.02**2 / 30, 0.02, 1)


def test_processes_that_differ_more_than_is_known_widen_the_interval() -> None:
    steady = [Sample(30, value, 1e-6, 0.002, 1) for value in (0.0, 0.001, -0.001, 0.0005)]
    restless = [Sample(30, value, 1e-6, 0.002, 1) for value in (0.0, 0.1, -0.1, 0.05)]
    assert find_difference(restless, restless).error > 10 * find_difference(steady, steady).error
    assert not find_difference(steady, [Sample(30, 0.004, 1e-6, 0.002, 1)]).is_certain
    assert find_difference(steady, [Sample(30, 0.05, 1e-6, 0.002, 1)]).is_certain


def test_so_many_recordings_tell_what_one_does_not() -> None:
    side = [Sample(30, 0.0, 1e-5, 0.04, 1)]
    found = find_difference(side, side)
    needed = found.runs_needed(0.02)
    assert needed is not None and 5 < needed < 40
    assert find_difference(side * needed, side * needed).error <= 0.02
    assert found.runs_needed(1e-6) is None
