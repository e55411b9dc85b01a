"""Arguments and options that several commands have, each with one name and one sentence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from steplens.common.errors import InputError

_OPENED = "A trace file, a result folder, or a folder of several; or the URL of one."


def parse_path(text: str) -> Path:
    """The path of what a user names: a path, or a URL.

    Raises:
        InputError: it is a baseline, which has no events to show; or a URL of nothing.
    """
    from steplens.common.storage.files import locate_path

    _refuse_baseline(text)
    return locate_path(text)


def _refuse_baseline(text: str) -> None:
    if not text.startswith("baseline:") or os.path.lexists(text):
        return
    from steplens.comparison.baselines.places import baselines_folder, check_baseline, locate_side

    check_baseline(locate_side(text))
    raise InputError(
        text,
        "is a baseline, which keeps figures and no events",
        f"Compare a run with it: steplens compare {text} RUN; or show several baselines: steplens history {baselines_folder()}",
    )


#: what ``steplens.open`` takes
InputPath = Annotated[Path, typer.Argument(metavar="PATH", help=_OPENED, show_default=False, parser=parse_path)]
OptionalPath = Annotated[Path | None, typer.Argument(metavar="[PATH]", help=_OPENED, show_default=False, parser=parse_path)]


def parse_side(text: str) -> Path:
    """The path of what a user compares: as ``parse_path``, or a baseline by its name."""
    from steplens.comparison.baselines.places import locate_side

    return locate_side(text)


#: one side of a comparison
SidePath = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help=f"{_OPENED} Or baseline:NAME, or the file of a baseline.",
        show_default=False,
        parser=parse_side,
    ),
]
#: of a running job
JobPath = Annotated[Path, typer.Argument(metavar="PATH", help="The folder of profiler_config.json.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Rank = Annotated[int | None, typer.Option(metavar="N", help="Only the traces of this rank.")]
#: reports of a comparison
JunitFile = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE", help="Write a test report in JUnit's XML, with a test for each limit; - for stdout."),
]
MarkdownFile = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Write Markdown for a pull request on GitHub; - for stdout.")
]
#: where a job of many ranks is read and judged
Scheduler = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="Where ranks are read and judged: a scheduler of Dask (tcp://HOST:PORT, or its scheduler file), or an installed "
        "executor by its name. This machine by default.",
        show_default=False,
    ),
]
#: where rows go instead of the terminal
CsvFile = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write a CSV file instead of showing the rows.")]
