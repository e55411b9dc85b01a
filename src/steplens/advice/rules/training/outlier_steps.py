"""Some steps take much longer than the others; which part of them grew."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.training.first_steps import warm_up
from steplens.analysis.tools.overlap import Int64Array, length_inside, merged
from steplens.trace.health import OPERATOR_CALLS, STEP_PHASES, STEP_TIMES

_LEAST_STEPS = 8
#: an outlier is this much longer than the median, and by this many standard deviations (estimated by the median deviation)
_LONGER = 0.25
_DEVIATIONS = 5.0
_MOST_OUTLIERS = 1 / 3
_LEAST_SHARE = 0.03
#: what explains this part of the excess is the cause
_MAIN_PART = 0.6
#: outliers do more work when they make this many times the calls
_MORE_CALLS = 1.1
_PHASES = {"data_wait_ns": "grew_data", "python_ns": "grew_other"}
_SAME_WORK = "grew_same_work"


def judge(facts: Facts) -> Iterator[Finding]:
    """How much longer the outliers are than the median step, spread over all steps.

    A cause is named when it accounts for most of it: collections of garbage, checkpoints, waiting for data, operators that
    other steps do not run, Python outside of forward, backward and optimizer. Steps in which the same work took longer say
    that something else had the machine; nothing is saved by changing the program then.
    """
    steps = facts.steps.sort("start_ns")
    steps = steps.slice(warm_up(steps["duration_ns"].to_numpy()))
    if steps.height < _LEAST_STEPS:
        return
    lengths = steps["duration_ns"].to_numpy()
    median = float(np.median(lengths))
    deviation = 1.4826 * float(np.median(np.abs(lengths - median)))
    long = lengths > median + max(_LONGER * median, _DEVIATIONS * deviation)
    excess = float((lengths[long] - median).sum())
    if not long.any() or long.mean() > _MOST_OUTLIERS or excess < _LEAST_SHARE * float(lengths.sum()):
        return
    grown = {what: float((part[long] - np.median(part[~long])).sum()) for what, part in _parts(facts, steps).items()}
    cause = next((what for what, length in grown.items() if length >= _MAIN_PART * excess), "")
    if not cause:
        calls = _calls(facts, steps)
        cause = "grew_work" if calls[long].mean() >= _MORE_CALLS * calls[~long].mean() else _SAME_WORK
    per_step = excess / steps.height
    # one outlier may be an accident; other rules price what they see, and what is not the program's doing nothing saves
    at = np.flatnonzero(long)
    regular = len(at) > 2 and len(set(np.diff(at).tolist())) == 1
    sure = len(at) > 1 and (cause == "grew_work" or (cause == "grew_other" and regular))
    share = min(grown.get(cause, excess) / excess, 1.0)
    outliers = tuple(steps["step"].filter(pl.Series(long)).to_list())
    yield Finding(
        rule=RULE.name,
        confidence=0.7 if sure else 0.4,
        evidence=(
            Evidence("outliers_excess", per_step, "ns", outliers),
            Evidence(cause, grown.get(cause, excess) / int(long.sum()), "ns", outliers, per_step=False),
            Evidence("median_step", median, "ns", per_step=False),
        ),
        saving=Saving(0.0, 0.9 * share * per_step, per_step) if sure else None,
        step_ns=facts.step_ns,
        values={"count": len(outliers), "of": steps.height, "times": round(float(lengths[long].mean()) / median, 1)},
    )


def _parts(facts: Facts, steps: pl.DataFrame) -> dict[str, Int64Array]:
    """Ns of every step by what may have grown, most specific first."""
    start = steps["start_ns"].to_numpy()
    end = start + steps["duration_ns"].to_numpy()
    collections = facts.trace.required("gc").select("start_ns", "end_ns").drop_nulls().collect()
    parts: dict[str, Int64Array] = {}
    for what, rows in (("grew_collections", collections), ("grew_checkpoints", facts.saves)):
        parts[what] = length_inside(merged(rows), start, end)
    return {**parts, **{what: steps[column].fill_null(0).to_numpy() for column, what in _PHASES.items()}}


def _calls(facts: Facts, steps: pl.DataFrame) -> Int64Array:
    """Number of calls in every step."""
    counts = facts.named_calls.group_by("step").agg(calls=pl.len().cast(pl.Int64))
    calls: Int64Array = steps.join(counts, on="step", how="left", maintain_order="left")["calls"].fill_null(0).to_numpy()
    return calls


RULE = Rule("outlier_steps", judge, (STEP_TIMES, STEP_PHASES, OPERATOR_CALLS))
