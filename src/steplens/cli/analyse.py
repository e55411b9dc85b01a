"""``steplens analyse``: turn recorded data into results, now or long after the run."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer


class Export(str, enum.Enum):
    """The families of output files."""

    text = "text"
    db = "db"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("analyse")(analyse)


def analyse(
    path: Annotated[Path, typer.Argument(help="A run directory or a folder of them.", show_default=False)],
    max_process_number: Annotated[
        int | None, typer.Option(min=1, help="How many run directories are analysed at a time; half the cores by default.")
    ] = None,
    export_type: Annotated[
        list[Export] | None, typer.Option(help="Which files are written; as recorded by default. May be given twice.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Analyse again what is complete already.")] = False,
) -> None:
    """Write the result files of every recorded run in PATH; what is complete already is left alone."""
    raise NotImplementedError
