"""``steplens bench``: two versions of a program in turns on this machine, until it can be told whether a step became longer."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import enum
import json as json_module
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    from steplens.bench.rounds import Bench
    from steplens.comparison.comparison import Comparison, StepChange
    from steplens.comparison.gate import Judgement

#: what is recorded for what explains a difference, beside names and times
_PROFILE = {"record_shapes": True, "profile_memory": True}
#: fewer recorded steps explain nothing
_LEAST_RECORDED = 3
_SUMMARY_FILE = "bench.json"


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
        int, typer.Option(min=6, max=400, metavar="N", help="Rounds at most; in each, both run once.", rich_help_panel="How long")
    ] = 60,
    minutes: Annotated[
        float | None, typer.Option(min=0.0, metavar="N", help="No round begins later.", rich_help_panel="How long")
    ] = None,
    steps: Annotated[
        int, typer.Option(min=3, metavar="N", help="Steps of each run that are timed, at full speed.", rich_help_panel="How long")
    ] = 30,
    skip: Annotated[
        int, typer.Option(min=0, metavar="N", help="Steps before them that count for nothing.", rich_help_panel="How long")
    ] = 5,
    record: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Steps behind them that are recorded, in the first ten rounds, for what explains a difference; 0 for none.",
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
    drawn by lot, times their steps at full speed and ends them. It stops when it can tell, or after --rounds or --minutes.

    Exit codes: 0, or with --fail-on 1 where a limit is exceeded, 3 where none is and one cannot be told; 2 where a program fails.
    """
    limits = [parse_limit(text) for text in fail_on or []]
    commands = _choose_commands(command, base, base_command, head_command)
    if record and record < _LEAST_RECORDED:
        raise SteplensError(
            f"--record {record}: {_LEAST_RECORDED} recorded steps are the least that explain anything, or 0 for none"
        )
    for limit in limits:
        if limit.figure != STEP and not record:
            raise SteplensError(f"{limit}: needs recorded steps, and --record is 0")
    reports = ReportFiles(junit, markdown)
    reports.check_targets(json=json)
    if (junit or markdown) and not record:
        raise SteplensError("--junit and --markdown need recorded steps, and --record is 0")
    from steplens.bench.checkouts import Version, check_out
    from steplens.bench.program import Plan
    from steplens.bench.signals import leave_on_signals

    plan = Plan(skip, steps, record, step_on.value, _PROFILE, to_the_end, patience)
    try:
        with leave_on_signals(), _show_output():
            if base is None:
                here = [Version(name, Path.cwd()) for name in ("base", "head")]
                outcome, folder = _run_bench(here, commands, plan, rounds, minutes, out, limits)
            else:
                with check_out([base, head], link or [], setup) as versions:
                    outcome, folder = _run_bench(versions, commands, plan, rounds, minutes, out, limits)
    except SteplensError as error:
        sides = [base, head] if base is not None else [shlex.join(words) for words in commands]
        reports.write_problem(sides, str(error))
        raise
    comparison = _compare_recorded(outcome, folder) if record else None
    judgements = _judge_limits(outcome, comparison, limits)
    document = _as_document(outcome, commands, comparison, judgements, top, folder)
    (folder / _SUMMARY_FILE).write_text(json_module.dumps(document, indent=1) + "\n")
    if comparison is not None:
        from steplens.cli.text.bench_text import COUNTED, describe_versions
        from steplens.comparison.reports.reported import Reported

        versions_text = describe_versions(outcome)
        reports.write_reports([Reported(comparison, judgements, versions=versions_text, counted=COUNTED)], top)
    if json:
        print_json(document)
    elif not reports.are_printed:
        from steplens.cli.text.bench_text import show_bench

        show_bench(outcome, comparison, judgements, top, folder)
    verdicts = {judgement.verdict for judgement in judgements}
    if "exceeded" in verdicts:
        raise typer.Exit(1)
    if "cannot tell" in verdicts:
        raise typer.Exit(3)


def _choose_commands(
    command: list[str] | None, base: str | None, base_command: str | None, head_command: str | None
) -> list[list[str]]:
    """What is run of each version."""
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


