"""How far the differences of two ranks' clocks may be off, of as many pairs as a job of thousands of ranks has."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from steplens.analysis.cluster.clocks.corridors import Floats
from steplens.analysis.cluster.clocks.graph import Numbers

#: ranks below it fit into half a key
_HALF = 32


@dataclass(frozen=True)
class PairErrors:
    """What the messages between two ranks alone say of the error of their difference.

    A dictionary of the 158,000 pairs of 10,000 ranks takes 40 MB, these 2.5 MB.

    Attributes:
        keys: shape (pairs,), a number for each pair of ranks, ascending.
        error_ns: shape (pairs,).
    """

    keys: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    error_ns: Floats = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of_pieces(cls, first: Numbers, second: Numbers, error_ns: Floats) -> PairErrors:
        """The largest error of each pair.

        Args:
            first: shape (n,), ranks; a pair may come several times, and either way round.
            second: shape (n,), ranks.
            error_ns: shape (n,).
        """
        keys = (np.minimum(first, second) << _HALF) | np.maximum(first, second)
        order = np.argsort(keys, kind="stable")
        keys, starts = np.unique(keys[order], return_index=True)
        return cls(keys, np.maximum.reduceat(error_ns[order], starts) if starts.size else np.zeros(0))

    def find_error(self, one: int, other: int) -> float | None:
        """The error of a pair, ns; None where no messages tell of it."""
        key = (min(one, other) << _HALF) | max(one, other)
        at = int(np.searchsorted(self.keys, key))
        return float(self.error_ns[at]) if at < self.keys.size and self.keys[at] == key else None
