"""The thread that copies batches to pinned memory is slower than the workers."""

from __future__ import annotations

from collections.abc import Iterator

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.loaders.loader_facts import stage_evidence, worst
from steplens.advice.rules.loaders.loader_too_slow import waiting_ns
from steplens.analysis.data_loading.loaders import PIN
from steplens.trace.health import DATA_LOADING, OPERATOR_CALLS, STEP_PHASES

_LEAST_SHARE = 0.03


def judge(facts: Facts) -> Iterator[Finding]:
    """The wait for the thread; how much of it a smaller batch or fewer tensors take off is not known beforehand."""
    verdict = worst(facts, lambda one: one.stage == PIN and one.workers > 0)
    if verdict is None or not facts.step_ns:
        return
    waiting = waiting_ns(facts)
    if waiting < _LEAST_SHARE * facts.step_ns:
        return
    likely = min(waiting, verdict.stage_ns)
    yield Finding(
        rule=RULE.name,
        confidence=0.7,
        evidence=(Evidence("waiting_for_workers", waiting, "ns", facts.numbers), *stage_evidence(verdict)),
        saving=Saving(0.0, likely, waiting),
        step_ns=facts.step_ns,
        part="data_wait_ns",
    )


RULE = Rule("loader_slow_pin", judge, (DATA_LOADING, OPERATOR_CALLS, STEP_PHASES), explains=("loader_too_slow",))
