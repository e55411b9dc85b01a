"""Runs the rules over a run: which findings there are, in which order, and on what nothing could be said."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.judging import Question, judged
from steplens.advice.rule import Rule
from steplens.advice.table import RULES
from steplens.trace.health import WARNING, unsafe
from steplens.trace.run import Run

#: a finding that others explain but for this share of its saving, or of a step, is not given
_LEAST_LEFT = 0.1
_LEAST_SHARE = 0.01
_NAMED_RANKS = 8


@dataclass(frozen=True)
class Silenced:
    """A rule that did not judge, because health calls what it rests on unsafe.

    Attributes:
        rule: its name.
        conclusion: what is unsafe, in the words of ``trace.health``.
        reason: the finding of health.
    """

    rule: str
    conclusion: str
    reason: str


@dataclass(frozen=True)
class Advice:
    """What ``advise`` says of a run.

    Attributes:
        findings: most important first.
        silenced: rules that did not judge.
        step_ns: how long a step takes, mean over all complete steps of all traces; 0 without steps.
    """

    findings: tuple[Finding, ...]
    silenced: tuple[Silenced, ...]
    step_ns: float


def advise(run: Run, rules: Sequence[Rule] = RULES) -> Advice:
    """Every cause of lost time that the rules see in ``run``.

    A rule is asked about every trace; findings of the same id on several ranks are one, with the largest saving, since a
    step takes as long as its slowest rank, and with its ranks where not all have it. No time is promised twice: what a
    finding explains is taken off the findings of the same trace that ``Rule.explains`` names, and a finding of which next to
    nothing is left is not given.

    Args:
        run: what ``steplens.open`` returned.
        rules: which rules; all by default.
    """
    facts = [Facts(trace) for trace in run.traces]
    silenced = []
    questions = []
    ours = {id(rule) for rule in RULES}
    health = run.health()
    doubts = {word: unsafe(health, word, least=WARNING) for word in {word for rule in rules for word in rule.rests_on}}
    for rule in rules:
        if (rule.devices and not any(part.device in rule.devices for part in facts)) or not rule.applies(facts):
            continue
        safe, reason = _safe(run, rule, facts, doubts)
        if reason is not None and (not safe or rule.judge_run is not None):
            silenced.append(reason)
        else:
            questions.append(Question(rule, safe, alone=id(rule) not in ours))
    of_run, of_trace = judged(run, facts, questions)
    # a rule that looks at all ranks may find the same on several: it explains the time of one
    of_run = _joined(of_run)
    explains = {rule.name: frozenset(rule.explains) for rule in rules}
    every = _joined(finding for own in of_trace for finding in own)
    found = list(_told_once(of_run, [*of_run, *every], explains))
    seen = _SeenOn(part.trace.rank for part in facts)
    for part, own in zip(facts, of_trace, strict=True):
        told = list(_told_once(own, [*own, *of_run], explains))
        found += told
        seen.add(part.trace.rank, told)
    # every step counts once, as everywhere else: windows of a run may have different numbers of them
    steps = sum(len(part.numbers) for part in facts)
    step_ns = sum(part.step_ns * len(part.numbers) for part in facts) / max(steps, 1)
    ordered = sorted(map(seen.named, _joined(found)), key=lambda finding: (finding.rank, finding.id))
    return Advice(tuple(ordered), tuple(silenced), step_ns)


def _safe(
    run: Run, rule: Rule, facts: Sequence[Facts], doubts: Mapping[str, pl.DataFrame]
) -> tuple[list[Facts], Silenced | None]:
    """The traces that a rule may judge, and why it may not judge the others."""
    reason = None
    concerned: set[str] = set()
    for conclusion in rule.rests_on:
        found = doubts[conclusion]
        if not found.is_empty():
            reason = reason or Silenced(rule.name, conclusion, found["message"][0])
            concerned.update(found["source"].to_list())
    if str(run.path) in concerned:
        return [], reason
    known = zip(facts, run.sources, strict=True)
    of_device = [(part, source) for part, source in known if not rule.devices or part.device in rule.devices]
    return [part for part, source in of_device if str(source.path) not in concerned], reason


def _told_once(
    findings: Sequence[Finding], beside: Sequence[Finding], explains: Mapping[str, frozenset[str]]
) -> Iterator[Finding]:
    """``findings`` without the time that more specific ones of ``beside`` explain."""
    for finding in findings:
        causes = [one for one in beside if one.saving is not None and finding.rule in explains.get(one.rule, ())]
        # the time of a cause that another cause explains lies within that one's
        causes = [one for one in causes if not any(other.rule in explains.get(one.rule, ()) for other in causes)]
        if finding.saving is None or not causes:
            yield finding
            continue
        taken = sum(one.saving.likely_ns for one in causes if one.saving is not None)
        low, likely, high = (max(ns - taken, 0.0) for ns in dataclasses.astuple(finding.saving))
        if likely < max(_LEAST_LEFT * finding.saving.likely_ns, _LEAST_SHARE * finding.step_ns):
            continue
        part = Evidence("explained_elsewhere", taken, "ns", places=tuple(one.id for one in causes))
        yield dataclasses.replace(finding, saving=Saving(low, likely, high), evidence=(*finding.evidence, part))


class _SeenOn:
    """On which ranks of several the findings about single traces were made."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self._ranks = frozenset(ranks)
        self._saved: dict[str, dict[int, float]] = {}

    def add(self, rank: int, findings: Iterable[Finding]) -> None:
        """Note what was found on one rank; -1 is one that nobody knows."""
        for finding in findings:
            saved = self._saved.setdefault(finding.id, {})
            saved[rank] = max(saved.get(rank, 0.0), finding.saving.likely_ns if finding.saving else 0.0)

    def named(self, finding: Finding) -> Finding:
        """``finding`` with its ranks, those with the largest saving first; as it is where all ranks have it."""
        saved = self._saved.get(finding.id, {})
        if not saved or -1 in saved or saved.keys() == self._ranks:
            return finding
        ordered = sorted(saved, key=lambda rank: (-saved[rank], rank))[:_NAMED_RANKS]
        ranks = Evidence("on_ranks", len(saved), "count", places=tuple(f"rank {rank}" for rank in ordered), per_step=False)
        return dataclasses.replace(finding, evidence=(*finding.evidence, ranks))


def _joined(findings: Iterable[Finding]) -> list[Finding]:
    """One finding per id: that with the larger saving, with the range of both."""
    found: dict[str, Finding] = {}
    for finding in findings:
        known = found.get(finding.id)
        found[finding.id] = finding if known is None else _of_two(known, finding)
    return list(found.values())


def _of_two(one: Finding, other: Finding) -> Finding:
    first, second = (one, other) if one.rank <= other.rank else (other, one)
    saving = first.saving
    if saving is not None and second.saving is not None:
        saving = Saving(min(saving.low_ns, second.saving.low_ns), saving.likely_ns, max(saving.high_ns, second.saving.high_ns))
    return dataclasses.replace(first, saving=saving)
