"""Single batches that take the loader far longer than the others."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.common import steps_of, top
from steplens.trace.health import OPERATOR_CALLS

_NAME = "(?i)dataloader"
_LEAST_NS = 10_000_000
#: so many times the median is an outlier; what is slow all the time is the business of the rules about loaders
_TIMES = 5.0
#: where more of the fetches are slow, none is an outlier: workers that are too slow end together, and one wait is for all
_RARE = 0.25
#: one slow fetch is an accident, and of no step that follows
_LEAST_FETCHES = 2
_LEAST_SHARE = 0.01


def judge(facts: Facts) -> Iterator[Finding]:
    """Fetches but the first, of 10 ms and more, that take 5 times the median: two at least, a quarter of all at most.

    The price is what they take beyond the median.
    """
    fetches = facts.containing(_NAME)
    fetches = fetches.filter(~pl.col("parent").is_in(fetches["id"].implode()).fill_null(False))
    # the first one waits until the workers have started, which is another matter
    fetches = fetches.sort("start_ns").slice(1)
    if fetches.height < 2 or not facts.step_ns:
        return
    usual = float(fetches["duration_ns"].median() or 0)  # type: ignore[arg-type]
    slow = fetches.filter((pl.col("duration_ns") >= _LEAST_NS) & (pl.col("duration_ns") >= _TIMES * usual))
    beyond = float((slow["duration_ns"] - usual).sum()) / facts.steps.height
    if beyond < _LEAST_SHARE * facts.step_ns or slow.height < _LEAST_FETCHES or slow.height > _RARE * (fetches.height + 1):
        return
    yield Finding(
        rule=RULE.name,
        confidence=0.7,
        evidence=(
            Evidence(
                "in_slow_fetches", float(slow["duration_ns"].sum()) / facts.steps.height, "ns", steps_of(slow), top(slow, "name")
            ),
            Evidence("slow_fetches", slow.height, "count", per_step=False),
            Evidence("usual_fetch", usual, "ns", per_step=False),
        ),
        saving=Saving(beyond / 2, beyond, beyond),
        step_ns=facts.step_ns,
    )


RULE = Rule("slow_fetches", judge, (OPERATOR_CALLS,), explains=("loader_too_slow", "loader_without_workers"))