def _run_bench(
    versions: Sequence[Version],
    commands: Sequence[Sequence[str]],
    plan: Any,
    rounds: int,
    minutes: float | None,
    out: Path,
    limits: Sequence[Limit],
) -> tuple[Bench, Path]:
    time_text = datetime.datetime.now().strftime("%Y%m%d_%H%M%S")
    names = [re.sub(r"[^A-Za-z0-9.-]+", "-", version.name).strip("-.") or "version" for version in versions]
    folder = out.absolute() / f"{names[0]}_{names[1]}_{time_text}"
    folder.mkdir(parents=True)
    # no part of the working tree, which the next bench copies
    ignored = folder / ".gitignore"
    ignored.write_text("*\n")
    try:
        return _run_all_rounds(versions, commands, plan, rounds, minutes, folder, limits), folder
    except BaseException:  # whatever ends it: of a program that failed at once nothing is there
        if set(folder.glob("*")) <= {ignored}:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _run_all_rounds(
    versions: Sequence[Version],
    commands: Sequence[Sequence[str]],
    plan: Any,
    rounds: int,
    minutes: float | None,
    folder: Path,
    limits: Sequence[Limit],
) -> Bench:
    from steplens.bench.rounds import run_rounds
    from steplens.comparison.comparison import CANNOT_TELL

    of_step = [limit for limit in limits if limit.figure == STEP]

    def is_told(step: StepChange) -> bool:
        if not of_step:
            return step.step_verdict != CANNOT_TELL
        return all(step.low > limit.ratio or step.high <= limit.ratio for limit in of_step)

    def report_round(ran: int, step: StepChange | None) -> None:
        text = f"round {ran} of {rounds} at most"
        if step is not None:
            text += f": {100 * step.ratio:+.1f} %, {100 * step.low:+.1f} % to {100 * step.high:+.1f} %"
        log.report_progress(clean(text))

    seconds = None if minutes is None else 60.0 * minutes
    return run_rounds(versions, commands, plan, rounds=rounds, seconds=seconds, out=folder, is_told=is_told, report=report_round)


def _compare_recorded(found: Bench, folder: Path) -> Comparison:
    """What explains the change, from what was recorded; the change itself is that of the steps at full speed."""
    import steplens
    from steplens.bench.rounds import SIDES
    from steplens.comparison.comparison import compare_sides
    from steplens.comparison.measure import measure_side

    sides = []
    for name in SIDES:
        side = measure_side(steplens.open(folder / name))
        # neither ran after the other one, and how long programs waited for a processor is said of the rounds
        circumstances = dataclasses.replace(side.circumstances, begin_ns=0, waited_share=0.0)
        sides.append(dataclasses.replace(side, circumstances=circumstances))
    return dataclasses.replace(compare_sides(*sides), step=found.step)


def _judge_limits(outcome: Bench, comparison: Comparison | None, limits: Sequence[Limit]) -> list[Judgement]:
    from steplens.comparison.gate import judge_interval, judge_limit

    judgements = []
    for limit in limits:
        if comparison is None:
            judgements.append(judge_interval(limit, outcome.step.ratio, outcome.step.low, outcome.step.high))
        else:
            judgements.append(judge_limit(comparison, limit))
    return judgements


def _as_document(
    outcome: Bench,
    commands: Sequence[Sequence[str]],
    comparison: Comparison | None,
    judgements: Sequence[Judgement],
    top: int,
    folder: Path,
) -> dict[str, Any]:
    from steplens.cli.compare import comparison_document

    sides = [
        {"name": version.name, "commit": version.commit or None, "command": list(command), "step_ns": outcome.usual_ns(number)}
        for number, (version, command) in enumerate(zip(outcome.versions, commands, strict=True))
    ]
    return {
        "base": sides[0],
        "head": sides[1],
        "step": {**dataclasses.asdict(outcome.step), "verdict": outcome.step.step_verdict},
        "is_told": outcome.is_told,
        "rounds": [dataclasses.asdict(round_) for round_ in outcome.rounds],
        "limits": [dataclasses.asdict(judgement) for judgement in judgements],
        "recorded": None if comparison is None else comparison_document(comparison, judgements, top),
        "folder": str(folder),
    }
