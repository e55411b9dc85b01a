"""The model waits for the workers of the loader: they produce batches slower than it uses them."""

from __future__ import annotations

from collections.abc import Iterator

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.loaders.loader_facts import enough_workers, feeding, feeds, stage_evidence, worker_evidence, worst
from steplens.analysis.data_loading.loaders import LEAST_WAIT, LOOP
from steplens.trace.health import OPERATOR_CALLS, STEP_PHASES

#: name that PyTorch gives a fetch of a loader with workers
FETCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter"
_LEAST_SHARE = 0.03
#: a fetch that finds its batch ready still receives and unpickles it; this is long for that, on a busy machine
_READY_NS = 1_000_000


def waiting_ns(facts: Facts) -> float:
    """What a step waits for workers beyond taking over a batch that is ready, ns."""
    fetches = facts.starting_with(FETCH)
    if not feeds(facts, fetches):
        return 0.0
    waits = fetches["duration_ns"]
    # the shortest fetches find their batch ready and tell what cannot be saved
    ready = min(float(waits.quantile(0.1) or 0), _READY_NS)
    return facts.usual_mean_ns(fetches.select("step", waits=(waits - ready).clip(0)), "waits")


def judge(facts: Facts) -> Iterator[Finding]:
    """What a step waits beyond taking over a batch that is ready would be gone if the batch were.

    Batches come one per step, so the workers must become faster by step / (step - wait). Where the loader itself was recorded,
    its slowest stage is named, and as many workers as make a batch in step - wait are enough.
    """
    waiting = waiting_ns(facts)
    if not facts.step_ns or waiting < _LEAST_SHARE * facts.step_ns:
        return
    faster = facts.step_ns / max(facts.step_ns - waiting, 1)
    known = [verdict for verdict in feeding(facts) if verdict.workers]
    if known and all(verdict.wait_share < LEAST_WAIT for verdict in known):
        # batches were there: receiving them, or the first ones of epochs, took the time
        return
    evidence = [Evidence("waiting_for_workers", waiting, "ns", facts.numbers, ("_MultiProcessingDataLoaderIter.__next__",))]
    verdict = worst(facts, lambda one: one.workers > 0 and one.stage != LOOP)
    if verdict is not None:
        evidence += stage_evidence(verdict)
        enough = enough_workers(verdict, facts.step_ns - waiting)
        if enough > verdict.workers:
            evidence += worker_evidence(facts, verdict, enough)
    yield Finding(
        rule=RULE.name,
        confidence=0.9,
        evidence=tuple(evidence),
        saving=Saving(waiting / 2, waiting, waiting),
        step_ns=facts.step_ns,
        part="data_wait_ns",
        values={"faster": round(faster, 1)},
    )


RULE = Rule("loader_too_slow", judge, (OPERATOR_CALLS, STEP_PHASES))
