"""The training loop itself loads the data, while the model waits: ``DataLoader(num_workers=0)``."""

from __future__ import annotations

import math
from collections.abc import Iterator

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.loaders.loader_facts import feeds, processors, stage_evidence, worst
from steplens.trace.health import OPERATOR_CALLS, STEP_PHASES

#: name that PyTorch gives a fetch of a loader without workers
FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter"
_LEAST_SHARE = 0.02
#: more workers than this are rarely possible, and rarely help
_MOST_WORKERS = 16


def judge(facts: Facts) -> Iterator[Finding]:
    """Loading beside the training takes as long as the slower of the two, instead of both one after the other.

    With L the loading and B everything else of a step, W workers give a step of max(B, L / W). W is the least number that
    hides all loading, and one to spare. The low end of the saving assumes that workers and training share the processors so
    that only half of it can be had.
    """
    fetches = facts.starting_with(FETCH)
    if not feeds(facts, fetches) or not facts.step_ns:
        return
    loading = facts.typical_ns(fetches)
    rest = facts.step_ns - loading
    if loading < _LEAST_SHARE * facts.step_ns:
        return
    workers = min(max(math.ceil(loading / max(rest, 1)), 1) + 1, _MOST_WORKERS)
    likely = facts.step_ns - max(rest, loading / workers)
    evidence = [Evidence("loading_in_the_loop", loading, "ns", facts.numbers, ("_SingleProcessDataLoaderIter.__next__",))]
    verdict = worst(facts, lambda one: not one.workers)
    if verdict is not None:
        evidence += stage_evidence(verdict)
    available = processors(facts)
    if available is not None and available <= workers:
        evidence.append(Evidence("loader_processors", available, "count", per_step=False))
    yield Finding(
        rule=RULE.name,
        confidence=0.95,
        evidence=tuple(evidence),
        saving=Saving(likely / 2, likely, loading),
        step_ns=facts.step_ns,
        part="data_wait_ns",
        values={"workers": workers},
    )


RULE = Rule("loader_without_workers", judge, (OPERATOR_CALLS, STEP_PHASES))
