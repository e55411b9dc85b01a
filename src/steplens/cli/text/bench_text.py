"""What ``steplens bench`` found in the terminal: the sentence first, then what explains it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from steplens.bench.rounds import SIDES, Bench
from steplens.cli.line.ending import say_next
from steplens.cli.text.compare_text import print_wrapped, show_judgements, show_where
from steplens.cli.text.text import console, duration, estimated_duration, plain
from steplens.comparison.comparison import LEAST_CHANGE, Comparison
from steplens.comparison.gate import Judgement
from steplens.comparison.reports.reported import ReportedSide
from steplens.comparison.reports.sentences import signed_percent, step_sentence

#: what more of would tell what cannot be told
COUNTED = "rounds like these"
#: beside programs that wait for a processor for more of their time rounds differ by what else the machine does
_MUCH_WAITING = 0.05
#: what takes longer is told in minutes
_LONG_S = 120.0


def describe_versions(found: Bench) -> tuple[ReportedSide, ReportedSide]:
    """Both versions in words."""
    steps = min(run.steps for round_ in found.rounds for run in (round_.base, round_.head))
    base, head = (
        ReportedSide(version.full_name, f"{duration(found.usual_ns(number))} a step, {len(found.rounds)} runs of {steps} steps")
        for number, version in enumerate(found.versions)
    )
    return base, head


def estimate_time(round_s: float, rounds: int) -> str:
    """How long a bench takes, from what its first round took."""
    total_s = round_s * rounds
    total = estimated_duration(total_s * 1e9) if total_s < _LONG_S else f"{total_s / 60.0:.0f} minutes"
    return f"about {estimated_duration(round_s * 1e9)} a round, {rounds} rounds at most: {total}"


def describe_medians(found: Bench) -> str:
    """That the change is not that of the step times that are told, where somebody who divides these would wonder; else empty."""
    ratio = found.usual_ns(1) / found.usual_ns(0) - 1.0
    if abs(ratio - found.step.ratio) <= max(LEAST_CHANGE, (found.step.high - found.step.low) / 4.0):
        return ""
    return (
        "the change is that of the two runs of a round, which the machine slows down alike, not that of these two step times, "
        f"which differ by {signed_percent(ratio)}"
    )


def describe_doubts(found: Bench) -> list[str]:
    """Sentences about what makes the rounds tell less than they might."""
    doubts = []
    if found.ended_by:
        doubts.append(f"interrupted after {len(found.rounds)} of {found.most_rounds} rounds")
    elif not found.is_told and len(found.rounds) < found.most_rounds:
        doubts.append(f"time was up after {len(found.rounds)} of {found.most_rounds} rounds")
    if found.waited_share > _MUCH_WAITING:
        doubts.append(
            f"the programs waited {100 * found.waited_share:.0f} % of their time for a processor: on a machine that does nothing "
            "else fewer rounds tell more"
        )
    return doubts


def show_bench(
    found: Bench, comparison: Comparison | None, judged: Sequence[Judgement], doubts: Sequence[str], top: int, folder: Path
) -> None:
    """Print what the rounds say.

    Args:
        found: of the steps at full speed.
        comparison: of what was recorded; None where nothing was.
        judged: whether limits are kept.
        doubts: sentences about what makes the rounds doubtful.
        top: how many operators and device tasks to show.
        folder: where it is kept.
    """
    out = console()
    out.print()
    for side, version in zip(SIDES, describe_versions(found), strict=True):
        out.print(plain(f"{side}: {version.name}: {version.description}", "dim"), soft_wrap=True)
    print_wrapped(out, step_sentence(found.step, COUNTED), "bold")
    if medians := describe_medians(found):
        print_wrapped(out, medians, "dim")
    for doubt in doubts:
        print_wrapped(out, f"doubtful: {doubt}", "yellow")
    if comparison is not None:
        out.print(plain(describe_recorded(comparison)), soft_wrap=True)
        show_where(out, comparison, top)
    show_judgements(out, judged)
    recordings = [shlex.quote(str(folder / side)) for side in SIDES]
    say_next([f"steplens view {' '.join(recordings)}"] if comparison is not None else [])


def describe_recorded(comparison: Comparison) -> str:
    """Of which steps is what explains the change; their parts do not add up to those that were timed."""
    sides = [
        f"{duration(side.step_ns or 0.0)} a step, {side.step_count} steps of {len(side.recordings)} runs"
        for side in (comparison.before, comparison.after)
    ]
    return f"what explains it, of recorded steps, which take longer: {sides[0]} -> {sides[1]}"
