"""``steplens bench``: two versions of a program in turns on this machine, until it can be told whether a step became longer."""

from __future__ import annotations

import contextlib
import enum
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steplens.bench.checkouts import WORKING_TREE
from steplens.cli.comparing.bench_results import (
    BenchResult,
    CompleteRounds,
    check_recorded,
    evaluate_rounds,
    keep_complete_rounds,
    provide_folder,
    report_result,
)
from steplens.cli.line.arguments import Json, JunitFile, MarkdownFile
from steplens.cli.line.commands import Command
from steplens.cli.line.report_files import ReportFiles
from steplens.cli.text.text import clean, print_json
from steplens.collect.common import log
from steplens.collect.dynamic.launched_processes import FORWARD, OPTIMIZER
from steplens.common.errors import SteplensError
from steplens.comparison.limits import STEP, Limit, parse_limit

if TYPE_CHECKING:
    from steplens.bench.checkouts import Version
    from steplens.bench.program import Plan
    from steplens.bench.rounds import Bench, Round
    from steplens.comparison.comparison import StepChange

#: what is recorded for what explains a difference, beside names and times
_PROFILE = {"record_shapes": True, "profile_memory": True}
#: fewer recorded steps explain nothing
_LEAST_RECORDED = 3
#: what versions are called that are two commands
_UNNAMED = ("base", "head")


class _StepOn(str, enum.Enum):
    """What ends a step, for ``--step-on``."""

    optimizer = OPTIMIZER
    forward = FORWARD


class BenchCommand(Command):
    """Options behind the command are its own."""

    allow_interspersed_args = False


