"""Runs the rules over a run: which findings there are, in which order, and on what nothing could be said."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import EXPLAINED, Evidence, Finding, Saving
from steplens.advice.frameworks import is_about_another
from steplens.advice.judging.asking import Question, ask_rules
from steplens.advice.judging.order import in_order, together_ns, with_first_ones_first, with_overlaps, without_next_steps
from steplens.advice.judging.pricing import Prices, of_one_rank
from steplens.advice.judging.ranks import RankFindings, merge_by_id, with_common_causes
from steplens.advice.prepare import prepare_answers
from steplens.advice.recording import without_recording
from steplens.advice.registry import all_rules, built_in_rules
from steplens.advice.rule import Rule
from steplens.common.stand_ins import told_path
from steplens.run import Run
from steplens.trace.building.framework import UNKNOWN, trace_framework
from steplens.trace.health import WARNING, unsafe

#: a finding that others explain but for this share of its saving, or of a step, is not given
_LEAST_LEFT = 0.1
_LEAST_SHARE = 0.01
_NAMED_RANKS = 8
#: kind of evidence that says of which rank the other figures are
_OF_RANK = "figures_of_rank"


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
        findings: what attacks the verdict first, then the most important; each behind those that should be cured before it.
        silenced: rules that did not judge.
        step_ns: the step time, median over the chosen steps of all traces (``Run.step_summary``); 0 without steps.
        together_ns: what all findings save together at most.
        likely_together_ns: what they are likely to save together: of those that overlap, each what the others leave of it.
    """

    findings: tuple[Finding, ...]
    silenced: tuple[Silenced, ...]
    step_ns: float
    together_ns: float = 0.0
    likely_together_ns: float = 0.0


def advise(run: Run, rules: Sequence[Rule] | None = None) -> Advice:
    """Every cause of lost time that the rules see in ``run``.

    A rule is asked about every trace; findings of the same id on several ranks are one, with the largest saving, since a
    step takes as long as its slowest rank, and with its ranks where not all have it. No time is promised twice: what a
    finding explains is taken off the findings of the same trace that ``Rule.explains`` names, and a finding of which next to
    nothing is left is not given.

    Args:
        run: what ``steplens.open`` returned.
        rules: which rules; all by default.
    """
    rules = all_rules() if rules is None else rules
    ours = {id(rule) for rule in built_in_rules()}
    if ours <= {id(rule) for rule in rules}:
        prepare_answers(run)
    facts = [Facts(trace) for trace in run.traces]
    silenced = []
    questions = []
    health = run.health()
    doubts = {word: unsafe(health, word, least=WARNING) for word in {word for rule in rules for word in rule.rests_on}}
    for rule in rules:
        if (rule.devices and not any(rule.is_about(part.device) for part in facts)) or not rule.applies(facts):
            continue
        safe, reason = _traces_to_judge(run, rule, facts, doubts)
        if reason is not None and (not safe or rule.judge_run is not None):
            silenced.append(reason)
        else:
            questions.append(Question(rule, safe, alone=id(rule) not in ours))
    of_run, of_trace = ask_rules(run, facts, questions)
    prices = Prices(run, facts)
    of_run = list(prices.cap_savings(of_run, facts))
    of_trace = [
        [without_recording(finding, part) for finding in prices.cap_savings(mine, [part])]
        for part, mine in zip(facts, of_trace, strict=True)
    ]
    # a rule that looks at all ranks may find the same on several: it explains the time of one
    of_run = list(map(of_one_rank, merge_by_id(of_run)))
    slow = next((finding for finding in of_run if finding.rule == "slow_rank"), None)
    explains = {rule.name: frozenset(rule.explains) for rule in rules}
    of_rank = RankFindings(zip((part.trace.rank for part in facts), of_trace, strict=True))
    findings = _explained_of_run(of_run, of_rank, explains)
    ranks = _SeenOn(part.trace.rank for part in facts)
    for part, mine in zip(facts, of_trace, strict=True):
        left = [prices.price_on_path(finding, part, slow) for finding in _explained_once(mine, [*mine, *of_run], explains)]
        findings += map(ranks.with_rank_of_figures(part.trace.rank), left)
        ranks.add(part.trace.rank, left)
    only_of = {rule.name: rule.framework for rule in (*built_in_rules(), *rules) if rule.framework}
    named_findings = _of_framework(map(ranks.named, merge_by_id(findings)), run, only_of)
    settled = [finding for candidate in named_findings if (finding := prices.settle_finding(candidate, slow)) is not None]
    by_weight = in_order(without_next_steps(settled, run.verdict()), run.verdict())
    ordered = with_first_ones_first(with_common_causes(with_overlaps(by_weight, prices), of_rank))
    likely_ns, most_ns = together_ns(ordered, prices)
    return Advice(tuple(ordered), tuple(silenced), prices.step_ns, most_ns, likely_ns)


