"""A profile for ``pprof``: own time of every call stack, as a gzipped protocol buffer (perftools.profiles.Profile)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from steplens.trace.building.devices import device_kind
from steplens.trace.building.nesting import Int64Array
from steplens.trace.schema import CORE_CPU
from steplens.writers.common.output import NothingToWriteError
from steplens.writers.exports.flame.call_tree import Stacks, frame_of, host_calls, number_stacks
from steplens.writers.exports.flame.sampled_stacks import sampled_stacks
from steplens.writers.exports.subject import Subject

#: numbers of the fields of the messages
_PROFILE = {
    "sample_type": 1, "sample": 2, "mapping": 3, "location": 4, "function": 5, "string": 6, "time_nanos": 9,
    "duration_nanos": 10, "comment": 13, "default_sample_type": 14,
}  # fmt: skip

_VARINT, _BYTES = 0, 2


def write(subject: Subject, handle: IO[bytes]) -> None:
    """Write the whole profile, uncompressed.

    Each sample is a stack of one thread with three values: how often it was called, its own time and, where the run has an
    accelerator, the time of the device tasks that it launched; its label says which thread it is of. Where Python stacks were
    sampled and calls of Python were not recorded, they are the sampled ones: samples, estimated time and processor time.

    Raises:
        NothingToWriteError: the trace has no calls.
    """
    trace = subject.trace
    sampled = sampled_stacks(trace)
    tree = host_calls(trace) if sampled is None else None
    if tree is not None and not len(tree.start):
        raise NothingToWriteError("the trace has no calls")
    strings = _Strings()
    values = [("calls" if sampled is None else "samples", "count"), ("time", "nanoseconds")]
    if sampled is not None:
        values.append(("cpu", "nanoseconds"))
    elif device_kind(trace) != CORE_CPU:
        values.append(("device", "nanoseconds"))
    for kind, unit in values:
        handle.write(_message_field(_PROFILE["sample_type"], _number_field(1, strings[kind]) + _number_field(2, strings[unit])))
    if sampled is not None:
        lanes, names, stacks = sampled.lanes, sampled.names, sampled.stacks
        columns = (sampled.samples, sampled.time_ns, sampled.cpu_ns)
        begin, end = int(sampled.start_ns.min()), int(sampled.start_ns.max())
    else:
        assert tree is not None
        lanes, names, stacks = [lane.name for lane in tree.lanes], tree.names, number_stacks(tree)
        columns = (np.ones_like(tree.self_ns), tree.self_ns, tree.device_ns)
        begin, end = int(tree.start.min()), int(tree.end.max())
    _write_samples(lanes, stacks, columns[: len(values)], strings, handle)
    # the mapping says that there is nothing left to look up in a binary
    mapping = _number_field(1, 1) + _number_field(5, strings["python"]) + b"".join(_number_field(field, 1) for field in (7, 8, 9))
    handle.write(_message_field(_PROFILE["mapping"], mapping))
    for number, name in enumerate(names, 1):
        frame = frame_of(name)
        line = _message_field(4, _number_field(1, number) + _number_field(2, frame.line))
        handle.write(_message_field(_PROFILE["location"], _number_field(1, number) + _number_field(2, 1) + line))
        texts = (
            _number_field(2, strings[frame.function]) + _number_field(3, strings[name]) + _number_field(4, strings[frame.file])
        )
        handle.write(_message_field(_PROFILE["function"], _number_field(1, number) + texts + _number_field(5, frame.line)))
    handle.write(_number_field(_PROFILE["time_nanos"], begin) + _number_field(_PROFILE["duration_nanos"], end - begin))
    handle.write(_message_field(_PROFILE["comment"], _encode_varint(strings[f"steplens: {subject.name}"])))
    handle.write(_number_field(_PROFILE["default_sample_type"], strings["time"]))
    for text in strings:
        handle.write(_message_field(_PROFILE["string"], text.encode()))


def _write_samples(
    lanes: Sequence[str], found: Stacks, columns: Sequence[Int64Array], strings: _Strings, handle: IO[bytes]
) -> None:
    sums = np.zeros((len(columns), len(found.parent)), dtype=np.int64)
    for total, column in zip(sums, columns, strict=True):
        np.add.at(total, found.of_call, column)
    thread = strings["thread"]
    labels = [_message_field(3, _number_field(1, thread) + _number_field(2, strings[lane])) for lane in lanes]
    # the innermost call comes first, so a stack is its last call in front of its parent's text
    paths: list[bytes] = []
    for parent, frame, lane, *counts in zip(
        found.parent.tolist(), found.frame.tolist(), found.lane.tolist(), *sums.tolist(), strict=True
    ):
        path = b"" if frame < 0 else _encode_varint(frame + 1) + paths[parent]
        paths.append(path)
        if frame >= 0:
            sample = _message_field(1, path) + _message_field(2, b"".join(map(_encode_varint, counts))) + labels[lane]
            handle.write(_message_field(_PROFILE["sample"], sample))


class _Strings:
    """The table of strings: each has the number of its place; the first one is empty."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def __getitem__(self, text: str) -> int:
        # a lone surrogate has no place in UTF-8
        text = text.encode("utf-8", "replace").decode()
        return self._numbers.setdefault(text, len(self._numbers))

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)


def _encode_varint(value: int) -> bytes:
    """A number, seven bits at a time, the lowest first; a negative one as its complement in 64 bits."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _number_field(field: int, value: int) -> bytes:
    """A field that is a number; 0 is what a missing one means."""
    return _encode_varint(field << 3 | _VARINT) + _encode_varint(value) if value else b""


def _message_field(field: int, content: bytes) -> bytes:
    """A field that is a message, a text or a list of numbers."""
    return _encode_varint(field << 3 | _BYTES) + _encode_varint(len(content)) + content
