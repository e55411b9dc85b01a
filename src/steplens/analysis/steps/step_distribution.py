"""How the lengths of the steps are spread: percentiles, a histogram, and the steps that stand out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

Float64Array = npt.NDArray[np.float64]

#: a step stands out when it is this many robust standard deviations from the median, and this share of the median
_DEVIATIONS = 3.5
_LEAST_SHARE = 0.1
#: standard deviation of a normal distribution with a median absolute deviation of 1
_NORMAL = 1.4826
#: with fewer steps nothing can be said of how they spread
_LEAST_STEPS = 5
_MOST_BINS = 50


@dataclass(frozen=True)
class StepDistribution:
    """Lengths of the chosen steps, in ns.

    Attributes:
        count: how many steps.
        mean_ns, std_ns (of a sample), min_ns, median_ns, p90_ns, p99_ns (interpolated), max_ns: None without steps.
        edges_ns: borders of the bins of the histogram, shape (bins + 1,); all have the same width.
        counts: steps per bin; the last bin holds its right border, shape (bins,).
        outliers: steps that stand out: their rows, with ``deviations`` (robust standard deviations above the median, negative
            below; None where at least half of the steps take just the median) added, the farthest first.
    """

    count: int
    mean_ns: float | None
    std_ns: float | None
    min_ns: float | None
    median_ns: float | None
    p90_ns: float | None
    p99_ns: float | None
    max_ns: float | None
    edges_ns: tuple[float, ...]
    counts: tuple[int, ...]
    outliers: pl.DataFrame


def step_distribution(steps: pl.DataFrame) -> StepDistribution:
    """The spread of the ``step_time_ns`` of the chosen steps.

    A step stands out when it differs from the median by more than 3.5 robust standard deviations (1.4826 times the median
    absolute deviation) and by more than 10 % of the median; with fewer than five steps none does. The histogram has as many
    bins as the rule of Freedman and Diaconis asks for, and at most 50.

    Args:
        steps: of ``analysis.steps.times.step_times``; of one trace or of several.
    """
    chosen_steps = steps.filter("chosen")
    lengths = chosen_steps["step_time_ns"].to_numpy().astype(np.float64)
    if not len(lengths):
        without_deviations = chosen_steps.with_columns(deviations=pl.lit(None, dtype=pl.Float64))
        return StepDistribution(0, None, None, None, None, None, None, None, (), (), without_deviations)
    low, median, p90, p99, high = (float(value) for value in np.quantile(lengths, [0, 0.5, 0.9, 0.99, 1]))
    std = float(lengths.std(ddof=1)) if len(lengths) > 1 else None
    counts, edges = np.histogram(lengths, bins=_bin_count(lengths))
    away, spread, stands_out = _deviations_from_median(lengths)
    deviations = pl.Series(away / spread if spread else np.full(len(away), np.nan)).fill_nan(None)
    outliers = (
        chosen_steps.with_columns(deviations=deviations, _away=pl.Series(np.abs(away)))
        .filter(pl.Series(stands_out))
        .sort("_away", descending=True, maintain_order=True)
        .drop("_away")
    )
    mean = float(lengths.mean())
    return StepDistribution(
        len(lengths), mean, std, low, median, p90, p99, high, tuple(edges.tolist()), tuple(counts.tolist()), outliers
    )


def any_stands_out(steps: pl.DataFrame) -> bool:
    """Whether any of the chosen steps stands out; see ``step_distribution``, of which this is a small part of the work."""
    lengths = steps.filter("chosen")["step_time_ns"].to_numpy() if len(steps) >= _LEAST_STEPS else np.empty(0)
    return len(lengths) > 0 and bool(_deviations_from_median(lengths.astype(np.float64))[2].any())


def _deviations_from_median(lengths: Float64Array) -> tuple[Float64Array, float, npt.NDArray[np.bool_]]:
    """How far each length is from the median, the robust standard deviation, and whether it stands out."""
    median = float(np.quantile(lengths, 0.5))
    away = lengths - median
    far = np.abs(away)
    spread = float(np.median(far)) * _NORMAL
    return away, spread, (far > _DEVIATIONS * spread) & (far > _LEAST_SHARE * median) & (len(lengths) >= _LEAST_STEPS)


def _bin_count(lengths: Float64Array) -> int:
    quarters = np.quantile(lengths, [0.25, 0.75])
    width = 2 * float(quarters[1] - quarters[0]) / len(lengths) ** (1 / 3)
    span = float(lengths.max() - lengths.min())
    if not span:
        return 1
    return int(min(max(np.ceil(span / width), 1), _MOST_BINS)) if width > span / _MOST_BINS else _MOST_BINS
