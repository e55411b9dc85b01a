"""Which ranks a path has, as far as that can be told without the tables of any trace."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from steplens.common.errors import InputError
from steplens.readers.detect import find_traces, kept_rank


def refuse_rank(path: Path, rank: int) -> None:
    """Refuse a rank that a path does not have, where all of its traces are kept; else reading them tells.

    Args:
        path: what is to be opened.
        rank: the rank that is asked for.

    Raises:
        InputError: no trace is of that rank; or as ``find_traces``.
    """
    ranks = set()
    for capture in find_traces(path):
        trace_rank = kept_rank(capture)
        if trace_rank is None or trace_rank == rank:
            return
        ranks.add(trace_rank)
    raise no_such_rank(path, rank, ranks)


def no_such_rank(path: Path, rank: int | None, ranks: Iterable[int]) -> InputError:
    """What to say of a rank that no trace is of.

    Args:
        path: what was opened.
        rank: the rank that was asked for.
        ranks: those of its traces.
    """
    return InputError(path, f"holds no rank {rank}; its ranks are {', '.join(map(str, sorted(ranks)))}")
