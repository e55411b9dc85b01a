"""Differences that have one cause: which rows of both sides they are, and how much of each."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from steplens.comparison.causes.row_times import RowTimes
from steplens.comparison.noise import Floats, Sample
from steplens.comparison.paths import Numbers

#: a share of a row that is smaller is rounding
_LEAST = 1e-9


@dataclass
class Group:
    """Rows of both sides that differ for one reason.

    Attributes:
        kind: of ``cause.KINDS``.
        rows: of the earlier and of the later side: row -> the share of it that is of the group.
        names: of operators that each side has there and the other has not, or that it has more of.
        before_text, after_text: what is different, where that is known already.
        idle_cause: why the device idles; empty of what is something else, or of several reasons.
    """

    kind: str
    rows: tuple[dict[int, float], dict[int, float]] = field(default_factory=lambda: ({}, {}))
    names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    before_text: str = ""
    after_text: str = ""
    idle_cause: str = ""

    def take_row(self, side: int, row: int, share: float) -> None:
        """Count a share of a row of a side."""
        if share > _LEAST:
            self.rows[side][row] = self.rows[side].get(row, 0.0) + share

    def absorb_group(self, other: Group) -> None:
        """Count what another one has; of what is different only one of them can tell."""
        if not self.before_text and not self.after_text:
            self.before_text, self.after_text = other.before_text, other.after_text
        before, after = (tuple(sorted({*own_names, *more})) for own_names, more in zip(self.names, other.names, strict=True))
        self.names = (before, after)
        self.idle_cause = self.idle_cause if self.idle_cause == other.idle_cause else ""
        for side in range(2):
            for row, share in other.rows[side].items():
                self.take_row(side, row, share)

    def sum_rows(self, side: int, values: Floats) -> float:
        """The sum over its rows of a side of what each has, shape (rows,)."""
        places, shares = self._weighed_rows(side)
        return float(shares @ values[places])

    def sample_sum(self, side: int, times: RowTimes) -> Sample:
        """The same of the times of a recording."""
        return times.sample_sum(*self._weighed_rows(side))

    def _weighed_rows(self, side: int) -> tuple[Numbers, Floats]:
        shares = self.rows[side]
        places = np.fromiter(shares, dtype=np.int64, count=len(shares))
        return places, np.fromiter(shares.values(), dtype=np.float64, count=len(shares))


class Groups:
    """All groups of a comparison, by what tells them apart."""

    def __init__(self) -> None:
        self.by_key: dict[Hashable, Group] = {}

    def find_group(self, kind: str, *key: Hashable) -> Group:
        """The group of a kind and key, which is made where there is none."""
        return self.by_key.setdefault((kind, *key), Group(kind))

    def group_of_names(self, kind: str, before: tuple[str, ...], after: tuple[str, ...], *key: Hashable) -> Group:
        """The same of operators that only one side has, or has more of."""
        return self.by_key.setdefault((kind, before, after, *key), Group(kind, names=(before, after)))
