"""Where a series of measurements moved to another level, by how much, and how sure that is.

A series is a level that moves at some places, noise whose size is known roughly beforehand, and perhaps a drift: machines are
slower on some days, and the next measurement is made in the same mood. So noise is taken as measurement noise whose neighbours
may resemble each other (autoregressive of order 1) on top of a random walk, which is the model of Romano, Rigaill, Runge and
Fearnhead, "Detecting abrupt changes in the presence of local fluctuations and autocorrelated noise" (Journal of the American
Statistical Association, 2022). Of several kinds of it, each with the moves that it leaves, the most likely one is taken, where
a move costs what chance has to bring for one. A move is looked for by generalised least squares: of all places that one at
which a step explains the most, then the next, as long as Student's t says that noise would explain it in one series of a
thousand; two places at once, as circular binary segmentation does (Olshen, Venkatraman, Lucito, Wigler, "Circular binary
segmentation for the analysis of array-based DNA copy number data", 2004), where a level went up and came back.

Permutations (E-divisive means, which MongoDB and Hunter began with) need no such model, and would take noise that resembles its
neighbours for moves; a few values hold no significant permutation at all. Penalties (PELT) say nothing of false alarms.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from steplens.comparison.noise import Floats
from steplens.comparison.student import student_quantile

Numbers = npt.NDArray[np.int64]

#: a level is told by so many values at least
LEAST_VALUES = 4
#: in one series of so many without any move one is found, at most
SERIES_PER_ALARM = 1_000
#: what is known of noise beforehand weighs as much as so many values
_WORTH = 4
#: a median of absolute values is as sure as a standard deviation of so many of a hundred values
_ROBUST = 0.37
#: median absolute deviations to standard deviation of a normal distribution
_NORMAL = 1.4826
#: values that lie farther than so many standard deviations from those around them are no nearer than that
_OUTLIER = 3.0
#: what noise may be like: how much neighbours resemble each other, and what the level wanders from one value to the next ...
_CHARACTERS = (
    (0.0, 0.0), (0.3, 0.0), (0.6, 0.0), (0.8, 0.0),
    (0.0, 0.05), (0.0, 0.1), (0.0, 0.2), (0.0, 0.4), (0.0, 0.8), (0.4, 0.1), (0.4, 0.3),
)  # fmt: skip
#: logarithm of how much likelier noise without either is beforehand
_UNUSUAL = 3.0
#: a move costs as much as chance has to bring for one, in a series of so many values; in shorter ones less, half of it at least:
#: few values tell no drift from a move, and a drift is rarer
_FULL_COST = 80
#: ... where there are so many values at least; fewer do not tell
_LEAST_FOR_DRIFT = 12
#: places are looked at anew, the others being where they are, so many times at most
_ROUNDS = 4
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class ChangePoint:
    """Where a level moved.

    Attributes:
        place: the first value of the new level.
        earliest, latest: where it may have moved, with 95 % confidence.
        difference: the new level less the one before. ``error``: half of its interval of 95 %.
    """

    place: int
    earliest: int
    latest: int
    difference: float
    error: float

    @property
    def low_end(self) -> float:
        """Where the interval begins."""
        return self.difference - self.error

    @property
    def high_end(self) -> float:
        """Where the interval ends."""
        return self.difference + self.error


@dataclass(frozen=True)
class SeriesNoise:
    """Noise of a series, in shares of what was assumed of each value.

    Attributes:
        scale: standard deviation of single values.
        resemblance: of neighbours, 0 to 1 (autocorrelation).
        drift: standard deviation of what the level wanders from one value to the next, as a share of that.
        freedom: degrees of freedom with which all of that is known.
    """

    scale: float
    resemblance: float
    drift: float
    freedom: float


@dataclass(frozen=True)
class Segmentation:
    """What ``find_change_points`` finds.

    Attributes:
        changes: in order of place.
        levels: before, between and behind them, as many and one more. Each differs from the one before by what the change there
            says: values that are known less well count less in both.
        noise: what remains between them.
    """

    changes: tuple[ChangePoint, ...]
    levels: tuple[float, ...]
    noise: SeriesNoise


def find_change_points(values: Floats, deviations: Floats) -> Segmentation:
    """Where the level of a series moved.

    Args:
        values: shape (values,), in order.
        deviations: the standard deviation by chance that is assumed of each, above 0; what the series shows counts beside it.
    """
    neighbours = np.abs(np.diff(values)) / np.hypot(deviations[1:], deviations[:-1])
    # half of the squared distance of neighbours; one of them in many holds a move, and a median does not see it
    beside = (_NORMAL * float(np.median(neighbours))) ** 2 if neighbours.size else 1.0
    weight = _ROBUST * neighbours.size
    clipped = clip_outliers(values, math.sqrt((_WORTH + weight * beside) / (_WORTH + weight)) * deviations)
    candidates = _CHARACTERS if values.size >= _LEAST_FOR_DRIFT else _CHARACTERS[:1]
    fits = []
    for resemblance, drift in candidates:
        variance = (_WORTH + weight * beside / (1.0 - resemblance + drift**2 / 2.0)) / (_WORTH + weight)
        # chosen as if that were well known: what is chosen has to stand with the noise that it leaves
        fit = _Fit(clipped, deviations, SeriesNoise(math.sqrt(variance), resemblance, drift, _WORTH + values.size))
        fits.append(fit.with_scale_of(fit.choose_places()))
        if not fits[0].places:
            # what is no move among independent values is none among values that are alike
            break
    best = max(fits, key=lambda fit: fit.log_likelihood)
    changes = tuple(best.describe_changes(best.places))
    return Segmentation(changes, _find_levels(clipped, deviations, changes), best.noise)


def _find_levels(values: Floats, deviations: Floats, changes: Sequence[ChangePoint]) -> tuple[float, ...]:
    """The levels around some changes: they lie as high as the values do, each weighted with what is known of it."""
    rises = np.zeros(values.size)
    for change in changes:
        rises[change.place :] += change.difference
    lowest = float(np.average(values - rises, weights=deviations**-2.0))
    return tuple(itertools.accumulate((change.difference for change in changes), initial=lowest))


def compare_last_values(values: Floats, deviations: Floats, noise: SeriesNoise, count: int) -> tuple[float, float]:
    """By how much the last values differ from those before, and half of the interval of 95 % of that.

    Args:
        values: those since the last change point.
        deviations: as of ``find_change_points``.
        noise: what it found.
        count: how many are the last ones, of which none is taken for an outlier.
    """
    before = clip_outliers(values[:-count], noise.scale * deviations[:-count])
    fit = _Fit(np.concatenate([before, values[-count:]]), deviations, noise)
    (change,) = fit.describe_changes([values.size - count])
    return change.difference, change.error


def clip_outliers(values: Floats, deviations: Floats) -> Floats:
    """The values, none farther than three standard deviations from the median of the three before and the three behind it.

    A move that lasts ``LEAST_VALUES`` is left as it is. With one value less, recordings of a program of which two of 36 were far
    slower gave false alarms in one of four series of 300: three of five in a row are slow by chance.
    """
    count, beside = values.size, LEAST_VALUES - 1
    if count < LEAST_VALUES:
        return values
    padded = np.full(count + 2 * beside, np.nan)
    padded[beside:-beside] = values
    middle = np.nanmedian(np.lib.stride_tricks.sliding_window_view(padded, 2 * beside + 1), axis=1)
    return np.clip(values, middle - _OUTLIER * deviations, middle + _OUTLIER * deviations)


class _Fit:
    """Levels fitted to a series by generalised least squares: everything is divided by the square root of the noise."""

    def __init__(self, values: Floats, deviations: Floats, noise: SeriesNoise) -> None:
        count = values.size
        numbers = np.arange(count)
        alike = noise.resemblance ** np.abs(numbers[:, None] - numbers[None, :]) if noise.resemblance else np.eye(count)
        covariance = alike * np.outer(deviations, deviations)
        covariance += (noise.drift * float(np.median(deviations))) ** 2 * np.minimum(numbers[:, None], numbers[None, :])
        steps = (numbers[:, None] >= numbers[None, :]).astype(np.float64)
        columns = np.column_stack([values, steps])
        if noise.resemblance or noise.drift:
            root = np.linalg.cholesky(covariance)
            whitened = np.linalg.solve(root, columns) / noise.scale
        else:
            root = np.diag(deviations)
            whitened = columns / (deviations[:, None] * noise.scale)
        self._values, self._steps = whitened[:, 0], whitened[:, 1:]
        self._log_size = float(np.log(np.diag(root)).sum())
        self._count = count
        self.noise = noise
        self.places: list[int] = []

    def with_scale_of(self, places: list[int]) -> _Fit:
        """The same with noise as large as what levels between some places leave, and of these places those that then remain."""
        remaining = self._residual_of(places, self._values)
        unexplained = float(remaining @ remaining) * self.noise.scale**2
        freedom = _WORTH + self._count - 1 - 2 * len(places)
        scale = math.sqrt((_WORTH + unexplained) / max(freedom, 1))
        fit = copy.copy(self)
        larger = self.noise.scale / scale
        fit._values, fit._steps = self._values * larger, self._steps * larger
        fit.noise = replace(self.noise, scale=scale, freedom=max(float(freedom), 1.0))
        fit.places = fit._drop_weak(list(places))
        return fit

    @property
    def log_likelihood(self) -> float:
        """How likely the values are, less what each move and each parameter of the noise costs."""
        remaining = self._residual_of(self.places, self._values)
        scale = self.noise.scale
        squares = float(remaining @ remaining) + _WORTH / scale**2
        parameters = (self.noise.resemblance > 0.0) + (self.noise.drift > 0.0)
        share = min(max(self._count / _FULL_COST, 0.5), 1.0)
        cost = share * len(self.places) * self._least_t(self._count) ** 2 / 2.0 + parameters * _UNUSUAL
        return -(self._count + _WORTH) * math.log(scale) - self._log_size - squares / 2.0 - cost

    def choose_places(self) -> list[int]:
        """Where steps explain more than noise does."""
        places: list[int] = []
        for _ in range(self._count):
            added = self._best_step(places) or self._best_pair(places)
            if not added:
                break
            before = places
            places = self._drop_weak(self._settle_places(sorted([*places, *added])))
            if places == before or len(places) <= len(before):
                break
        return places

    def _free_places(self, places: Sequence[int]) -> Numbers:
        """Places of steps that leave ``LEAST_VALUES`` to each level."""
        edges = np.array([0, *places, self._count])
        numbers = np.arange(1, self._count)
        near = np.min(np.abs(numbers[:, None] - edges[None, :]), axis=1)
        free: Numbers = numbers[near >= LEAST_VALUES]
        return free

    def _residual_of(self, places: Sequence[int], columns: Floats) -> Floats:
        """Columns less what the levels between some places explain of them."""
        basis, _ = np.linalg.qr(self._steps[:, [0, *places]])
        residual: Floats = columns - basis @ (basis.T @ columns)
        return residual

    def _least_t(self, candidates: float) -> float:
        return student_quantile(1.0 - 0.5 / (SERIES_PER_ALARM * max(candidates, 1.0)), self.noise.freedom)

    def _best_step(self, places: Sequence[int]) -> list[int]:
        candidates = self._free_places(places)
        if not candidates.size:
            return []
        columns = self._residual_of(places, self._steps[:, candidates])
        t_values = np.abs(columns.T @ self._residual_of(places, self._values)) / np.linalg.norm(columns, axis=0)
        best = int(np.argmax(t_values))
        return [int(candidates[best])] if t_values[best] > self._least_t(self._count) else []

    def _best_pair(self, places: Sequence[int]) -> list[int]:
        """Two steps each of which noise does not explain, though one alone does nothing: up, and back again."""
        candidates = self._free_places(places)
        if candidates.size < 2:
            return []
        columns = self._residual_of(places, self._steps[:, candidates])
        products = columns.T @ columns
        explained = columns.T @ self._residual_of(places, self._values)
        lengths = np.diag(products)
        # of each row, given the step of each column
        residual = np.maximum(lengths[:, None] - products**2 / lengths[None, :], 1e-12 * lengths[:, None])
        t_values = np.abs(explained[:, None] - products * (explained / lengths)[None, :]) / np.sqrt(residual)
        weaker = np.minimum(t_values, t_values.T)
        weaker[np.abs(candidates[:, None] - candidates[None, :]) < LEAST_VALUES] = 0.0
        first, second = np.unravel_index(int(np.argmax(weaker)), weaker.shape)
        if weaker[first, second] <= self._least_t(self._count**2 / 2):
            return []
        return sorted([int(candidates[first]), int(candidates[second])])

    def _settle_places(self, places: list[int]) -> list[int]:
        """Move each place to where its step explains the most, the others being where they are."""
        for _ in range(_ROUNDS):
            before = list(places)
            for number in range(len(places)):
                fixed = [*places[:number], *places[number + 1 :]]
                low, high = self._free_range(places, number)
                errors = self._squared_errors(fixed, range(low, high + 1))
                places[number] = low + int(np.argmin(errors))
            if places == before:
                break
        return places

    def _free_range(self, places: Sequence[int], number: int) -> tuple[int, int]:
        edges = [0, *places, self._count]
        return edges[number] + LEAST_VALUES, edges[number + 2] - LEAST_VALUES

    def _squared_errors(self, places: Sequence[int], candidates: range) -> Floats:
        """What remains unexplained with a step at each of some places, besides others."""
        columns = self._residual_of(places, self._steps[:, list(candidates)])
        remaining = self._residual_of(places, self._values)
        gain = (columns.T @ remaining) ** 2 / np.maximum(np.einsum("ij,ij->j", columns, columns), 1e-300)
        errors: Floats = float(remaining @ remaining) - gain
        return errors

    def _drop_weak(self, places: list[int]) -> list[int]:
        """Without steps that noise explains once the others are there."""
        while places:
            t_values = [abs(difference) / deviation for difference, deviation in self._step_sizes(places)]
            weakest = int(np.argmin(t_values))
            if t_values[weakest] > self._least_t(self._count):
                break
            places = self._settle_places([*places[:weakest], *places[weakest + 1 :]])
        return places

    def _step_sizes(self, places: Sequence[int]) -> list[tuple[float, float]]:
        """Each step and its standard deviation."""
        columns = self._steps[:, [0, *places]]
        inverse = np.linalg.inv(columns.T @ columns)
        solved = inverse @ (columns.T @ self._values)
        return [(float(solved[number]), math.sqrt(inverse[number, number])) for number in range(1, len(places) + 1)]

    def describe_changes(self, places: Sequence[int]) -> list[ChangePoint]:
        """The steps at some places with their intervals."""
        wide = student_quantile((1.0 + _CONFIDENCE) / 2.0, self.noise.freedom)
        changes = []
        for number, (difference, deviation) in enumerate(self._step_sizes(places)):
            fixed = [*places[:number], *places[number + 1 :]]
            edges = [0, *places, self._count]
            candidates = range(edges[number] + 1, edges[number + 2])
            errors = self._squared_errors(fixed, candidates)
            at_place = errors[places[number] - candidates.start]
            possible = np.flatnonzero(errors <= max(float(at_place), float(errors.min())) + wide**2)
            bounds = candidates.start + int(possible[0]), candidates.start + int(possible[-1])
            changes.append(ChangePoint(places[number], *bounds, difference, wide * deviation))
        return changes
