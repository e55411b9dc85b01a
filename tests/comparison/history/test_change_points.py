"""Change points against series whose truth is known: none where nothing moved, and moves with their size and place."""

from __future__ import annotations

import numpy as np
import pytest

from steplens.comparison.history.change_points import clip_outliers, compare_last_values, find_change_points
from steplens.comparison.noise import Floats

SPREAD = 0.02


def noise_of(kind: str, count: int, seed: int) -> Floats:
    random = np.random.default_rng(seed)
    values = random.normal(size=count)
    if kind == "heavy":
        values = random.standard_t(3, size=count)
    elif kind == "stalls":
        values = np.where(random.random(count) < 0.05, 8.0, values)
    elif kind == "alike":
        for place in range(1, count):
            values[place] = 0.6 * values[place - 1] + 0.8 * values[place]
    elif kind == "drifting":
        values = values + np.cumsum(0.3 * random.normal(size=count))
    return SPREAD * values


def assumed(count: int) -> Floats:
    return np.full(count, SPREAD)


@pytest.mark.parametrize("kind", ["normal", "heavy", "stalls", "alike", "drifting"])
def test_a_program_that_does_not_change_has_no_change(kind: str) -> None:
    alarms = sum(bool(find_change_points(noise_of(kind, 80, seed), assumed(80)).changes) for seed in range(8))
    assert alarms <= 1


@pytest.mark.parametrize("kind", ["normal", "heavy", "alike"])
def test_moves_are_found_with_their_size_and_place(kind: str) -> None:
    moved = 0.1 * (np.arange(90) >= 30) - 0.16 * (np.arange(90) >= 60)
    found = held = placed = 0
    for seed in range(6):
        changes = find_change_points(noise_of(kind, 90, seed) + moved, assumed(90)).changes
        if len(changes) != 2:
            continue
        found += 1
        held += changes[0].low_end <= 0.1 <= changes[0].high_end and changes[1].low_end <= -0.16 <= changes[1].high_end
        placed += changes[0].earliest <= 30 <= changes[0].latest and changes[1].earliest <= 60 <= changes[1].latest
    assert found >= 5 and held >= found - 2 and placed >= found - 1


def test_a_level_that_came_back_is_two_changes() -> None:
    values = noise_of("normal", 100, 3) + 0.12 * ((np.arange(100) >= 45) & (np.arange(100) < 52))
    assert [change.place for change in find_change_points(values, assumed(100)).changes] == [45, 52]


def test_a_single_version_is_no_level() -> None:
    values = noise_of("normal", 40, 5)
    values[20] += 0.5
    assert not find_change_points(values, assumed(40)).changes
    assert clip_outliers(values, assumed(40))[20] < 0.15


def test_few_values_tell_what_lies_far_beyond_what_is_assumed() -> None:
    apart = np.array([0.0, 0.001, -0.001, 0.002, 0.5, 0.501, 0.499, 0.502])
    (change,) = find_change_points(apart, assumed(8)).changes
    assert (change.place, change.earliest, change.latest) == (4, 4, 4) and change.difference == pytest.approx(0.5, abs=1e-3)
    assert not find_change_points(np.array([0.0, 0.01, 0.02, 0.03]), assumed(4)).changes
    assert not find_change_points(np.array([0.0]), assumed(1)).changes
    assert not find_change_points(np.full(30, 7.0), assumed(30)).changes


def test_noise_that_a_series_shows_counts_more_than_what_is_assumed() -> None:
    quiet = find_change_points(noise_of("normal", 100, 1), assumed(100)).noise
    loud = find_change_points(5.0 * noise_of("normal", 100, 1), assumed(100)).noise
    assert quiet.scale == pytest.approx(1.0, rel=0.2) and loud.scale == pytest.approx(5.0, rel=0.25)
    moved = 0.3 * (np.arange(100) >= 50)
    assert find_change_points(noise_of("normal", 100, 2) + moved, assumed(100)).noise.resemblance == 0.0
    assert find_change_points(noise_of("alike", 100, 2) + moved, assumed(100)).noise.resemblance >= 0.3


def test_the_last_value_is_compared_with_the_level_before() -> None:
    values = noise_of("normal", 30, 8)
    noise = find_change_points(values, assumed(30)).noise
    difference, error = compare_last_values(np.r_[values, 0.2], assumed(31), noise, 1)
    assert difference == pytest.approx(0.2, abs=0.03) and error < 0.08
