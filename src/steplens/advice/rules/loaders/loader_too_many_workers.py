"""A loader has more workers than its loop needs, or than there are processors for."""

from __future__ import annotations

import math
from collections.abc import Iterator

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, MEDIUM, Evidence, Finding
from steplens.advice.rule import Rule
from steplens.advice.rules.loaders.loader_facts import feeding, name_of, needed_processors, processors
from steplens.analysis.data_loading.loaders import LEAST_WAIT, LoaderVerdict
from steplens.trace.health import DATA_LOADING

#: workers that are busy less than this have little to do
_IDLE_SHARE = 0.3
#: how busy the workers that are left may be without making the loop wait
_BUSY_SHARE = 0.7
#: of fewer batches nothing is said
_LEAST_BATCHES = 10
#: a worker that uses less of a processor waits for something else, and takes none from the others
_CPU_SHARE = 0.5


def judge(facts: Facts) -> Iterator[Finding]:
    """Two things that more workers do not help against; neither has a saving that a trace could tell.

    1. The loop does not wait and the workers are busy less than 30 % of the time: as many as would be busy 70 % are enough.
    2. The workers and the loop together want more processors than there are, and no worker rests.
    """
    available = processors(facts)
    for verdict in feeding(facts):
        if verdict.workers < 2 or verdict.batches < _LEAST_BATCHES or verdict.busy_share is None:
            continue
        enough = max(math.ceil(verdict.workers * verdict.busy_share / _BUSY_SHARE), 1)
        if verdict.wait_share < LEAST_WAIT and verdict.busy_share < _IDLE_SHARE and enough < verdict.workers:
            yield _finding(facts, verdict, enough, LOW)
        elif available is not None and _oversubscribed(verdict, available):
            yield _finding(facts, verdict, max(available - 1, 1), MEDIUM, available)


def _oversubscribed(verdict: LoaderVerdict, available: int) -> bool:
    works = (verdict.cpu_share or 0.0) >= _CPU_SHARE and (verdict.busy_share or 0.0) > _BUSY_SHARE
    return works and verdict.workers > max(available - 1, 1) and needed_processors(verdict, verdict.workers) > available


def _finding(facts: Facts, verdict: LoaderVerdict, enough: int, urgency: str, available: int | None = None) -> Finding:
    evidence = [
        Evidence("loader_workers", verdict.workers, "count", places=(name_of(verdict),), per_step=False),
        Evidence("loader_busy", 100 * (verdict.busy_share or 0.0), "%", per_step=False),
    ]
    if verdict.cpu_share is not None:
        evidence.append(Evidence("loader_cpu", 100 * verdict.cpu_share, "%", per_step=False))
    if available is not None:
        evidence.append(Evidence("loader_processors", available, "count", per_step=False))
    return Finding(
        rule=RULE.name,
        subject=str(verdict.loader),
        confidence=0.8,
        evidence=tuple(evidence),
        step_ns=facts.step_ns,
        values={"workers": enough},
        urgency=urgency,
    )


RULE = Rule("loader_too_many_workers", judge, (DATA_LOADING,))
