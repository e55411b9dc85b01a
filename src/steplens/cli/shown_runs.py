"""What ``steplens view`` and ``steplens report`` have in common: the runs that they show, and the extra that both need."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from steplens.cli.line.arguments import parse_path
from steplens.common.errors import SteplensError

Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...",
        help="Runs to show, paths or URLs; with two, the second is compared with the first.",
        show_default=False,
        parser=parse_path,
    ),
]

#: what the server imports beside what steplens always has
_EXTRA = ("fastapi", "uvicorn")


@contextlib.contextmanager
def needing_the_extra(who: str) -> Iterator[None]:
    """Around imports of the server.

    Args:
        who: what needs them, as the subject of a sentence.

    Raises:
        SteplensError: a package that is no part of steplens is missing; it says how to install it.
    """
    try:
        for package in _EXTRA:
            if importlib.util.find_spec(package) is None:
                raise ModuleNotFoundError(name=package)
        yield
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "steplens":
            raise
        raise SteplensError(f"{who} needs {error.name}; install it with: pip install 'steplens[view]'") from error
