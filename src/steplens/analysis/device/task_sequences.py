"""Rows of device tasks that recur: the same tasks with the same shapes, one behind the other on a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.tools.overlap import Int64Array

Float64Array = npt.NDArray[np.float64]

LONGEST = 10
#: a row must occur more often
_COUNT = 5
#: a longer gap ends a row
_LONGEST_GAP_NS = 100_000
_KEY = ("name", "input_shapes", "output_shapes")
_NONE = (1 << 32) - 1
_FACTORS = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)))
_PRIME = np.uint64(0x100000001B3)
#: how many of the costliest rows of each length are looked at
_CANDIDATES = 50


@dataclass(frozen=True, eq=False)
class Sequence:
    """A row of tasks that recurs.

    Attributes:
        length: number of its tasks.
        first: row numbers of the first task of each occurrence, ascending; no two occurrences overlap.
        total_ns: from the start of its first to the end of its last task, all occurrences together.
        busy_ns: the part of it in which its tasks run.
        weight: sum of the weights of its tasks times their lengths, divided by their lengths.
    """

    length: int
    first: Int64Array
    total_ns: int
    busy_ns: int
    weight: float

    @property
    def count(self) -> int:
        """How often it occurs."""
        return len(self.first)

    @property
    def gaps_ns(self) -> int:
        """Time between its tasks."""
        return max(self.total_ns - self.busy_ns, 0)

    def names(self, tasks: pl.DataFrame) -> list[str]:
        """Of its tasks, in order; ``tasks`` as they were given to ``sequences``."""
        return [str(name) for name in tasks["name"].slice(int(self.first[0]), self.length).cast(pl.String)]

    def steps(self, tasks: pl.DataFrame) -> list[int]:
        """The steps that it occurs in."""
        numbers: list[int] = tasks["step"].gather(self.first).drop_nulls().unique().sort().to_list()
        return numbers


def sequences(tasks: pl.DataFrame, breaks: pl.Series, weights: pl.Series, least_ns: float) -> list[Sequence]:
    """Rows of 2 to 10 tasks that occur more than 5 times, of any length and one within another.

    1. A task is its name with the shapes of what goes in and out. A row lies on one stream of one device in one step, holds
       no task of ``breaks`` and no gap of more than 100 us, which has other reasons than launching.
    2. For each length, equal rows are counted by a hash of 64 bits; of overlapping occurrences those count that are a multiple
       of the length apart. The 50 that take the longest are kept.

    Args:
        tasks: in order of device, stream and start: name, input_shapes, output_shapes, device, stream, step, start_ns,
            end_ns, duration_ns.
        breaks: which tasks end a row.
        weights: any figure per task, such as the share of its time in which it moves data.
        least_ns: what a row must take in all.
    """
    if tasks.is_empty():
        return []
    parts = [tasks[name].to_physical().fill_null(_NONE).to_numpy().astype(np.uint64) for name in _KEY]
    code = (parts[0] * _FACTORS[0] ^ parts[1] * _FACTORS[1]) + parts[2] * _FACTORS[2]
    lane = tasks.select(pl.struct("device", "stream", "step").rle_id()).to_series().to_numpy().astype(np.int64)
    start, end = tasks["start_ns"].to_numpy(), tasks["end_ns"].to_numpy()
    stop = breaks.to_numpy()
    # a task that breaks is a lane of its own
    apart = (lane[1:] != lane[:-1]) | stop[1:] | stop[:-1] | (start[1:] - end[:-1] > _LONGEST_GAP_NS)
    table = _Table(
        code ^ (code >> np.uint64(29)),
        np.cumsum(np.r_[True, apart]),
        start,
        end,
        np.r_[0, np.cumsum(tasks["duration_ns"].to_numpy())],
        np.r_[0.0, np.cumsum(tasks["duration_ns"].to_numpy() * weights.to_numpy())],
    )
    sequence_list: list[Sequence] = []
    first, hashes = np.arange(tasks.height), table.code
    recurring = _is_recurring(pl.DataFrame({"row": hashes}).group_by("row").agg(count=pl.len()), hashes)
    for length in range(2, LONGEST + 1):
        # rows of this length are two of the length before, one task apart; those recur at least as often
        first, hashes = first[recurring], hashes[recurring]
        is_counted = np.zeros(tasks.height + 1, dtype=bool)
        is_counted[first] = True
        both = np.flatnonzero(is_counted[first + 1])
        both = both[table.lane[first[both]] == table.lane[first[both] + length - 1]]
        if not len(both):
            break
        first = first[both]
        hashes = hashes[both] * _PRIME + table.code[first + length - 1]
        rows, recurring = table.rows(length, first, hashes, least_ns)
        sequence_list += rows
    return sequence_list


def costliest_sequences(found: Iterable[Sequence], worth: Callable[[Sequence], float], count: int) -> list[Sequence]:
    """The rows that are worth most and share less than half of their tasks with those before them.

    Args:
        found: what ``sequences`` gives.
        worth: of a row; what is worth nothing is left out.
        count: how many at most.
    """
    ordered = sorted(((worth(row), row) for row in found), key=lambda pair: (-pair[0], pair[1].length, pair[1].first[0]))
    is_taken = np.zeros(max((int(row.first[-1]) + row.length for _, row in ordered), default=0), dtype=bool)
    costliest_ones: list[Sequence] = []
    for value, row in ordered:
        if value <= 0 or len(costliest_ones) == count:
            break
        members = (row.first[:, None] + np.arange(row.length)).ravel()
        if 2 * int(is_taken[members].sum()) <= len(members):
            is_taken[members] = True
            costliest_ones.append(row)
    return costliest_ones


@dataclass(frozen=True)
class _Table:
    """The tasks as arrays; the last two are sums up to each task."""

    code: npt.NDArray[np.uint64]
    lane: Int64Array
    start: Int64Array
    end: Int64Array
    busy: Int64Array
    weight: Float64Array

    def rows(
        self, length: int, first: Int64Array, hashes: npt.NDArray[np.uint64], least_ns: float
    ) -> tuple[list[Sequence], npt.NDArray[np.bool_]]:
        """The costliest rows of one length, of which the first tasks and hashes are given, and which of all of them recur."""
        frame = pl.DataFrame({"row": hashes, "first": first, "total_ns": self.end[first + length - 1] - self.start[first]})
        sums = frame.group_by("row").agg(pl.col("total_ns").sum(), count=pl.len())
        worth = sums.filter((pl.col("count") > _COUNT) & (pl.col("total_ns") > least_ns)).top_k(_CANDIDATES, by="total_ns")
        task_rows = frame.filter(pl.col("row").is_in(worth["row"].implode()))
        sequence_rows = []
        for part in task_rows.partition_by("row", maintain_order=True):
            at = _not_overlapping(part["first"].to_numpy(), length)
            total_ns = int((self.end[at + length - 1] - self.start[at]).sum())
            if len(at) > _COUNT and total_ns > least_ns:
                busy = int((self.busy[at + length] - self.busy[at]).sum())
                weight = float((self.weight[at + length] - self.weight[at]).sum()) / max(busy, 1)
                sequence_rows.append(Sequence(length, at, total_ns, busy, weight))
        return sequence_rows, _is_recurring(sums, hashes)


def _is_recurring(counts: pl.DataFrame, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Which of the rows occur often enough, overlapping ones counted; ``counts`` has row and count of all of them."""
    often = counts.filter(pl.col("count") > _COUNT)["row"]
    if len(often) == counts.height:
        return np.ones(len(hashes), dtype=bool)
    recurring: npt.NDArray[np.bool_] = pl.Series(hashes).is_in(often.implode()).to_numpy()
    return recurring


def _not_overlapping(first: Int64Array, length: int) -> Int64Array:
    """Of occurrences (ascending) those that do not overlap: in a run of overlapping ones those a multiple of the length apart."""
    run = np.cumsum(np.r_[True, np.diff(first) >= length])
    begin = first[np.r_[True, run[1:] != run[:-1]]][run - 1]
    separate: Int64Array = first[(first - begin) % length == 0]
    return separate
