"""Rounds in which both versions run once each, in an order drawn by lot, until it can be told or no more are wanted."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from steplens.bench.checkouts import Version
from steplens.bench.program import Plan, TimedRun, run_program
from steplens.bench.signals import exit_code_of, hold_signals, signal_behind
from steplens.bench.signed_ranks import PairedDifference, find_paired_difference, least_pairs
from steplens.common.errors import SteplensError
from steplens.comparison.comparison import CANNOT_TELL, LEAST_CHANGE, StepChange
from steplens.comparison.difference import CONFIDENCE

#: fewer rounds have no interval of 95 %
LEAST_ROUNDS = least_pairs(CONFIDENCE)
#: after how many rounds is looked first, where there are as many, and after how many times as many again
_FIRST_LOOK, _LOOK_AGAIN = 8, 1.5
#: what explains a difference is taken from the first rounds
_RECORDED_ROUNDS = 10
SIDES = ("base", "head")

#: what is done with each finding: whether it suffices
IsTold = Callable[[StepChange], bool]


@dataclass(frozen=True)
class Round:
    """One run of each version.

    Attributes:
        base: of the earlier one. ``head``: of the later one.
        head_first: whether the later one ran first.
    """

    base: TimedRun
    head: TimedRun
    head_first: bool

    @property
    def log_ratio(self) -> float:
        """The logarithm of the later step time over the earlier one."""
        return math.log(self.head.step_ns / self.base.step_ns)


@dataclass(frozen=True)
class Bench:
    """What the rounds say.

    Attributes:
        versions: the earlier and the later one.
        rounds: in the order in which they ran.
        step: what became of the step time. Its interval holds the truth in 95 of 100 benches, however often was looked at it.
        most_rounds: how many rounds there were to be at most.
        is_told: whether it ended because it could be told.
        ended_by: the number of the signal that ended it; 0 where none did.
    """

    versions: tuple[Version, Version]
    rounds: tuple[Round, ...]
    step: StepChange
    most_rounds: int
    is_told: bool
    ended_by: int = 0

    def usual_ns(self, side: int) -> float:
        """The step time of a version: the median of its runs. ``side``: 0 or 1."""
        runs = [(round_.base, round_.head)[side] for round_ in self.rounds]
        return float(np.median([run.step_ns for run in runs]))

    @property
    def waited_share(self) -> float:
        """The share of their time that programs waited for a processor: the larger one of both versions."""
        shares = [[(round_.base, round_.head)[side].waited_share for round_ in self.rounds] for side in (0, 1)]
        return max(float(np.mean(share)) for share in shares)


def plan_looks(rounds: int) -> list[int]:
    """After how many rounds is looked whether it can be told: each look costs certainty, so there are few.

    Args:
        rounds: how many there are at most, ``LEAST_ROUNDS`` or more.
    """
    if rounds <= _FIRST_LOOK:
        return [rounds]
    steps = int(math.log(rounds / _FIRST_LOOK) / math.log(_LOOK_AGAIN))
    looks = [round(_FIRST_LOOK * (rounds / _FIRST_LOOK) ** (number / steps)) for number in range(steps)] if steps else []
    looks.append(rounds)
    # the more often is looked, the more rounds the first look needs
    return [look for look in looks if look >= least_pairs(confidence_of_looks(looks))]


def confidence_of_looks(looks: Sequence[int]) -> float:
    """How sure each look has to be so that all of them hold the truth with ``CONFIDENCE`` (Bonferroni's inequality)."""
    return 1.0 - (1.0 - CONFIDENCE) / len(looks)


def run_rounds(
    versions: Sequence[Version],
    commands: Sequence[Sequence[str]],
    plan: Plan,
    *,
    rounds: int,
    seconds: float | None,
    out: Path,
    is_told: IsTold,
    asked_change: float = LEAST_CHANGE,
    report: Callable[[Sequence[Round], StepChange | None], None],
) -> Bench:
    """Run both versions in turns. A signal ends that as the end of time does, with the complete rounds; a second one all at once.

    Args:
        versions: the earlier and the later one.
        commands: what is run of each.
        plan: what is done with each run.
        rounds: how many at most.
        seconds: no round begins later; None for no such limit.
        out: gets a folder for each version with what is recorded.
        is_told: whether a finding suffices.
        asked_change: the change that is to be told.
        report: gets the rounds that have run, and what they say where that is looked at.

    Raises:
        SteplensError: a program failed, or time was up or a signal came before anything can be said.
    """
    lots = random.SystemRandom()
    looks = plan_looks(rounds)
    confidence = confidence_of_looks(looks)
    begin = time.monotonic()
    ran: list[Round] = []
    step: StepChange | None = None
    is_decided = False
    ended_by = 0
    is_ended_early = False
    complete_recordings: set[Path] = set()
    while len(ran) < rounds and not is_decided and not is_ended_early:
        try:
            is_ended_early = seconds is not None and time.monotonic() - begin > seconds
            if not is_ended_early:
                complete_round = _run_round(versions, commands, plan, lots.random() < 0.5, out, len(ran))
                # before it counts: a signal may come between any two lines
                complete_recordings = _list_recorded(out)
                ran.append(complete_round)
                step = find_change(ran, confidence, asked_change) if len(ran) in looks else step
                is_decided = step is not None and len(ran) in looks and is_told(step)
                report(ran, step if len(ran) in looks else None)
        except (KeyboardInterrupt, SystemExit) as ending:
            ended_by = signal_behind(ending)
            is_ended_early = True
            _remove_recorded(out, complete_recordings)
    if is_ended_early:
        # the next look, earlier than planned
        step = find_change(ran, confidence, asked_change) if len(ran) >= least_pairs(confidence) else None
    if step is None:
        raise _refuse_rounds(len(ran), least_pairs(confidence), ended_by)
    return Bench((versions[0], versions[1]), tuple(ran), step, rounds, is_told(step), ended_by)


def _refuse_rounds(rounds: int, least: int, ended_by: int) -> SteplensError:
    """Why fewer rounds than the least were run."""
    if not ended_by:
        return SteplensError(
            f"time was up after {rounds} round{'s' * (rounds != 1)}, and {least} are the least that tell anything: allow more "
            "with --minutes, or lower --steps and --skip"
        )
    error = SteplensError(f"interrupted in round {rounds + 1}, and {least} rounds are the least that tell anything")
    error.exit_code = exit_code_of(ended_by)
    return error


def _list_recorded(out: Path) -> set[Path]:
    """What both versions recorded so far."""
    return {path for side in SIDES for path in (out / side).glob("*")}


def _remove_recorded(out: Path, complete_recordings: set[Path]) -> None:
    """Remove what a round that is not complete recorded: it may be cut short, and the other version has none to go with it."""
    with hold_signals():
        for path in _list_recorded(out) - complete_recordings:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        for side in SIDES:
            # where something is in it, it stays
            with contextlib.suppress(OSError):
                (out / side).rmdir()


def find_change(rounds: Sequence[Round], confidence: float, asked_change: float = LEAST_CHANGE) -> StepChange:
    """What rounds say of the step time; ``asked_change``: what is to be told."""
    difference = find_paired_difference(np.array([round_.log_ratio for round_ in rounds]), confidence)
    ratio, low, high = (math.expm1(end) for end in (difference.value, difference.low_end, difference.high_end))
    change = StepChange(ratio, low, high, asked_change=asked_change)
    if change.step_verdict != CANNOT_TELL:
        return change
    return dataclasses.replace(change, runs_needed=_rounds_needed(difference, len(rounds), asked_change))


def _rounds_needed(difference: PairedDifference, rounds: int, asked_change: float) -> int | None:
    """How many rounds tell a change of so much: intervals shrink with their square root."""
    half = (difference.high_end - difference.low_end) / 2.0
    if not math.isfinite(half):
        return None
    return max(math.ceil(rounds * (half / math.log1p(asked_change)) ** 2), rounds + 1)


def _run_round(
    versions: Sequence[Version], commands: Sequence[Sequence[str]], plan: Plan, head_first: bool, out: Path, number: int
) -> Round:
    of_round = plan if number < _RECORDED_ROUNDS else dataclasses.replace(plan, recorded=0)
    runs = {}
    for side in (1, 0) if head_first else (0, 1):
        run = run_program(versions[side], commands[side], of_round, out / SIDES[side])
        if run.foreign_modules:
            raise SteplensError(
                f"{versions[side].full_name}: imported {', '.join(run.foreign_modules)}, not from its own checkout, so that both "
                "versions would run the same code; look for absolute paths in the program, or for a package of the repository "
                "that is installed and lies neither at its top nor in src: env PYTHONPATH=FOLDER before the command takes it "
                "from that folder of the checkout"
            )
        runs[side] = run
    return Round(runs[0], runs[1], head_first)
