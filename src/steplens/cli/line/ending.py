"""The last lines of a command that showed a run: where to go on, the browser first."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from steplens.cli.text.text import console, plain


def next_commands(path: str | Path, *others: str) -> list[str]:
    """``steplens view PATH``, and what follows it.

    Args:
        path: of the run.
        others: names of commands that take the path alone.
    """
    return [f"steplens {name} {shlex.quote(str(path))}" for name in ("view", *others)]


def say_next(commands: Iterable[str]) -> None:
    """Print the way on, most useful first."""
    out = console()
    for command in commands:
        out.print(plain("next: ", "dim") + plain(command), soft_wrap=True)
