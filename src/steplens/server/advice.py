"""What to change, with the words of every language."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from steplens.advice import Advice, Finding, advise
from steplens.advice.texts import LANGUAGES
from steplens.advice.words import Words
from steplens.server.http.requests import PROBLEMS, Chosen, Runs
from steplens.server.runs import Library, Shown
from steplens.server.tables import columns
from steplens.trace.run import Run

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


def judged(library: Library, shown: Shown) -> Advice:
    """The advice about a run, worked out once."""
    found: Advice = library.answer(shown, ("advice",), lambda: advise(shown.run))
    return found


def judged_soon(library: Library, shown: Shown, seconds: float) -> Advice | None:
    """The advice about a run if it is there within some seconds; None otherwise, and it goes on being worked out."""
    found: Advice | None = library.soon(shown, ("advice",), lambda: advise(shown.run), seconds)
    return found


def _judged_alone(library: Library, shown: Shown, number: int) -> Advice:
    trace = shown.trace(number)
    alone = Run(trace.source, [(shown.run.sources[number], trace)], [])
    found: Advice = library.answer(shown, ("advice", number), lambda: advise(alone))
    return found


@router.get("/advice")
def advice(
    chosen: Chosen,
    runs: Runs,
    trace: Annotated[int | None, Query(ge=0, le=1 << 31, description="as if the run had only this trace")] = None,
) -> AdviceShown:
    """What to change, in all languages."""
    found = judged(runs, chosen) if trace is None else _judged_alone(runs, chosen, trace)
    return AdviceShown(
        step_ns=found.step_ns,
        findings=[finding_shown(one) for one in found.findings],
        silenced=[SilencedShown(rule=one.rule, conclusion=one.conclusion, reason=one.reason) for one in found.silenced],
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
        evidence=[_evidence(one, words) for one in finding.evidence],
        texts={one.language: _text(one.of(finding)) for one in words},
    )


def _text(text: Any) -> FindingText:
    return FindingText(title=text.title, cause=text.cause, remedy=text.remedy, patch=text.patch)


def _evidence(evidence: Any, words: list[Words]) -> EvidenceShown:
    return EvidenceShown(
        what=evidence.what,
        value=columns.cell(float(evidence.value)),
        unit=evidence.unit,
        per_step=evidence.per_step,
        steps=list(evidence.steps),
        places=list(evidence.places),
        words={one.language: one.evidence(evidence.what) for one in words},
    )
