"""Asks the rules: those about one trace of several traces at once, the others one behind the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeAlias

from steplens.advice.facts import Facts
from steplens.advice.finding import Finding
from steplens.advice.rule import Rule
from steplens.run import Run
from steplens.trace.together import once_for_traces
from steplens.trace.trace import Trace

#: number of the question, and of the trace that it is asked about; a question about the run has no trace
Place: TypeAlias = tuple[int, int]
#: name of a rule, and its function
RuleKey: TypeAlias = tuple[str, Callable[[Facts], Iterable[Finding]]]
_RUN = -1
#: of traces with fewer calls the questions take less time than threads lose by waiting for each other
_FEW_CALLS = 20_000


@dataclass(frozen=True)
class Question:
    """A rule that is to judge.

    Attributes:
        rule: the rule.
        safe: the traces that it may judge.
        alone: whether nothing else may run meanwhile: rules of the user's own need know nothing of threads.
    """

    rule: Rule
    safe: Sequence[Facts]
    alone: bool


def ask_rules(run: Run, facts: Sequence[Facts], questions: Sequence[Question]) -> tuple[list[Finding], list[list[Finding]]]:
    """What the rules find in the run, and in each of its traces, in order of the rules.

    Rules that look at one trace share what they work out with nobody but other rules about the same trace: traces are judged
    side by side, each by one thread. Most of the time passes in code that lets another thread run. A rule that fails does so
    as if one had been asked behind the other: of several failures the first in order of questions and traces is raised.

    Args:
        run: the run.
        facts: of all its traces.
        questions: in order of the rules.
    """
    number = {id(part): place for place, part in enumerate(facts)}
    workers = min(sum(not is_small(part.trace) for part in facts), os.cpu_count() or 1)

    def is_behind(question: Question) -> bool:
        return question.rule.judge_run is not None or question.alone or workers < 2

    # one after the other: of thousands of traces all of them together take hundreds of megabytes
    behind = (
        one_ask
        for place, question in enumerate(questions)
        if is_behind(question)
        for one_ask in _ask_question(run, place, question, number)
    )
    beside: list[list[tuple[Place, Callable[[], Iterable[Finding]]]]] = [[] for _ in facts]
    for place, question in enumerate(questions):
        if not is_behind(question):
            for one_ask in _ask_question(run, place, question, number):
                beside[one_ask[0][1]].append(one_ask)
    findings: dict[Place, list[Finding]] = {}
    failed: dict[Place, Exception] = {}
    if any(beside):
        with ThreadPoolExecutor(workers, "steplens-advice") as pool:
            list(pool.map(lambda asked: _ask_in_order(asked, findings, failed), beside))
    _ask_in_order(behind, findings, failed)
    if failed:
        raise failed[min(failed)]
    of: dict[int, list[Finding]] = {position: [] for position in (_RUN, *range(len(facts)))}
    for at in sorted(findings):
        of[at[1]] += findings[at]
    return of.pop(_RUN), list(of.values())


def _ask_question(
    run: Run, place: int, question: Question, number: Mapping[int, int]
) -> Iterator[tuple[Place, Callable[[], Iterable[Finding]]]]:
    """A question as it is asked of the run, or of each trace: where its answer belongs, and what gives it."""
    rule = question.rule
    if rule.judge_run is not None:
        yield (place, _RUN), partial(_judge_run_once, run, question)
        return
    for part in question.safe:
        ask = partial(rule.judge, part) if question.alone else partial(judge_once, rule, part)
        yield (place, number[id(part)]), ask


def is_small(trace: Trace) -> bool:
    """Whether a trace has few calls, which are in memory."""
    return "ops" not in trace or trace.once(_has_few_calls)


def _has_few_calls(trace: Trace) -> bool:
    calls = trace.in_memory("ops")
    return calls is not None and calls.height < _FEW_CALLS


def _judge_run_once(run: Run, question: Question) -> Iterable[Finding]:
    """What a rule finds in a run; of one of ours that may judge all of it this is known from then on."""
    judge_run = question.rule.judge_run
    assert judge_run is not None
    if question.alone or len(question.safe) != len(run.traces):
        return judge_run(run, question.safe)
    by_name = once_for_traces(findings_of_run, run.traces)
    if question.rule.name not in by_name:
        by_name[question.rule.name] = tuple(judge_run(run, question.safe))
    return by_name[question.rule.name]


def findings_of_run(_: Sequence[Trace]) -> dict[str, tuple[Finding, ...]]:
    """What our rules found in a run so far, by their names, before any is asked."""
    return {}


def judge_once(rule: Rule, part: Facts) -> Iterable[Finding]:
    """What one of our rules finds in a trace: the same whether the trace is judged with its run or alone, so asked once."""
    judged = judged_rules(part.trace)
    key = rule.name, rule.judge
    if key in judged.without:
        return ()
    if key not in judged.findings:
        judged.findings[key] = tuple(rule.judge(part))
    return judged.findings[key]


@dataclass
class JudgedRules:
    """What our rules found in a trace, by their name and function: of those that were asked.

    Attributes:
        findings: of some of them.
        without: those that found nothing, where that was worked out elsewhere: thousands of traces share it.
    """

    findings: dict[RuleKey, tuple[Finding, ...]]
    without: frozenset[RuleKey] = frozenset()

    @property
    def by_name(self) -> dict[str, tuple[Finding, ...]]:
        """The findings of every rule that was asked."""
        return {name: () for name, _ in self.without} | {name: of_rule for (name, _), of_rule in self.findings.items()}


def judged_rules(trace: Trace) -> JudgedRules:
    """What our rules found in a trace so far; small, unlike the facts that they were found in."""
    return trace.once(_nothing_judged)


def accept_findings(trace: Trace, findings: Mapping[RuleKey, tuple[Finding, ...]]) -> None:
    """Let findings that were worked out elsewhere be those of a trace."""
    without = _share_keys(frozenset(key for key, of_rule in findings.items() if not of_rule))
    trace.replace(_nothing_judged, JudgedRules({key: of_rule for key, of_rule in findings.items() if of_rule}, without))


@lru_cache(maxsize=64)
def _share_keys(keys: frozenset[RuleKey]) -> frozenset[RuleKey]:
    return keys


def _nothing_judged(_: Trace) -> JudgedRules:
    return JudgedRules({})


def _ask_in_order(
    asked: Iterable[tuple[Place, Callable[[], Iterable[Finding]]]],
    findings: dict[Place, list[Finding]],
    failed: dict[Place, Exception],
) -> None:
    """Ask in order, up to the first that fails."""
    for place, ask in asked:
        try:
            if of_rule := list(ask()):
                findings[place] = of_rule
        except Exception as error:  # another thread may hold one that comes first
            failed[place] = error
            return
