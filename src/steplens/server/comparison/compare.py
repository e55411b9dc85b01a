"""Two runs compared: whether a step became longer, how sure that is, where the time went, and what became of the advice.

All figures and their intervals are those of ``steplens.comparison``, which the terminal shows as well.
"""

from __future__ import annotations

from typing import Annotated, Literal

import polars as pl
from fastapi import Query
from pydantic import BaseModel, ConfigDict

from steplens.advice.compare import compare as compare_advice
from steplens.analysis.operators.common_calls import are_unlike, common_share
from steplens.analysis.steps.times import DEVICE_PARTS
from steplens.comparison.causes.cause import DEVICE
from steplens.comparison.causes.sentences import state_cause
from steplens.comparison.comparison import LEAST_CHANGE, Comparison, PartChange, compare_parts, compare_sides
from steplens.comparison.item_times import SELF, TASK
from steplens.comparison.operator_steps import compare_operator
from steplens.comparison.side import Side
from steplens.server import advice
from steplens.server.advice import FindingShown
from steplens.server.comparison import call_trees, spreads
from steplens.server.comparison.call_trees import ComparedCalls
from steplens.server.comparison.sides import find_side
from steplens.server.comparison.spreads import StepSpread
from steplens.server.http import documented
from steplens.server.http.errors import path_text
from steplens.server.http.routing import create_router
from steplens.server.requests import Runs
from steplens.server.runs import OpenedRun
from steplens.trace.building.devices import device_kind
from steplens.trace.health_words import LANGUAGES, translate_message

router = create_router("/api/compare", "compare")

_Number = Annotated[int, Query(ge=0, le=1 << 31)]


class ComparedSide(BaseModel):
    """One of the sides.

    Attributes:
        run: its number.
        path: what was opened.
        recordings: how often the program ran.
        steps: over how many steps, those of all recordings.
        step_ns: the usual step: the median of each recording, over several their geometric mean; null without steps.
        medians_ns: of each recording.
        spread: how the steps spread; null without any.
        ranks: on how many ranks it ran.
        devices: what computes, such as "CUDA".
        peak_bytes: most memory allocated on one device; null where memory was not recorded.
    """

    run: int
    path: str
    recordings: int
    steps: int
    step_ns: float | None
    medians_ns: list[float]
    spread: StepSpread | None
    ranks: int
    devices: list[str]
    peak_bytes: int | None


class StepChange(BaseModel):
    """What became of the step time; see ``comparison.comparison.StepChange``.

    ``low`` and ``high`` are the ends of the interval of 95 %; a change of less than ``least_change`` is of no interest.
    """

    ratio: float
    low: float
    high: float
    verdict: Annotated[str, documented.as_type(Literal["slower", "faster", "alike", "cannot tell"])]
    runs_needed: int | None
    least_change: float


class ComparedPart(BaseModel):
    """What became of a part of the step; see ``comparison.comparison.PartChange``."""

    model_config = ConfigDict(from_attributes=True)

    part: str
    before_ns: float
    after_ns: float
    difference_ns: float
    error_ns: float | None
    share: float | None


class ComparedCause(BaseModel):
    """One cause of the change of a step; see ``comparison.causes.cause.Cause``. ``texts``: language -> what it is."""

    texts: dict[str, str]
    before_ns: float
    after_ns: float
    difference_ns: float
    error_ns: float | None
    share: float | None


class ComparedCauses(BaseModel):
    """What explains the change of a step; see ``comparison.causes.cause.Causes``.

    Attributes:
        side: whose time it is.
        causes: those beyond chance, or all where there are none; the largest first.
        more: how many more causes there are.
        more_certain: how many of these are beyond chance; null where there are too few steps to tell.
        others_ns: what these and all that no cause names differ by.
        explained: the share of the change that the causes beyond chance make up, 0 to 1; null where the step hardly changed.
    """

    side: Literal["host", "device"]
    causes: list[ComparedCause]
    more: int
    more_certain: int | None
    others_ns: float
    explained: float | None


class ComparedName(BaseModel):
    """What became of a name per step: null where a side has none of it.

    ``error_ns``: half of the interval of 95 % of the difference; null where a side has too few steps to tell.
    """

    name: str
    before_calls: float | None
    after_calls: float | None
    before_ns: float | None
    after_ns: float | None
    difference_ns: float
    error_ns: float | None


