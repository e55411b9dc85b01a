"""Operators of AI cores in which no unit is busy most of the time, other than those that have rules of their own."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Finding
from steplens.advice.rule import Rule
from steplens.advice.rules.operators import units
from steplens.advice.rules.tools.common import SHORT_NS
from steplens.analysis.device.core_utilization import UNITS
from steplens.trace.building.devices import NPU

_LIMITS = dict.fromkeys((unit for unit in UNITS if unit != "aic_fixpipe"), 0.8)


def judge(facts: Facts) -> Iterator[Finding]:
    """Tasks of 20 us and more in which no unit works 80 % of the time."""
    tasks = units.shares(facts, units.OTHER)
    if tasks.is_empty():
        return
    tasks = tasks.filter(pl.col("duration_ns") >= SHORT_NS)
    if tasks.height and (found := units.finding(facts, RULE.name, tasks, units.unexplained(tasks, _LIMITS))):
        yield found


RULE = Rule("unbound_operators", judge, units.RESTS_ON, devices=(NPU,))
