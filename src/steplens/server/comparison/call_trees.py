"""The calls of two sides as one tree: each call path with its time on either side, for flame graphs of their difference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from steplens.comparison.call_tree import CallPaths

Floats = npt.NDArray[np.float64]

#: what is asked for -> the column of ``CallPaths.calls`` with the time that a call takes itself
_OWN_TIMES = {"host": "self_ns", "device": "device_ns"}


class ComparedCall(BaseModel):
    """The calls of one path, per step; 0 where a side has none.

    Attributes:
        parent: the place in the list of the calls around them, which comes earlier; -1 without any.
        name: of the operator or range.
        module: the innermost module, "" where none is known.
        before_calls, after_calls: how many there are.
        before_ns, after_ns: their time, with all that they call.
        before_self_ns, after_self_ns: without that.
    """

    parent: int
    name: str
    module: str
    before_calls: float
    after_calls: float
    before_ns: float
    after_ns: float
    before_self_ns: float
    after_self_ns: float


class ComparedCalls(BaseModel):
    """The calls of two sides by call path.

    Attributes:
        nodes: the call paths; the smallest are left out where there are very many. What takes longest on either side comes first
            among the calls of one caller.
        left_out: how many are.
        before_ns, after_ns: the time of all.
    """

    nodes: list[ComparedCall]
    left_out: int
    before_ns: float
    after_ns: float


def merge_call_paths(before: CallPaths, after: CallPaths, of: str, limit: int) -> ComparedCalls:
    """The call paths of both sides as one tree.

    Args:
        before: of the earlier side.
        after: of the later side.
        of: "host", the time of calls, or "device", the time of the tasks that they launch.
        limit: calls to answer with, those that take the most on either side.
    """
    keys, calls, own_ns = _merge_paths((before, after), _OWN_TIMES[of])
    parents = np.array([parent for parent, _, _ in keys], np.int64)
    total_ns = _add_up(parents, own_ns)
    longest = total_ns.max(axis=0, initial=0.0)
    largest = np.argsort(-longest, kind="stable")[:limit]
    # a call takes no longer than those around it, and comes behind them: where it is one of the largest they are
    largest = largest[longest[largest] > 0.0]
    nodes = [
        ComparedCall(
            parent=parent,
            name=keys[place][1],
            module=keys[place][2],
            before_calls=calls[0, place],
            after_calls=calls[1, place],
            before_ns=total_ns[0, place],
            after_ns=total_ns[1, place],
            before_self_ns=own_ns[0, place],
            after_self_ns=own_ns[1, place],
        )
        for place, parent in _order_calls(largest.tolist(), parents.tolist())
    ]
    whole_ns = own_ns.sum(axis=1)
    return ComparedCalls(
        nodes=nodes,
        left_out=int((longest > 0.0).sum()) - len(nodes),
        before_ns=float(whole_ns[0]),
        after_ns=float(whole_ns[1]),
    )


def _merge_paths(sides: Sequence[CallPaths], column: str) -> tuple[list[tuple[int, str, str]], Floats, Floats]:
    """Of all paths their parent, name and module, parents first; how often both sides call them, and their own time there."""
    places: dict[tuple[int, str, str], int] = {}
    counted = []
    for side in sides:
        place_of_row: list[int] = []
        for name, module, parent in side.calls.select("name", "module", "parent").iter_rows():
            key = (place_of_row[parent] if parent >= 0 else -1, name, module)
            place_of_row.append(places.setdefault(key, len(places)))
        counted.append((np.array(place_of_row, np.int64), side.calls))
    sums = np.zeros((2, len(sides), len(places)))
    for number, (rows, frame) in enumerate(counted):
        for which, name in enumerate(("calls", column)):
            np.add.at(sums[which, number], rows, frame[name].to_numpy().astype(np.float64))
    return list(places), sums[0], sums[1]


def _add_up(parents: npt.NDArray[np.int64], own_ns: Floats) -> Floats:
    """The time of each call with all that it calls; calls lie behind those around them."""
    total_ns: Floats = own_ns.copy()
    for place in range(parents.size - 1, -1, -1):
        if parents[place] >= 0:
            total_ns[:, parents[place]] += total_ns[:, place]
    return total_ns


def _order_calls(places: Sequence[int], parents: Sequence[int]) -> list[tuple[int, int]]:
    """Places in the order of a list in which calls follow those around them, each with the number of its parent in that list.

    Args:
        places: the calls, in the order in which those of one caller are to be.
        parents: of all places.
    """
    children: dict[int, list[int]] = {}
    for place in places:
        children.setdefault(parents[place], []).append(place)
    ordered: list[tuple[int, int]] = []
    waiting = [(place, -1) for place in reversed(children.get(-1, []))]
    while waiting:
        place, parent = waiting.pop()
        waiting += [(child, len(ordered)) for child in reversed(children.get(place, []))]
        ordered.append((place, parent))
    return ordered
