"""From the arrays of a recorder's file to raw tables: operator calls, allocator events, arrows, threads.

They are those that the reader of Kineto's traces makes of the same program, so that everything behind them is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.formats import recorder as layout
from steplens.formats.kineto import FORWARD_BACKWARD
from steplens.readers.recorder.recorder_blocks import Blocks, Numbers, Records
from steplens.readers.recorder.recorder_clock import RecorderClock
from steplens.readers.recorder.recorder_signatures import Signatures
from steplens.trace.building.nesting import Int64Array
from steplens.trace.schema import CORE_CPU, NAME, SCOPE_BACKWARD, SCOPE_FUNCTION, SCOPE_USER

Flags = npt.NDArray[np.bool_]

#: numbers of threads that the file does not name begin here, above all of an operating system
_UNNAMED_THREADS = 1 << 32
#: no sequence number, and no block of memory, is as large
_LARGEST_SEQUENCE, _LARGEST_BLOCK = 1 << 62, 1 << 47


@dataclass(frozen=True)
class Threads:
    """The threads of a recording by their number in the file, which rises.

    Attributes:
        number: in the file.
        native_id: as the system has it.
        torch_id: as PyTorch has it.
        names: what the viewers call their lanes.
    """

    number: Int64Array
    native_id: Int64Array
    torch_id: Int64Array
    names: Sequence[str]

    def rows_of(self, numbers: Numbers) -> Int64Array:
        """Row of each thread; -1 for one that the file does not name."""
        if not len(self.number):
            return np.full(len(numbers), -1, dtype=np.int64)
        rows = np.minimum(np.searchsorted(self.number, numbers), len(self.number) - 1)
        result: Int64Array = np.where(self.number[rows] == numbers, rows, -1)
        return result

    def native_ids(self, numbers: Numbers) -> Int64Array:
        """What the tables call each thread."""
        rows = self.rows_of(numbers)
        native_id = np.r_[self.native_id, 0][rows]
        return np.where(rows >= 0, native_id, _UNNAMED_THREADS + numbers.astype(np.int64))


@dataclass(frozen=True)
class Calls:
    """Calls of a recording, in the order of their beginnings, outer ones first.

    Attributes:
        records: of the file.
        start_ns: Unix time.
        end_ns: likewise.
        thread: number of the thread that began each.
        signature: row in ``Signatures.columns``.
        sequence: sequence numbers, with those that autograd's engine works through (see ``_pass_on_to_engine``).
        forward_thread: PyTorch's number of the thread of the forward call, likewise.
        unnamed: how many have the last row: no text could be made or read.
        damaged: records that were left out, since their times are impossible.
    """

    records: Records
    start_ns: Int64Array
    end_ns: Int64Array
    thread: Numbers
    signature: Int64Array
    sequence: Int64Array
    forward_thread: Int64Array
    unnamed: int
    damaged: int


def read_threads(records: Records) -> Threads:
    """The threads of a file; of several records with one number the last one counts."""
    _, last = np.unique(records["number"][::-1], return_index=True)
    rows = records[len(records) - 1 - last]
    names = [
        f"thread {thread} ({name.decode('utf-8', 'replace')})"
        for thread, name in zip(rows["native_id"].tolist(), rows["name"].tolist(), strict=True)
    ]
    number, native_id = rows["number"].astype(np.int64), rows["native_id"].astype(np.int64)
    # backward calls have as many bits of it
    return Threads(number, native_id, (rows["torch_id"] & np.uint64((1 << 32) - 1)).astype(np.int64), names)


def read_calls(blocks: Blocks, open_calls: Records, clock: RecorderClock, threads: Threads, signatures: Signatures) -> Calls:
    """The calls of a file.

    Args:
        blocks: of the file.
        open_calls: calls that had not ended, with the end that they get, the inner ones first.
        clock: of the file.
        threads: of the file.
        signatures: of the file.
    """
    records, threads_of_blocks = blocks.calls, blocks.call_threads
    if len(open_calls):
        records = np.concatenate([records, open_calls])
        threads_of_blocks = np.concatenate([threads_of_blocks, open_calls["start_thread"]])
    # of calls that begin at once the outer one ends later, so it lies behind the inner one in the file
    order = len(records) - 1 - np.argsort(records["start_ticks"][::-1], kind="stable")
    start, end = records["start_ticks"][order], records["end_ticks"][order]
    possible = clock.are_possible(start) & clock.are_possible(end) & (start <= end)
    damaged = len(records) - int(np.count_nonzero(possible))
    if damaged:
        order, start, end = order[possible], start[possible], end[possible]
    ordered = take_records(records, order)
    count = signatures.columns.height - 1
    signature = np.minimum(ordered["signature"], count).astype(np.int64)
    thread = ordered["start_thread"]
    unknown = threads.rows_of(thread) < 0
    if unknown.any():
        # who began them has no records of its own: they lie on the thread that ended them
        thread = np.where(unknown, threads_of_blocks[order], thread)
    unnamed = int(np.count_nonzero(signature == count))
    engine = signatures.columns["is_backward"].to_numpy()[signature] & (ordered["scope"] == layout.FUNCTION_SCOPE)
    sequence, forward_thread = _pass_on_to_engine(ordered, thread, engine)
    times = clock.unix_times(start), clock.unix_times(end)
    return Calls(ordered, *times, thread, signature, sequence, forward_thread, unnamed, damaged)


def take_records(records: Records, rows: Int64Array) -> Records:
    """``records[rows]``, in a tenth of the time: numpy copies the fields of a record one by one, and bytes at once."""
    return np.take(records.view(f"V{records.dtype.itemsize}"), rows).view(records.dtype)


def _pass_on_to_engine(records: Records, thread: Numbers, engine: Flags) -> tuple[Int64Array, Int64Array]:
    """Sequence numbers and forward threads of calls; ranges of autograd's engine get those of the backward call inside of them.

    PyTorch does so, too, when it writes its trace: such a range is followed on its thread by the call that it is for.

    Args:
        records: of calls, in the order of their beginnings.
        thread: of each.
        engine: whether each is such a range.
    """
    sequence, forward_thread = records["sequence"].copy(), records["forward_thread"].astype(np.int64)
    by_thread = np.argsort(thread, kind="stable")
    around, within = by_thread[:-1], by_thread[1:]
    takes = engine[around] & (thread[around] == thread[within]) & (records["scope"][within] == layout.BACKWARD_SCOPE)
    around, within = around[takes], within[takes]
    sequence[around], forward_thread[around] = sequence[within], forward_thread[within]
    return sequence, forward_thread


def call_table(calls: Calls, threads: Threads, signatures: Signatures, pid: int) -> pl.DataFrame:
    """Rows of ``ops``."""
    columns = signatures.columns.select(pl.all().gather(pl.Series(calls.signature)))
    sequence, forward = calls.sequence, calls.forward_thread
    numbered = _have_sequence(sequence)
    is_backward = columns["is_backward"].to_numpy() | (numbered & (forward > 0))
    is_user = calls.records["scope"] == layout.USER_SCOPE
    scope = np.where(is_user, SCOPE_USER, np.where(is_backward, SCOPE_BACKWARD, SCOPE_FUNCTION)).astype(np.uint8)
    unnumbered = pl.Series(~numbered)
    optional = [columns[name] for name in ("input_shapes", "input_types", "arguments", "flops")]
    return pl.DataFrame(
        [
            columns["name"],
            pl.Series("pid", [pid], dtype=pl.Int64).new_from_index(0, columns.height),
            pl.Series("tid", threads.native_ids(calls.thread)),
            pl.Series("start_ns", calls.start_ns),
            pl.Series("end_ns", calls.end_ns),
            pl.Series("scope", scope),
            pl.Series("external_id", np.arange(1, columns.height + 1)),
            pl.Series("sequence", sequence).set(unnumbered, None),
            pl.Series("forward_tid", forward).set(unnumbered, None),
            *(column for column in optional if column.null_count() < columns.height),
        ]
    )


def _have_sequence(sequence: Int64Array) -> Flags:
    numbered: Flags = (sequence >= 0) & (sequence < _LARGEST_SEQUENCE)
    return numbered


def flow_table(calls: Calls, threads: Threads, pid: int) -> pl.DataFrame:
    """Arrows from forward calls to their backward calls, as Kineto draws them.

    Going through the calls by their ends: a forward call takes the place of that with the same thread and sequence number if it
    begins no earlier; a backward call takes the one of its forward thread and sequence number, which no second one gets.
    """
    rows = np.flatnonzero(_have_sequence(calls.records["sequence"]))
    forward_thread = calls.records["forward_thread"][rows].astype(np.int64)
    is_backward = forward_thread > 0
    thread_rows = threads.rows_of(calls.thread[rows])
    # the last one is of threads that the file does not name
    thread = np.where(is_backward, forward_thread, np.r_[threads.torch_id, 0][thread_rows])
    # a forward call of a thread without a number is nobody's
    is_placed = thread > 0
    rows, is_backward, thread = rows[is_placed], is_backward[is_placed], thread[is_placed]
    sequence = calls.records["sequence"][rows]
    order = np.lexsort((calls.records["end_ticks"][rows], sequence, thread))
    rows, is_backward, thread, sequence = rows[order], is_backward[order], thread[order], sequence[order]
    # stretches of forward calls of one key, each of which the backward call at its end takes one of
    is_first = np.r_[True, (thread[1:] != thread[:-1]) | (sequence[1:] != sequence[:-1])] if len(rows) else np.empty(0, bool)
    stretch = np.cumsum(is_first | np.r_[False, is_backward[:-1]]) if len(rows) else np.empty(0, np.int64)
    forward = np.flatnonzero(~is_backward)
    # the last one of each stretch, by begin and then by end
    by_begin = forward[np.lexsort((forward, calls.records["start_ticks"][rows[forward]], stretch[forward]))]
    is_last = np.r_[stretch[by_begin[1:]] != stretch[by_begin[:-1]], np.ones(min(len(by_begin), 1), bool)]
    latest = by_begin[is_last]
    backward = np.flatnonzero(is_backward)
    if not len(latest) or not len(backward):
        return pl.DataFrame()
    place = np.minimum(np.searchsorted(stretch[latest], stretch[backward]), len(latest) - 1)
    has_forward = stretch[latest[place]] == stretch[backward]
    begins, ends = rows[latest[place[has_forward]]], rows[backward[has_forward]]
    # numbered by the ends of the backward calls
    by_end = np.argsort(calls.records["end_ticks"][ends], kind="stable")
    begins, ends = begins[by_end], ends[by_end]
    process = pl.Series([pid], dtype=pl.Int64).new_from_index(0, len(begins))
    arrows = {
        "kind": pl.Series([FORWARD_BACKWARD], dtype=NAME).new_from_index(0, len(begins)),
        "flow_id": np.arange(1, len(begins) + 1),
        "from_ns": calls.start_ns[begins],
        "from_pid": process,
        "from_tid": threads.native_ids(calls.thread[begins]),
        "to_ns": calls.start_ns[ends],
        "to_pid": process,
        "to_tid": threads.native_ids(calls.thread[ends]),
    }
    return pl.DataFrame(arrows).sort("from_ns", "flow_id")


@dataclass(frozen=True)
class MemoryEvents:
    """Rows of ``memory``, and what is not among them.

    Attributes:
        frame: the rows, in order of time.
        unknown: events that free what was allocated before recording began.
        damaged: events of impossible times or sizes.
    """

    frame: pl.DataFrame
    unknown: int
    damaged: int


def read_memory(blocks: Blocks, clock: RecorderClock, threads: Threads) -> MemoryEvents:
    """The allocator events of a file.

    Args:
        blocks: of the file.
        clock: of the file.
        threads: of the file.
    """
    # libraries free null, too, which is no memory
    rows = np.flatnonzero(blocks.memory["address"])
    order = rows[np.argsort(blocks.memory["ticks"][rows], kind="stable")]
    records, thread = take_records(blocks.memory, order), blocks.memory_threads[order]
    size = records["bytes"]
    possible = clock.are_possible(records["ticks"]) & (size >= layout.FREED) & (size < _LARGEST_BLOCK)
    damaged = len(records) - int(np.count_nonzero(possible))
    if not possible.all():
        records, thread, size = records[possible], thread[possible], size[possible]
    sizes, is_known = _freed_sizes(records["address"], size)
    unknown = len(records) - int(np.count_nonzero(is_known))
    if unknown:
        records, thread, sizes = records[is_known], thread[is_known], sizes[is_known]
    count = len(records)
    frame = pl.DataFrame(
        {
            "pid": pl.Series([blocks.header.pid], dtype=pl.Int64).new_from_index(0, count),
            "tid": threads.native_ids(thread),
            "time_ns": clock.unix_times(records["ticks"]),
            "address": records["address"].view(np.int64),
            "bytes": sizes,
            "allocated": np.cumsum(sizes),
            "reserved": np.zeros(count, dtype=np.int64),
            "device": np.full(count, -1, dtype=np.int32),
            "device_type": pl.Series([CORE_CPU], dtype=NAME).new_from_index(0, count),
            "stream": np.zeros(count, dtype=np.int64),
            "component": pl.Series(["PTA"], dtype=NAME).new_from_index(0, count),
        }
    )
    return MemoryEvents(frame, unknown, damaged)


def _freed_sizes(address: npt.NDArray[np.uint64], size: Int64Array) -> tuple[Int64Array, Flags]:
    """Sizes with those of what is freed, negative, in place of the mark of a release; and which are known.

    Args:
        address: of each event, in order of time.
        size: of what is allocated, or ``FREED``.
    """
    by_address = np.argsort(address, kind="stable")
    same = np.r_[False, address[by_address[1:]] == address[by_address[:-1]]][: len(address)]
    sizes_by_address = size[by_address]
    before = np.r_[layout.FREED, sizes_by_address[:-1]][: len(address)]
    frees = sizes_by_address == layout.FREED
    sizes, is_known = np.empty_like(size), np.empty(len(size), dtype=bool)
    sizes[by_address] = np.where(frees, -before, sizes_by_address)
    is_known[by_address] = ~frees | (same & (before != layout.FREED))
    return sizes, is_known


def thread_table(threads: Threads, used: Iterable[int], pid: int) -> pl.DataFrame:
    """Rows of ``threads``; of several threads that had the same id one after the other the last one.

    Args:
        threads: of the file.
        used: numbers of the threads that something lies on, which the file may not name.
        pid: the process.
    """
    names = dict(zip(threads.native_id.tolist(), threads.names, strict=True))
    numbers = np.unique(np.array([*used], dtype=np.uint32))
    unnamed = numbers[threads.rows_of(numbers) < 0].tolist()
    names.update({_UNNAMED_THREADS + number: f"thread {number} of the recording" for number in unnamed})
    rows = [(pid, tid, name) for tid, name in sorted(names.items())]
    return pl.DataFrame(rows, schema={"pid": pl.Int64, "tid": pl.Int64, "name": pl.String}, orient="row")