class ComparedPath(BaseModel):
    """What became of the device time launched at a call path that both sides have; see ``comparison.call_tree.ROWS``."""

    name: str
    path: str
    module: str
    before_ns: float
    after_ns: float
    difference_ns: float
    before_launched_by: str
    after_launched_by: str


class ComparedRuns(BaseModel):
    """What changed; times are per step.

    Attributes:
        before: the earlier side.
        after: the later side.
        step: what became of the step time; null where a side has too few steps to tell.
        causes: what explains the change; null where neither calls nor tasks of both sides tell.
        parts: of the parts that add up to the step, the largest change first; none where they are not known.
        device_parts: the same of the device, whose period they add up to, where there is an accelerator and ``parts`` are of the
            host.
        operators: those whose self time changed the most, the largest change first.
        different: how many names of operators there are.
        tasks: the same of device tasks; none where there is no accelerator.
        different_tasks: how many names of them there are.
        device_time: device time by call path, the largest change first; none where there is no accelerator.
        matched: the share of device time that lies on paths of both sides; null without device time of operators.
        calls_of: what ``/api/compare/calls`` can be asked for.
        doubts: what makes the comparison doubtful: language -> sentence.
        common_share: the share of a step's operator calls that go to the same operators in both: the sum over names of the
            smaller of both shares of calls, 0 to 1; null where one has none.
    """

    before: ComparedSide
    after: ComparedSide
    step: StepChange | None
    causes: ComparedCauses | None
    parts: list[ComparedPart]
    device_parts: list[ComparedPart]
    operators: list[ComparedName]
    different: int
    tasks: list[ComparedName]
    different_tasks: int
    device_time: list[ComparedPath]
    matched: float | None
    calls_of: list[Literal["host", "device"]]
    doubts: list[dict[str, str]]
    common_share: float | None


class ComparedFindings(BaseModel):
    """What became of the findings of the advice.

    Attributes:
        cured: findings that only the earlier run has; none where the runs are of two programs, as of the next two.
        remaining: findings of both.
        new: findings that only the later run has.
        promised_ns: what curing the cured ones was expected to save per step; 0 where the runs are of two programs, or ran on
            other devices or another number of ranks, so that something else than a cure made findings come and go.
    """

    cured: list[FindingShown]
    remaining: list[FindingShown]
    new: list[FindingShown]
    promised_ns: float


@router.get("")
def compare_two(
    runs: Runs, before: _Number = 0, after: _Number = 1, limit: Annotated[int, Query(ge=1, le=1000)] = 25
) -> ComparedRuns:
    """Two of the runs, such as before and after a change of the program; ``limit``: names and paths to answer with."""
    first, second = runs.shown(before), runs.shown(after)
    comparison = _compare_two(first, second)
    has_device = comparison.before.has_device or comparison.after.has_device
    is_of_host = not any(part.part in DEVICE_PARTS for part in comparison.parts)
    device_parts: tuple[PartChange, ...] = ()
    if has_device and is_of_host:
        device_parts = compare_parts(comparison.before, comparison.after, DEVICE_PARTS, of_step=False)
    return ComparedRuns(
        before=_describe_side(first, comparison.before),
        after=_describe_side(second, comparison.after),
        step=_describe_step(comparison),
        causes=_describe_causes(comparison, limit),
        parts=_describe_parts(comparison.parts),
        device_parts=_describe_parts(device_parts),
        operators=_describe_names(comparison, comparison.operators, "self_ns", SELF, limit),
        different=comparison.operators.height,
        tasks=_describe_names(comparison, comparison.tasks, "total_ns", TASK, limit),
        different_tasks=comparison.tasks.height,
        device_time=[ComparedPath(**row) for row in comparison.device_time.rows.head(limit).iter_rows(named=True)],
        matched=comparison.device_time.matched,
        calls_of=["host", "device"] if comparison.device_time.rows.height else ["host"],
        doubts=[_in_languages(sentence) for sentence in comparison.doubts],
        common_share=common_share(comparison.operators),
    )


@router.get("/calls")
def compare_calls(
    runs: Runs,
    before: _Number = 0,
    after: _Number = 1,
    of: Literal["host", "device"] = "host",
    limit: Annotated[int, Query(ge=1, le=5000)] = 800,
) -> ComparedCalls:
    """The calls of both runs by call path, per step, as one tree.

    ``of``: "host", the time of the calls, or "device", the time of what they launched. ``limit``: calls to answer with, those
    that take the most.
    """
    comparison = _compare_two(runs.shown(before), runs.shown(after))
    return call_trees.merge_call_paths(comparison.before.figures.call_paths, comparison.after.figures.call_paths, of, limit)


