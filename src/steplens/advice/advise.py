"""Runs the rules over a run: which findings there are, in which order, and on what nothing could be said."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from steplens.advice.facts import Facts
from steplens.advice.finding import Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.table import RULES
from steplens.trace.run import Run


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
        step_ns: how long a step takes, mean over all ranks.
    """

    findings: tuple[Finding, ...]
    silenced: tuple[Silenced, ...]
    step_ns: float


def advise(run: Run, rules: Sequence[Rule] = RULES) -> Advice:
    """Every cause of lost time that the rules see in ``run``.

    A rule is asked about every trace; findings of the same id on several ranks are one, with the largest saving, since a
    step takes as long as its slowest rank.

    Args:
        run: what ``steplens.open`` returned.
        rules: which rules; all by default.
    """
    facts = [Facts(trace) for trace in run.traces]
    found: dict[str, Finding] = {}
    silenced = []
    for rule in rules:
        safe, reason = _safe(run, rule, facts)
        if reason is not None and (not safe or rule.judge_run is not None):
            silenced.append(reason)
            continue
        each = rule.judge_run(run, safe) if rule.judge_run is not None else (one for part in safe for one in rule.judge(part))
        for finding in each:
            known = found.get(finding.id)
            found[finding.id] = finding if known is None else _joined(known, finding)
    lengths = [part.step_ns for part in facts if part.step_ns > 0]
    ordered = sorted(found.values(), key=lambda finding: (finding.rank, finding.id))
    return Advice(tuple(ordered), tuple(silenced), sum(lengths) / len(lengths) if lengths else 0.0)


def _safe(run: Run, rule: Rule, facts: Sequence[Facts]) -> tuple[list[Facts], Silenced | None]:
    """The traces that a rule may judge, and why it may not judge the others."""
    reason = None
    concerned: set[str] = set()
    for conclusion in rule.rests_on:
        unsafe = run.unsafe(conclusion)
        if not unsafe.is_empty():
            reason = reason or Silenced(rule.name, conclusion, unsafe["message"][0])
            concerned.update(unsafe["source"].to_list())
    if str(run.path) in concerned:
        return [], reason
    return [part for part, source in zip(facts, run.sources, strict=True) if str(source.path) not in concerned], reason


def _joined(one: Finding, other: Finding) -> Finding:
    """The finding of two ranks: that with the larger saving, with the steps of both."""
    first, second = (one, other) if one.rank <= other.rank else (other, one)
    saving = first.saving
    if saving is not None and second.saving is not None:
        saving = Saving(min(saving.low_ns, second.saving.low_ns), saving.likely_ns, max(saving.high_ns, second.saving.high_ns))
    return dataclasses.replace(first, saving=saving)
