"""From the differences of pairs of clocks to the offset of every clock: difference constraints, solved by shortest paths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steplens.analysis.cluster.clocks.bounds import PairBounds
from steplens.analysis.cluster.clocks.corridors import Floats

Numbers = npt.NDArray[np.int64]

#: passes over all edges until no path gets shorter; paths between ranks of a job have few edges
_MOST_PASSES = 200


@dataclass(frozen=True)
class Edges:
    """Offset of ``first`` less that of ``second`` is at most ``at_most``: arrays of one length.

    Attributes:
        first: number of a clock.
        second: number of another clock.
        at_most: ns.
    """

    first: Numbers
    second: Numbers
    at_most: Floats

    def bounds_at(self, when: Floats) -> PairBounds:
        """The same as bounds at one moment (s) of each clock."""
        return PairBounds(self.first, self.second, when[self.first], self.at_most, np.full(len(self.first), -1))


def find_components(clocks: int, first: Numbers, second: Numbers) -> Numbers:
    """The lowest clock that each clock is connected with, over edges taken both ways; shape (clocks,)."""
    lowest = np.arange(clocks)
    while True:
        before = lowest.copy()
        np.minimum.at(lowest, first, lowest[second])
        np.minimum.at(lowest, second, lowest[first])
        lowest = lowest[lowest]
        if np.array_equal(before, lowest):
            return lowest


def highest_offsets(edges: Edges, references: Numbers, clocks: int) -> Floats | None:
    """How far ahead each clock's offset can be of its reference's, ns; ``inf`` where nothing says it.

    Args:
        edges: the bounds.
        references: clocks whose offset is 0: one in each component.
        clocks: number of clocks.

    Returns:
        Shape (clocks,); None where the bounds contradict each other: they go round in a circle of less than 0.
    """
    order = np.argsort(edges.first, kind="stable")
    first, second, at_most = edges.first[order], edges.second[order], edges.at_most[order]
    highest = np.full(clocks, np.inf)
    highest[references] = 0.0
    if not len(first):
        return highest
    starts = np.flatnonzero(np.concatenate([[True], first[1:] != first[:-1]]))
    targets = first[starts]
    for _ in range(_MOST_PASSES):
        reached = np.minimum(highest[targets], np.minimum.reduceat(highest[second] + at_most, starts))
        # rounding of sums of floating point numbers is no circle
        shorter = reached < highest[targets] - 1e-3
        if not shorter.any():
            return highest
        highest[targets[shorter]] = reached[shorter]
        if (highest[references] < -1.0).any():
            return None
    return None


def lowest_offsets(edges: Edges, references: Numbers, clocks: int) -> Floats | None:
    """How far behind each clock's offset can be of its reference's, ns; as ``highest_offsets``."""
    behind = highest_offsets(Edges(edges.second, edges.first, edges.at_most), references, clocks)
    return None if behind is None else -behind
