"""How long an operator takes in each step, and how sure a difference of it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from steplens.comparison.difference import Difference, find_difference
from steplens.comparison.item_times import DEVICE, SELF
from steplens.comparison.noise import LEAST_STEPS, Sample
from steplens.comparison.side import Side

#: of single operators processes differ by more than of whole steps: where the memory lies that they touch, decides much
_OF_OPERATORS = 2.0


@dataclass(frozen=True)
class OperatorChange:
    """What became of an operator's time per step, ns.

    Attributes:
        before_ns: mean over the recordings; ``after_ns``: of the later side.
        difference: None where a side has too few steps to tell.
    """

    before_ns: float
    after_ns: float
    difference: Difference | None


def compare_operator(before: Side, after: Side, name: str, time: str = "") -> OperatorChange:
    """How an operator's time per step differs.

    Args:
        before: the earlier side.
        after: the later one.
        name: of the operator, such as "aten::mm".
        time: SELF or DEVICE; by default that of the device where a side has any, else self time.
    """
    if not time:
        on_device = (sample.usual for side in (before, after) for sample in side.figures.sample_times(DEVICE, name))
        time = DEVICE if any(on_device) else SELF
    first, second = (side.figures.sample_times(time, name) for side in (before, after))
    first_ns, second_ns = (float(np.mean([sample.usual for sample in side] or [0.0])) for side in (first, second))
    samples = [widen_samples(side) for side in (first, second)]
    difference = find_difference(samples[0], samples[1], unit=max(first_ns, second_ns)) if all(samples) else None
    return OperatorChange(first_ns, second_ns, difference)


def widen_samples(samples: Sequence[Sample]) -> list[Sample]:
    """Times of an operator in recordings with enough steps, with the spread that is assumed of single operators."""
    return [replace(sample, spread=_OF_OPERATORS * sample.spread) for sample in samples if sample.steps >= LEAST_STEPS]