def run_versions(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="What to run in both versions.", show_default=False)
    ] = None,
    base: Annotated[
        str | None, typer.Option(metavar="REF", help="The earlier version: a branch, tag or commit of this repository.")
    ] = None,
    head: Annotated[str, typer.Option(metavar="REF", help="The later one; . is the files as they lie here.")] = ".",
    base_command: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="Instead of versions two commands: the earlier one, ...")
    ] = None,
    head_command: Annotated[str | None, typer.Option(metavar="COMMAND", help="... and the later one.")] = None,
    link: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="What git ignores and the program needs, such as data. Several times for several."),
    ] = None,
    setup: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="For the shell, in each version first: a build, for instance.")
    ] = None,
    rounds: Annotated[
        int,
        typer.Option(
            min=6, max=400, metavar="N", help="Rounds at most, 6 or more; in each, both run once.", rich_help_panel="How long"
        ),
    ] = 60,
    minutes: Annotated[
        float | None, typer.Option(min=0.0, metavar="N", help="No round begins later.", rich_help_panel="How long")
    ] = None,
    steps: Annotated[
        int,
        typer.Option(
            min=3, metavar="N", help="Steps of each run that are timed, at full speed; 3 or more.", rich_help_panel="How long"
        ),
    ] = 30,
    skip: Annotated[
        int, typer.Option(min=0, metavar="N", help="Steps before them that count for nothing.", rich_help_panel="How long")
    ] = 5,
    record: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Steps behind them that are recorded, in the first ten rounds, for what explains a difference: 3 or more, or 0 "
            "for none.",
            rich_help_panel="How long",
        ),
    ] = 5,
    patience: Annotated[
        float, typer.Option(min=1.0, metavar="SECONDS", help="So long may one run take.", rich_help_panel="How long")
    ] = 600.0,
    to_the_end: Annotated[
        bool, typer.Option("--to-the-end", help="Let each run end by itself, not when its steps are recorded.")
    ] = False,
    step_on: Annotated[
        _StepOn, typer.Option(metavar="WHAT", help="What ends a step: optimizer, its step(), or forward, a call of the model.")
    ] = _StepOn.optimizer,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIMIT", help="As of steplens compare: step>2%, operators.aten::mm>5% ... Several times for several."
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="How many operators and device tasks to show.")] = 5,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Gets a folder with what was recorded.")] = Path(
        "bench"
    ),
    json: Json = False,
    junit: JunitFile = None,
    markdown: MarkdownFile = None,
) -> None:
    """Run two versions of a program in turns, and tell whether a step became longer.

    steplens bench --base main -- python train.py --layers 4

    The program need know nothing of steplens. Both versions are checked out beside each other; each round runs both, in an order
    drawn by lot, times their steps at full speed and ends them. It stops when it can tell, or after --rounds or --minutes; Ctrl-C
    ends it early, and it says what the complete rounds tell.

    Exit codes: 0, or with --fail-on 1 where a limit is exceeded, 3 where none is and one cannot be told; 2 where a program fails;
    130 where Ctrl-C ended it.
    """
    commands = _choose_commands(command, base, base_command, head_command, _name_checkout_options(head, link, setup))
    reports = ReportFiles(junit, markdown)
    reports.check_targets(json=json)
    sides = [base, head] if base is not None else [shlex.join(words) for words in commands]
    names = [*_UNNAMED] if base is None else [base, "working tree" if head == WORKING_TREE else head]
    from steplens.bench.program import Plan
    from steplens.bench.signals import exit_code_of, leave_on_signals

    plan = Plan(skip, steps, record, step_on.value, _PROFILE, to_the_end, patience)
    try:
        limits = _parse_limits(fail_on or [], record)
        if (junit or markdown) and not record:
            raise SteplensError("--junit and --markdown need recorded steps, and --record is 0")
        with leave_on_signals(), _show_output(), provide_folder(out, names) as folder:
            with _provide_versions(base, head, link or [], setup) as versions:
                outcome = _run_all_rounds(versions, commands, plan, rounds, minutes, folder, limits)
            result = evaluate_rounds(outcome, commands, folder, limits, top, is_recorded=record > 0)
    except SteplensError as error:
        if json:
            print_json({"versions": sides, "problem": str(error)})
        reports.write_problem(sides, str(error))
        raise
    _report_result(result, reports, top, json=json)
    for problem in result.problems:
        if outcome.ended_by:
            problem.exit_code = exit_code_of(outcome.ended_by)
        raise problem
    if outcome.ended_by:
        raise typer.Exit(exit_code_of(outcome.ended_by))
    verdicts = {judgement.verdict for judgement in result.judgements}
    if "exceeded" in verdicts:
        raise typer.Exit(1)
    if "cannot tell" in verdicts:
        raise typer.Exit(3)


def _parse_limits(texts: Sequence[str], record: int) -> list[Limit]:
    """The limits, where as many recorded steps as ``record`` says suffice for them."""
    limits = [parse_limit(text) for text in texts]
    if record and record < _LEAST_RECORDED:
        raise SteplensError(
            f"--record {record}: {_LEAST_RECORDED} recorded steps are the least that explain anything, or 0 for none"
        )
    for limit in limits:
        if limit.figure != STEP and not record:
            raise SteplensError(f"{limit}: needs recorded steps, and --record is 0")
    return limits


def _name_checkout_options(head: str, link: list[str] | None, setup: str | None) -> list[str]:
    """The options given that only versions that are checked out have."""
    options = {"--head": head != WORKING_TREE, "--link": bool(link), "--setup": setup is not None}
    return [name for name, is_given in options.items() if is_given]


