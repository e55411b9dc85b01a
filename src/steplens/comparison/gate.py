"""Whether a change exceeds its limit (``limits``)."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from steplens.common.errors import SteplensError
from steplens.comparison.comparison import LEAST_CHANGE, Comparison
from steplens.comparison.difference import Difference, find_difference
from steplens.comparison.item_times import TASK
from steplens.comparison.limits import COMMUNICATION, KERNELS, MEMORY_PEAK, OPERATORS, STEP, SUFFIX, Limit
from steplens.comparison.noise import LEAST_STEPS, Sample, sample_mean
from steplens.comparison.operator_steps import compare_operator
from steplens.comparison.side import Side

#: when anything communicates, alone or beside computing
_COMMUNICATION = ("exposed_communication_ns", "overlapped_communication_ns")
#: names that are proposed for one that nothing has
_NAMED = 3
_CALLED = {OPERATORS: "an operator", KERNELS: "a device task"}
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


def find_asked_change(limits: Sequence[Limit]) -> float:
    """The change of the step that is to be told: the least that a limit allows, else the least of interest."""
    # no number of recordings tells a change of nothing
    return min((limit.ratio for limit in limits if limit.figure == STEP and limit.ratio > 0.0), default=LEAST_CHANGE)


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
        return _judge_item(comparison, limit, OPERATORS, "")
    if limit.figure.startswith(KERNELS):
        return _judge_item(comparison, limit, KERNELS, TASK)
    columns = _COMMUNICATION if limit.figure == COMMUNICATION else (limit.figure + SUFFIX,)
    sample = _sample_peaks if limit.figure == MEMORY_PEAK else partial(_sample_parts, columns=columns)
    first, second = sample(comparison.before), sample(comparison.after)
    if not first or not second:
        return Judgement(str(limit), CANNOT_TELL, reason=_missing_side(first, second))
    before, after = (sum(recorded.usual for recorded in side) / len(side) for side in (first, second))
    # peaks of two processes are equal where nothing changed
    difference = find_difference(first, second, unit=0.0 if limit.figure == MEMORY_PEAK else max(before, after))
    return _judge_difference(limit, before, after, difference)


def check_item(comparison: Comparison, limit: Limit) -> None:
    """Whether there is the operator or the device task of a limit.

    Args:
        comparison: of what was recorded.
        limit: on ``operators.NAME`` or ``kernels.NAME``.

    Raises:
        SteplensError: neither side has it.
    """
    kind, rows = (OPERATORS, comparison.operators) if limit.figure.startswith(OPERATORS) else (KERNELS, comparison.tasks)
    name = limit.figure.removeprefix(kind)
    names = rows["name"].to_list()
    if name in names:
        return
    # "mm" for "aten::mm", a slip, or a part of the name of a kernel
    close = [same for same in names if same.rpartition("::")[2] == name] or difflib.get_close_matches(name, names, _NAMED)
    close = close or [longer for longer in names if name in longer][:_NAMED]
    hint = f"; perhaps {' or '.join(close)}" if close else ""
    raise SteplensError(f"{limit}: neither side has {_CALLED[kind]} {name!r}{hint}")


def _judge_item(comparison: Comparison, limit: Limit, kind: str, time: str) -> Judgement:
    """Of an operator or a device task; ``time`` as in ``compare_operator``."""
    check_item(comparison, limit)
    name = limit.figure.removeprefix(kind)
    change = compare_operator(comparison.before, comparison.after, name, time)
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


def _sample_parts(side: Side, columns: Sequence[str]) -> list[Sample]:
    """A figure of the usual steps that is the sum of some columns."""
    samples = []
    for recording in side.recordings:
        values = recording.usual.select(pl.sum_horizontal(*columns, ignore_nulls=False)).to_series().drop_nulls()
        if values.len() >= LEAST_STEPS:
            samples.append(sample_mean(values.to_numpy().astype(np.float64), recording.waited_share or 0.0))
    return samples


def _sample_peaks(side: Side) -> list[Sample]:
    return [Sample(1, float(peak), 0.0, 0.0, 1) for peak in side.figures.memory_peaks if peak is not None]
