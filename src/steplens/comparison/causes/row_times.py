"""How long each row of a side takes in one recording, measured now or kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from steplens.comparison.noise import Floats, Sample, sample_mean
from steplens.comparison.paths import Numbers


class RowTimes(Protocol):
    """Times of the rows of ``side_times.SideTimes`` in the usual steps of a recording, each the mean over its ranks."""

    @property
    def mean_ns(self) -> Floats:
        """Of each row the mean over all of the steps."""

    @property
    def waited_share(self) -> float:
        """The share of its time that the recording waited for a processor."""

    @property
    def step_count(self) -> int:
        """How many single steps there are."""

    def sample_sum(self, rows: Numbers, shares: Floats) -> Sample:
        """What shares of some rows take together in a step, ns.

        Args:
            rows: which.
            shares: how much of each.
        """

    def move_rows(self, places: Numbers, count: int) -> RowTimes:
        """The same with other numbers of rows.

        Args:
            places: the new number of each row; rows with the same one become one.
            count: how many there are then.
        """


@dataclass(frozen=True)
class MeasuredTimes:
    """``RowTimes`` of a recording that is there.

    Attributes:
        ns: of each row in each step, shape (rows, steps).
        waited_share: as in ``RowTimes``.
    """

    ns: Floats
    waited_share: float

    @cached_property
    def mean_ns(self) -> Floats:
        """As in ``RowTimes``."""
        mean_ns: Floats = self.ns.mean(axis=1)
        return mean_ns

    @property
    def step_count(self) -> int:
        """As in ``RowTimes``: all of them."""
        return int(self.ns.shape[1])

    def sample_sum(self, rows: Numbers, shares: Floats) -> Sample:
        """As in ``RowTimes``."""
        return sample_mean(shares @ self.ns[rows], self.waited_share)

    def move_rows(self, places: Numbers, count: int) -> MeasuredTimes:
        """As in ``RowTimes``."""
        moved = np.zeros((count, self.step_count))
        np.add.at(moved, places, self.ns)
        return MeasuredTimes(moved, self.waited_share)
