"""What ``steplens bench`` found in the terminal: the sentence first, then what explains it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from steplens.bench.rounds import SIDES, Bench
from steplens.cli.line.ending import say_next
from steplens.cli.text.compare_text import print_wrapped, show_judgements, show_where
from steplens.cli.text.text import console, duration, plain
from steplens.comparison.comparison import Comparison
from steplens.comparison.gate import Judgement
from steplens.comparison.reports.reported import ReportedSide
from steplens.comparison.reports.sentences import step_sentence

#: what more of would tell what cannot be told
COUNTED = "rounds like these"
#: beside programs that wait for a processor for more of their time rounds differ by what else the machine does
_MUCH_WAITING = 0.05


def describe_versions(found: Bench) -> tuple[ReportedSide, ReportedSide]:
    """Both versions in words."""
    steps = min(run.steps for round_ in found.rounds for run in (round_.base, round_.head))
    base, head = (
        ReportedSide(version.full_name, f"{duration(found.usual_ns(number))} a step, {len(found.rounds)} runs of {steps} steps")
        for number, version in enumerate(found.versions)
    )
    return base, head


def show_bench(found: Bench, comparison: Comparison | None, judged: Sequence[Judgement], top: int, folder: Path) -> None:
    """Print what the rounds say.

    Args:
        found: of the steps at full speed.
        comparison: of what was recorded; None where nothing was.
        judged: whether limits are kept.
        top: how many operators and device tasks to show.
        folder: where it is kept.
    """
    out = console()
    out.print()
    rounds = len(found.rounds)
    for side, version in zip(SIDES, describe_versions(found), strict=True):
        out.print(plain(f"{side}: {version.name}: {version.description}", "dim"), soft_wrap=True)
    print_wrapped(out, step_sentence(found.step, COUNTED), "bold")
    if not found.is_told and rounds < found.most_rounds:
        print_wrapped(out, f"Time was up after {rounds} of {found.most_rounds} rounds.", "")
    if found.waited_share > _MUCH_WAITING:
        waited = f"the programs waited {100 * found.waited_share:.0f} % of their time for a processor"
        print_wrapped(out, f"doubtful: {waited}: on a machine that does nothing else fewer rounds tell more", "yellow")
    if comparison is not None:
        sides = [
            f"{duration(side.step_ns or 0.0)} a step, {side.step_count} steps of {len(side.recordings)} runs"
            for side in (comparison.before, comparison.after)
        ]
        out.print(plain(f"what explains it, of recorded steps, which take longer: {sides[0]} -> {sides[1]}"), soft_wrap=True)
        show_where(out, comparison, top)
    show_judgements(out, judged)
    say_next([f"steplens view {' '.join(shlex.quote(str(folder / side)) for side in SIDES)}"] if comparison is not None else [])