def _of_framework(findings: Iterable[Finding], run: Run, only_of: Mapping[str, str]) -> Iterator[Finding]:
    """The findings with the framework whose words they are said in, without those about another one (``Rule.framework``)."""
    frameworks_present = {trace_framework(trace) for trace in run.traces} - {UNKNOWN}
    mine = frameworks_present.pop() if len(frameworks_present) == 1 else UNKNOWN
    for finding in findings:
        if not is_about_another(mine, finding, only_of.get(finding.rule, "")):
            yield dataclasses.replace(finding, framework=mine)


def _traces_to_judge(
    run: Run, rule: Rule, facts: Sequence[Facts], doubts: Mapping[str, pl.DataFrame]
) -> tuple[list[Facts], Silenced | None]:
    """The traces that a rule may judge, and why it may not judge the others."""
    reason = None
    concerned: set[str] = set()
    for conclusion in rule.rests_on:
        doubt = doubts[conclusion]
        doubt = doubt.filter(~doubt["check"].is_in(list(rule.despite)))
        if not doubt.is_empty():
            reason = reason or Silenced(rule.name, conclusion, doubt["message"][0])
            concerned.update(doubt["source"].to_list())
    if told_path(run.path) in concerned:
        return [], reason
    pairs = zip(facts, run.sources, strict=True)
    of_device = [(part, source) for part, source in pairs if rule.is_about(part.device)]
    return [part for part, source in of_device if told_path(source.path) not in concerned], reason


def _explained_once(
    findings: Sequence[Finding], beside: Sequence[Finding], explains: Mapping[str, frozenset[str]]
) -> Iterator[Finding]:
    """``findings`` without the time that more specific ones of ``beside`` explain."""
    for finding in findings:
        causes = [cause for cause in beside if cause.saving is not None and finding.rule in explains.get(cause.rule, ())]
        # the time of a cause that another cause explains lies within that one's
        causes = [cause for cause in causes if not any(explained.rule in explains.get(cause.rule, ()) for explained in causes)]
        if finding.saving is None or not causes:
            yield finding
            continue
        explained_ns = sum(cause.weight_ns for cause in causes)
        low, likely, high = (max(ns - explained_ns, 0.0) for ns in dataclasses.astuple(finding.saving))
        if likely < max(_LEAST_LEFT * finding.saving.likely_ns, _LEAST_SHARE * finding.step_ns):
            continue
        part = Evidence(EXPLAINED, explained_ns, "ns", places=tuple(cause.id for cause in causes))
        yield dataclasses.replace(finding, saving=Saving(low, likely, high), evidence=(*finding.evidence, part))


def _explained_of_run(of_run: Sequence[Finding], of_rank: RankFindings, explains: Mapping[str, frozenset[str]]) -> list[Finding]:
    """Findings of the run without what those of its ranks explain; of a finding about one rank, what those say beyond the others.

    Args:
        of_run: findings of the run.
        of_rank: what was found on each rank.
        explains: rule -> rules that it explains.
    """
    everywhere = of_rank.merge_everywhere()

    def left_of(causes_of_run: Sequence[Finding]) -> list[Finding]:
        left: list[Finding] = []
        for finding in of_run:
            of_its_rank = list(of_rank.beyond_others(finding.ranks[0])) if len(finding.ranks) == 1 else everywhere
            left += _explained_once([finding], [*causes_of_run, *of_its_rank], explains)
        return left

    remaining = {finding.id for finding in left_of(of_run)}
    # what is not given explains nothing: its causes do
    return left_of([finding for finding in of_run if finding.id in remaining])


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

    def with_rank_of_figures(self, rank: int) -> Callable[[Finding], Finding]:
        """Add to findings whose figures they are, where there are several ranks: of all that have it one speaks."""
        if rank < 0 or len(self._ranks) < 2:
            return lambda finding: finding
        evidence = Evidence(_OF_RANK, 0, "", places=(f"rank {rank}",), per_step=False)
        return lambda finding: dataclasses.replace(finding, evidence=(*finding.evidence, evidence))

    def named(self, finding: Finding) -> Finding:
        """``finding`` with its ranks, those with the largest saving first; as it is where all ranks have it."""
        saved = self._saved.get(finding.id, {})
        if not saved or -1 in saved or saved.keys() == self._ranks:
            return finding
        ordered = sorted(saved, key=lambda rank: (-saved[rank], rank))[:_NAMED_RANKS]
        ranks = Evidence("on_ranks", len(saved), "count", places=tuple(f"rank {rank}" for rank in ordered), per_step=False)
        evidence = tuple(item for item in finding.evidence if item.what != _OF_RANK or len(saved) > 1)
        return dataclasses.replace(finding, evidence=(*evidence, ranks), ranks=tuple(sorted(saved)))
