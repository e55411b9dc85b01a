"""``steplens baseline``: sides of comparisons that are kept by name, in a folder that can be committed or behind a URL."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steplens.cli.line.arguments import Json, Rank, parse_path
from steplens.cli.line.commands import Commands, LookingCommand
from steplens.cli.line.ending import say_next
from steplens.cli.opening import keep_timelines, open_with_progress, show_work
from steplens.cli.summary.summary import problem_of_health
from steplens.cli.table import of_rank
from steplens.cli.text.text import print_json
from steplens.common.errors import InputError, SteplensError
from steplens.common.storage.files import locate_path, write_file
from steplens.comparison.baselines import places
from steplens.readers.glance import refuse_hopeless

if TYPE_CHECKING:
    from steplens.comparison.side import Side
    from steplens.run import Run

_WHERE = f"The folder or URL that baselines are in; {places.VARIABLE} says another one than {places.FOLDER}/."
_From = Annotated[str, typer.Option("--from", metavar="FOLDER", help=_WHERE, show_default=False)]


def make_group() -> typer.Typer:
    """The command with its own commands."""
    app = typer.Typer(
        cls=Commands,
        help="Keep what a comparison needs of recordings, by name: steplens compare baseline:NAME RUN.",
        no_args_is_help=True,
    )
    for name, command in (("save", save_baseline), ("list", list_baselines), ("show", show_baseline)):
        app.command(name, cls=LookingCommand)(command)
    return app


def save_baseline(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called, such as main.", show_default=False)],
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Recordings of one program, or folders of such.", show_default=False, parser=parse_path
        ),
    ],
    into: Annotated[str, typer.Option(metavar="FOLDER", help=_WHERE, show_default=False)] = "",
    replace: Annotated[bool, typer.Option("--replace", help="In place of the baseline of this name.")] = False,
    add: Annotated[bool, typer.Option("--add", help="To the baseline of this name, where there is one.")] = False,
    rank: Rank = None,
) -> None:
    """Save recordings as a baseline: a file of some twenty kilobytes for each, with all that a comparison needs.

    The file is FOLDER/NAME.baseline, and the same for the same recordings. It names the host, the versions and the commit of git
    that is checked out here (docs/compare.md). Five recordings of 100 steps or more tell changes of some percent.
    """
    if replace and add:
        raise SteplensError("--replace and --add contradict each other: give one of them")
    path = locate_path(places.address_of(name, into))
    is_taken = places.is_there(path)
    if is_taken and not (replace or add):
        remedy = "Put the new one in its place with --replace, or these recordings to it with --add"
        raise InputError(path, "there is a baseline of this name", remedy)
    for run in runs:
        refuse_hopeless(run)
    from steplens.cli.text.baseline_text import show_saved
    from steplens.comparison.baselines.baseline import encode_baseline, read_baseline
    from steplens.comparison.baselines.checkout import find_commit
    from steplens.comparison.baselines.joined_sides import join_sides
    from steplens.comparison.measure import measure_side

    earlier = read_baseline(path) if add and is_taken else None
    opened = [of_rank(open_with_progress(run, rank), rank) for run in runs]
    with show_work("measuring"):
        sides = [_refuse_unsafe(measure_side(run)) for run in opened]
        side = join_sides([earlier.side, *sides] if earlier is not None else sides, path)
        commit, changed = find_commit(Path.cwd(), path.parent)
        commits = [*(earlier.commits if earlier is not None else ()), *([commit] if commit else [])]
        changed = changed or (earlier is not None and earlier.changed)
        content = encode_baseline(side, list(dict.fromkeys(commits)), changed=changed)
    write_file(path, content)
    show_saved(name, side, path, len(content))
    _say_how_to_compare(name, path, into)
    _keep_all_timelines(opened)


def list_baselines(folder: _From = "", json: Json = False) -> None:
    """List the baselines there are, with their step time, how many steps and recordings, when and of which commit."""
    paths = places.find_baselines(folder)
    if not paths:
        if json:
            print_json({"baselines": []})
        else:
            typer.echo(f"no baselines in {places.baselines_folder(folder)}; save one with: steplens baseline save NAME RUN")
        return
    from steplens.cli.text.baseline_text import baseline_document, show_baselines
    from steplens.comparison.baselines.baseline import read_baseline

    baselines, problems = [], []
    for path in paths:
        try:
            baselines.append(read_baseline(path))
        except InputError as error:
            problems.append(error)
    if json:
        print_json({"baselines": [baseline_document(baseline) for baseline in baselines], "problems": list(map(str, problems))})
    else:
        show_baselines(baselines)
    if problems:
        raise problems[0]


def show_baseline(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of the baseline, or the path or URL of its file.", show_default=False)
    ],
    folder: _From = "",
    top: Annotated[int, typer.Option(min=1, metavar="N", help="How many operators and device tasks to show.")] = 5,
    json: Json = False,
) -> None:
    """Show a baseline: what a step took, its parts and operators, and where it was recorded."""
    path = _locate_named(name, folder)
    places.check_baseline(path)
    from steplens.cli.text.baseline_text import baseline_document, describe_baseline
    from steplens.comparison.baselines.baseline import read_baseline

    baseline = read_baseline(path)
    if json:
        print_json(baseline_document(baseline, top))
    else:
        describe_baseline(baseline, top)
        _say_how_to_compare(places.baseline_name(path), path, folder)


def _locate_named(name: str, folder: str) -> Path:
    """The file of a baseline by its name, with or without what stands in front of it elsewhere; or the file that was named."""
    if name.endswith(places.SUFFIX):
        return locate_path(name)
    return locate_path(places.address_of(name.removeprefix(places.PREFIX), folder))


def _refuse_unsafe(side: Side) -> Side:
    """A side that can be a baseline.

    Raises:
        InputError: it has too few steps, or its data was cut short.
    """
    if problem := problem_of_health(side.circumstances.problems):
        raise InputError(side.path, problem)
    if side.too_few_steps is not None:
        raise side.too_few_steps
    return side


def _say_how_to_compare(name: str, path: Path, folder: str) -> None:
    """The way on: by name where that leads there, else by path."""
    before = shlex.quote(str(path)) if folder else f"{places.PREFIX}{name}"
    say_next([f"steplens compare {before} RUN"])


def _keep_all_timelines(runs: list[Run]) -> None:
    for run in runs:
        keep_timelines(run)
