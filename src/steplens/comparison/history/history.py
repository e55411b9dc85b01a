"""Figures of a program over many versions of it: the usual value of each with its interval, and where it moved, by how much."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from steplens.comparison.difference import CONFIDENCE, assumed_variance
from steplens.comparison.history.change_points import (
    LEAST_VALUES,
    ChangePoint,
    Segmentation,
    compare_last_values,
    find_change_points,
)
from steplens.comparison.limits import MEMORY_PEAK, OPERATORS, PARTS, STEP
from steplens.comparison.noise import Floats, Sample
from steplens.comparison.student import student_quantile

#: of the most memory processes of one program differ by less than that
_LEAST_OF_MEMORY = 0.001
#: versions beyond the last so many are left out: what is worked out grows with their square
MOST_VERSIONS = 1_000
#: of a version that is the last one it is said that it differs where chance explains that in so few histories: of the step, and
#: of each of the others, which are many
_OF_LAST, _OF_LAST_OTHERS = 0.01, 0.0005


@dataclass(frozen=True)
class Version:
    """A version of a program: what was recorded of it.

    Attributes:
        name: what it is called.
        path: where it lies.
        recorded_ns: when the first of its recordings began, Unix time; None where that is not known.
        commit: of which commit it is, where that was kept; empty otherwise.
        recordings: how many of it there are.
        samples: of each figure (``limits``) its recordings; of the step their logarithms.
        is_run: whether its recordings are there, not only its figures.
    """

    name: str
    path: Path
    recorded_ns: int | None
    commit: str
    recordings: int
    samples: Mapping[str, Sequence[Sample]] = field(repr=False)
    is_run: bool = True


@dataclass(frozen=True)
class FigurePoint:
    """The usual value of a figure in a version.

    Attributes:
        version: place among the versions.
        value: ns, or bytes of memory.
        low: where its interval of 95 % begins: so far may it be off by chance. ``high``: where it ends.
    """

    version: int
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class FigureChange:
    """A figure moved.

    Attributes:
        version: the first version that has the new level.
        earliest, latest: it is one of these with 95 % confidence.
        ratio: new level over the one before, less 1; ``low``, ``high``: its interval of 95 %. Where the level before is 0, as of
            an operator that there was not, infinity.
        lasts: whether enough versions have the new level to say that it stays; if not, it is one of the last ones alone that
            differs, which a machine in another mood explains as well.
    """

    version: int
    earliest: int
    latest: int
    ratio: float
    low: float
    high: float
    lasts: bool = True


@dataclass(frozen=True)
class FigureLevel:
    """Between two changes: the level of a figure from version ``first`` to ``last``.

    It is the estimate that changes are made of: the mean of the versions, each weighted with what is known of it, values that
    stand out cut off. Versions that were disturbed may lie beside it.
    """

    first: int
    last: int
    value: float


@dataclass(frozen=True)
class FigureHistory:
    """One figure over all versions that have it.

    Attributes:
        figure: as in ``limits``.
        points: in the order of versions.
        levels: in the same order.
        changes: in the same order.
    """

    figure: str
    points: tuple[FigurePoint, ...]
    levels: tuple[FigureLevel, ...]
    changes: tuple[FigureChange, ...]


@dataclass(frozen=True)
class History:
    """What ``find_history`` finds.

    Attributes:
        versions: in order.
        figures: the step first, then its parts, memory, and operators, the largest first.
    """

    versions: tuple[Version, ...]
    figures: tuple[FigureHistory, ...]

    def find_figure(self, name: str) -> FigureHistory | None:
        """The history of a figure; None where fewer than two versions have it."""
        return next((history for history in self.figures if history.figure == name), None)


def find_history(versions: Sequence[Version]) -> History:
    """The figures of some versions, where they moved, and by how much.

    Args:
        versions: in the order in which they were made; of more than ``MOST_VERSIONS`` the last ones count.
    """
    counted = tuple(versions[-MOST_VERSIONS:])
    histories = [_find_figure_history(counted, figure) for figure in _choose_figures(counted)]
    return History(counted, tuple(history for history in histories if history is not None))


def _choose_figures(versions: Sequence[Version]) -> list[str]:
    names = {figure for version in versions for figure in version.samples}
    largest = {
        figure: max(_mean_value(version.samples[figure]) for version in versions if figure in version.samples)
        for figure in names
        if figure.startswith(OPERATORS)
    }
    operators = sorted(largest, key=lambda figure: (-largest[figure], figure))
    return [*(figure for figure in (STEP, *PARTS, MEMORY_PEAK) if figure in names), *operators]


def _mean_value(samples: Sequence[Sample]) -> float:
    return sum(sample.usual for sample in samples) / len(samples) if samples else 0.0


def _find_figure_history(versions: Sequence[Version], figure: str) -> FigureHistory | None:
    numbers = [number for number, version in enumerate(versions) if version.samples.get(figure)]
    samples = [versions[number].samples[figure] for number in numbers]
    values = np.array([_mean_value(recordings) for recordings in samples])
    is_ratio = figure == STEP
    unit = 1.0 if is_ratio else _typical_size(values)
    if values.size < 2 or unit <= 0.0:
        return None
    deviations = _assume_deviations(samples, unit, figure)
    segmentation = find_change_points(values / unit, deviations / unit)
    chance = _OF_LAST if is_ratio else _OF_LAST_OTHERS
    last = _differing_last(values / unit, deviations / unit, segmentation, chance)
    moves = segmentation.changes if last is None else (*segmentation.changes, last)
    heights = segmentation.levels if last is None else (*segmentation.levels, segmentation.levels[-1] + last.difference)
    edges = [0, *(move.place for move in moves), values.size]
    levels = [height * unit for height in heights]
    if not is_ratio:
        # where noise wanders, or by rounding, a level may lie beside all of its values: what there was none of is 0
        of_levels = [values[first:end] for first, end in itertools.pairwise(edges)]
        levels = [
            float(np.clip(level, of_level.min(), of_level.max())) for level, of_level in zip(levels, of_levels, strict=True)
        ]
    changes = [
        _describe_change(move, level, unit, is_ratio, lasts=move is not last) for move, level in zip(moves, levels, strict=False)
    ]
    noise = segmentation.noise
    errors = student_quantile((1.0 + CONFIDENCE) / 2.0, noise.freedom) * noise.scale * deviations
    ends = [values, values - errors, values + errors]
    value, low, high = (np.exp(end) for end in ends) if is_ratio else (values, np.maximum(ends[1], 0.0), ends[2])
    return FigureHistory(
        figure,
        tuple(FigurePoint(*row) for row in zip(numbers, value.tolist(), low.tolist(), high.tolist(), strict=True)),
        tuple(
            FigureLevel(numbers[first], numbers[end - 1], math.exp(level) if is_ratio else level)
            for (first, end), level in zip(itertools.pairwise(edges), levels, strict=True)
        ),
        tuple(_name_versions(change, numbers) for change in changes),
    )


def _typical_size(values: Floats) -> float:
    positive = values[values > 0.0]
    return float(np.median(positive)) if positive.size else 0.0


def _assume_deviations(samples: Sequence[Sequence[Sample]], unit: float, figure: str) -> Floats:
    """How far the usual value of each version may be off by what is known beforehand.

    Processes whose own steps agree better than those of the others differ from each other as much as these do.
    """
    if figure == MEMORY_PEAK:
        return np.full(len(samples), _LEAST_OF_MEMORY * unit)
    of_recordings = np.array([math.sqrt(assumed_variance(recordings, unit)) for recordings in samples])
    counts = np.array([len(recordings) for recordings in samples])
    deviations: Floats = np.maximum(of_recordings, np.median(of_recordings)) / np.sqrt(counts)
    return deviations


def _differing_last(values: Floats, deviations: Floats, segmentation: Segmentation, chance: float) -> ChangePoint | None:
    """The last value, or the last two, where they differ from the level before: too few to say that the level moved."""
    first = segmentation.changes[-1].place if segmentation.changes else 0
    level, apart = values[first:], deviations[first:]
    for count in range(min(LEAST_VALUES - 1, level.size - 1), 0, -1):
        difference, error = compare_last_values(level, apart, segmentation.noise, count)
        freedom = segmentation.noise.freedom
        wider = student_quantile(1.0 - chance / 2.0, freedom) / student_quantile((1.0 + CONFIDENCE) / 2.0, freedom)
        alone = [abs(float(value) - float(np.median(level[:-count]))) > error for value in level[-count:]]
        if abs(difference) > wider * error and all(alone):
            place = values.size - count
            return ChangePoint(place, place, place, difference, error)
    return None


def _describe_change(change: ChangePoint, level: float, unit: float, is_ratio: bool, *, lasts: bool = True) -> FigureChange:
    ends = (change.difference, change.low_end, change.high_end)
    if is_ratio:
        ratio, low, high = (math.expm1(end) for end in ends)
    elif level > 0.0:
        ratio, low, high = (max(end * unit / level, -1.0) for end in ends)
    else:
        ratio, low, high = (math.inf for _ in ends)
    return FigureChange(change.place, change.earliest, change.latest, ratio, low, high, lasts)


def _name_versions(change: FigureChange, numbers: Sequence[int]) -> FigureChange:
    """With places among all versions instead of those among the versions that have the figure."""
    version, earliest, latest = (numbers[place] for place in (change.version, change.earliest, change.latest))
    return replace(change, version=version, earliest=earliest, latest=latest)
