"""Call nesting from start and end times alone: parent, depth, self time and subtree, per thread.

Input is always sorted by (lane, start, -end): one lane is one (pid, tid). Everything is numpy over whole
columns, or a pass of a native library where that is built (``native_nesting``); no Python object per event exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steplens.trace.building import native_nesting

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

    A call that does not enclose the next one encloses none: whatever it did not end before would be enclosed by that one, too. So
    every call first suspects the last one before it that encloses its next, and most have their parent at once.

    From there on pointer jumping instead of a stack: a suspect that ends too early is replaced by its own suspect. All calls
    between a call and its suspect are not its parent, which keeps this correct while suspects move, and makes the number of
    rounds logarithmic in the longest run of siblings that enclose others.

    Args:
        lane: dense lane number, non-decreasing, shape (n,).
        start: start times, non-decreasing within a lane, shape (n,).
        end: end times, shape (n,).
    """
    count = len(start)
    if count == 0:
        empty = np.empty(0, dtype=np.int64)
        return Nesting(empty, empty.copy(), empty.copy())
    if (library := native_nesting.load_library(count)) is not None:
        return Nesting(*native_nesting.nest_sorted(library, lane, start, end))
    encloses_next = (end[:-1] >= end[1:]) & (end[:-1] > start[1:]) & (lane[:-1] == lane[1:])
    lane_start = np.flatnonzero(np.r_[True, lane[1:] != lane[:-1]])
    first = np.repeat(lane_start, np.diff(np.r_[lane_start, count]))
    suspect = np.full(count, -1, dtype=np.int64)
    suspect[1:] = np.maximum.accumulate(np.where(encloses_next, np.arange(count - 1), -1))
    open_ = np.flatnonzero(~encloses_next) + 1
    open_ = open_[suspect[open_] >= first[open_]]
    while len(open_):
        candidate = suspect[open_]
        too_early = (end[candidate] < end[open_]) | (end[candidate] <= start[open_])
        open_, candidate = open_[too_early], candidate[too_early]
        suspect[open_] = suspect[candidate]
        open_ = open_[suspect[open_] >= first[open_]]
    parent = np.where(suspect >= first, suspect, -1)
    subtree_end = _subtree_end(parent)
    return Nesting(parent, _nesting_depth(subtree_end), subtree_end)


def _subtree_end(parent: Int64Array) -> Int64Array:
    """Index behind the last descendant: the last child's last child, and so on, by doubling."""
    last = np.arange(len(parent), dtype=np.int64)
    child = np.flatnonzero(parent >= 0)
    # of several children of one call the last one counts
    last[parent[child]] = child
    # the first child of a call comes next
    active = np.flatnonzero(parent[1:] == np.arange(len(parent) - 1))
    while len(active):
        child_of_active = last[active]
        farther = last[child_of_active]
        moves = farther != child_of_active
        active = active[moves]
        last[active] = farther[moves]
    return last + 1


def _nesting_depth(subtree_end: Int64Array) -> Int64Array:
    """How many calls are open where each begins: those before it, without those whose last descendant lies before it."""
    count = len(subtree_end)
    ended = np.cumsum(np.bincount(subtree_end, minlength=count + 1)[:count])
    return np.arange(count, dtype=np.int64) - ended


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
    if (library := native_nesting.load_library(len(time))) is not None and (time[1:] >= time[:-1]).all():
        return native_nesting.innermost_of_sorted(library, start, end, parent, time)
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
