"""What to change, with the words of every language."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from steplens.advice import Advice, Finding, advise
from steplens.advice.texts import LANGUAGES
from steplens.advice.words import Words
from steplens.run import Run
from steplens.server.http.errors import PROBLEMS
from steplens.server.requests import Chosen, Runs
from steplens.server.runs import OpenedRun, RunLibrary
from steplens.server.tables import columns

router = APIRouter(prefix="/api/runs/{run}", tags=["advice"], responses=PROBLEMS)


class SavingShown(BaseModel):
    """Time that a cure takes off a step, ns: at least, probably, at most."""

    low_ns: float
    likely_ns: float
    high_ns: float


class FindingText(BaseModel):
    """A finding in one language; ``patch`` is lines of a diff, or empty."""

    title: str
    cause: str
    remedy: str
    patch: str


class EvidenceShown(BaseModel):
    """One measured fact; see ``advice.finding.Evidence``. ``words`` says in each language what it is."""

    what: str
    value: float | None
    unit: str
    per_step: bool
    steps: list[int]
    places: list[str]
    words: dict[str, str]


class FindingShown(BaseModel):
    """One cause of lost time; see ``advice.finding.Finding``. ``share`` is the likely saving as a share of the step, 0 to 1."""

    id: str
    rule: str
    subject: str
    level: str
    confidence: float
    share: float
    saving: SavingShown | None
    evidence: list[EvidenceShown]
    texts: dict[str, FindingText]


class SilencedShown(BaseModel):
    """A rule that did not judge, the conclusion that it rests on, and why that is unsafe."""

    rule: str
    conclusion: str
    reason: str


class AdviceShown(BaseModel):
    """All findings, most important first, and what could not be judged; ``step_ns`` is the mean length of a step."""

    step_ns: float
    findings: list[FindingShown]
    silenced: list[SilencedShown]


def advise_on_run(library: RunLibrary, shown: OpenedRun) -> Advice:
    """The advice about a run, worked out once."""
    all_advice: Advice = library.answer(shown, ("advice",), lambda: advise(shown.run))
    return all_advice


def advise_on_run_within(library: RunLibrary, shown: OpenedRun, seconds: float) -> Advice | None:
    """The advice about a run if it is there within some seconds; None otherwise, and it goes on being worked out."""
    all_advice: Advice | None = library.soon(shown, ("advice",), lambda: advise(shown.run), seconds)
    return all_advice


def _advise_on_trace(library: RunLibrary, shown: OpenedRun, number: int) -> Advice:
    trace = shown.trace(number)
    alone = Run(trace.source, [(shown.run.sources[number], trace)], [])
    rank_advice: Advice = library.answer(shown, ("advice", number), lambda: advise(alone))
    return rank_advice


@router.get("/advice")
def advice(
    chosen: Chosen,
    runs: Runs,
    trace: Annotated[int | None, Query(ge=0, le=1 << 31, description="as if the run had only this trace")] = None,
) -> AdviceShown:
    """What to change, in all languages."""
    judgement = advise_on_run(runs, chosen) if trace is None else _advise_on_trace(runs, chosen, trace)
    return AdviceShown(
        step_ns=judgement.step_ns,
        findings=[finding_shown(item) for item in judgement.findings],
        silenced=[SilencedShown(rule=item.rule, conclusion=item.conclusion, reason=item.reason) for item in judgement.silenced],
    )


def finding_shown(finding: Finding) -> FindingShown:
    """A finding with its words."""
    words = [Words(language) for language in LANGUAGES]
    saving = finding.saving
    return FindingShown(
        id=finding.id,
        rule=finding.rule,
        subject=finding.subject,
        level=finding.level,
        confidence=finding.confidence,
        share=finding.share,
        saving=None if saving is None else SavingShown(low_ns=saving.low_ns, likely_ns=saving.likely_ns, high_ns=saving.high_ns),
        evidence=[_describe_evidence(item, words) for item in finding.evidence],
        texts={item.language: _to_finding_text(item.of(finding)) for item in words},
    )


def _to_finding_text(text: Any) -> FindingText:
    return FindingText(title=text.title, cause=text.cause, remedy=text.remedy, patch=text.patch)


def _describe_evidence(evidence: Any, words: list[Words]) -> EvidenceShown:
    return EvidenceShown(
        what=evidence.what,
        value=columns.json_value(float(evidence.value)),
        unit=evidence.unit,
        per_step=evidence.per_step,
        steps=list(evidence.steps),
        places=list(evidence.places),
        words={language_words.language: language_words.evidence(evidence.what) for language_words in words},
    )