@router.get("/findings")
def compare_findings(runs: Runs, before: _Number = 0, after: _Number = 1) -> ComparedFindings:
    """What became of the findings of the advice between two of the runs."""
    first, second = runs.shown(before), runs.shown(after)
    change = compare_advice(advice.advise_on_run(first), advice.advise_on_run(second))
    if are_unlike(_compare_two(first, second).operators):
        return ComparedFindings(cured=[], remaining=[], new=[], promised_ns=0.0)
    ran_alike = _devices_of(first) == _devices_of(second) and len(first.run.traces) == len(second.run.traces)
    return ComparedFindings(
        cured=[advice.finding_shown(finding) for finding in change.cured],
        remaining=[advice.finding_shown(finding) for finding in change.remaining],
        new=[advice.finding_shown(finding) for finding in change.new],
        promised_ns=change.promised_ns if ran_alike else 0.0,
    )


def _compare_two(before: OpenedRun, after: OpenedRun) -> Comparison:
    """The comparison of two runs, worked out once."""
    key = ("comparison", after.id, after.generation)
    return before.answer(key, lambda: compare_sides(find_side(before), find_side(after)))


def _describe_side(chosen: OpenedRun, side: Side) -> ComparedSide:
    return ComparedSide(
        run=chosen.id,
        path=path_text(chosen.path),
        recordings=len(side.recordings),
        steps=side.step_count,
        step_ns=side.step_ns,
        medians_ns=spreads.median_steps(side),
        spread=spreads.spread_of_steps(side),
        ranks=len(side.circumstances.ranks),
        devices=_devices_of(chosen),
        peak_bytes=max((peak for peak in side.figures.memory_peaks if peak is not None), default=None),
    )


def _devices_of(chosen: OpenedRun) -> list[str]:
    return sorted({device_kind(trace) for trace in chosen.run.traces})


def _describe_step(comparison: Comparison) -> StepChange | None:
    step = comparison.step
    if step is None:
        return None
    return StepChange(
        ratio=step.ratio,
        low=step.low,
        high=step.high,
        verdict=step.step_verdict,
        runs_needed=step.runs_needed,
        least_change=LEAST_CHANGE,
    )


def _describe_causes(comparison: Comparison, limit: int) -> ComparedCauses | None:
    causes = comparison.causes
    if causes is None:
        return None
    told_causes = causes.shown_first(limit)
    more, more_certain = causes.count_others(limit)
    return ComparedCauses(
        side="device" if causes.side == DEVICE else "host",
        causes=[
            ComparedCause(
                texts={language: state_cause(cause, language) for language in ("en", *LANGUAGES)},
                before_ns=cause.before_ns,
                after_ns=cause.after_ns,
                difference_ns=cause.difference_ns,
                error_ns=cause.error_ns,
                share=cause.share,
            )
            for cause in told_causes
        ],
        more=more,
        more_certain=more_certain,
        others_ns=causes.change_ns - sum(cause.difference_ns for cause in told_causes),
        explained=causes.explained,
    )


def _describe_parts(parts: tuple[PartChange, ...]) -> list[ComparedPart]:
    return [ComparedPart.model_validate(part) for part in parts]


def _describe_names(comparison: Comparison, rows: pl.DataFrame, column: str, time: str, limit: int) -> list[ComparedName]:
    """The first rows of ``names.join_by_name``, with intervals.

    Args:
        comparison: whose rows they are.
        rows: the largest change first.
        column: of times.
        time: what is sampled of each step: SELF of operators, TASK of device tasks.
        limit: how many to describe.
    """
    return [
        ComparedName(
            name=row["name"],
            before_calls=row["before_calls"],
            after_calls=row["after_calls"],
            before_ns=row[f"before_{column}"],
            after_ns=row[f"after_{column}"],
            difference_ns=row["difference_ns"],
            error_ns=_error_of(comparison, row["name"], time),
        )
        for row in rows.head(limit).iter_rows(named=True)
    ]


def _error_of(comparison: Comparison, name: str, time: str) -> float | None:
    difference = compare_operator(comparison.before, comparison.after, name, time).difference
    return None if difference is None else difference.error


def _in_languages(sentence: str) -> dict[str, str]:
    return {"en": sentence, **{language: translate_message(sentence, language) for language in LANGUAGES}}
