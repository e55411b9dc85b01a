"""Operators that the host compiles while the training runs, call by call."""

from __future__ import annotations

from collections.abc import Iterator

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.common import matching, per_step, steps_of, top
from steplens.trace.building.devices import NPU
from steplens.trace.health import HOST_AGAINST_DEVICE, RUNTIME_CALLS

_CALLS = r"^(AscendCL@)?aclopCompileAndExecute"
_LEAST_CALLS = 20
_LEAST_SHARE = 0.01


def judge(facts: Facts) -> Iterator[Finding]:
    """From 20 such calls on in the recorded steps, or from 1 % of a step on; the price is the device's idle time meanwhile."""
    calls = matching(facts.runtime, _CALLS)
    if calls.is_empty():
        return
    idle = facts.idle_during(calls)
    priced = idle >= _LEAST_SHARE * facts.step_ns > 0
    if calls.height < _LEAST_CALLS and not priced:
        return
    yield Finding(
        rule=RULE.name,
        confidence=0.8,
        evidence=(
            Evidence("compiling_calls", calls.height / facts.steps.height, "count", steps_of(calls), top(calls, "name")),
            Evidence("in_compiling_calls", per_step(facts, calls), "ns"),
            Evidence("idle_while_compiling", idle, "ns"),
        ),
        saving=Saving.up_to(idle) if priced else None,
        step_ns=facts.step_ns,
        part="idle_ns",
        urgency=LOW,
    )


RULE = Rule(
    "operator_compilation",
    judge,
    (RUNTIME_CALLS, HOST_AGAINST_DEVICE),
    devices=(NPU,),
    explains=("device_waits_for_host", "dynamic_shapes"),
)
