"""Sampled Python stacks in a recorder's file: the rows of ``python_samples`` and ``python_stacks``.

A file is hostile input: a stack whose frames do not lead to an outermost one, or deeper than any, is no stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import polars as pl

from steplens.formats import recorder as layout
from steplens.readers.common import json_decoder
from steplens.readers.recorder.recorder_blocks import Blocks, Records
from steplens.readers.recorder.recorder_clock import RecorderClock
from steplens.readers.recorder.recorder_python_names import PythonName, name_texts, read_names
from steplens.readers.recorder.recorder_tables import take_records
from steplens.trace.building.nesting import Int64Array
from steplens.trace.schema import NAME

#: stacks that are deeper are damage
_DEEPEST = 1024
#: stacks are sampled no more often a second
_MOST_HZ = 1000.0
#: by which processor time may be ahead of the time that passed: both are read one after the other
_CLOCKS_APART_NS = 100_000_000
#: threads whose number of the system is not known are numbered from here, above those that the recorder itself numbers
_UNKNOWN_THREADS = 1 << 33


class _SampledThread(msgspec.Struct, gc=False):
    """One text: what a thread that was sampled is called."""

    native_id: int = 0
    name: str = ""


_DECODER: json_decoder.Decoder[_SampledThread] = json_decoder.Decoder(_SampledThread)


@dataclass(frozen=True)
class Samples:
    """The samples of a file.

    Attributes:
        samples: rows of ``python_samples``, in the order of threads and times.
        stacks: rows of ``python_stacks``.
        thread_names: of each thread by the system's number, as the program calls it; empty where it does not.
        damaged: records, stacks and texts that were left out.
    """

    samples: pl.DataFrame
    stacks: pl.DataFrame
    thread_names: dict[int, str]
    damaged: int


def read_samples(blocks: Blocks, clock: RecorderClock) -> Samples:
    """The samples of a file.

    Args:
        blocks: of the file.
        clock: of the file.
    """
    if not len(blocks.python_samples):
        return Samples(pl.DataFrame(), pl.DataFrame(), {}, 0)
    thread_ids, thread_names, unread_threads = _read_threads(blocks.sampled_threads)
    names, unread_names = read_names(blocks.python_names)
    depth = _stack_depths(blocks.python_stacks)
    records = _possible_samples(blocks.python_samples, clock, len(thread_ids))
    damaged = len(blocks.python_samples) - len(records) + int(np.count_nonzero(depth < 0)) + unread_threads + unread_names
    tid = np.array(thread_ids, dtype=np.int64)[records["thread"]]
    order = np.lexsort((records["taken_ticks"], tid))
    records, tid = take_records(records, order), tid[order]
    has_stack = records["stack"] < len(depth)
    damaged += int(np.count_nonzero(~has_stack & (records["stack"] != layout.NO_STACK)))
    stack = np.where(has_stack, records["stack"], 0).astype(np.int64)
    if len(depth):
        has_stack &= depth[stack] >= 0
    due_ns, look_ns = clock.unix_times(records["wanted_ticks"]), clock.unix_times(records["taken_ticks"])
    count = len(records)
    frame = pl.DataFrame(
        {
            "time_ns": look_ns,
            "wanted_ns": due_ns,
            "pid": pl.Series([blocks.header.pid], dtype=pl.Int64).new_from_index(0, count),
            "tid": tid,
            "stack": pl.Series(stack).set(pl.Series(~has_stack), None),
            "samples": records["count"].astype(np.int64),
            "processor_ns": _processor_times(records["processor_ns"], look_ns, tid),
        }
    )
    return Samples(frame, _stack_table(blocks.python_stacks, depth, names), thread_names, damaged)


def _read_threads(texts: Sequence[bytes]) -> tuple[list[int], dict[int, str], int]:
    """The number of the system of each thread, their names by it, and how many texts cannot be read."""
    ids, names, damaged = [], {}, 0
    for number, text in enumerate(texts):
        try:
            thread = _DECODER.decode(text)
        except ValueError:
            thread = _SampledThread()
            damaged += 1
        is_known = 0 < thread.native_id < 1 << 32
        ids.append(thread.native_id if is_known else _UNKNOWN_THREADS + number)
        if thread.name or ids[-1] not in names:
            names[ids[-1]] = thread.name
    return ids, names, damaged


def _possible_samples(records: Records, clock: RecorderClock, threads: int) -> Records:
    due_ticks, look_ticks, count = records["wanted_ticks"], records["taken_ticks"], records["count"]
    most = (clock.last_ns - clock.first_ns) * 1e-9 * _MOST_HZ + _MOST_HZ
    possible = clock.are_possible(due_ticks) & clock.are_possible(look_ticks) & (due_ticks <= look_ticks)
    possible &= (count > 0) & (count <= most) & (records["thread"] < threads)
    return records if possible.all() else records[possible]


def _stack_depths(stacks: Records) -> Int64Array:
    """How many frames are around the innermost one of each stack; -1 for those that are damaged.

    Every stack has a larger number than the one around it, so that there is no way round in a circle.
    """
    numbers = np.arange(len(stacks))
    is_outermost = stacks["parent"] == layout.NO_STACK
    is_broken = ~is_outermost & (stacks["parent"] >= numbers)
    around = np.where(is_outermost | is_broken, -1, stacks["parent"].astype(np.int64))
    depth: Int64Array = (around >= 0).astype(np.int64)
    # each round looks twice as far
    while len(rows := np.flatnonzero(around >= 0)):
        ancestors = around[rows]
        depth_above, broken_above, above_above = depth[ancestors], is_broken[ancestors], around[ancestors]
        depth[rows] += depth_above
        is_broken[rows] |= broken_above
        around[rows] = above_above
    depth[is_broken | (depth > _DEEPEST)] = -1
    return depth


def _processor_times(used: np.ndarray[tuple[int], np.dtype[np.uint64]], taken: Int64Array, tid: Int64Array) -> pl.Series:
    """Processor time since the sample of the thread before; null where that is not known, or another thread had the number."""
    is_known = used < np.uint64(1 << 62)
    values = np.where(is_known, used, 0).astype(np.int64)
    since, passed = np.diff(values, prepend=0), np.diff(taken, prepend=0)
    follows = np.r_[False, (tid[1:] == tid[:-1]) & is_known[1:] & is_known[:-1]][: len(tid)]
    follows &= (since >= 0) & (since <= passed + _CLOCKS_APART_NS)
    return pl.Series(since).set(pl.Series(~follows), None)


def _stack_table(stacks: Records, depth: Int64Array, names: Sequence[PythonName]) -> pl.DataFrame:
    """Rows of ``python_stacks``, without those that are damaged."""
    number = np.minimum(stacks["name"], len(names) - 1).astype(np.int64)
    # numbered as they were met first
    _, first = np.unique(number, return_index=True)
    texts, module_ids = name_texts(names, number[np.sort(first)].tolist())
    is_module = np.array(module_ids, dtype=np.int64)[number] >= 0
    parent = stacks["parent"].astype(np.int64)
    rows = pl.DataFrame(
        {
            "id": np.arange(len(stacks)),
            "parent": pl.Series(parent).set(pl.Series(depth == 0), None),
            "depth": depth,
            "name": pl.Series(texts, dtype=pl.String).cast(NAME).gather(pl.Series(number)),
            "line": np.where(is_module, 0, stacks["line"].view(np.int32).astype(np.int64)),
        }
    )
    return rows.filter(pl.Series(depth >= 0))


def name_threads(threads: pl.DataFrame, samples: Samples, pid: int) -> pl.DataFrame:
    """Rows of ``threads`` with those that were sampled: they have the names that the program gives them.

    Args:
        threads: what else is known of them.
        samples: of the file.
        pid: the process.
    """
    names = dict(threads.select("tid", "name").rows())
    for tid, name in samples.thread_names.items():
        if name or tid not in names:
            names[tid] = f"thread {tid} ({name})" if name else f"thread {tid}"
    rows = [(pid, tid, name) for tid, name in sorted(names.items())]
    return pl.DataFrame(rows, schema=threads.schema, orient="row")
