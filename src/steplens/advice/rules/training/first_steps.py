"""The first recorded steps are not like the others: recording began before the program had warmed up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, MEDIUM, Evidence, Finding
from steplens.advice.rule import Rule
from steplens.analysis.overlap import Int64Array
from steplens.trace.health import STEP_TIMES

_LEAST_STEPS = 5
#: a step of the warm-up takes this many times as long as the others
_TIMES = 2.0
#: and this many times as long as the longest of them: an evaluation comes again, and is no warm-up
_TIMES_LONGEST = 1.5
#: averages that are wrong by this share mislead
_MISLEADING = 0.1


def warm_up(lengths: Int64Array) -> int:
    """How many of the first steps are no steps like the others; ``lengths`` in order of time, ns."""
    if len(lengths) < _LEAST_STEPS:
        return 0
    most = len(lengths) // 3
    rest = lengths[most:]
    leading = lengths[:most] > max(_TIMES * float(np.median(rest)), _TIMES_LONGEST * float(rest.max()))
    return int(np.argmin(np.r_[leading, False]))


def judge(facts: Facts) -> Iterator[Finding]:
    """Leading steps, at most a third of all, that take twice the median of the rest and half as long again as any of it.

    No time is saved: what is wrong are the averages over the recorded steps.
    """
    lengths = facts.steps.sort("start_ns")["duration_ns"].to_numpy()
    count = warm_up(lengths)
    if not count:
        return
    steps = facts.steps.sort("start_ns")["step"].to_list()[:count]
    others = float(lengths[count:].mean())
    excess = facts.step_ns / others - 1
    yield Finding(
        rule=RULE.name,
        confidence=0.9,
        evidence=(
            Evidence("first_steps_take", float(lengths[:count].mean()), "ns", tuple(steps), per_step=False),
            Evidence("other_steps_take", others, "ns", per_step=False),
        ),
        step_ns=facts.step_ns,
        values={"count": count, "percent": round(100 * excess)},
        urgency=MEDIUM if excess >= _MISLEADING else LOW,
    )


RULE = Rule("first_steps", judge, (STEP_TIMES,))
