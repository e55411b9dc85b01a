"""Two runs side by side: how long a step takes, where the difference lies, and what became of the advice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import polars as pl
from fastapi import Query
from pydantic import BaseModel

from steplens.advice.compare import compare as compare_advice
from steplens.analysis.device.kernels import kernel_statistics
from steplens.analysis.operators.common_calls import are_unlike, common_share
from steplens.analysis.operators.operators import operators
from steplens.analysis.steps.times import chosen_step_times
from steplens.comparison.names import Statistics, join_by_name, sum_per_step
from steplens.server import advice, overview
from steplens.server.advice import FindingShown
from steplens.server.http.errors import path_text
from steplens.server.http.routing import create_router
from steplens.server.requests import Runs
from steplens.server.runs import OpenedRun
from steplens.server.tables import columns, tables
from steplens.trace.building.devices import device_kind

router = create_router("/api/compare", "compare")

#: with fewer steps quarters of them tell nothing
_LEAST_STEPS = 4

_Number = Annotated[int, Query(ge=0, le=1 << 31)]


class Side(BaseModel):
    """One of the two: its number, how many steps figures are of, the median step time, and its parts in ns, which are means.

    ``p25_ns`` and ``p75_ns``: the middle half of the steps lies between them; null for fewer than four. ``ranks``: how many were
    recorded. ``devices``: what computes, such as "CUDA". ``peak_bytes``: most memory allocated on one device of a rank; null
    where memory was not recorded. ``figures``: which steps all of this is of, and what the parts add up to.
    """

    run: int
    path: str
    steps: int
    step_ns: float | None
    p25_ns: float | None
    p75_ns: float | None
    ranks: int
    devices: list[str]
    parts: dict[str, float]
    figures: overview.StepFigures
    peak_bytes: int | None


class Comparison(BaseModel):
    """What changed.

    Attributes:
        before: the earlier run.
        after: the later run.
        within_spread: whether the median step of one of them lies in the middle half of the other's steps, so that the difference
            is no larger than steps of a run differ by themselves; null where one has fewer than four.
        common_share: the share of a step's operator calls that go to the same operators in both: the sum over names of the
            smaller of both shares of calls, 0 to 1; null where one has none.
        unlike: whether less than half of the calls are common: runs of two programs, whose ratios tell nothing.
        operators: per name: calls and self_ns per chosen step of each run (``before_calls``, ``after_self_ns`` ...; null where
            a run has none of it) and difference_ns (after - before, what is missing counts as 0); the largest change first.
        different: how many names there are.
        parts: what became of each part of a step: part, before_ns, after_ns, difference_ns; null where a run has none of it.
        tasks: the same as ``operators`` for device tasks: ``before_calls``, ``after_total_ns`` ..., the largest change first.
        different_tasks: how many names of them there are.
        cured: findings that only the earlier run has; none where the runs are unlike, as of the next two.
        remaining: findings of both.
        new: findings that only the later run has.
        promised_ns: what curing the cured ones was expected to save per step; 0 where the runs are unlike, or ran on other
            devices or another number of ranks, so that something else than a cure made findings come and go.
    """

    before: Side
    after: Side
    within_spread: bool | None
    common_share: float | None
    unlike: bool
    operators: list[dict[str, Any]]
    different: int
    parts: list[dict[str, Any]]
    tasks: list[dict[str, Any]]
    different_tasks: int
    cured: list[FindingShown]
    remaining: list[FindingShown]
    new: list[FindingShown]
    promised_ns: float


@router.get("")
def compare(runs: Runs, before: _Number = 0, after: _Number = 1, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Comparison:
    """Two of the runs, such as before and after a change of the program."""
    first, second = runs.shown(before), runs.shown(after)
    sides = _summarize_side(first), _summarize_side(second)
    calls = _compare_by_name((first, second), operators, "calls", "self_ns")
    tasks = _compare_by_name((first, second), kernel_statistics, "count", "total_ns")
    share = common_share(calls)
    unlike = are_unlike(share)
    ran_alike = all(getattr(sides[0], name) == getattr(sides[1], name) for name in ("ranks", "devices"))
    change = compare_advice(advice.advise_on_run(first), advice.advise_on_run(second))
    findings: dict[str, list[FindingShown]] = {"cured": [], "remaining": [], "new": []}
    if not unlike:
        findings = {name: [advice.finding_shown(finding) for finding in getattr(change, name)] for name in findings}
    return Comparison(
        before=sides[0],
        after=sides[1],
        within_spread=_is_within_spread(*sides),
        common_share=share,
        unlike=unlike,
        operators=columns.json_records(calls.head(limit)),
        different=calls.height,
        parts=_compare_parts(*sides),
        tasks=columns.json_records(tasks.head(limit)),
        different_tasks=tasks.height,
        promised_ns=change.promised_ns if ran_alike and not unlike else 0.0,
        **findings,
    )


def _summarize_side(chosen: OpenedRun) -> Side:
    summary = chosen.answer(("verdict",), chosen.run.verdict).summary
    peak = tables.table_frame(chosen, "memory")["peak_allocated"].max()
    traces = chosen.run.traces
    lengths = pl.concat([chosen_step_times(trace)["step_time_ns"] for trace in traces])
    quartiles = [lengths.quantile(part, "linear") if lengths.len() >= _LEAST_STEPS else None for part in (0.25, 0.75)]
    return Side(
        run=chosen.id,
        path=path_text(chosen.path),
        steps=summary.steps,
        step_ns=summary.step_time_ns,
        p25_ns=quartiles[0],
        p75_ns=quartiles[1],
        ranks=len(traces),
        devices=sorted({device_kind(trace) for trace in traces}),
        parts=overview.step_parts(summary),
        figures=overview.step_figures(summary),
        peak_bytes=peak if isinstance(peak, int) else None,
    )


def _is_within_spread(before: Side, after: Side) -> bool | None:
    """Whether one median lies in the middle half of the other's steps."""
    is_inside = []
    for side, beside in ((before, after), (after, before)):
        if side.step_ns is None or beside.p25_ns is None or beside.p75_ns is None:
            return None
        is_inside.append(beside.p25_ns <= side.step_ns <= beside.p75_ns)
    return any(is_inside)


def _compare_parts(before: Side, after: Side) -> list[dict[str, Any]]:
    """Every part that one of the runs has, in the order of the step's parts."""
    names = list(dict.fromkeys([*before.parts, *after.parts]))
    both = [(name, before.parts.get(name), after.parts.get(name)) for name in names]
    return [
        {"part": name, "before_ns": first, "after_ns": second, "difference_ns": (second or 0) - (first or 0)}
        for name, first, second in both
    ]


def _compare_by_name(both: Sequence[OpenedRun], statistics: Statistics, calls: str, time: str) -> pl.DataFrame:
    """``names.compare_by_name`` of two runs; what is summed of each is kept."""
    before, after = (
        run.frame(("compare", statistics), partial(sum_per_step, run.run.traces, statistics, calls, time)) for run in both
    )
    return join_by_name(before, after, time)
