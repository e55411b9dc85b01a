"""``steplens history``: figures over many versions of a program, and where they moved."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from steplens.cli.line.arguments import Json, parse_path
from steplens.cli.opening import show_progress, show_work
from steplens.cli.text.text import print_json
from steplens.common.errors import SteplensError, check_readable
from steplens.common.storage.files import list_remote

if TYPE_CHECKING:
    from steplens.comparison.history.history import History, Version


def show_history(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="A folder that holds a folder with recordings, or a saved baseline, of each version.",
            show_default=False,
            parser=parse_path,
        ),
    ],
    top: Annotated[int, typer.Option(min=1, metavar="N", help="How many figures to show beside the step time at a change.")] = 5,
    by: Annotated[
        Literal["time", "name"],
        typer.Option(
            help="The order of versions: when they were recorded, or their names, where older ones were recorded later."
        ),
    ] = "time",
    json: Json = False,
) -> None:
    """Show where the figures of a program moved over many versions of it, and by how much.

    Of a program that does not change about one history in a hundred reports a change (docs/compare.md).
    """
    list_remote(folder)
    check_readable(folder)
    from steplens.comparison.history.history import find_history
    from steplens.comparison.history.versions import read_versions

    try:
        with show_progress():
            versions, problems = read_versions(folder, by)
    except SteplensError as error:
        if json:
            print_json({"path": str(folder), "problem": str(error)})
        raise
    with show_work("looking for changes"):
        history = find_history(versions)
    if json:
        print_json(_as_document(folder, history, [str(problem) for problem in problems]))
        return
    from steplens.cli.text.history_text import print_history

    print_history(folder, history, problems, top)


def _as_document(folder: Path, history: History, problems: list[str]) -> dict[str, Any]:
    return {
        "path": str(folder),
        "versions": [_version_document(version) for version in history.versions],
        "figures": [dataclasses.asdict(figure) for figure in history.figures],
        "problems": problems,
    }


def _version_document(version: Version) -> dict[str, Any]:
    fields = ("name", "path", "recorded_ns", "commit", "recordings")
    return {name: getattr(version, name) for name in fields}
