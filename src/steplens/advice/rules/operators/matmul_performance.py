"""Large matrix products that neither their matrix unit nor their memory limits, or whose rows are of an awkward length."""

from __future__ import annotations

from collections.abc import Iterator

from steplens.advice.facts import Facts
from steplens.advice.finding import Finding
from steplens.advice.rule import Rule
from steplens.advice.rules.operators import awkward_axes, units
from steplens.trace.building.devices import NPU

_LIMITS = {"aic_mac": 0.8, "aic_mte2": 0.95}
_INNER_AXIS = 256


def judge(facts: Facts) -> Iterator[Finding]:
    """Products that move 100 MB in all: those below 80 % of the matrix unit and 95 % of reading, and those of which an operand's
    inner axis is no multiple of 256.
    """
    tasks = units.shares(facts, units.MATMUL)
    if tasks.is_empty():
        return
    yield from awkward_axes.findings(facts, RULE.name, tasks, units.unexplained(tasks, _LIMITS), _is_awkward)


def _is_awkward(shapes: str) -> bool:
    """Whether one of the first two operands has an inner axis that is no multiple of 256."""
    inner = [axis[-1] for axis in map(units.axes, shapes.split(";")[:2]) if axis]
    return any(axis % _INNER_AXIS for axis in inner)


RULE = Rule("matmul_performance", judge, units.RESTS_ON, devices=(NPU,))
