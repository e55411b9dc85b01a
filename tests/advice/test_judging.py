"""Rules about one trace are asked of several traces at once, and nobody can tell by what is found, or by what fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from steplens.advice.facts import Facts
from steplens.advice.finding import Finding
from steplens.advice.judging.asking import Question, ask_rules
from steplens.advice.rule import Rule
from steplens.run import Run, Source

from ..writers.builder import build

RANKS = 3


def run_of(count: int = RANKS) -> tuple[Run, list[Facts]]:
    traces = [build(meta={"rank": rank}) for rank in range(count)]
    run = Run(Path("run"), [(Source(Path(str(rank))), trace) for rank, trace in enumerate(traces)], [])
    return run, [Facts(trace) for trace in traces]


def saying(name: str, *, fails_on: Sequence[int] = (), slow_on: int = -2, threads: set[str] | None = None) -> Rule:
    """A rule that finds itself, with the number of the rank."""

    def judge(facts: Facts) -> Iterator[Finding]:
        rank = facts.trace.rank
        if threads is not None:
            threads.add(threading.current_thread().name)
        if rank == slow_on:
            time.sleep(0.05)
        yield Finding(name, 1.0, (), subject=str(rank))
        if rank in fails_on:
            raise ValueError(f"{name} on {rank}")

    return Rule(name, judge)


def about_the_run(name: str, *, fails: bool = False) -> Rule:
    def judge_run(_: Run, facts: Sequence[Facts]) -> Iterator[Finding]:
        yield Finding(name, 1.0, (), subject=f"{len(facts)} ranks")
        if fails:
            raise ValueError(name)

    return Rule(name, judge_run=judge_run)


@pytest.mark.parametrize("alone", [False, True])
def test_findings_are_in_order_of_rules_and_traces(alone: bool) -> None:
    run, facts = run_of()
    rules = [saying("a", slow_on=0), about_the_run("b"), saying("c", slow_on=2), about_the_run("d"), saying("e")]
    questions = [
        Question(rule, facts[1:] if rule.name == "c" else facts, alone and place % 4 == 0) for place, rule in enumerate(rules)
    ]
    of_run, of_trace = ask_rules(run, facts, questions)
    assert [one.id for one in of_run] == ["b:3 ranks", "d:3 ranks"]
    assert [[one.id for one in found] for found in of_trace] == [["a:0", "e:0"], ["a:1", "c:1", "e:1"], ["a:2", "c:2", "e:2"]]


def test_of_several_failures_the_first_is_raised() -> None:
    run, facts = run_of()
    first, later = saying("first", fails_on=[2]), saying("later", fails_on=[0, 1])
    for rules, says in (
        ([first, later], "first on 2"),
        ([later, first], "later on 0"),
        ([about_the_run("run", fails=True), first], "run"),
        ([first, about_the_run("run", fails=True)], "first on 2"),
        ([saying("slow", fails_on=[1], slow_on=1), saying("quick", fails_on=[0])], "slow on 1"),
    ):
        for alone in (False, True):
            with pytest.raises(ValueError, match=f"^{says}$"):
                ask_rules(run, facts, [Question(rule, facts, alone) for rule in rules])


def test_rules_of_the_user_are_asked_by_the_thread_that_asks() -> None:
    run, facts = run_of()
    threads: set[str] = set()
    ask_rules(
        run, facts, [Question(saying("ours"), facts, alone=False), Question(saying("own", threads=threads), facts, alone=True)]
    )
    assert threads == {threading.current_thread().name}


def test_one_trace_takes_no_threads() -> None:
    run, facts = run_of(1)
    threads: set[str] = set()
    ask_rules(run, facts, [Question(saying("ours", threads=threads), facts, alone=False)])
    assert threads == {threading.current_thread().name}


def test_nothing_is_asked_of_no_rules() -> None:
    run, facts = run_of()
    assert ask_rules(run, facts, []) == ([], [[], [], []])
