"""What becomes of a bench: the folder that keeps it, what its recordings explain, whether limits are kept, ``bench.json``."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steplens.common import rundir
from steplens.common.errors import InputError, SteplensError
from steplens.common.stand_ins import told_path
from steplens.comparison.limits import KERNELS, OPERATORS, STEP, Limit

if TYPE_CHECKING:
    from steplens.bench.checkouts import Version
    from steplens.bench.rounds import Bench, Round
    from steplens.comparison.comparison import Comparison, StepChange
    from steplens.comparison.gate import Judgement
    from steplens.comparison.reports.reported import Reported
    from steplens.comparison.side import Side

SUMMARY_FILE = "bench.json"


@dataclass
class CompleteRounds:
    """How far a bench has come.

    Attributes:
        rounds: those that are complete.
        step: what they said of the step time when that was last looked at; None where it was not yet.
        looked_after: after how many rounds that was.
    """

    rounds: tuple[Round, ...] = ()
    step: StepChange | None = None
    looked_after: int = 0


@dataclass(frozen=True)
class BenchResult:
    """What a bench found.

    Attributes:
        outcome: of the steps at full speed.
        commands: what was run of each version.
        folder: where it is kept.
        comparison: of what was recorded, which explains the change; None where nothing was.
        judgements: whether limits are kept.
        problems: why limits cannot rest on what was recorded; none where no limit does.
        doubts: sentences about the rounds, and about recordings on which no limit rests.
    """

    outcome: Bench
    commands: Sequence[Sequence[str]]
    folder: Path
    comparison: Comparison | None = None
    judgements: Sequence[Judgement] = ()
    problems: Sequence[SteplensError] = ()
    doubts: Sequence[str] = ()

    def as_document(self, top: int) -> dict[str, Any]:
        """What ``--json`` prints.

        Args:
            top: how many operators and device tasks it lists.
        """
        from steplens.cli.compare import comparison_document

        outcome, comparison = self.outcome, self.comparison
        sides = _describe_sides(outcome.versions, self.commands)
        return {
            **{name: {**side, "step_ns": outcome.usual_ns(number)} for number, (name, side) in enumerate(sides.items())},
            "step": _describe_step(outcome.step),
            "is_told": outcome.is_told,
            "rounds": [dataclasses.asdict(round_) for round_ in outcome.rounds],
            "doubts": list(self.doubts),
            "limits": [dataclasses.asdict(judgement) for judgement in self.judgements],
            "recorded": None if comparison is None else comparison_document(comparison, self.judgements, top),
            "folder": str(self.folder),
        }


@contextlib.contextmanager
def provide_folder(out: Path, names: Sequence[str]) -> Iterator[Path]:
    """Make a new folder for a bench; where the bench fails and has left nothing in it, it is removed again.

    Args:
        out: the folder in which it is made.
        names: of both versions.

    Raises:
        InputError: it cannot be made.
    """
    is_new = not out.exists()
    folder = _make_folder(out.absolute(), names)
    # no part of the working tree, which the next bench copies
    ignored = folder / ".gitignore"
    is_complete = False
    try:
        ignored.write_text("*\n")
        yield folder
        is_complete = True
    finally:
        if not is_complete:
            # of a program that failed at once nothing is there
            with contextlib.suppress(OSError):
                if set(folder.iterdir()) <= {ignored}:
                    ignored.unlink(missing_ok=True)
                folder.rmdir()
                if is_new:
                    folder.parent.rmdir()


def check_recorded(folder: Path, versions: Sequence[Version], limits: Sequence[Limit], steps_needed: int) -> None:
    """Whether a round has recorded what is asked for: what is missing after the first one is missing after all of them.

    Args:
        folder: of the bench.
        versions: the earlier and the later one.
        limits: what is not to be exceeded.
        steps_needed: how many steps a program has to take.

    Raises:
        SteplensError: of a version nothing was recorded, it cannot be read, is too little for limits, or lacks what they name.
    """
    from steplens.bench.rounds import SIDES
    from steplens.comparison.comparison import compare_sides
    from steplens.comparison.gate import check_item
    from steplens.comparison.noise import LEAST_STEPS

    for name, version in zip(SIDES, versions, strict=True):
        if not (folder / name).is_dir() or not any((folder / name).iterdir()):
            raise SteplensError(
                f"{version.full_name}: its steps were timed, and nothing was recorded: it ended before the {steps_needed} steps "
                "that timing and recording take, or recording failed in it; let it run longer, lower --skip, --steps and "
                "--record, or record nothing with --record 0"
            )
    sides = _measure_sides(folder)
    rests_on_recordings = any(limit.figure != STEP for limit in limits)
    for side, version in zip(sides, versions, strict=True):
        if rests_on_recordings and side.too_few_steps is not None:
            count = f"{side.step_count} step{'s were' if side.step_count != 1 else ' was'}"
            raise SteplensError(
                f"{version.full_name}: {count} recorded, and limits on what is recorded need {LEAST_STEPS} of a run; let it run "
                f"for {steps_needed} steps or more, or lower --skip and --steps"
            )
    comparison = compare_sides(sides[0], sides[1])
    for limit in limits:
        if limit.figure.startswith((OPERATORS, KERNELS)):
            check_item(comparison, limit)


def evaluate_rounds(
    outcome: Bench, commands: Sequence[Sequence[str]], folder: Path, limits: Sequence[Limit], top: int, *, is_recorded: bool
) -> BenchResult:
    """Judge limits and find what explains the change, and keep all of it in ``bench.json``.

    Args:
        outcome: of the steps at full speed.
        commands: what was run of each version.
        folder: of the bench.
        limits: what is not to be exceeded.
        top: how many operators and device tasks are kept.
        is_recorded: whether there are recordings.

    Raises:
        SteplensError: what was recorded cannot be compared or judged; what was timed is kept, and said.
    """
    from steplens.bench.signals import exit_code_of
    from steplens.cli.text.bench_text import COUNTED, describe_doubts
    from steplens.comparison.reports.sentences import step_sentence

    result = BenchResult(outcome, commands, folder, doubts=describe_doubts(outcome))
    # first what took long to measure, whatever becomes of the rest
    _write_document(folder, result.as_document(top))
    try:
        result = (_judge_recorded if is_recorded else _judge_rounds)(result, limits)
    except SteplensError as error:
        _write_document(folder, {**result.as_document(top), "problem": str(error)})
        timed = step_sentence(outcome.step, COUNTED)
        longer = SteplensError(f"{str(error).rstrip('.')}. Of the steps at full speed: {timed} {_where_kept(folder)}")
        longer.exit_code = exit_code_of(outcome.ended_by) if outcome.ended_by else error.exit_code
        raise longer from error
    _write_document(folder, result.as_document(top))
    return result


def report_result(result: BenchResult, comparison: Comparison) -> Reported:
    """What reports are made of.

    Args:
        result: of the bench.
        comparison: of what it recorded.
    """
    from steplens.cli.text.bench_text import COUNTED, describe_medians, describe_recorded, describe_versions
    from steplens.comparison.reports.reported import Reported

    return Reported(
        comparison,
        result.judgements,
        [str(problem) for problem in result.problems],
        versions=describe_versions(result.outcome),
        counted=COUNTED,
        doubts=result.doubts,
        medians=describe_medians(result.outcome),
        explained=describe_recorded(comparison),
    )


def keep_complete_rounds(
    error: SteplensError, complete: CompleteRounds, versions: Sequence[Version], commands: Sequence[Sequence[str]], folder: Path
) -> SteplensError:
    """Keep what is known of a bench that could not go on.

    Args:
        error: why it could not.
        complete: how far it has come.
        versions: the earlier and the later one.
        commands: what was run of each.
        folder: of the bench.

    Returns:
        The error with what was kept in its sentence.
    """
    from steplens.bench.checkouts import ProgramError
    from steplens.cli.text.bench_text import COUNTED
    from steplens.comparison.reports.sentences import step_sentence

    document = {
        **_describe_sides(versions, commands),
        "step": None if complete.step is None else _describe_step(complete.step),
        "looked_after": complete.looked_after,
        "rounds": [dataclasses.asdict(round_) for round_ in complete.rounds],
        "problem": str(error),
        "folder": str(folder),
    }
    _write_document(folder, document)
    count = len(complete.rounds)
    sentence = f"{str(error).rstrip('.')}. {count} round{'s were' if count > 1 else ' was'} complete before that"
    if complete.step is not None:
        sentence += f"; after {complete.looked_after} of them: {step_sentence(complete.step, COUNTED)}"
    sentence = f"{sentence.rstrip('.')}. {_where_kept(folder)}"
    longer = ProgramError(sentence, error.last_lines) if isinstance(error, ProgramError) else SteplensError(sentence)
    longer.exit_code = error.exit_code
    return longer


def _make_folder(out: Path, names: Sequence[str]) -> Path:
    time_text = datetime.datetime.now().strftime("%Y%m%d_%H%M%S")
    parts = [*(re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.") or "version" for name in names), time_text]
    number = 1
    while True:
        folder = out / "_".join([*parts, *([str(number)] if number > 1 else [])])
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            if not folder.is_dir():
                raise _refuse_path(out, error) from error
            # two benches of the same versions may begin in one second
            number += 1
        else:
            return folder


def _write_document(folder: Path, document: dict[str, Any]) -> None:
    try:
        rundir.write_json(folder / SUMMARY_FILE, document, indent=1)
    except OSError as error:
        raise _refuse_path(folder / SUMMARY_FILE, error) from error


def _refuse_path(path: Path, error: OSError) -> InputError:
    return InputError(path, f"cannot be written: {error.strerror or error}", "Choose another folder with --out")


def _where_kept(folder: Path) -> str:
    return f"What was measured is kept in {told_path(folder)}"


def _describe_sides(versions: Sequence[Version], commands: Sequence[Sequence[str]]) -> dict[str, dict[str, Any]]:
    from steplens.bench.rounds import SIDES

    return {
        name: {"name": version.name, "commit": version.commit or None, "command": list(command)}
        for name, version, command in zip(SIDES, versions, commands, strict=True)
    }


def _describe_step(step: StepChange) -> dict[str, Any]:
    return {**dataclasses.asdict(step), "verdict": step.step_verdict}


def _measure_sides(folder: Path) -> list[Side]:
    import steplens
    from steplens.bench.rounds import SIDES
    from steplens.comparison.measure import measure_side

    sides = []
    for name in SIDES:
        side = measure_side(steplens.open(folder / name))
        # neither ran after the other one, what runs of a version differ by is in the interval, and how long programs waited for a
        # processor is said of the rounds
        circumstances = dataclasses.replace(side.circumstances, begin_ns=0, steps_ns=(), waited_share=0.0)
        sides.append(dataclasses.replace(side, circumstances=circumstances))
    return sides


def _judge_rounds(result: BenchResult, limits: Sequence[Limit]) -> BenchResult:
    """Add whether limits on the step are kept; there are no others where nothing was recorded."""
    return dataclasses.replace(result, judgements=[_judge_step(result.outcome.step, limit) for limit in limits])


def _judge_recorded(result: BenchResult, limits: Sequence[Limit]) -> BenchResult:
    """Add what explains the change, and whether limits are kept: those on the step by the steps at full speed."""
    from steplens.cli.compare import find_problems
    from steplens.cli.summary.summary import problem_of_health
    from steplens.comparison.comparison import compare_sides
    from steplens.comparison.gate import judge_limit

    step = result.outcome.step
    before, after = _measure_sides(result.folder)
    recorded = compare_sides(before, after, are_versions=True)
    problems: list[SteplensError] = []
    doubts = [*result.doubts]
    if any(limit.figure != STEP for limit in limits):
        problems += find_problems(recorded)
    else:
        # the verdict rests on what was timed
        texts = [(side.path, problem_of_health(side.circumstances.problems)) for side in (before, after)]
        doubts += [f"{told_path(path)}: {text}" for path, text in texts if text]
    return dataclasses.replace(
        result,
        comparison=dataclasses.replace(recorded, step=step),
        judgements=[_judge_step(step, limit) if limit.figure == STEP else judge_limit(recorded, limit) for limit in limits],
        problems=problems,
        doubts=doubts,
    )


def _judge_step(step: StepChange, limit: Limit) -> Judgement:
    from steplens.comparison.gate import judge_interval

    return judge_interval(limit, step.ratio, step.low, step.high)
