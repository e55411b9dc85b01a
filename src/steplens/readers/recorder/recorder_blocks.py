"""From the bytes of a recorder's file to arrays: its blocks, each checked against the size of the file, joined by kind.

Nothing is copied but the records themselves, once, and no loop runs over records. What is damaged is counted and left out.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from steplens.common import json_text
from steplens.common.errors import InputError
from steplens.formats import recorder as layout

#: arrays of records, whose fields are those of ``formats.recorder``
Records = npt.NDArray[np.void]
Numbers = npt.NDArray[np.uint32]

CLOCK = np.dtype(list(layout.CLOCK_FIELDS))
CALL, MEMORY = np.dtype(list(layout.CALL_FIELDS)), np.dtype(list(layout.MEMORY_FIELDS))
THREAD = np.dtype(list(layout.THREAD_FIELDS))
PYTHON_CALL = np.dtype(list(layout.PYTHON_FIELDS))
SAMPLE, STACK = np.dtype(list(layout.SAMPLE_FIELDS)), np.dtype(list(layout.STACK_FIELDS))
TOTALS = np.dtype(list(layout.TOTAL_FIELDS))
#: a record that is longer is damage of the header
_LONGEST_RECORD = 4096
_HEADER = struct.Struct(layout.HEADER)
_BLOCK_HEADER = struct.Struct(layout.BLOCK_HEADER)
_NUMBER = struct.Struct("<I")


@dataclass(frozen=True)
class Header:
    """The header of a file: see ``formats.recorder.HEADER``."""

    options: int
    pid: int
    call: np.dtype[np.void]
    memory: np.dtype[np.void]
    clock_source: int
    unix_minus_monotonic_ns: int


@dataclass
class Blocks:
    """What the blocks of a file hold.

    Attributes:
        header: of the file.
        clocks: pairs of ticks and monotonic time.
        signatures: texts of JSON, by number.
        threads: records of threads.
        calls: records of calls; those of one thread are in the order of their ends.
        call_threads: for each call the number of the thread that ended it.
        memory: records of allocator events.
        memory_threads: for each the number of its thread.
        open_calls: by the number of a thread, what it was in when that was written last, outermost first.
        thread_handles: by the number of a thread the low half of its ``pthread_self()``.
        python_names: texts of JSON, by number.
        python_calls: records of calls of Python; those of one thread are in the order of their ends.
        python_threads: for each the number of its thread.
        open_python: as ``open_calls``, of Python.
        python_samples: records of looks at the stacks of threads.
        python_stacks: by number, the frame that each stack has more than the one around it; those that are missing are around
            themselves.
        sampled_threads: texts of JSON, by number.
        metadata: members of the objects that say how it was recorded; of a key that several have the last one counts.
        totals: what the end of the file says; None where it has none.
        damaged_blocks: that are no possible ones, and were left out.
        cut_bytes: behind the last block that is whole.
    """

    header: Header
    clocks: Records = field(default_factory=lambda: np.empty(0, CLOCK))
    signatures: list[bytes] = field(default_factory=list)
    threads: Records = field(default_factory=lambda: np.empty(0, THREAD))
    calls: Records = field(default_factory=lambda: np.empty(0, CALL))
    call_threads: Numbers = field(default_factory=lambda: np.empty(0, np.uint32))
    memory: Records = field(default_factory=lambda: np.empty(0, MEMORY))
    memory_threads: Numbers = field(default_factory=lambda: np.empty(0, np.uint32))
    open_calls: dict[int, Records] = field(default_factory=dict)
    thread_handles: dict[int, int] = field(default_factory=dict)
    python_names: list[bytes] = field(default_factory=list)
    python_calls: Records = field(default_factory=lambda: np.empty(0, PYTHON_CALL))
    python_threads: Numbers = field(default_factory=lambda: np.empty(0, np.uint32))
    open_python: dict[int, Records] = field(default_factory=dict)
    python_samples: Records = field(default_factory=lambda: np.empty(0, SAMPLE))
    python_stacks: Records = field(default_factory=lambda: np.empty(0, STACK))
    sampled_threads: list[bytes] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    totals: Records | None = None
    damaged_blocks: int = 0
    cut_bytes: int = 0


def read_header(content: bytes, path: Path) -> Header:
    """The header of a file.

    Raises:
        InputError: it is none of a version that is known.
    """
    if len(content) < layout.HEADER_BYTES or not content.startswith(layout.MAGIC):
        raise InputError(path, "is no file of the recorder of steplens, or breaks off in its header", "Record again")
    _, version, options, pid, call_bytes, memory_bytes, clock_source, offset = _HEADER.unpack_from(content)
    if version != layout.VERSION:
        problem = f"is of version {version} of the recorder's format, and this steplens reads version {layout.VERSION}"
        raise InputError(path, problem, "Read it with the steplens that recorded it, or a later one")
    for kind, size in ((CALL, call_bytes), (MEMORY, memory_bytes)):
        if not kind.itemsize <= size <= _LONGEST_RECORD:
            raise InputError(path, f"says that a record has {size} bytes, which none has: its header is damaged", "Record again")
    if clock_source not in (layout.MONOTONIC_CLOCK, layout.PROCESSOR_COUNTER):
        raise InputError(path, f"has times of an unknown clock ({clock_source}): its header is damaged", "Record again")
    return Header(options, pid, _widen_records(CALL, call_bytes), _widen_records(MEMORY, memory_bytes), clock_source, offset)


def _widen_records(kind: np.dtype[np.void], size: int) -> np.dtype[np.void]:
    """The same fields in records that are longer."""
    names = list(kind.names or ())
    fields: Any = kind.fields
    formats, offsets = [fields[name][0] for name in names], [fields[name][1] for name in names]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


def read_blocks(content: bytes, path: Path) -> Blocks:
    """All blocks of a file, up to where it breaks off.

    Args:
        content: all bytes of the file.
        path: where they are from.

    Raises:
        InputError: it is no file of the recorder, or of another version.
    """
    blocks = Blocks(read_header(content, path))
    kinds = {
        layout.CLOCKS: CLOCK,
        layout.THREADS: THREAD,
        layout.CALLS: blocks.header.call,
        layout.MEMORY: blocks.header.memory,
        layout.PYTHON_CALLS: PYTHON_CALL,
        layout.PYTHON_SAMPLES: SAMPLE,
        layout.PYTHON_STACKS: STACK,
    }
    parts: dict[int, list[tuple[memoryview, int]]] = {kind: [] for kind in kinds}
    place, size, view = layout.HEADER_BYTES, len(content), memoryview(content)
    while place < size:
        magic, kind, count, thread, length = (
            _BLOCK_HEADER.unpack_from(content, place) if size - place >= layout.BLOCK_HEADER_BYTES else (b"", 0, 0, 0, 0)
        )
        begin = place + layout.BLOCK_HEADER_BYTES
        if magic != layout.BLOCK_MAGIC or length > size - begin:
            following = _next_block(content, place + layout.ALIGNMENT)
            if following is None:
                blocks.cut_bytes = size - place
                if magic == layout.BLOCK_MAGIC and kind in (
                    layout.CALLS,
                    layout.MEMORY,
                    layout.PYTHON_CALLS,
                    layout.PYTHON_SAMPLES,
                ):
                    # where the disk was full, records before the cut are as good as any
                    whole_bytes = (size - begin) // kinds[kind].itemsize * kinds[kind].itemsize
                    parts[kind].append((view[begin : begin + whole_bytes], thread))
                break
            blocks.damaged_blocks += 1
            place = following
            continue
        end = begin + length
        if kind in parts:
            if count * kinds[kind].itemsize == length:
                parts[kind].append((view[begin:end], thread))
            else:
                blocks.damaged_blocks += 1
        elif not _add_other(blocks, kind, count, thread, content[begin:end], most_texts=size // _NUMBER.size):
            blocks.damaged_blocks += 1
        place = end + -end % layout.ALIGNMENT
    blocks.clocks, _ = _join_parts(parts[layout.CLOCKS], CLOCK)
    blocks.threads, _ = _join_parts(parts[layout.THREADS], THREAD)
    blocks.calls, blocks.call_threads = _join_parts(parts[layout.CALLS], blocks.header.call)
    blocks.memory, blocks.memory_threads = _join_parts(parts[layout.MEMORY], blocks.header.memory)
    blocks.python_calls, blocks.python_threads = _join_parts(parts[layout.PYTHON_CALLS], PYTHON_CALL)
    blocks.python_samples, _ = _join_parts(parts[layout.PYTHON_SAMPLES], SAMPLE)
    blocks.python_stacks, misplaced = _join_stacks(parts[layout.PYTHON_STACKS], most=size // _NUMBER.size)
    blocks.damaged_blocks += misplaced
    return blocks


def _next_block(content: bytes, place: int) -> int | None:
    """Where the next block begins behind a damaged one; None where there is none."""
    while (following := content.find(layout.BLOCK_MAGIC, place)) >= 0:
        if following % layout.ALIGNMENT == 0 and len(content) - following >= layout.BLOCK_HEADER_BYTES:
            return following
        place = following + 1
    return None


def _join_parts(parts: Sequence[tuple[memoryview, int]], kind: np.dtype[np.void]) -> tuple[Records, Numbers]:
    """Records of blocks behind one another, and for each the number of the thread of its block."""
    # joined as bytes: arrays of records would be compared field by field first
    records = np.frombuffer(b"".join(part for part, _ in parts), kind)
    threads = np.array([thread for _, thread in parts], dtype=np.uint32)
    return records, np.repeat(threads, [len(part) // kind.itemsize for part, _ in parts])


def _join_stacks(parts: Sequence[tuple[memoryview, int]], most: int) -> tuple[Records, int]:
    """Stacks of blocks at the places of their numbers, and how many blocks have impossible ones.

    Args:
        parts: of each block the records and the number of the first one.
        most: no file of this size has more.
    """
    joined: list[Records] = []
    count = misplaced = 0
    for part, first in parts:
        if not count <= first <= most:
            misplaced += 1
            continue
        if first > count:
            missing = np.zeros(first - count, STACK)
            missing["parent"] = np.arange(count, first)
            joined.append(missing)
        joined.append(np.frombuffer(part, STACK))
        count = first + len(joined[-1])
    return (np.concatenate(joined) if joined else np.empty(0, STACK)), misplaced


def _add_other(blocks: Blocks, kind: int, count: int, thread: int, content: bytes, *, most_texts: int) -> bool:
    """Add a block of another kind than records that are joined; False where it is damaged. Unknown kinds are passed over."""
    if kind in (layout.SIGNATURES, layout.PYTHON_NAMES, layout.PYTHON_SAMPLED_THREADS):
        # texts of a damaged block before this one are missing: their numbers stay theirs
        numbered = {layout.SIGNATURES: blocks.signatures, layout.PYTHON_NAMES: blocks.python_names}.get(
            kind, blocks.sampled_threads
        )
        missing = thread - len(numbered)
        if missing < 0 or thread > most_texts:
            return False
        texts = _split_texts(content, count)
        numbered += [b""] * missing + texts
        return len(texts) == count
    if kind in (layout.OPEN_CALLS, layout.OPEN_PYTHON_CALLS):
        of_python = kind == layout.OPEN_PYTHON_CALLS
        record = PYTHON_CALL if of_python else blocks.header.call
        if count * record.itemsize != len(content):
            return False
        (blocks.open_python if of_python else blocks.open_calls)[thread] = np.frombuffer(content, record)
    elif kind == layout.THREAD_HANDLES:
        if len(content) != _NUMBER.size:
            return False
        (blocks.thread_handles[thread],) = _NUMBER.unpack(content)
    elif kind == layout.METADATA:
        try:
            # the recording process may have written what is no strict JSON, such as NaN
            members = json_text.loads(content) if content else {}
        except ValueError:
            return False
        if not isinstance(members, dict):
            return False
        blocks.metadata.update(members)
    elif kind == layout.END:
        if len(content) < layout.LEAST_TOTALS:
            return False
        blocks.totals = np.frombuffer(content.ljust(TOTALS.itemsize, b"\0"), TOTALS, count=1)
    return True


def _split_texts(content: bytes, count: int) -> list[bytes]:
    """The texts of a block, each behind its length; those of a damaged block as far as they go."""
    texts = []
    place, size = 0, len(content)
    for _ in range(min(count, size // _NUMBER.size)):
        if size - place < _NUMBER.size:
            break
        (length,) = _NUMBER.unpack_from(content, place)
        place += _NUMBER.size
        if length > size - place:
            break
        texts.append(content[place : place + length])
        place += length
    return texts
