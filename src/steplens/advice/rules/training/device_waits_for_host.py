"""The device is idle because the host launches its work too slowly: small tasks, long Python."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import EVERY_ACCELERATOR, Rule
from steplens.analysis.device import idle
from steplens.analysis.steps.work import computing_tasks
from steplens.trace.health import HOST_AGAINST_DEVICE, KERNEL_TIMES, STEP_DEVICE_TIMES

_LEAST_SHARE = 0.05
#: what the host does that a device need not wait for, and its words
_HOST = {idle.CALLS: "idle_calls", idle.PYTHON: "idle_python", idle.LAUNCH: "idle_launch"}


def judge(facts: Facts) -> Iterator[Finding]:
    """The gaps that end with a task which the host launched late, as far as it was busy with calls, Python and launching.

    Captured as a graph, or compiled, the same tasks follow each other at once. Some of the gaps stay, so the low end of
    the saving is half of them.
    """
    # the causes add up to that
    if not facts.step_ns or facts.median("idle_ns") < _LEAST_SHARE * facts.step_ns:
        return
    causes = facts.idle
    if causes.is_empty():
        return
    mine = causes.filter(pl.col("cause").is_in(list(_HOST)))
    lengths = {cause: facts.typical_ns(mine.filter(pl.col("cause") == cause), "idle_ns", on_device=True) for cause in _HOST}
    parts = {cause: length_ns for cause, length_ns in lengths.items() if length_ns}
    total = facts.typical_ns(mine, "idle_ns", on_device=True)
    if total < _LEAST_SHARE * facts.step_ns:
        return
    inside = computing_tasks(facts.trace).filter(pl.col("step").is_in(list(facts.numbers)))
    length = pl.col("end_ns") - pl.col("start_ns")
    tasks = inside.select(count=pl.len() / facts.steps.height, median_ns=length.median()).collect()
    evidence = [Evidence("idle_for_host", total, "ns", facts.numbers)]
    evidence += [Evidence(_HOST[cause], length_ns, "ns") for cause, length_ns in sorted(parts.items(), key=lambda part: -part[1])]
    evidence.append(Evidence("device_tasks", float(tasks["count"][0]), "count"))
    evidence.append(Evidence("task_length", float(tasks["median_ns"][0] or 0), "ns", per_step=False))
    yield Finding(
        rule=RULE.name,
        confidence=0.8,
        evidence=tuple(evidence),
        saving=Saving(total / 2, 0.8 * total, total),
        step_ns=facts.step_ns,
        part="idle_ns",
    )


RULE = Rule("device_waits_for_host", judge, (HOST_AGAINST_DEVICE, KERNEL_TIMES, STEP_DEVICE_TIMES), devices=EVERY_ACCELERATOR)