def _choose_commands(
    command: list[str] | None, base: str | None, base_command: str | None, head_command: str | None, of_checkouts: Sequence[str]
) -> list[list[str]]:
    """What is run of each version; ``of_checkouts``: options given that only versions that are checked out have."""
    if base is not None and (base_command or head_command):
        raise SteplensError("give two versions (--base, --head) or two commands (--base-command, --head-command), not both")
    if base is not None:
        if not command:
            raise SteplensError(
                "give the command that runs the program, behind --: steplens bench --base main -- python train.py"
            )
        return [command, command]
    if not base_command or not head_command:
        raise SteplensError(
            "give the earlier version with --base, such as --base main, or two commands with --base-command and --head-command"
        )
    if command:
        raise SteplensError(f"{shlex.join(command)}: two commands are given already, with --base-command and --head-command")
    if of_checkouts:
        raise SteplensError(
            f"{' and '.join(of_checkouts)}: two commands run in this folder, where nothing is checked out; leave that out, or "
            "give versions with --base"
        )
    return [_split_command(text) for text in (base_command, head_command)]


def _split_command(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SteplensError(f"{text!r} is no command line: {error}") from None
    if not words:
        raise SteplensError("a command is empty")
    return words


@contextlib.contextmanager
def _show_output() -> Iterator[None]:
    """Show the last lines of a program that failed, above what is said of it."""
    from steplens.bench.checkouts import ProgramError

    try:
        yield
    except ProgramError as error:
        for line in error.last_lines:
            log.write_line(f"  | {clean(line)}")
        raise


@contextlib.contextmanager
def _provide_versions(base: str | None, head: str, links: Sequence[str], setup: str | None) -> Iterator[Sequence[Version]]:
    """What runs in turns: versions that are checked out, or where there are two commands the folder that this is, twice."""
    from steplens.bench.checkouts import Version, check_out

    if base is None:
        yield [Version(name, Path.cwd()) for name in _UNNAMED]
    else:
        with check_out([base, head], links, setup) as versions:
            yield versions


def _run_all_rounds(
    versions: Sequence[Version],
    commands: Sequence[Sequence[str]],
    plan: Plan,
    rounds: int,
    minutes: float | None,
    folder: Path,
    limits: Sequence[Limit],
) -> Bench:
    from steplens.bench.rounds import run_rounds
    from steplens.cli.text.bench_text import estimate_time
    from steplens.comparison.comparison import CANNOT_TELL
    from steplens.comparison.gate import find_asked_change

    of_step = [limit for limit in limits if limit.figure == STEP]
    complete = CompleteRounds()
    begin = time.monotonic()

    def is_told(step: StepChange) -> bool:
        if not of_step:
            return step.step_verdict != CANNOT_TELL
        return all(step.low > limit.ratio or step.high <= limit.ratio for limit in of_step)

    def report_round(ran: Sequence[Round], step: StepChange | None) -> None:
        round_s = time.monotonic() - begin
        if len(ran) == 1 and plan.recorded:
            check_recorded(folder, versions, limits, plan.steps_needed)
        complete.rounds = tuple(ran)
        text = f"round {len(ran)} of {rounds} at most"
        if len(ran) == 1:
            text += f": {estimate_time(round_s, rounds)}"
        if step is not None:
            complete.step, complete.looked_after = step, len(ran)
            text += f": {100 * step.ratio:+.1f} %, {100 * step.low:+.1f} % to {100 * step.high:+.1f} %"
        log.report_progress(clean(text))

    seconds = None if minutes is None else 60.0 * minutes
    try:
        return run_rounds(
            versions,
            commands,
            plan,
            rounds=rounds,
            seconds=seconds,
            out=folder,
            is_told=is_told,
            asked_change=find_asked_change(limits),
            report=report_round,
        )
    except SteplensError as error:
        if not complete.rounds:
            raise
        raise keep_complete_rounds(error, complete, versions, commands, folder) from error


def _report_result(result: BenchResult, reports: ReportFiles, top: int, *, json: bool) -> None:
    """Write and print what is asked for."""
    if result.comparison is not None:
        reports.write_reports([report_result(result, result.comparison)], top)
    if json:
        print_json(result.as_document(top))
    elif not reports.are_printed:
        from steplens.cli.text.bench_text import show_bench

        show_bench(result.outcome, result.comparison, result.judgements, result.doubts, top, result.folder)
