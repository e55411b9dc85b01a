"""Intervals of pairs: ranks against published tables, and how often they hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from steplens.bench.rounds import confidence_of_looks, plan_looks
from steplens.bench.signed_ranks import find_paired_difference, least_pairs


@pytest.mark.parametrize(
    ("pairs", "critical"),
    # the largest sum of ranks that is significant at 5 % of both sides: Wilcoxon and Wilcox (1964), table 2
    [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (12, 13), (15, 25), (20, 52), (25, 89)],
)
def test_the_interval_begins_where_the_table_says(pairs: int, critical: int) -> None:
    values = np.random.default_rng(pairs).normal(size=pairs)
    averages = sorted((values[i] + values[j]) / 2 for i in range(pairs) for j in range(i, pairs))
    found = find_paired_difference(values, 0.95)
    assert found.low_end == pytest.approx(averages[critical]) and found.high_end == pytest.approx(averages[-1 - critical])


def test_too_few_pairs_have_no_interval() -> None:
    assert least_pairs(0.95) == 6 and least_pairs(0.99) == 8
    found = find_paired_difference(np.array([0.1, 0.2, 0.3, 0.4, 0.5]), 0.95)
    assert found.value == pytest.approx(0.3) and math.isinf(found.low_end) and math.isinf(found.high_end)


def test_rounds_that_were_disturbed_hardly_move_it() -> None:
    values = np.full(20, 0.02) + np.random.default_rng(0).normal(0.0, 0.004, 20)
    values[[3, 11]] = 0.7
    found = find_paired_difference(values, 0.95)
    assert 0.015 < found.low_end < 0.02 < found.high_end < 0.035


def test_looking_several_times_holds_what_it_promises() -> None:
    """Noise with heavy tails: an interval that misses 0 at any look is a false alarm."""
    random = np.random.default_rng(7)
    looks = plan_looks(40)
    confidence = confidence_of_looks(looks)
    misses = 0
    for _ in range(1000):
        values = random.standard_t(2, 40) * 0.02
        ends = [find_paired_difference(values[:look], confidence) for look in looks]
        misses += any(not end.low_end <= 0.0 <= end.high_end for end in ends)
    assert misses < 60


def test_looks_are_few_and_each_can_tell_something() -> None:
    for rounds in (6, 7, 8, 12, 20, 40, 100, 400):
        looks = plan_looks(rounds)
        assert looks[-1] == rounds and looks == sorted(set(looks)) and len(looks) < 12
        assert looks[0] >= least_pairs(confidence_of_looks(looks))
