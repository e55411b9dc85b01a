"""Whether a change exceeds its limit (``limits``)."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from steplens.analysis.memory.memory import memory_summary
from steplens.common.errors import SteplensError
from steplens.comparison.comparison import Comparison, Side
from steplens.comparison.difference import Difference, find_difference
from steplens.comparison.limits import MEMORY_PEAK, OPERATORS, STEP, SUFFIX, Limit
from steplens.comparison.noise import LEAST_STEPS, Sample, sample_mean
from steplens.comparison.operator_steps import compare_operator
from steplens.comparison.recordings import Recording

EXCEEDED, KEPT, CANNOT_TELL = "exceeded", "kept", "cannot tell"


@dataclass(frozen=True)
class Judgement:
    """Whether a figure grew beyond its limit.

    Attributes:
        limit: as it was given.
        verdict: EXCEEDED where the whole interval is beyond, KEPT where none of it is, else CANNOT_TELL.
        ratio: by how much the figure grew; None where that is not known. ``low``, ``high``: its interval of 95 %.
        reason: why it is not known; empty where it is.
    """

    limit: str
    verdict: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""


def judge_limit(comparison: Comparison, limit: Limit) -> Judgement:
    """Whether a figure grew beyond its limit.

    Raises:
        SteplensError: neither side has the operator.
    """
    if comparison.step is None:
        return Judgement(str(limit), CANNOT_TELL, reason="there are too few steps")
    if limit.figure == STEP:
        return judge_interval(limit, comparison.step.ratio, comparison.step.low, comparison.step.high)
    if limit.figure.startswith(OPERATORS):
        return _judge_operator(comparison, limit)
    sample = _sample_peak if limit.figure == MEMORY_PEAK else partial(_sample_part, part=limit.figure + SUFFIX)
    first, second = _sample_side(comparison.before, sample), _sample_side(comparison.after, sample)
    if not first or not second:
        return Judgement(str(limit), CANNOT_TELL, reason=_missing_side(first, second))
    before, after = (sum(recorded.usual for recorded in side) / len(side) for side in (first, second))
    # peaks of two processes are equal where nothing changed
    difference = find_difference(first, second, unit=0.0 if limit.figure == MEMORY_PEAK else max(before, after))
    return _judge_difference(limit, before, after, difference)


def _judge_operator(comparison: Comparison, limit: Limit) -> Judgement:
    name = limit.figure.removeprefix(OPERATORS)
    names = comparison.operators["name"].to_list()
    if name not in names:
        # "mm" for "aten::mm", or a slip
        close = [same for same in names if same.rpartition("::")[2] == name] or difflib.get_close_matches(name, names, 3)
        hint = f"; perhaps {' or '.join(close)}" if close else ""
        raise SteplensError(f"{limit}: neither side has an operator {name!r}{hint}")
    change = compare_operator(comparison.before.recordings, comparison.after.recordings, name)
    if change.difference is None:
        return Judgement(str(limit), CANNOT_TELL, reason="there are too few steps")
    return _judge_difference(limit, change.before_ns, change.after_ns, change.difference)


def _judge_difference(limit: Limit, before: float, after: float, difference: Difference) -> Judgement:
    if before > 0.0:
        return judge_interval(limit, difference.value / before, difference.low_end / before, difference.high_end / before)
    if after > 0.0:
        return Judgement(str(limit), CANNOT_TELL, reason="the earlier side has none of it")
    return Judgement(str(limit), KEPT, reason="neither side has any of it")


def judge_interval(limit: Limit, ratio: float, low: float, high: float) -> Judgement:
    """Whether a change with its interval exceeds a limit; 0.05 is 5 %."""
    verdict = EXCEEDED if low > limit.ratio else KEPT if high <= limit.ratio else CANNOT_TELL
    return Judgement(str(limit), verdict, ratio, low, high)


def _missing_side(first: list[Sample], second: list[Sample]) -> str:
    side = "the later side" if first else "the earlier side" if second else "either side"
    return f"it was not recorded on {side}"


def _sample_side(side: Side, sample: Callable[[Recording], Sample | None]) -> list[Sample]:
    return [side_sample for recording in side.recordings if (side_sample := sample(recording)) is not None]


def _sample_part(recording: Recording, part: str) -> Sample | None:
    values = recording.usual[part].drop_nulls()
    is_enough = values.len() >= LEAST_STEPS
    return sample_mean(values.to_numpy().astype(np.float64), recording.waited_share or 0.0) if is_enough else None


def _sample_peak(recording: Recording) -> Sample | None:
    peaks = pl.concat([memory_summary(trace).select("peak_allocated") for trace in recording.traces])["peak_allocated"]
    peak = peaks.max()
    return Sample(1, float(peak), 0.0, 0.0, 1) if isinstance(peak, int | float) else None
