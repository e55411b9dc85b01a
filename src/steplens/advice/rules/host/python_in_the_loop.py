"""The step's thread runs Python, and nothing else, while no operator works: metrics, logging, waiting, reading files."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.analysis.steps.work import computing_tasks
from steplens.analysis.tools.names import containing, of_calls
from steplens.analysis.tools.overlap import Int64Array, Intervals, merge_intervals, merged, subtract
from steplens.trace.health import OPERATOR_CALLS, OPERATOR_TIMES, STEP_DEVICE_TIMES
from steplens.trace.schema import CORE_CPU, DATALOADER_PREFIX, SCOPE_BACKWARD, SCOPE_FUNCTION, SCOPE_USER

#: Python between two operators takes some 10 us as a rule; this long it does something of its own
_LEAST_NS = 1_000_000
_LEAST_SHARE = 0.05
#: what stays of the work when it is done elsewhere: handing it over
_REMAINING = 0.05
#: gaps whose frames are looked up, the longest first
_NAMED = 50
#: the loader's and the optimizer's ranges; Optimizer.closure is the program's own
_RANGES = rf"^{re.escape(DATALOADER_PREFIX)}|^Optimizer\.(step|zero_grad)#"


def judge(facts: Facts) -> Iterator[Finding]:
    """Stretches of a step of 1 ms or more in which no thread of the process is in an operator, and nobody loads data.

    Of the stretches between one operator and another the median over all steps counts, which is 0 where fewer than half of
    the steps have one: what happens now and then is as likely the doing of another process, which had the processor.
    Optimizers, collections of garbage, communication and checkpoints do not count; they have rules of their own. Where there
    is an accelerator, only the time in which it is idle does.
    """
    if not facts.step_ns or not facts.names.str.starts_with("aten::").any():
        return
    start = facts.steps["start_ns"].to_numpy()
    whole = merge_intervals(start, start + facts.steps["duration_ns"].to_numpy())
    gaps = subtract(whole, _busy(facts))
    if gaps.length_ns < _LEAST_SHARE * facts.step_ns * facts.steps.height:
        return
    gaps = _long(gaps)
    if len(gaps.start) and facts.device != CORE_CPU:
        tasks = computing_tasks(facts.trace).select("start_ns", "end_ns").collect()
        gaps = _long(subtract(gaps, merged(tasks)))
    if not len(gaps.start):
        return
    stretches = _stretches(facts, gaps)
    total = float(stretches.group_by("before", "after").agg(pl.col("median_ns").first())["median_ns"].sum())
    if total < _LEAST_SHARE * facts.step_ns:
        return
    likely = (1 - _REMAINING) * total
    yield Finding(
        rule=RULE.name,
        confidence=0.7,
        evidence=(
            Evidence("python_alone", total, "ns", tuple(sorted(set(stretches["step"].to_list()))), _places(facts, stretches)),
            Evidence("stretches", stretches.height / facts.steps.height, "count"),
        ),
        saving=Saving(total / 2, likely, total),
        step_ns=facts.step_ns,
        part="" if facts.device == CORE_CPU else "idle_ns",
    )


def _long(gaps: Intervals) -> Intervals:
    """Those of 1 ms or more."""
    long = gaps.end - gaps.start >= _LEAST_NS
    return Intervals(gaps.start[long], gaps.end[long])


def _stretches(facts: Facts, gaps: Intervals) -> pl.DataFrame:
    """Those of some long gaps that half of the steps have at the same place.

    Returns:
        start_ns, end_ns, step, before and after (names of the calls around it), median_ns (of its place, over all steps).
    """
    start, end = gaps
    scope, steps = pl.col("scope"), facts.steps.sort("start_ns")
    calls = facts.named_calls.filter(scope.is_in([SCOPE_FUNCTION, SCOPE_BACKWARD])).select("name", "start_ns", "end_ns")
    by_end, by_start = (np.argsort(calls[column].to_numpy(), kind="stable") for column in ("end_ns", "start_ns"))
    before = np.searchsorted(calls["end_ns"].to_numpy()[by_end], start, side="right") - 1
    after = np.searchsorted(calls["start_ns"].to_numpy()[by_start], end, side="left")

    def names(order: Int64Array, place: Int64Array) -> pl.Series:
        known = (place >= 0) & (place < calls.height)
        rows = order[np.where(known, place, 0)] if calls.height else place
        found: pl.Series = calls["name"].gather(pl.Series(rows).set(pl.Series(~known), None)).cast(pl.String)
        return found

    step = np.searchsorted(steps["start_ns"].to_numpy(), start, side="right") - 1
    found = pl.DataFrame(
        {
            "start_ns": start,
            "end_ns": end,
            "step": steps["step"].gather(step),
            "before": names(by_end, before),
            "after": names(by_start, after),
        }
    )
    place = ["before", "after"]
    each = found.group_by(*place, "step").agg(length=(pl.col("end_ns") - pl.col("start_ns")).sum())
    # steps without a stretch there count as 0
    missing = facts.steps.height - pl.len()
    medians = each.group_by(place).agg(pl.col("length"), missing=missing.cast(pl.Int64))
    zeros = pl.lit(0, dtype=pl.Int64).repeat_by("missing")
    medians = medians.select(*place, median_ns=pl.concat_list("length", zeros).list.median())
    return found.join(medians, on=place, nulls_equal=True).filter(pl.col("median_ns") > 0)


def _busy(facts: Facts) -> Intervals:
    """When an operator, the loader, the collector, communication or a checkpoint had the process."""
    trace = facts.trace
    times = ("start_ns", "end_ns")
    ops = trace.required("ops")
    calls = ops.filter(pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD]))
    ranges = ops.filter(pl.col("scope") == SCOPE_USER).filter(pl.col("name").is_in(containing(of_calls(trace), _RANGES)))
    tables = (calls, ranges, *(table for name in ("gc", "communication") if (table := trace.lazy(name)) is not None))
    return merged(pl.concat([*[table.select(times) for table in tables], facts.saves.lazy()]).drop_nulls().collect())


def _places(facts: Facts, stretches: pl.DataFrame) -> tuple[str, ...]:
    """The Python frames that most of the time passed in; without recorded frames the operators after which it passed."""
    longest = stretches.sort(pl.col("start_ns") - pl.col("end_ns"), "start_ns").head(_NAMED)
    python = facts.on_threads(facts.trace.required("python"))
    frames = python.select(pl.col("name").cast(pl.String), "start_ns", "end_ns").collect()
    spent: dict[str, int] = {}
    for begin, end, before in longest.select("start_ns", "end_ns", "before").iter_rows():
        middle = (begin + end) // 2
        around = frames.filter((pl.col("start_ns") <= middle) & (pl.col("end_ns") > middle)).sort("start_ns")
        lines = [text for text in around["name"].to_list() if ".py(" in text]
        inner = around["name"].to_list()[-1:]
        # a built-in function says what, and the frame around it where
        frame = ", ".join(dict.fromkeys([*lines[-1:], *inner]))
        place = frame or (f"after {before}" if before else "")
        spent[place] = spent.get(place, 0) + end - begin
    return tuple(place for place in sorted(spent, key=lambda place: -spent[place])[:3] if place)


RULE = Rule(
    "python_in_the_loop",
    judge,
    # of an accelerator that was not recorded nobody knows that it was idle meanwhile
    (OPERATOR_CALLS, OPERATOR_TIMES, STEP_DEVICE_TIMES),
    explains=("device_waits_for_host", "outlier_steps"),
)
