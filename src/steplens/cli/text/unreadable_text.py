"""What of a folder could not be read, and why, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from steplens.cli.text.text import plain

if TYPE_CHECKING:
    from rich.console import Console

    from steplens.run import Run

#: so many are named; the table of ranks has all
_NAMED = 8


def unreadable_rows(run: Run) -> list[dict[str, Any]]:
    """What could not be read of a run: path, rank (as its names say, None where they say none) and problem."""
    from steplens.readers.common.rank_names import rank_of_path

    return [{"path": str(error.path), "rank": rank_of_path(error.path), "problem": error.problem} for error in run.unreadable]


def show_unreadable(out: Console, rows: Sequence[dict[str, Any]]) -> None:
    """Print what could not be read, with the reasons; nothing where all could.

    Args:
        out: where to print.
        rows: of ``unreadable_rows``.
    """
    if not rows:
        return
    out.print()
    out.print(plain(f"Could not be read: {len(rows)} trace{'s' if len(rows) > 1 else ''}", "bold"))
    for row in rows[:_NAMED]:
        rank = "" if row["rank"] is None else f"rank {row['rank']}: "
        out.print(plain(f"  {rank}{row['path']}: {row['problem']}"), soft_wrap=True)
    if len(rows) > _NAMED:
        out.print(plain(f"  and {len(rows) - _NAMED} more: steplens table ranks has all of them"), soft_wrap=True)
