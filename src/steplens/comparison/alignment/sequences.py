"""Which items of two sequences are the same, in order: their longest common subsequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: longer sequences are not compared item by item beyond what both begin and end with: the table would take tens of megabytes
MOST_ITEMS = 3_000


def match_in_order(first: Sequence[str], second: Sequence[str]) -> list[tuple[int, int]]:
    """Places of the items of a longest common subsequence, ascending in both.

    Args:
        first: names, of which at most ``MOST_ITEMS`` between what both begin and end with are looked at.
        second: those of the other side, of which the same holds.
    """
    shorter = min(len(first), len(second))
    begin = 0
    while begin < shorter and first[begin] == second[begin]:
        begin += 1
    end = 0
    while end < shorter - begin and first[-1 - end] == second[-1 - end]:
        end += 1
    between = _match_between(first[begin : len(first) - end][:MOST_ITEMS], second[begin : len(second) - end][:MOST_ITEMS])
    return [
        *((place, place) for place in range(begin)),
        *((begin + row, begin + column) for row, column in between),
        *((len(first) - place, len(second) - place) for place in range(end, 0, -1)),
    ]


def _match_between(first: Sequence[str], second: Sequence[str]) -> list[tuple[int, int]]:
    if not first or not second:
        return []
    numbers = {name: number for number, name in enumerate(dict.fromkeys([*first, *second]))}
    rows = np.array([numbers[name] for name in first])
    columns = np.array([numbers[name] for name in second])
    # lengths of the longest common subsequence of what begins at each place; one more row and column of none
    lengths = np.zeros((rows.size + 1, columns.size + 1), dtype=np.uint16)
    for row in range(rows.size - 1, -1, -1):
        following = lengths[row + 1]
        best = np.maximum(following[:-1], np.where(columns == rows[row], following[1:] + 1, 0))
        lengths[row, :-1] = np.maximum.accumulate(best[::-1])[::-1]
    pairs = []
    row = column = 0
    while row < rows.size and column < columns.size:
        if rows[row] == columns[column]:
            pairs.append((row, column))
            row, column = row + 1, column + 1
        elif lengths[row + 1, column] >= lengths[row, column + 1]:
            row += 1
        else:
            column += 1
    return pairs
