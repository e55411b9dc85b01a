"""Histories of figures: what moved, in which version, by how much, and what is only the last version so far."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from steplens.comparison.history.history import FigureHistory, Version, find_history
from steplens.comparison.history.versions import order_versions
from steplens.comparison.noise import Sample


def version(number: int, recorded_ns: int | None = None, **values: float) -> Version:
    """A version with two recordings, of which each figure has a value; names of operators have no colon here."""
    random = np.random.default_rng(number)
    samples: dict[str, Sequence[Sample]] = {}
    for figure, value in values.items():
        name = f"operators.{figure}" if figure.startswith("aten") else figure
        if figure == "memory_peak":
            samples[name] = [Sample(1, value, 0.0, 0.0, 1)]
            continue
        unit = 1.0 if figure == "step" else value
        middle = math.log(value) if figure == "step" else value
        samples[name] = [Sample(100, middle + 0.01 * unit * random.normal(), 1e-6 * unit**2, 0.01 * unit, 1) for _ in range(2)]
    return Version(f"v{number:02}", Path(f"v{number:02}"), recorded_ns, "", 2, samples)


def disturbed(step_ns: float, wait: float, *of: Version) -> list[Version]:
    """Versions whose processes waited for a processor, and whose steps took longer for that."""
    samples = {"step": [Sample(100, math.log(step_ns), 1e-6, 0.01, 1, wait)]}
    return [replace(one, samples=samples, recordings=1) for one in of]


def figure_of(versions: Sequence[Version], name: str) -> FigureHistory:
    history = find_history(versions).find_figure(name)
    assert history is not None
    return history


def test_a_figure_that_moves_is_told_with_its_version() -> None:
    versions = [version(number, step=20e6 * (1.08 if number >= 12 else 1.0), forward=5e6) for number in range(24)]
    step = figure_of(versions, "step")
    (change,) = step.changes
    assert change.version == 12 and change.earliest <= 12 <= change.latest and change.lasts
    assert change.low < change.ratio < change.high and change.low <= 0.08 <= change.high
    assert [(level.first, level.last) for level in step.levels] == [(0, 11), (12, 23)]
    assert step.levels[1].value / step.levels[0].value == pytest.approx(1.08, abs=0.015)
    assert not figure_of(versions, "forward").changes
    assert all(point.low < point.value < point.high for point in step.points)
    assert np.mean([point.low <= 20e6 * (1.08 if point.version >= 12 else 1.0) <= point.high for point in step.points]) >= 0.9


def test_levels_are_those_that_the_change_is_between() -> None:
    """Of a program that takes 14 ms and then 17.5, three recordings beside a busy machine take twice that."""
    versions = [version(number, step=17.5e6 if number >= 10 else 14e6) for number in range(20)]
    for number, step_ns, wait in ((0, 26e6, 0.7), (12, 32e6, 0.6), (13, 36e6, 0.6)):
        versions[number : number + 1] = disturbed(step_ns, wait, versions[number])
    step = figure_of(versions, "step")
    (change,) = step.changes
    before, after = (level.value for level in step.levels)
    assert after / before - 1.0 == pytest.approx(change.ratio, abs=1e-9)
    assert (before, after) == (pytest.approx(14e6, rel=0.03), pytest.approx(17.5e6, rel=0.03))
    assert change.low <= 0.25 <= change.high


def test_levels_and_changes_agree_where_noise_wanders() -> None:
    random = np.random.default_rng(3)
    wandering = np.cumsum(0.01 * random.normal(size=60))
    versions = [
        version(number, step=20e6 * math.exp(off), forward=5e6 * (1.0 + off) + 3e6 * (number >= 30))
        for number, off in enumerate(wandering + 0.4 * (np.arange(60) >= 30))
    ]
    for name in ("step", "forward"):
        found = figure_of(versions, name)
        assert found.changes
        ratios = [after.value / before.value - 1.0 for before, after in itertools.pairwise(found.levels)]
        assert ratios == pytest.approx([change.ratio for change in found.changes], abs=1e-9)


def test_the_newest_version_alone_is_told_as_such() -> None:
    versions = [version(number, step=20e6 * (1.2 if number == 9 else 1.0)) for number in range(10)]
    (change,) = figure_of(versions, "step").changes
    assert change.version == 9 and not change.lasts and change.ratio == pytest.approx(0.2, abs=0.04)
    levels = figure_of(versions, "step").levels
    assert [(level.first, level.last) for level in levels] == [(0, 8), (9, 9)]
    assert levels[1].value / levels[0].value - 1.0 == pytest.approx(change.ratio, abs=1e-9)
    assert not figure_of(versions[:9], "step").changes
    # four of them are a level
    lasting = [version(number, step=20e6 * (1.2 if number >= 9 else 1.0)) for number in range(13)]
    assert [change.lasts for change in figure_of(lasting, "step").changes] == [True]


def test_memory_is_compared_exactly() -> None:
    versions = [version(number, step=20e6, memory_peak=1e9 * (1.01 if number >= 4 else 1.0)) for number in range(8)]
    (change,) = figure_of(versions, "memory_peak").changes
    assert change.version == 4 and change.ratio == pytest.approx(0.01, abs=1e-6)


def test_an_operator_that_there_was_not_before_has_no_ratio() -> None:
    versions = [version(number, step=20e6, aten_new=2e6 if number >= 8 else 0.0) for number in range(16)]
    (change,) = figure_of(versions, "operators.aten_new").changes
    assert change.version == 8 and math.isinf(change.ratio)


def test_an_operator_that_grows_once_it_is_there_was_none_before() -> None:
    """Where its time wanders, the time that it took later says nothing of before."""
    for seed in range(6):
        wander = np.cumsum(np.random.default_rng(seed).normal(0.01, 0.05, size=60))
        versions = [version(number, step=20e6, aten_new=2e6 * math.exp(wander[number]) * (number >= 20)) for number in range(60)]
        found = figure_of(versions, "operators.aten_new")
        first = found.changes[0]
        assert first.version == 20 and math.isinf(first.ratio) and found.levels[0].value == 0.0, seed


def test_versions_without_a_figure_are_passed_over() -> None:
    versions = [version(number, step=20e6, **({"forward": 5e6} if number % 2 else {})) for number in range(6)]
    forward = figure_of(versions, "forward")
    assert [point.version for point in forward.points] == [1, 3, 5]
    assert find_history(versions[:2]).find_figure("forward") is None


def test_figures_come_in_order() -> None:
    versions = [version(number, memory_peak=1e9, aten_small=1e5, aten_large=4e6, forward=5e6, step=20e6) for number in range(3)]
    names = [history.figure for history in find_history(versions).figures]
    assert names == ["step", "forward", "memory_peak", "operators.aten_large", "operators.aten_small"]


def test_versions_are_ordered_by_time_where_that_is_known_of_all() -> None:
    first, second = version(2, recorded_ns=10, step=1e6), version(1, recorded_ns=20, step=1e6)
    assert [one.name for one in order_versions([second, first])] == ["v02", "v01"]
    assert [one.name for one in order_versions([first, second], "name")] == ["v01", "v02"]
    assert [one.name for one in order_versions([first, version(1, step=1e6)])] == ["v01", "v02"]
