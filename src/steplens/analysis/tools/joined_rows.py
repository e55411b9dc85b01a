"""The rows of the tables of many traces below each other."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

#: tables that wait until their rows are brought together: each takes kilobytes, however few rows it has
_WAITING = 256


def join_rows(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """The rows of some tables with the same columns, one below the other; at least one table.

    Of thousands, as those of all ranks of a job, a few hundred are in memory at a time where ``frames`` makes them one by one.
    """
    waiting: list[pl.DataFrame] = []
    portions: list[pl.DataFrame] = []
    for frame in frames:
        waiting.append(frame)
        if len(waiting) == _WAITING:
            portions.append(pl.concat(waiting, rechunk=True))
            waiting = []
    return pl.concat([*portions, *waiting], rechunk=bool(portions))


class RowsOfRanks:
    """The rows of each rank of a table, without a table of each in memory.

    Args:
        rows: with a column ``rank``; those of a rank keep their order.
    """

    def __init__(self, rows: pl.DataFrame) -> None:
        self._rows = rows.sort("rank", maintain_order=True)
        self._ranks = self._rows["rank"].to_numpy()

    def of_rank(self, rank: int) -> pl.DataFrame:
        """Those of a rank; none where it has none."""
        return self._rows[np.searchsorted(self._ranks, rank, "left") : np.searchsorted(self._ranks, rank, "right")]
