"""The device waits between two steps: data, or the work of the host that sends it, comes late."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.analysis.data_loading.data_wait import data_wait, loads_with_pytorch
from steplens.trace.health import STEP_TIMES

#: an interval that is no reason to look any further
LEAST_NS = 500_000
#: of two steps one may be an accident
_SURE_FROM = 3


def judge(facts: Facts, *, least_ns: float = LEAST_NS) -> Iterator[Finding]:
    """A mean interval of more than 0.5 ms; all of it but that goes when the data is there and the next step is launched.

    The interval is that of ``analysis.data_loading.data_wait``, without warm-up. Steps that PyTorch's DataLoader feeds have
    rules of their own.

    Args:
        facts: one trace.
        least_ns: the interval above which to speak.
    """
    waited = data_wait(facts.trace)
    if waited is None or waited.wait_ns <= least_ns or loads_with_pytorch(facts.trace):
        return
    steps = tuple(waited.steps.filter(pl.col("wait_ns") > least_ns)["step"].to_list())
    yield Finding(
        rule=RULE.name,
        confidence=0.8 if len(steps) >= _SURE_FROM else 0.5,
        evidence=(
            Evidence("interval", waited.wait_ns, "ns", steps),
            Evidence("interval_share", 100 * waited.share, "%"),
            Evidence("median_interval", float(waited.steps["wait_ns"].median() or 0), "ns"),  # type: ignore[arg-type]
        ),
        saving=Saving((waited.wait_ns - least_ns) / 2, waited.wait_ns - least_ns, waited.wait_ns),
        step_ns=waited.step_ns,
        values={"threshold": f"{least_ns / 1e6:g}"},
    )


RULE = Rule("iteration_interval", judge, (STEP_TIMES,), explains=("device_waits_for_host",))
