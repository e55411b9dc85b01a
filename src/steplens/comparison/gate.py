"""Whether a change exceeds its limit (``limits``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from steplens.analysis.memory.memory import memory_summary
from steplens.comparison.comparison import Comparison, Side
from steplens.comparison.difference import find_difference
from steplens.comparison.limits import MEMORY_PEAK, OPERATORS, STEP, SUFFIX, Limit
from steplens.comparison.noise import LEAST_STEPS, Sample, sample_mean
from steplens.comparison.operator_steps import operator_times
from steplens.comparison.recordings import Recording

BEYOND, WITHIN, CANNOT_TELL = "beyond", "within", "cannot tell"


@dataclass(frozen=True)
class Judgement:
    """Whether a figure grew beyond its limit.

    Attributes:
        limit: as it was given.
        verdict: BEYOND where the whole interval is, WITHIN where none of it is, else CANNOT_TELL.
        ratio: by how much the figure grew; None where one side has none of it. ``low``, ``high``: its interval of 95 %.
    """

    limit: str
    verdict: str
    ratio: float | None
    low: float | None
    high: float | None


def judge_limit(comparison: Comparison, limit: Limit) -> Judgement:
    """Whether a figure grew beyond its limit."""
    if limit.figure == STEP:
        step = comparison.step
        if step is None:
            return Judgement(str(limit), CANNOT_TELL, None, None, None)
        return _judge_interval(limit, step.ratio, step.low, step.high)
    sample = _find_sampler(limit.figure)
    first, second = _sample_side(comparison.before, sample), _sample_side(comparison.after, sample)
    if not first or not second:
        return Judgement(str(limit), CANNOT_TELL, None, None, None)
    before = sum(recorded.usual for recorded in first) / len(first)
    if before <= 0.0:
        is_new = any(recorded.usual > 0.0 for recorded in second)
        return Judgement(str(limit), CANNOT_TELL if is_new else WITHIN, None, None, None)
    # peaks of two processes are equal where nothing changed
    difference = find_difference(first, second, unit=0.0 if limit.figure == MEMORY_PEAK else before)
    return _judge_interval(limit, difference.value / before, difference.low_end / before, difference.high_end / before)


def _find_sampler(figure: str) -> Callable[[Recording], Sample | None]:
    """What takes a figure from a recording."""
    if figure == MEMORY_PEAK:
        return _sample_peak
    if figure.startswith(OPERATORS):
        return partial(_sample_operator, name=figure.removeprefix(OPERATORS))
    return partial(_sample_part, part=figure + SUFFIX)


def _judge_interval(limit: Limit, ratio: float, low: float, high: float) -> Judgement:
    verdict = BEYOND if low > limit.ratio else WITHIN if high <= limit.ratio else CANNOT_TELL
    return Judgement(str(limit), verdict, ratio, low, high)


def _sample_side(side: Side, sample: Callable[[Recording], Sample | None]) -> list[Sample]:
    return [side_sample for recording in side.recordings if (side_sample := sample(recording)) is not None]


def _sample_part(recording: Recording, part: str) -> Sample | None:
    values = recording.usual[part].drop_nulls()
    return (
        sample_mean(values.to_numpy().astype(np.float64), recording.waited_share or 0.0) if values.len() >= LEAST_STEPS else None
    )


def _sample_operator(recording: Recording, name: str) -> Sample | None:
    values = operator_times(recording, name)
    return sample_mean(values, recording.waited_share or 0.0) if values.size >= LEAST_STEPS else None


def _sample_peak(recording: Recording) -> Sample | None:
    peaks = pl.concat([memory_summary(trace).select("peak_allocated") for trace in recording.traces])["peak_allocated"]
    peak = peaks.max()
    return Sample(1, float(peak), 0.0, 0.0, 1) if isinstance(peak, int | float) else None
