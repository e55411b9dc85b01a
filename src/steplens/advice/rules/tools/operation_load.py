"""What the processors and queues of single operations say, by the rules of MindSpore's own analyser; one rule per remedy."""

from __future__ import annotations

from collections.abc import Iterator

from steplens.advice.facts import Facts
from steplens.advice.finding import HIGH, LOW, MEDIUM, Evidence, Finding
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.pressure import at_most, mindspore_operations, pressure
from steplens.analysis.data_loading.data_pipeline import bottlenecks
from steplens.analysis.data_loading.pipeline_queues import (
    FEWER_WORKERS,
    HOST_TOO_SLOW,
    MORE_WORKERS,
    SLOW_SOURCE,
    SLOWER_THAN_INPUT,
    analyse_operations,
    operation_name,
)
from steplens.analysis.data_loading.pipeline_verdict import keeps_up
from steplens.trace.health import STEP_PHASES

#: what the strict rules of queues (``bottleneck``) say, too
_SAID_BY_QUEUES = (SLOW_SOURCE, SLOWER_THAN_INPUT)
_LIMIT = {MORE_WORKERS: HIGH, FEWER_WORKERS: LOW, SLOW_SOURCE: MEDIUM, HOST_TOO_SLOW: HIGH, SLOWER_THAN_INPUT: MEDIUM}
_LOADED = (MORE_WORKERS, FEWER_WORKERS)
_WORDS = {
    MORE_WORKERS: "worker_load",
    FEWER_WORKERS: "worker_load",
    SLOW_SOURCE: "output_usage",
    HOST_TOO_SLOW: "queue_empty_share",
    SLOWER_THAN_INPUT: "usage_drop",
}


def rule(name: str, kind: str) -> Rule:
    """The rule about one kind of finding of ``pipeline_queues.analyse_operations``."""

    def judge(facts: Facts) -> Iterator[Finding]:
        """One finding for all operations of the kind; surer where one of them is the slowest of the pipeline.

        Of a pipeline that keeps up, only workers that it does not need are told.
        """
        table = mindspore_operations(facts)
        if not table.height or (kind != FEWER_WORKERS and keeps_up(facts.trace)):
            return
        found, slowest = analyse_operations(facts.trace)
        strict = bottlenecks(table) if kind in _SAID_BY_QUEUES else []
        mine = [one for one in found if one.kind == kind and one.id not in strict]
        if not mine:
            return
        evidence = [
            Evidence(
                _WORDS[kind],
                one.value if kind in _LOADED else 100 * one.value,
                "%",
                places=(operation_name(one.type, one.id),),
                per_step=False,
            )
            for one in mine
        ]
        is_slowest = slowest in [one.id for one in mine]
        if is_slowest:
            named = [operation_name(one.type, one.id) for one in mine if one.id == slowest]
            evidence.append(Evidence("slowest_operation", 0, "", places=tuple(named), per_step=False))
        names = ", ".join(operation_name(one.type, one.id) for one in mine)
        yield Finding(
            rule=name,
            subject=names.replace(", ", "/"),
            confidence=0.7 if is_slowest else 0.5,
            evidence=tuple(evidence),
            step_ns=facts.step_ns,
            values={"operations": names},
            urgency=at_most(pressure(facts), _LIMIT[kind]),
        )

    return Rule(name, judge, (STEP_PHASES,))
