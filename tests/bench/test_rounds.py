"""Rounds of programs whose step times are known: when a bench ends, and what it says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steplens.bench import rounds
from steplens.bench.checkouts import Version
from steplens.bench.program import Plan, TimedRun
from steplens.bench.rounds import Bench, run_rounds
from steplens.common.errors import SteplensError
from steplens.comparison.comparison import CANNOT_TELL, StepChange

VERSIONS = (Version("main", Path("/base")), Version("branch", Path("/head")))
PLAN = Plan(5, 30, 5, "optimizer", {}, to_the_end=False, patience_s=1.0)


def bench(monkeypatch: pytest.MonkeyPatch, slower: float, noise: float, count: int = 40, **more: Any) -> tuple[Bench, list[Any]]:
    """A bench of programs of 10 ms a step, the later one slower, whose runs differ in turns by ``noise``."""
    runs: list[Any] = []

    def numbers() -> Iterator[float]:
        while True:
            yield from (0.3, -0.8, 1.0, -0.5, 0.7, -1.0, 0.1, 0.9, -0.2, -0.6)

    offsets = numbers()

    def run(version: Version, command: Any, plan: Plan, out: Path) -> TimedRun:
        runs.append((version.name, plan.recorded, out.name))
        step_ns = 1e7 * (1.0 + (slower if version.name == "branch" else 0.0) + noise * next(offsets))
        return TimedRun(step_ns, 30, ((10_000_000,) * 30,), 0.0, more.get("foreign", ()))

    monkeypatch.setattr(rounds, "run_program", run)
    # of 100 benches whose lots are drawn anew some find a change that is none
    monkeypatch.setattr(rounds.random, "SystemRandom", lambda: random.Random(1))
    found = run_rounds(
        VERSIONS,
        [["train.py"], ["train.py"]],
        PLAN,
        rounds=count,
        seconds=more.get("seconds"),
        out=Path("/out"),
        is_told=lambda step: step.step_verdict != CANNOT_TELL,
        report=lambda *_: None,
    )
    return found, runs


def test_a_large_change_is_told_at_the_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    found, runs = bench(monkeypatch, slower=0.1, noise=0.01)
    assert found.is_told and len(found.rounds) == 8 and len(runs) == 16
    assert found.step.step_verdict == "slower" and found.step.low < 0.1 < found.step.high
    # both run once in each round, in either order
    assert all({runs[at][0], runs[at + 1][0]} == {"main", "branch"} for at in range(0, 16, 2))
    assert {name for name, _, folder in runs if folder == "head"} == {"branch"}


def test_what_explains_is_recorded_in_the_first_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    found, runs = bench(monkeypatch, slower=0.02, noise=0.3)
    assert len(found.rounds) == 40 and not found.is_told
    assert [recorded for _, recorded, _ in runs[::2]] == [5] * 10 + [0] * 30
    assert found.step.runs_needed is not None and found.step.runs_needed > 40


def test_alike_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = bench(monkeypatch, slower=0.0, noise=0.004)
    assert found.is_told and found.step.step_verdict == "alike"


def test_orders_are_drawn_by_lot(monkeypatch: pytest.MonkeyPatch) -> None:
    found, runs = bench(monkeypatch, slower=0.0, noise=0.5, count=60)
    firsts = [name for name, _, _ in runs[::2]]
    assert 10 < firsts.count("branch") < 50
    assert [round_.head_first for round_ in found.rounds] == [name == "branch" for name in firsts]


def test_time_that_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SteplensError, match=r"time was up after 0 rounds, and 8 are the least"):
        bench(monkeypatch, slower=0.1, noise=0.01, seconds=-1.0)
    seconds = iter(range(100))
    monkeypatch.setattr(rounds.time, "monotonic", lambda: float(next(seconds)))
    found, _ = bench(monkeypatch, slower=0.02, noise=0.3, seconds=20.0)
    assert len(found.rounds) == 20 and not found.is_told and found.most_rounds == 40


def test_a_checkout_that_runs_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SteplensError, match=r"imported package.layers from /main/layers.py, not from its own checkout"):
        bench(monkeypatch, slower=0.1, noise=0.01, foreign=("package.layers from /main/layers.py",))


def test_a_change_has_an_interval_however_small() -> None:
    assert StepChange(0.0, -0.001, 0.001).step_verdict == "alike"
