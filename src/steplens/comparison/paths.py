"""Paths of operator calls: the names of the calls around each, as numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.tools.groups import first_rows, number_groups

Numbers = npt.NDArray[np.int64]

ROOT = -1


@dataclass(frozen=True)
class PathTree:
    """All paths: of each call its path, and of each path the one that it is longer than by one, or -1."""

    path_of_call: Numbers
    parent_path: Numbers


def number_labels(labels: pl.Series) -> Numbers:
    """A number for each different label, from 1."""
    return labels.rank("dense").to_numpy().astype(np.int64)


def number_paths(parent: Numbers, depth: Numbers, codes: Numbers) -> PathTree:
    """One number for all calls with the same path, level by level.

    Args:
        parent: row of the call around each, or -1.
        depth: how many are around it.
        codes: a number for the label of each.
    """
    path_of_call = np.full(parent.size, ROOT)
    parent_paths: list[Numbers] = []
    count, width = 0, int(codes.max()) + 1
    order = np.argsort(depth, kind="stable")
    borders = np.flatnonzero(np.diff(depth[order])) + 1
    for level in np.split(order, borders):
        outer = np.where(parent[level] >= 0, path_of_call[parent[level]], ROOT)
        numbers, first = _number_keys((outer + 1) * width + codes[level])
        path_of_call[level] = count + numbers
        parent_paths.append(outer[first])
        count += first.size
    return PathTree(path_of_call, np.concatenate(parent_paths))


def _number_keys(keys: Numbers) -> tuple[Numbers, Numbers]:
    """A number for each key, equal keys one, from 0 without gaps, and a place of each."""
    numbers, count = number_groups(pl.DataFrame({"key": keys}), ["key"])
    places = first_rows(numbers, count)
    is_there = places >= 0
    return (np.cumsum(is_there) - 1)[numbers], places[is_there]


def first_calls(tree: PathTree) -> Numbers:
    """Of each path its first call."""
    first_call = np.zeros(tree.parent_path.size, np.int64)
    first_call[tree.path_of_call[::-1]] = np.arange(tree.path_of_call.size)[::-1]
    return first_call
