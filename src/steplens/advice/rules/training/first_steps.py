"""The first recorded steps are not like the others: recording began before the program had warmed up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, MEDIUM, Evidence, Finding
from steplens.advice.rule import Rule
from steplens.analysis.tools.overlap import Int64Array
from steplens.trace.health import KERNEL_CALLS, OPERATOR_CALLS, RUNTIME_CALLS, STEP_TIMES
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
_MORE_CALLS = 0.1
_EXPLAINED = 0.5
_NAMES = 3
#: averages that are wrong by this share mislead
_MISLEADING = 0.1


def warm_up(lengths: Int64Array) -> int:
    """How many of the first steps are no steps like the others; ``lengths`` in order of time, ns."""
    if len(lengths) < _LEAST_STEPS:
        return 0
    most = len(lengths) // 3
    rest = lengths[most:]
    leading = lengths[:most] > max(_TIMES * float(np.median(rest)), _TIMES_LONGEST * float(rest.max()))
    return int(np.argmin(np.r_[leading, False]))


def judge(facts: Facts) -> Iterator[Finding]:
    """Leading steps, at most a third of all, that take twice the median of the rest and half as long again as any of it.

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
    leading, others = float(lengths[:count].mean()), float(lengths[count:].mean())
    added = _added(facts, steps, leading - others)
    if added is None and lengths[0] < _TIMES_SAME_WORK * lengths[count:].max():
        return
    excess = float(lengths.mean()) / others - 1
    yield Finding(
        rule=RULE.name,
        confidence=0.9 if added else 0.6,
        evidence=(
            Evidence("first_steps_take", leading, "ns", tuple(steps), per_step=False),
            Evidence("other_steps_take", others, "ns", per_step=False),
            *([added] if added else []),
        ),
        step_ns=facts.step_ns,
        values={"count": count, "percent": round(100 * excess)},
        urgency=MEDIUM if excess >= _MISLEADING else LOW,
    )


def _added(facts: Facts, steps: list[int], excess_ns: float) -> Evidence | None:
    """Calls of the first steps beyond the most that any other step makes of the same name; None where they explain nothing.

    Args:
        facts: of the trace.
        steps: numbers of the first steps.
        excess_ns: how much longer each of them takes than another step, mean.
    """
    counted = _counted(facts)
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
    if not number or not len(usual) or (number < _MORE_CALLS * float(np.median(usual)) and spent < _EXPLAINED * excess_ns):
        return None
    return Evidence("grew_work", number, "count", tuple(steps), tuple(more["name"].head(_NAMES)), per_step=False)


def _counted(facts: Facts) -> list[tuple[pl.DataFrame, str]]:
    """Tables of calls and device tasks of which none was lost, each with its column of time."""
    found = []
    if facts.trusts(OPERATOR_CALLS):
        # ranges of the program may have a name per step, as the steps themselves do
        found.append((facts.named_calls.filter(pl.col("scope").fill_null(0) != SCOPE_USER), "self_ns"))
    if facts.trusts(RUNTIME_CALLS):
        found.append((facts.runtime, "duration_ns"))
    if facts.device != CORE_CPU and facts.trusts(KERNEL_CALLS):
        found.append((facts.tasks, "duration_ns"))
    return found


RULE = Rule("first_steps", judge, (STEP_TIMES,))
