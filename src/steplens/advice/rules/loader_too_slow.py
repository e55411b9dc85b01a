"""The model waits for the workers of the loader: they produce batches slower than it uses them."""

from __future__ import annotations

from collections.abc import Iterator

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.trace.health import OPERATOR_CALLS, STEP_PHASES

#: name that PyTorch gives a fetch of a loader with workers
FETCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter"
_LEAST_SHARE = 0.03
#: a fetch that finds its batch ready still receives and unpickles it; this is long for that, on a busy machine
_READY_NS = 1_000_000


def judge(facts: Facts) -> Iterator[Finding]:
    """What a step waits beyond taking over a batch that is ready would be gone if the batch were.

    Batches come one per step, so the workers must become faster by step / (step - wait).
    """
    fetches = facts.starting_with(FETCH)
    if fetches.is_empty() or not facts.step_ns:
        return
    waits = fetches["duration_ns"]
    # the shortest fetches find their batch ready and tell what cannot be saved
    ready = min(float(waits.quantile(0.1) or 0), _READY_NS)
    waiting = float((waits - ready).clip(0).sum()) / facts.steps.height
    if waiting < _LEAST_SHARE * facts.step_ns:
        return
    faster = facts.step_ns / max(facts.step_ns - waiting, 1)
    yield Finding(
        rule=RULE.name,
        confidence=0.9,
        evidence=(Evidence("waiting_for_workers", waiting, "ns", facts.numbers, ("_MultiProcessingDataLoaderIter.__next__",)),),
        saving=Saving(waiting / 2, waiting, waiting),
        step_ns=facts.step_ns,
        values={"faster": round(faster, 1)},
    )


RULE = Rule("loader_too_slow", judge, (OPERATOR_CALLS, STEP_PHASES))
