"""Operators that are prepared anew for every call, since the device's compiler was told nothing of their shapes."""

from __future__ import annotations

from collections.abc import Iterator

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.common import matching, per_step, steps_of, top
from steplens.trace.building.devices import NPU
from steplens.trace.health import KERNEL_DETAILS

_STATIC, _DYNAMIC = "(?i)^static$", "(?i)^dynamic$"
_PREPARATION = r"(?i)_tiling$|^opcompile$|infershape"
_LEAST_SHARE = 0.01


def judge(facts: Facts) -> Iterator[Finding]:
    """Where no operator is flagged static. The price is the device's idle time while the host compiles operators and tiles them.

    Without recorded runtime calls the price is unknown.
    """
    tasks = matching(facts.computing, _DYNAMIC, "state")
    if tasks.is_empty() or matching(facts.computing, _STATIC, "state").height:
        return
    evidence = [
        Evidence("dynamic_tasks", tasks.height / facts.steps.height, "count", steps_of(tasks), top(tasks, "type")),
    ]
    calls = matching(facts.runtime, _PREPARATION)
    idle = facts.idle_during(calls) if calls.height else 0.0
    if calls.height:
        evidence.append(Evidence("preparing_operators", per_step(facts, calls), "ns", places=top(calls, "name")))
    priced = idle >= _LEAST_SHARE * facts.step_ns > 0
    yield Finding(
        rule=RULE.name,
        confidence=0.7,
        evidence=tuple(evidence),
        saving=Saving.up_to(idle) if priced else None,
        step_ns=facts.step_ns,
        part="idle_ns",
        urgency=LOW,
    )


RULE = Rule("dynamic_shapes", judge, (KERNEL_DETAILS,), devices=(NPU,), explains=("device_waits_for_host",))
