"""``steplens compare``: whether a step became slower between runs, by how much, where, and how sure that is."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steplens.cli.line.arguments import Json, JunitFile, MarkdownFile, Rank, SidePath, parse_side
from steplens.cli.line.report_files import ReportFiles
from steplens.cli.opening import keep_timelines, open_with_progress, show_work
from steplens.cli.summary.summary import problem_of_health
from steplens.cli.table import of_rank
from steplens.cli.text.text import print_json
from steplens.common.errors import InputError, SteplensError
from steplens.common.stand_ins import told_path
from steplens.comparison.baselines.places import check_baseline, is_baseline
from steplens.comparison.limits import parse_limit
from steplens.comparison.reports.reported import Reported
from steplens.readers.glance import refuse_hopeless

if TYPE_CHECKING:
    from steplens.comparison.comparison import Comparison
    from steplens.comparison.gate import Judgement
    from steplens.comparison.side import Side

EXIT_BEYOND, EXIT_CANNOT_TELL = 1, 3


def show_comparisons(
    before: SidePath,
    after: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="What is compared with it.", show_default=False, parser=parse_side)
    ],
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIMIT",
            help="End with exit code 1 where all of the interval is beyond: step>2%, forward>5%, operators.aten::mm>5%, "
            "memory_peak>1%; with 3 where that cannot be told. Several times for several.",
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="How many operators and device tasks to show.")] = 5,
    rank: Rank = None,
    json: Json = False,
    junit: JunitFile = None,
    markdown: MarkdownFile = None,
) -> None:
    """Compare runs with an earlier one: is a step slower, by how much, where, and is that more than chance?

    A folder of several recordings of one program counts as so many runs, which tells smaller changes: processes of one program
    differ by more than steps of a process. The interval is that of 95 %.

    Exit codes: 0, or with --fail-on 1 where a limit is exceeded, 3 where none is and one cannot be told; 2 for bad input, too few
    steps, or data that was cut short. docs/compare.md lists the figures that can have a limit.
    """
    reports = ReportFiles(junit, markdown)
    reports.check_targets(json=json)
    paths = [before, *after]
    try:
        for path in paths:
            (check_baseline if is_baseline(path) else refuse_hopeless)(path)
        limits = [parse_limit(text) for text in fail_on or []]
        from steplens.comparison.comparison import compare_sides
        from steplens.comparison.gate import find_asked_change, judge_limit
        from steplens.comparison.measure import keep_measured, measure_side
        from steplens.run import Run

        opened = [
            _open_baseline(path, rank) if is_baseline(path) else of_rank(open_with_progress(path, rank), rank) for path in paths
        ]
        with show_work("comparing"):
            sides = [measure_side(run) if isinstance(run, Run) else run for run in opened]
            comparisons = [compare_sides(sides[0], side, find_asked_change(limits)) for side in sides[1:]]
            judgements = [[judge_limit(comparison, limit) for limit in limits] for comparison in comparisons]
    except SteplensError as error:
        if json:
            print_json({"paths": [*map(str, paths)], "problem": str(error)})
        reports.write_problem([told_path(path) for path in paths], str(error))
        raise
    problems = [list(find_problems(comparison)) for comparison in comparisons]
    if json:
        print_json({"comparisons": [comparison_document(*row, top) for row in zip(comparisons, judgements, strict=True)]})
    elif not reports.are_printed:
        from steplens.cli.text.compare_text import show_comparison

        for comparison, judged in zip(comparisons, judgements, strict=True):
            show_comparison(comparison, judged, top)
    reported = [
        Reported(comparison, judged, [str(problem) for problem in wrong])
        for comparison, judged, wrong in zip(comparisons, judgements, problems, strict=True)
    ]
    reports.write_reports(reported, top)
    for side in sides:
        if side.run is not None:
            keep_timelines(side.run)
            keep_measured(side.run)
    for problem in itertools.chain.from_iterable(problems):
        raise problem
    verdicts = {judgement.verdict for judged in judgements for judgement in judged}
    if "exceeded" in verdicts:
        raise typer.Exit(EXIT_BEYOND)
    if "cannot tell" in verdicts:
        raise typer.Exit(EXIT_CANNOT_TELL)


def _open_baseline(path: Path, rank: int | None) -> Side:
    from steplens.comparison.baselines.baseline import read_baseline

    side = read_baseline(path).side
    if rank is not None and side.circumstances.ranks != (rank,):
        raise InputError(path, f"is not of rank {rank} alone, and a baseline cannot be divided", "Save one with --rank")
    return side


def find_problems(comparison: Comparison) -> Iterator[SteplensError]:
    """What makes the sides of a comparison bad input, though what there is of them was compared."""
    for side in (comparison.before, comparison.after):
        if problem := problem_of_health(side.circumstances.problems):
            yield InputError(side.path, problem)
        elif side.too_few_steps is not None:
            yield side.too_few_steps


def comparison_document(comparison: Comparison, judged: Sequence[Judgement], top: int) -> dict[str, Any]:
    """What ``--json`` prints of a comparison."""
    from steplens.comparison.reports.sentences import unexplained_sentences

    step = None if comparison.step is None else {**dataclasses.asdict(comparison.step), "verdict": comparison.step.step_verdict}
    derived = ("difference_ns", "is_certain")
    return {
        "before": _side_document(comparison.before),
        "after": _side_document(comparison.after),
        "step": step,
        "parts": [{**dataclasses.asdict(part), **{name: getattr(part, name) for name in derived}} for part in comparison.parts],
        "operators": [_operator_document(comparison, row) for row in comparison.operators.head(top).to_dicts()],
        "tasks": comparison.tasks.head(top).to_dicts(),
        "device_time": comparison.device_time.rows.head(top).to_dicts(),
        "device_time_matched": comparison.device_time.matched,
        "causes": _causes_document(comparison),
        "unexplained": unexplained_sentences(comparison),
        "memory": [dataclasses.asdict(held) for held in comparison.memory_changes],
        "doubts": list(comparison.doubts),
        "limits": [dataclasses.asdict(judgement) for judgement in judged],
    }


def _causes_document(comparison: Comparison) -> dict[str, Any] | None:
    if comparison.causes is None:
        return None
    derived = ("difference_ns", "is_certain")
    causes = [
        {**dataclasses.asdict(cause), **{name: getattr(cause, name) for name in derived}} for cause in comparison.causes.causes
    ]
    return {**dataclasses.asdict(comparison.causes), "causes": causes}


def _operator_document(comparison: Comparison, row: dict[str, Any]) -> dict[str, Any]:
    from steplens.comparison.item_times import SELF
    from steplens.comparison.operator_steps import compare_operator

    difference = compare_operator(comparison.before, comparison.after, row["name"], SELF).difference
    if difference is None:
        return {**row, "error_ns": None, "is_certain": False}
    return {**row, "error_ns": difference.error, "is_certain": difference.is_certain}


def _side_document(side: Side) -> dict[str, Any]:
    return {"path": str(side.path), "recordings": len(side.recordings), "steps": side.step_count, "step_ns": side.step_ns}
