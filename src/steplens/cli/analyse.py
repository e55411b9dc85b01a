"""``steplens analyse``: turn recorded data into results, now or long after the run."""

from __future__ import annotations

import dataclasses
import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steplens.cli.line.arguments import InputPath, Json, Scheduler
from steplens.cli.line.ending import next_commands, say_next
from steplens.cli.text.text import console, plain, print_json
from steplens.common import rundir
from steplens.readers.glance import refuse_hopeless

if TYPE_CHECKING:
    from steplens.offline import RunResult
    from steplens.offline.recompute import Comparison


class Export(str, enum.Enum):
    """The families of output files."""

    text = "text"
    db = "db"


def analyse(
    path: InputPath,
    max_process_number: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="How many run directories are analysed at a time; half the cores by default."),
    ] = None,
    export_type: Annotated[
        list[Export] | None,
        typer.Option(metavar="FORM", help="Which files are written, text or db; as recorded by default. May be given twice."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Analyse again what is complete already.")] = False,
    recompute: Annotated[
        bool,
        typer.Option("--recompute", help="Also what holds results only: compute them again and compare with those it holds."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Folder for the results, in place of the runs' own; ./recomputed where one is needed.",
        ),
    ] = None,
    scheduler: Scheduler = "",
    json: Json = False,
) -> None:
    """Write the result files of every recorded run in PATH; what is complete already is left alone.

    What holds results only (of another profiler) is never changed: --recompute writes new ones into a folder of their own.

    Exit code 2 means that no run gave results, 3 that some runs or files could not be written, or that a recomputed figure
    differs from the capture's own by more than 1 % and more than rounding.
    """
    refuse_hopeless(path)
    from steplens import offline
    from steplens.common.executors import named_executor

    executor = named_executor(scheduler) if scheduler else None
    exports = [kind.value for kind in export_type] if export_type else None
    results = offline.analyse(
        path, max_process_number, exports, force=force, recompute=recompute, output=output, executor=executor
    )
    code = offline.exit_code(results)
    if json:
        print_json({"path": str(path), "exit_code": code, "runs": [dataclasses.asdict(result) for result in results]})
    else:
        _show_results(results, path)
    raise typer.Exit(code)


def _show_results(results: list[RunResult], path: Path) -> None:
    out = console()
    for result in results:
        if result.problem:
            outcome = "no results"
        elif result.note:
            outcome = result.note
        elif result.already_complete:
            outcome = "complete already"
        else:
            written = sum(status.status == "done" for status in result.outputs.values())
            outcome = f"{written} files in {result.seconds:.1f} s" + ("" if result.ok else ", not everything")
        folder = (result.written_to or result.path) / rundir.OUTPUT_DIRECTORY if not result.note else result.path
        out.print(plain(f"{folder}: {outcome}"), soft_wrap=True)
        for comparison in result.comparison:
            out.print(plain(f"  {comparison.name}: {_describe_comparison(comparison)}"), soft_wrap=True)
    if any(result.ok for result in results):
        say_next(next_commands(path, "summary"))


def _describe_comparison(comparison: Comparison) -> str:
    """One sentence on how a recomputed file differs from the capture's own."""
    recorded, again = comparison.rows
    matters = "; this is more than rounding" if comparison.matters else ""
    if comparison.problem:
        return f"{comparison.problem} ({recorded} in the capture, {again} recomputed)"
    if comparison.equal == comparison.cells:
        return f"{recorded} rows, all {comparison.cells} cells equal the capture's own"
    largest = f"; the largest difference is {comparison.largest:g} in {comparison.column}" if comparison.largest else ""
    where = largest or f"; the first column that differs is {comparison.column}"
    return f"{recorded} rows, {comparison.equal} of {comparison.cells} cells equal the capture's own{where}{matters}"
