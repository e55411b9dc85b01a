"""Which calls of a group lie in no other call of it, so that their durations can be added up."""

from __future__ import annotations

import numpy as np

from steplens.analysis.tools.groups import BoolArray
from steplens.analysis.tools.overlap import Int64Array


def is_outermost(parent: Int64Array, group: Int64Array) -> BoolArray:
    """Which calls lie in no other call of their own group, on their thread.

    Args:
        parent: row of the enclosing call, negative where there is none, shape (n,). Calls stand behind those they lie in.
        group: number of the group of each call, negative for calls that do not count, shape (n,).
    """
    row = np.arange(len(parent))
    # a damaged source may name parents that it does not have
    enclosing = np.where((parent >= 0) & (parent < row), parent, -1)
    outermost = group >= 0
    inner = np.flatnonzero(outermost & (enclosing >= 0))
    at = enclosing[inner]
    while len(inner):
        same = group[at] == group[inner]
        outermost[inner[same]] = False
        inner, at = inner[~same], enclosing[at[~same]]
        inner, at = inner[at >= 0], at[at >= 0]
    return outermost
