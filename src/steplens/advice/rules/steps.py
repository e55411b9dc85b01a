"""Steps that are unlike the others: the first ones, and single slow ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, MEDIUM, Evidence, Finding, Saving
from steplens.advice.rule import rule
from steplens.analysis.tools.overlap import Int64Array, length_inside, merged
from steplens.trace.health import KERNEL_CALLS, OPERATOR_CALLS, RUNTIME_CALLS, STEP_PHASES, STEP_TIMES
from steplens.trace.schema import CORE_CPU, SCOPE_USER

_LEAST_STEPS = 5
#: a step of the warm-up takes this many times as long as the others
_TIMES = 2.0
#: and this many times as long as the longest of them: an evaluation comes again, and is no warm-up
_TIMES_LONGEST = 1.5
#: steps that do nothing that the others do not may be slow because something else had the machine: it doubles or triples a
#: step, and may go away at any time. A step that takes this many times as long as the longest of the others was preparing
_TIMES_SAME_WORK = 4.0
#: a warm-up makes so many more calls, as a share of those of a step, or spends so much of the excess in those that are more
_WARM_UP_CALLS = 0.1
_EXPLAINED = 0.5
_NAMES = 3
#: averages that are wrong by this share mislead
_MISLEADING = 0.1


def warm_up(lengths: Int64Array) -> int:
    """How many of the first steps are no steps like the others; ``lengths`` in order of time, ns."""
    if len(lengths) < _LEAST_STEPS:
        return 0
    most = len(lengths) // 3
    later_lengths = lengths[most:]
    leading = lengths[:most] > max(_TIMES * float(np.median(later_lengths)), _TIMES_LONGEST * float(later_lengths.max()))
    return int(np.argmin(np.r_[leading, False]))


@rule(rests_on=(STEP_TIMES,))
def first_steps(facts: Facts) -> Iterator[Finding]:
    """The first recorded steps are not like the others: recording began before the program had warmed up.

    Leading steps, at most a third of all, that take twice the median of the rest and half as long again as any of it.

    They are a warm-up if they do work that no other step does, or take so much longer that no busy machine explains it. No time
    is saved: what is wrong are averages over all recorded steps, as other tools make them; figures here leave these steps out.
    """
    facts = facts.with_warm_up
    ordered = facts.steps.sort("start_ns")
    lengths = ordered["duration_ns"].to_numpy()
    count = warm_up(lengths)
    if not count:
        return
    steps = ordered["step"].to_list()[:count]
    leading, later_mean = float(lengths[:count].mean()), float(lengths[count:].mean())
    added = _added_work(facts, steps, leading - later_mean)
    if added is None and lengths[0] < _TIMES_SAME_WORK * lengths[count:].max():
        return
    excess = float(lengths.mean()) / later_mean - 1
    evidence = [
        Evidence("first_steps_take", leading, "ns", tuple(steps), per_step=False),
        Evidence("other_steps_take", later_mean, "ns", per_step=False),
        *([added] if added else []),
    ]
    values = {"count": count, "percent": round(100 * excess)}
    urgency = MEDIUM if excess >= _MISLEADING else LOW
    yield facts.make_finding(first_steps.name, evidence, confidence=0.9 if added else 0.6, values=values, urgency=urgency)


def _added_work(facts: Facts, steps: list[int], excess_ns: float) -> Evidence | None:
    """Calls of the first steps beyond the most that any other step makes of the same name; None where they explain nothing.

    ``excess_ns``: how much longer each of them takes than another step, mean.
    """
    counted = _complete_call_tables(facts)
    if not counted:
        return None
    calls = pl.concat([table.select("step", pl.col("name").cast(pl.String), ns=time) for table, time in counted])
    per_step = calls.group_by("step", "name").agg(calls=pl.len().cast(pl.Int64), ns=pl.col("ns").sum())
    first = pl.col("step").is_in(steps)
    most = per_step.filter(~first).group_by("name").agg(pl.col("calls", "ns").max().name.prefix("most_"))
    more = (
        per_step.filter(first)
        .join(most, on="name", how="left")
        .with_columns(pl.col("most_calls", "most_ns").fill_null(0))
        .filter(pl.col("calls") > pl.col("most_calls"))
        .group_by("name")
        .agg(calls=(pl.col("calls") - pl.col("most_calls")).sum(), ns=(pl.col("ns") - pl.col("most_ns")).sum())
        .sort("ns", "name", descending=[True, False])
    )
    usual = per_step.filter(~first).group_by("step").agg(pl.col("calls").sum())["calls"].to_numpy()
    number, spent = (float(more[column].to_numpy().sum()) / len(steps) for column in ("calls", "ns"))
    # where nothing of the others was recorded, there is nothing to compare with
    if not number or not len(usual) or (number < _WARM_UP_CALLS * float(np.median(usual)) and spent < _EXPLAINED * excess_ns):
        return None
    return Evidence("grew_work", number, "count", tuple(steps), tuple(more["name"].head(_NAMES)), per_step=False)


def _complete_call_tables(facts: Facts) -> list[tuple[pl.DataFrame, str]]:
    """Tables of calls and device tasks of which none was lost, each with its column of time."""
    tables = []
    if facts.trusts(OPERATOR_CALLS):
        # ranges of the program may have a name per step, as the steps themselves do
        tables.append((facts.named_calls.filter(pl.col("scope").fill_null(0) != SCOPE_USER), "self_ns"))
    if facts.trusts(RUNTIME_CALLS):
        tables.append((facts.runtime, "duration_ns"))
    if facts.device != CORE_CPU and facts.trusts(KERNEL_CALLS):
        tables.append((facts.tasks, "duration_ns"))
    return tables


#: an outlier is this much longer than the median, and by this many standard deviations (estimated by the median deviation)
_LONGER = 0.25
_DEVIATIONS = 5.0
_MOST_OUTLIERS = 1 / 3
#: what explains this part of the excess is the cause
_MAIN_PART = 0.6
#: outliers do more work when they make this many times the calls
_MORE_CALLS = 1.1
_PHASES = {"data_wait_ns": "grew_data", "python_ns": "grew_other"}
_SAME_WORK = "grew_same_work"


@rule(rests_on=(STEP_TIMES, STEP_PHASES, OPERATOR_CALLS))
def outlier_steps(facts: Facts, *, least_steps: int = 8, least_share: float = 0.03) -> Iterator[Finding]:
    """Some steps take much longer than the others; which part of them grew.

    How much longer the outliers are than the median step, spread over all steps.

    A cause is named when it accounts for most of it: collections of garbage, checkpoints, waiting for data, operators that
    other steps do not run, Python outside of forward, backward and optimizer. Steps in which the same work took longer say
    that something else had the machine; nothing is saved by changing the program then.
    """
    steps = facts.steps.sort("start_ns")
    steps = steps.slice(warm_up(steps["duration_ns"].to_numpy()))
    if steps.height < least_steps:
        return
    lengths = steps["duration_ns"].to_numpy()
    median = float(np.median(lengths))
    deviation = 1.4826 * float(np.median(np.abs(lengths - median)))
    long = lengths > median + max(_LONGER * median, _DEVIATIONS * deviation)
    excess = float((lengths[long] - median).sum())
    if not long.any() or long.mean() > _MOST_OUTLIERS or excess < least_share * float(lengths.sum()):
        return
    grown = {what: float((part[long] - np.median(part[~long])).sum()) for what, part in _times_by_cause(facts, steps).items()}
    cause = next((what for what, length in grown.items() if length >= _MAIN_PART * excess), "")
    if not cause:
        calls = _calls_per_step(facts, steps)
        cause = "grew_work" if calls[long].mean() >= _MORE_CALLS * calls[~long].mean() else _SAME_WORK
    per_step = excess / steps.height
    # one outlier may be an accident; other rules price what they see, and what is not the program's doing nothing saves
    at = np.flatnonzero(long)
    regular = len(at) > 2 and len(set(np.diff(at).tolist())) == 1
    sure = len(at) > 1 and (cause == "grew_work" or (cause == "grew_other" and regular))
    share = min(grown.get(cause, excess) / excess, 1.0)
    outliers = tuple(steps["step"].filter(pl.Series(long)).to_list())
    evidence = [
        Evidence("outliers_excess", per_step, "ns", outliers),
        Evidence(cause, grown.get(cause, excess) / int(long.sum()), "ns", outliers, per_step=False),
        Evidence("median_step", median, "ns", per_step=False),
    ]
    saving = Saving(0.0, 0.9 * share * per_step, per_step) if sure else None
    values = {"count": len(outliers), "of": steps.height, "times": round(float(lengths[long].mean()) / median, 1)}
    yield facts.make_finding(outlier_steps.name, evidence, saving, confidence=0.7 if sure else 0.4, values=values)


def _times_by_cause(facts: Facts, steps: pl.DataFrame) -> dict[str, Int64Array]:
    """Ns of every step by what may have grown, most specific first."""
    start = steps["start_ns"].to_numpy()
    end = start + steps["duration_ns"].to_numpy()
    collections = facts.trace.required("gc").select("start_ns", "end_ns").drop_nulls().collect()
    parts: dict[str, Int64Array] = {}
    for what, rows in (("grew_collections", collections), ("grew_checkpoints", facts.saves)):
        parts[what] = length_inside(merged(rows), start, end)
    return {**parts, **{what: steps[column].fill_null(0).to_numpy() for column, what in _PHASES.items()}}


def _calls_per_step(facts: Facts, steps: pl.DataFrame) -> Int64Array:
    """Number of calls in every step."""
    counts = facts.named_calls.group_by("step").agg(calls=pl.len().cast(pl.Int64))
    calls: Int64Array = steps.join(counts, on="step", how="left", maintain_order="left")["calls"].fill_null(0).to_numpy()
    return calls
