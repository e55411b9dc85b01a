"""Call nesting from start and end times alone: parent, depth, self time and subtree, per thread.

Input is always sorted by (lane, start, -end): one lane is one (pid, tid). Everything is numpy over whole
columns; no Python object per event exists.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]

#: rounds in which each looks one call farther out; leaps take a table of all calls for each doubling of the distance
_DEEP = 256


@dataclass(frozen=True)
class Nesting:
    """Who encloses whom, one entry per call in input order.

    Attributes:
        parent: index of the innermost enclosing call on the same lane, -1 for a root.
        depth: number of enclosing calls.
        subtree_end: index behind the last descendant, so ``[i, subtree_end[i])`` is the call and all below it.
    """

    parent: Int64Array
    depth: Int64Array
    subtree_end: Int64Array


def nest_calls(lane: npt.NDArray[np.signedinteger[Any]], start: Int64Array, end: Int64Array) -> Nesting:
    """Find the innermost enclosing call of every call.

    Call j encloses call i when j comes before i on the same lane, ``end[j] >= end[i]`` and ``end[j] > start[i]``
    (PyTorch's own rule). A call that only overlaps another is not its child; it hangs below the nearest call that
    encloses it entirely (health counts such calls).

    Pointer jumping instead of a stack: every call first suspects its predecessor; a suspect that ends too early is
    replaced by its own suspect. All calls between a call and its suspect end before the suspect does, which keeps
    this correct while suspects move, and makes the number of rounds logarithmic in the longest run of siblings.

    Args:
        lane: dense lane number, non-decreasing, shape (n,).
        start: start times, non-decreasing within a lane, shape (n,).
        end: end times, shape (n,).
    """
    count = len(start)
    if count == 0:
        empty = np.empty(0, dtype=np.int64)
        return Nesting(empty, empty.copy(), empty.copy())
    lane_start = np.flatnonzero(np.r_[True, lane[1:] != lane[:-1]])
    first = np.repeat(lane_start, np.diff(np.r_[lane_start, count]))
    suspect = np.arange(-1, count - 1, dtype=np.int64)
    # nothing encloses a call that begins when all before it have ended: most calls of a flat trace need no jump at all
    for low, high in itertools.pairwise([*lane_start.tolist(), count]):
        ended = np.flatnonzero(np.maximum.accumulate(end[low : high - 1]) <= start[low + 1 : high]) + low + 1
        suspect[ended] = low - 1
    open_ = np.flatnonzero(suspect >= first)
    while len(open_):
        candidate = suspect[open_]
        too_early = (end[candidate] < end[open_]) | (end[candidate] <= start[open_])
        open_ = open_[too_early]
        suspect[open_] = suspect[suspect[open_]]
        open_ = open_[suspect[open_] >= first[open_]]
    parent = np.where(suspect >= first, suspect, -1)
    return Nesting(parent, _nesting_depth(parent), _subtree_end(parent))


def _nesting_depth(parent: Int64Array) -> Int64Array:
    """Depth by doubling: every call adds the depth its current ancestor has collected so far."""
    depth = (parent >= 0).astype(np.int64)
    ancestor = parent.copy()
    active = np.flatnonzero(ancestor >= 0)
    while len(active):
        upper = ancestor[active]
        step_depth, step_ancestor = depth[upper], ancestor[upper]
        depth[active] += step_depth
        ancestor[active] = step_ancestor
        active = active[step_ancestor >= 0]
    return depth


def _subtree_end(parent: Int64Array) -> Int64Array:
    """Index behind the last descendant, by doubling; relies on descendants being contiguous in the input order."""
    subtree_end = np.arange(1, len(parent) + 1, dtype=np.int64)
    ancestor = parent.copy()
    active = np.flatnonzero(ancestor >= 0)
    while len(active):
        # every call knows of its descendants up to some distance, and tells the ancestor at that distance
        upper = ancestor[active]
        # of several for one ancestor the last one counts, and reaches farthest
        subtree_end[upper] = np.maximum(subtree_end[upper], subtree_end[active])
        ancestor[active] = ancestor[upper]
        active = active[ancestor[active] >= 0]
    return subtree_end


def child_sums(parent: Int64Array, value: Int64Array) -> Int64Array:
    """Sum of ``value`` over the direct children of every call, exact in int64."""
    result = np.zeros(len(parent), dtype=np.int64)
    has_parent = parent >= 0
    np.add.at(result, parent[has_parent], value[has_parent])
    return result


def subtree_sums(subtree_end: Int64Array, value: Int64Array) -> Int64Array:
    """Sum of ``value`` over every call and all its descendants, exact in int64."""
    total = np.concatenate(([0], np.cumsum(value, dtype=np.int64)))
    return total[subtree_end] - total[:-1]


def lane_numbers(*columns: Int64Array) -> Int64Array:
    """Dense lane numbers of rows that are sorted by ``columns`` (pid, tid): 0 for the first lane, and so on."""
    count = len(columns[0])
    changed = np.zeros(count, dtype=bool)
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    numbers: Int64Array = np.cumsum(changed, dtype=np.int64)
    return numbers


def innermost_calls(start: Int64Array, end: Int64Array, parent: Int64Array, time: Int64Array) -> Int64Array:
    """The innermost call of one lane that is running at each time, -1 where none is.

    Args:
        start: start times of the lane's calls, sorted, shape (n,).
        end: end times, shape (n,).
        parent: index of the enclosing call within the lane, -1 for a root, shape (n,).
        time: any times, shape (m,). A call runs from its start to its end, both included.
    """
    candidate = np.searchsorted(start, time, side="right").astype(np.int64) - 1
    active = np.flatnonzero(candidate >= 0)
    for _ in range(_DEEP):
        active = active[end[candidate[active]] < time[active]]
        candidate[active] = parent[candidate[active]]
        active = active[candidate[active] >= 0]
        if not len(active):
            return candidate
    # deeper than any program: from here on by leaps, the farthest first. A call ends no later than the one around it
    active = active[end[candidate[active]] < time[active]]
    leaps = [parent]
    while (leaps[-1] >= 0).any():
        leaps.append(np.where(leaps[-1] >= 0, leaps[-1][leaps[-1]], -1))
    for leap in reversed(leaps):
        upper = leap[candidate[active]]
        ended = (upper >= 0) & (end[upper] < time[active])
        candidate[active[ended]] = upper[ended]
    candidate[active] = parent[candidate[active]]
    return candidate


def inherit_values(parent: Int64Array, own: Int64Array) -> Int64Array:
    """Value of the nearest call at or above each call that has one (``own >= 0``); -1 where none has."""
    result: Int64Array = own.copy()
    upper = parent.copy()
    active = np.flatnonzero((result < 0) & (upper >= 0))
    while len(active):
        # who has nothing to give hands on whom it would ask itself, so the distance doubles
        upper_of_active = upper[active]
        result[active] = result[upper_of_active]
        upper[active] = upper[upper_of_active]
        active = active[(result[active] < 0) & (upper[active] >= 0)]
    return result
