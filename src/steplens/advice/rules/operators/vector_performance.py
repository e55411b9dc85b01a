"""Vector operators whose core neither computes nor moves data most of the time."""

from __future__ import annotations

from collections.abc import Iterator

from steplens.advice.facts import Facts
from steplens.advice.finding import Finding
from steplens.advice.rule import Rule
from steplens.advice.rules.operators import units
from steplens.trace.building.devices import NPU

_LIMITS = {"aiv_vec": 0.7, "aiv_mte2": 0.7, "aiv_mte3": 0.7, "aiv_vec+aiv_mte2+aiv_mte3": 0.9}


def judge(facts: Facts) -> Iterator[Finding]:
    """Of the operator types that take 1 % of the device's time, the tasks in which no unit reaches 70 %, nor all 90 %."""
    tasks = units.shares(facts, units.VECTOR)
    if tasks.height and (found := units.finding(facts, RULE.name, tasks, units.unexplained(tasks, _LIMITS))):
        yield found


RULE = Rule("vector_performance", judge, units.RESTS_ON, devices=(NPU,))
