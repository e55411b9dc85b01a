"""Calls of Python in a recorder's file: the rows of ``python`` that the reader of Kineto's traces makes of the same program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from steplens.readers.recorder.recorder_blocks import PYTHON_CALL, Blocks, Numbers, Records
from steplens.readers.recorder.recorder_clock import RecorderClock
from steplens.readers.recorder.recorder_python_names import PythonName, name_texts, read_names
from steplens.readers.recorder.recorder_tables import Threads, take_records
from steplens.trace.building.nesting import Int64Array, nest_calls
from steplens.trace.schema import NAME


@dataclass(frozen=True)
class PythonCalls:
    """Calls of Python, in the order of threads, then of their beginnings, outer ones first.

    Attributes:
        records: of the file.
        start_ns: Unix time.
        end_ns: likewise.
        thread: number of the thread of each.
        names: what the texts say, by number; behind the last one that of calls without one.
        damaged: records and texts that were left out.
    """

    records: Records
    start_ns: Int64Array
    end_ns: Int64Array
    thread: Numbers
    names: Sequence[PythonName]
    damaged: int


def read_python(blocks: Blocks, clock: RecorderClock, threads: Threads, latest: int) -> PythonCalls:
    """The calls of Python of a file.

    Args:
        blocks: of the file.
        clock: of the file.
        threads: of the file.
        latest: ticks at which what had not ended does.
    """
    records, thread = blocks.python_calls, blocks.python_threads
    open_records, open_threads = _open_python(blocks, clock, latest)
    if len(open_records):
        # as bytes: numpy copies the fields of records one by one
        raw = [part.view(f"V{PYTHON_CALL.itemsize}") for part in (records, open_records)]
        records, thread = np.concatenate(raw).view(PYTHON_CALL), np.concatenate([thread, open_threads])
    count = len(records)
    # of calls that begin at once the outer one ends later, so it lies behind the inner one
    order = count - 1 - np.lexsort((records["start_ticks"][::-1], thread[::-1]))
    start, end = records["start_ticks"][order], records["end_ticks"][order]
    possible = clock.are_possible(start) & clock.are_possible(end) & (start <= end)
    damaged = count - int(np.count_nonzero(possible))
    if damaged:
        order, start, end = order[possible], start[possible], end[possible]
    names, unread = read_names(blocks.python_names)
    times = clock.unix_times(start), clock.unix_times(end)
    return PythonCalls(take_records(records, order), *times, thread[order], names, damaged + unread)


def _open_python(blocks: Blocks, clock: RecorderClock, latest: int) -> tuple[Records, Numbers]:
    """The calls that had not ended when the recording did, inner ones first, and their threads; as with those of operators.

    A thread may have been changing them while they were written: a call counts that began no earlier than the one around it, and
    whose end is not in the file.
    """
    none = np.empty(0, PYTHON_CALL), np.empty(0, np.uint32)
    if blocks.totals is not None and blocks.totals["dropped_python_calls"][0]:
        # a call without room for its record would pass for one that never ended
        return none
    parts, threads = [], []
    for number, looked in blocks.open_python.items():
        records = looked[clock.are_possible(looked["start_ticks"])]
        start = records["start_ticks"]
        is_inside = start >= np.r_[start[:1], start[:-1]]
        records = records[: len(records) if is_inside.all() else int(np.argmin(is_inside))]
        is_there = (blocks.python_threads == number) & np.isin(blocks.python_calls["start_ticks"], records["start_ticks"])
        ended = blocks.python_calls[is_there]
        ends = set(zip(ended["start_ticks"].tolist(), ended["depth"].tolist(), strict=True))
        begins = zip(records["start_ticks"].tolist(), records["depth"].tolist(), strict=True)
        parts.append(records[np.array([begin not in ends for begin in begins], dtype=bool)][::-1])
        threads.append(np.full(len(parts[-1]), number, dtype=np.uint32))
    if not parts:
        return none
    records = np.concatenate(parts)
    records["end_ticks"] = latest
    return records, np.concatenate(threads)


def python_table(calls: PythonCalls, threads: Threads, pid: int) -> pl.DataFrame:
    """Rows of ``python``: numbered from 1 in the order of threads and beginnings, with the number of the call around each."""
    number = np.minimum(calls.records["name"], len(calls.names) - 1)
    texts, module_ids = name_texts(calls.names, _in_order_of_calls(calls, number))
    count = len(calls.records)
    thread = calls.thread.astype(np.int64)
    nesting = nest_calls(thread, calls.start_ns, calls.end_ns)
    module_id = np.array(module_ids, dtype=np.int64)[number]
    return pl.DataFrame(
        {
            "id": np.arange(1, count + 1),
            "name": pl.Series(texts, dtype=pl.String).cast(NAME).gather(pl.Series(number)),
            "start_ns": calls.start_ns,
            "end_ns": calls.end_ns,
            "pid": pl.Series([pid], dtype=pl.Int64).new_from_index(0, count),
            "tid": threads.native_ids(calls.thread),
            "parent": pl.Series(nesting.parent + 1).set(pl.Series(nesting.parent < 0), None),
            "module_id": pl.Series(module_id).set(pl.Series(module_id < 0), None),
        }
    )


def _in_order_of_calls(calls: PythonCalls, number: Any) -> list[int]:
    """The numbers of names in the order in which they were called first."""
    used = np.unique(number)
    # rows are in the order of threads: which was first of all threads, the time says
    begins = np.full(len(calls.names), np.iinfo(np.int64).max)
    np.minimum.at(begins, number, calls.start_ns)
    in_order: list[int] = used[np.argsort(begins[used], kind="stable")].tolist()
    return in_order
