"""From the call and return records of a Python tracer to calls with a start, an end and a caller."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Calls:
    """Calls in order of (pid, tid, start), shape (n,) each.

    Attributes:
        start: time of the call.
        end: time of its return.
        pid: process.
        tid: thread.
        thread: dense number of (pid, tid).
        code: what is called.
        parent: row of the caller, -1 for none.
        cut_short: how many calls ended because their caller returned.
        unmatched: how many returns had no call.
    """

    start: Int64Array
    end: Int64Array
    pid: Int64Array
    tid: Int64Array
    thread: Int64Array
    code: Int64Array
    parent: Int64Array
    cut_short: int
    unmatched: int


def replay_calls(
    time: Int64Array, pid: Int64Array, tid: Int64Array, code: Int64Array, is_call: Flags, skipped: Flags | None = None
) -> Calls:
    """Match returns with calls on every thread.

    1. A return closes the nearest open call with the same code.
    2. Calls above that one lost their own return: they end at the same time and are counted.
    3. A return without such a call is ignored and counted.
    4. Calls that are still open end with the thread's last record.

    Args:
        time: of each record, shape (n,).
        pid: process of each record.
        tid: thread of each record.
        code: what is called or returns.
        is_call: False for a return.
        skipped: records that are neither and only tell that the thread was still recorded; None for none.
    """
    order = _thread_time_order(time, pid, tid)
    if order is not None:
        time, pid, tid, code = (column[order] for column in (time, pid, tid, code))
        is_call = is_call[order]
        skipped = None if skipped is None else skipped[order]
    count = len(time)
    changed = np.r_[True, (pid[1:] != pid[:-1]) | (tid[1:] != tid[:-1])] if count else np.empty(0, dtype=bool)
    bounds = np.r_[np.flatnonzero(changed), count]
    # open calls end with the last record, be it skipped or not
    end = np.repeat(time[bounds[1:] - 1], np.diff(bounds)) if count else np.empty(0, dtype=np.int64)
    parent = np.full(count, -1, dtype=np.int64)
    cut_short = unmatched = 0
    for low, high in itertools.pairwise(bounds.tolist()):
        rows = np.arange(low, high)
        if skipped is not None and skipped[low:high].any():
            rows = rows[~skipped[low:high]]
        called, of = is_call[rows], code[rows]
        balanced = _match_balanced(called, of)
        if balanced is not None:
            returned, caller = balanced
        else:
            returned, caller, cut, lost = _match_unbalanced(called, of)
            cut_short += cut
            unmatched += lost
        closed = returned >= 0
        end[rows[closed]] = time[rows[returned[closed]]]
        has_caller = caller >= 0
        parent[rows[has_caller]] = rows[caller[has_caller]]
    calls = np.flatnonzero(is_call if skipped is None else is_call & ~skipped)
    row_of = np.full(count + 1, -1, dtype=np.int64)
    row_of[calls] = np.arange(len(calls))
    thread = np.cumsum(changed) - 1
    return Calls(
        time[calls], end[calls], pid[calls], tid[calls], thread[calls], code[calls], row_of[parent[calls]], cut_short, unmatched
    )


def _thread_time_order(time: Int64Array, pid: Int64Array, tid: Int64Array) -> Int64Array | None:
    """The order by (pid, tid, time) that keeps simultaneous records as they are; None where it is the order already."""
    same = (pid[1:] == pid[:-1]) & (tid[1:] == tid[:-1])
    later = (pid[1:] > pid[:-1]) | ((pid[1:] == pid[:-1]) & (tid[1:] > tid[:-1]))
    if (later | (same & (time[1:] >= time[:-1]))).all():
        return None
    return np.lexsort((time, tid, pid))


def _match_balanced(is_call: Flags, code: Int64Array) -> tuple[Int64Array, Int64Array] | None:
    """Record of the return and of the caller of each call, -1 for none; None unless each return fits the innermost call.

    On one level of nesting calls and returns alternate, so a record's partner is its neighbour there.
    """
    count = len(code)
    level = np.cumsum(np.where(is_call, np.int32(1), np.int32(-1)), dtype=np.int32)
    level[~is_call] += 1
    if count and level.min() < 1:
        return None
    small = level.astype(np.uint16) if count and level.max() < 1 << 16 else level
    # numpy sorts 16 bit numbers by radix
    order = np.argsort(small, kind="stable")
    has_next = is_call[order[:-1]] & (level[order[:-1]] == level[order[1:]])
    call, its_return = order[:-1][has_next], order[1:][has_next]
    if (code[call] != code[its_return]).any():
        return None
    returned = np.full(count, -1, dtype=np.int64)
    returned[call] = its_return
    caller = np.full(count, -1, dtype=np.int64)
    calls = order[is_call[order]]
    # in the order of calls, which is by level and then by place, the caller is the last call before on the level above
    key = level[calls] * np.int64(count) + calls
    inner = calls[level[calls] > 1]
    caller[inner] = calls[np.searchsorted(key, (level[inner] - 1) * np.int64(count) + inner) - 1]
    return returned, caller


def _match_unbalanced(is_call: Flags, code: Int64Array) -> tuple[Int64Array, Int64Array, int, int]:
    """The same for any records, and the numbers of calls cut short and of returns without a call."""
    returned = np.full(len(code), -1, dtype=np.int64)
    caller = np.full(len(code), -1, dtype=np.int64)
    codes = code.tolist()
    stack: list[int] = []
    # where on the stack the open calls of each code lie: a search from the top would be quadratic
    open_: dict[int, list[int]] = {}
    cut_short = unmatched = 0
    for record, (called, of) in enumerate(zip(is_call.tolist(), codes, strict=True)):
        if called:
            if stack:
                caller[record] = stack[-1]
            open_.setdefault(of, []).append(len(stack))
            stack.append(record)
            continue
        places = open_.get(of)
        if not places:
            unmatched += 1
            continue
        place = places[-1]
        cut_short += len(stack) - place - 1
        while len(stack) > place:
            closed = stack.pop()
            open_[codes[closed]].pop()
            returned[closed] = record
    return returned, caller, cut_short, unmatched
