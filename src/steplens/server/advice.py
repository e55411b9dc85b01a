"""What to change, with the words of every language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import polars as pl
from fastapi import Query
from pydantic import BaseModel

from steplens.advice import Advice, Finding, advise
from steplens.advice.finding import Evidence, Stretch
from steplens.advice.prepare import keep_answers
from steplens.advice.texts import LANGUAGES
from steplens.advice.words import Words
from steplens.run import Run
from steplens.server.http import documented
from steplens.server.many.kept_route import kept_router
from steplens.server.requests import Chosen
from steplens.server.runs import OpenedRun
from steplens.server.tables import columns
from steplens.timeline.event_names import has_event
from steplens.trace import health_words
from steplens.trace.trace import Trace

router = kept_router("/api/runs/{run}", "advice")

#: of many ranks these many are searched for an event
_SEARCHED = 8


class SavingShown(BaseModel):
    """Time that a cure takes off a step, ns: at least, probably, at most."""

    low_ns: float
    likely_ns: float
    high_ns: float


class FindingText(BaseModel):
    """A finding in one language; ``patch`` is lines of a diff, or empty.

    ``likely``: on what the likely saving rests, in a clause, ``low`` and ``high``: on what the ends of its range do; or empty.
    """

    title: str
    cause: str
    remedy: str
    patch: str
    likely: str
    low: str
    high: str


class EventPlace(BaseModel):
    """A place of evidence that the timeline shows: the trace that has it, and the step where it is one.

    Events are named after it, or ``start_ns`` and ``end_ns`` (ns from the origin of the timeline) are the longest stretch of it.
    """

    place: str
    trace: int
    step: int | None
    start_ns: int | None = None
    end_ns: int | None = None


class EvidenceShown(BaseModel):
    """One measured fact; see ``advice.finding.Evidence``. ``words`` says in each language what it is.

    ``places_ns``: what each of ``places`` takes per step, ns, or empty, as ``places_count``, how often a step has each;
    ``whole_ns``: what their shares are of. ``other_places``: how many there are besides, which take ``other_places_ns``;
    ``other_most``: the most that a single one of these has, in the unit of ``value``, where together they are much.
    ``of_mean``: whether figures are of the mean step, else of a median one.
    ``events``: those of ``places`` that the timeline shows. Others are ranks, loaders, other findings.
    """

    what: str
    value: float | None
    unit: str
    per_step: bool
    of_mean: bool
    steps: list[int]
    places: list[str]
    places_ns: list[float]
    places_count: list[float]
    whole_ns: float
    other_places: int
    other_places_ns: float
    other_most: float
    events: list[EventPlace]
    words: dict[str, str]


class FindingShown(BaseModel):
    """One cause of lost time; see ``advice.finding.Finding``. ``share``: the likely saving as a share of ``step_ns``, 0 to 1.

    ``ranks``: on which of several ranks it was seen; empty where on all, or where the title names one. ``overlaps``: ids of
    findings that see the same time; ``after_ns``: of those of which it can be told, what this one is still likely to save once
    that one is cured; ``first``: of those that should be cured before it.
    ``at_stake``: the remedy finds the cause and saves nothing itself.
    """

    id: str
    rule: str
    subject: str
    level: str
    confidence: float
    share: float
    step_ns: float
    ranks: list[int]
    overlaps: list[str]
    after_ns: dict[str, float]
    first: list[str]
    at_stake: bool
    saving: SavingShown | None
    evidence: list[EvidenceShown]
    texts: dict[str, FindingText]


class SilencedShown(BaseModel):
    """A rule that did not judge, the conclusion that it rests on, and why that is unsafe; ``texts``: in other languages."""

    rule: str
    conclusion: str
    reason: str
    texts: dict[str, str]


Together = Annotated[str, documented.as_type(Literal["", "overlap", "bounded"])]
#: findings that save less together than this share of the sum of what each saves have a bound that says something
_BOUNDED = 0.99


class AdviceShown(BaseModel):
    """All findings, what attacks the verdict first, and what could not be judged.

    ``step_ns`` is the step time of the run, ``together_ns`` what all findings save of it together at most,
    ``likely_together_ns`` probably; ``together`` and ``at_stake``: what there is to say of that (``together_of``).
    """

    step_ns: float
    together_ns: float
    likely_together_ns: float
    together: Together
    at_stake: bool
    findings: list[FindingShown]
    silenced: list[SilencedShown]


def advise_on_run(shown: OpenedRun) -> Advice:
    """The advice about a run, worked out once."""
    return shown.answer(("advice",), lambda: _advise_and_keep(shown))


def advise_on_run_within(shown: OpenedRun, seconds: float) -> Advice | None:
    """The advice about a run if it is there within some seconds; None otherwise, and it goes on being worked out."""
    all_advice: Advice | None = shown.soon(("advice",), lambda: _advise_and_keep(shown), seconds)
    return all_advice


def _advise_and_keep(shown: OpenedRun) -> Advice:
    judgement = advise(shown.run)
    # for the next time that somebody opens the run
    keep_answers(shown.run)
    return judgement


def _advise_on_trace(shown: OpenedRun, number: int) -> Advice:
    trace = shown.trace(number)
    alone = Run(trace.source, [(shown.run.sources[number], trace)], [])
    return shown.answer(("advice", number), lambda: advise(alone))


@router.get("/advice")
def advice(
    chosen: Chosen,
    trace: Annotated[int | None, Query(ge=0, le=1 << 31, description="as if the run had only this trace")] = None,
) -> AdviceShown:
    """What to change, in all languages."""
    judgement = advise_on_run(chosen) if trace is None else _advise_on_trace(chosen, trace)
    traces = dict(enumerate(chosen.run.traces)) if trace is None else {trace: chosen.trace(trace)}
    return AdviceShown(
        step_ns=judgement.step_ns,
        together_ns=judgement.together_ns,
        likely_together_ns=judgement.likely_together_ns,
        together=together_of(judgement.findings, judgement.together_ns),
        at_stake=any_at_stake(judgement.findings),
        findings=[finding_shown(item, traces, chosen.origins) for item in judgement.findings],
        silenced=[
            SilencedShown(
                **vars(item), texts={language: Words(language).health_message(item.reason) for language in health_words.LANGUAGES}
            )
            for item in judgement.silenced
        ],
    )


def together_of(findings: Sequence[Finding], together_ns: float) -> str:
    """What all findings of a run, not only those that a page shows, let say of what they save together.

    Args:
        findings: all of them.
        together_ns: what they save together at most.

    Returns:
        "bounded" where that is less than the sum of what each saves, or where it is told what is left of one after another;
        "overlap" where it is not and some of them see the same time; "" where a sum says it, or fewer than two have a price.
    """
    priced = [finding for finding in findings if finding.saving is not None]
    if len(priced) < 2:
        return ""
    sum_ns = sum(finding.saving.high_ns for finding in priced if finding.saving is not None and not finding.at_stake)
    if together_ns < _BOUNDED * sum_ns or any(finding.after_ns for finding in priced):
        return "bounded"
    return "overlap" if any(finding.overlaps for finding in priced) else ""


def any_at_stake(findings: Sequence[Finding]) -> bool:
    """Whether a finding names time whose cause is still to be found, which counts into no sum."""
    return any(finding.at_stake and finding.saving is not None for finding in findings)


def finding_shown(finding: Finding, traces: Mapping[int, Trace] | None = None, origins: Sequence[int] = ()) -> FindingShown:
    """A finding with its words.

    Args:
        finding: the finding.
        traces: where to look for the events that its evidence names, by number; nowhere by default.
        origins: per trace the time from which its moments are told.
    """
    words = {language: Words(language) for language in LANGUAGES}
    identity = ("id", "rule", "subject", "level", "confidence", "share", "step_ns", "ranks")
    shared = (*identity, "overlaps", "after_ns", "first", "at_stake", "saving")
    evidence = [
        {
            **vars(item),
            "value": columns.json_value(float(item.value)),
            "events": _event_places(finding, item, traces or {}) + _stretch_places(item, traces or {}, origins),
            "words": {language: catalogue.evidence(item.what) for language, catalogue in words.items()},
        }
        for item in finding.evidence
    ]
    texts = {language: catalogue.of(finding) for language, catalogue in words.items()}
    values = {**{name: getattr(finding, name) for name in shared}, "evidence": evidence, "texts": texts}
    if "rank" in finding.values:
        # its title names the rank, and what is saved is the others' wait
        values["ranks"] = ()
    return FindingShown.model_validate(values, from_attributes=True)


def _event_places(finding: Finding, evidence: Evidence, traces: Mapping[int, Trace]) -> list[dict[str, str | int | None]]:
    """The places of evidence after which events are named, with the first trace of its ranks that has one."""
    ranks = {rank for rank in (trace.rank for trace in traces.values()) if f"rank {rank}" in evidence.places} or finding.ranks
    searched = [number for number, trace in traces.items() if not ranks or trace.rank in ranks][:_SEARCHED]
    step = evidence.steps[0] if len(evidence.steps) == 1 else None
    events: list[dict[str, str | int | None]] = []
    for place in evidence.places:
        number = next((number for number in searched if has_event(traces[number], place)), None)
        if number is not None:
            events.append({"place": place, "trace": number, "step": step})
    return events


def _stretch_places(evidence: Evidence, traces: Mapping[int, Trace], origins: Sequence[int]) -> list[dict[str, str | int | None]]:
    """The stretches of evidence, each with the trace of its rank that has its step then."""
    events: list[dict[str, str | int | None]] = []
    for place, stretch in zip(evidence.places, evidence.stretches, strict=False):
        for number, trace in traces.items():
            if trace.rank == stretch.rank and _holds(trace, stretch) and number < len(origins):
                start_ns, end_ns = stretch.start_ns - origins[number], stretch.end_ns - origins[number]
                events.append({"place": place, "trace": number, "step": stretch.step, "start_ns": start_ns, "end_ns": end_ns})
                break
    return events


def _holds(trace: Trace, stretch: Stretch) -> bool:
    """Whether a trace, of several windows of a rank, is the one that a stretch lies in."""
    steps = trace.required("steps").filter(pl.col("id") == stretch.step)
    return bool(steps.filter(pl.col("end_ns") > stretch.start_ns, pl.col("start_ns") < stretch.end_ns).collect().height)
