"""Fused attention that no unit of its core limits, or whose head or sequence is of an awkward length."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Finding
from steplens.advice.rule import Rule
from steplens.advice.rules.operators import awkward_axes, units
from steplens.trace.building.devices import NPU

_FORWARD, _BACKWARD = {"aic_mte2": 0.8, "aiv_vec": 0.75}, {"aic_mte2": 0.8, "aic_fixpipe": 0.75}
_AXIS = 128


def judge(facts: Facts) -> Iterator[Finding]:
    """Below 80 % of reading and 75 % of vectors (forward) or of writing (backward); axes that are no multiple of 128.

    The head's axis is the last of the query, the sequence the longest of the others but the first.
    """
    tasks = units.shares(facts, units.ATTENTION)
    if tasks.is_empty():
        return
    backward = pl.col("type").cast(pl.String).str.contains("(?i)grad")
    slow = pl.concat(
        [
            units.unexplained(tasks.filter(~backward), _FORWARD),
            units.unexplained(tasks.filter(backward), _BACKWARD),
        ]
    )
    yield from awkward_axes.findings(facts, RULE.name, tasks, slow, _is_awkward)


def _is_awkward(shapes: str) -> bool:
    query = units.axes(shapes.partition(";")[0])
    return len(query) >= 3 and bool(query[-1] % _AXIS or max(query[1:-1]) % _AXIS)


RULE = Rule("attention_performance", judge, units.RESTS_ON, devices=(NPU,))
