"""Every epoch begins with starting the workers of a loader again."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.loaders.loader_facts import feeding, name_of, stage_mean_ns
from steplens.analysis.data_loading.loaders import TRANSFER, first_batches
from steplens.trace.health import DATA_LOADING, STEP_TIMES

_LEAST_SHARE = 0.02


def judge(facts: Facts) -> Iterator[Finding]:
    """From ``iter()`` to the first batch, less making and transferring one: that is left when the workers are there.

    Only loaders count that started workers in two epochs or more, and epochs that began within the steps.
    """
    steps = facts.steps
    if not steps.height or not facts.step_ns:
        return
    begin = int(steps["start_ns"].min())  # type: ignore[arg-type]
    end = int((steps["start_ns"] + steps["duration_ns"]).max())
    started = first_batches(facts.trace).drop_nulls("workers_ns")
    for verdict in feeding(facts):
        own = started.filter(pl.col("loader") == verdict.loader)
        inside = own.filter((pl.col("start_ns") >= begin) & (pl.col("start_ns") + pl.col("delay_ns") <= end))
        if own.height < 2 or not inside.height:
            continue
        delay = float(inside["delay_ns"].sum()) / inside.height
        left = verdict.made_ns + stage_mean_ns(facts, verdict, TRANSFER)
        saved = max(delay - left, 0.0) * inside.height / steps.height
        if saved < _LEAST_SHARE * facts.step_ns:
            continue
        yield Finding(
            rule=RULE.name,
            subject=str(verdict.loader),
            confidence=0.9,
            evidence=(
                Evidence("loader_first_batch", delay, "ns", places=(name_of(verdict),), per_step=False),
                Evidence("loader_starting", float(inside["workers_ns"].sum()) / inside.height, "ns", per_step=False),
                Evidence("loader_epochs", inside.height, "count", per_step=False),
            ),
            saving=Saving(saved * 0.7, saved, saved),
            step_ns=facts.step_ns,
            values={"workers": verdict.workers},
        )


RULE = Rule("loader_slow_start", judge, (DATA_LOADING, STEP_TIMES), explains=("loader_too_slow", "slow_fetches"))
