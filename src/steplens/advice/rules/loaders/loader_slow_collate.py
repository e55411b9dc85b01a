"""Collating is the longest stage of a loader that the model waits for."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.loaders.loader_facts import name_of, stage_evidence, worst
from steplens.advice.rules.loaders.loader_too_slow import waiting_ns
from steplens.analysis.data_loading.loaders import COLLATE, LoaderVerdict, step_waits
from steplens.trace.health import DATA_LOADING, OPERATOR_CALLS, STEP_PHASES

_LEAST_SHARE = 0.03


def judge(facts: Facts) -> Iterator[Finding]:
    """What a step would no longer wait if collating took no time.

    With M the time to make the batches of a step, C of it to collate, W workers and a rest R of the step besides waiting, a step
    takes M / W, and without collating (M - C) / W, but never less than R. Of waits that have other causes as well, such as
    starting workers, no more than C / W can go. A cure leaves something of it: the low end is half.
    Without workers collating is only a part of what ``loader_without_workers`` is about.
    """
    verdict = worst(facts, lambda one: one.stage == COLLATE and one.workers > 0)
    if verdict is None or not facts.step_ns:
        return
    waiting = waiting_ns(facts)
    batches = _batches(facts, verdict)
    without = max(facts.step_ns - waiting, (verdict.made_ns - verdict.stage_ns) * batches / verdict.workers)
    saved = min(waiting, max(facts.step_ns - without, 0.0), verdict.stage_ns * batches / verdict.workers)
    if saved < _LEAST_SHARE * facts.step_ns:
        return
    yield Finding(
        rule=RULE.name,
        confidence=0.85,
        evidence=(
            Evidence("waiting_for_workers", waiting, "ns", facts.numbers, (name_of(verdict),)),
            *stage_evidence(verdict),
        ),
        saving=Saving(saved / 2, saved, saved),
        step_ns=facts.step_ns,
        part="data_wait_ns",
    )


def _batches(facts: Facts, verdict: LoaderVerdict) -> float:
    """Batches of a loader per step; a call of ``next()`` that ends an epoch gives none."""
    got = step_waits(facts.trace).filter(pl.col("step").is_in(facts.numbers), pl.col("loader") == verdict.loader)
    return float(got["batches"].sum()) / facts.steps.height


RULE = Rule("loader_slow_collate", judge, (DATA_LOADING, OPERATOR_CALLS, STEP_PHASES), explains=("loader_too_slow",))
