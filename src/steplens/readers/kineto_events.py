"""Kineto events from JSON text to columns: one pass of msgspec over typed structs, no dictionary per event.

The fast path trusts the types that Kineto writes. A piece that does not fit it (another tool's trace, a damaged
event) goes through a tolerant path, event by event; what cannot be read even so is counted, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, ClassVar

import msgspec
import polars as pl
from msgspec import Raw

from steplens.readers.json_events import JsonEventFile, Piece, event_ends

#: categories whose events become rows of ``ops``; all other events with a duration are few or carry other members
OPERATOR_CATEGORIES = frozenset(("cpu_op", "user_annotation", "Operator"))

_NO_TEXT = Raw(b"")


class DurationArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "external_id": "External id",
        "sequence": "Sequence number",
        "forward_tid": "Fwd thread id",
        "input_types": "Input type",
        "input_shapes": "Input Dims",
        "python_id": "Python id",
        "python_parent": "Python parent id",
        "python_module": "Python module id",
        "collective": "Collective name",
        "elements": "In msg nelems",
        "dtype": "dtype",
        "group": "Process Group Name",
        "group_size": "Group size",
        "source": "Src Rank",
        "destination": "Dst Rank",
        "queued": "queued",
    },
):
    """The members of ``args`` that steplens uses from an event with a duration."""

    external_id: int | None = None
    sequence: int | None = None
    forward_tid: int | None = None
    input_types: Raw = _NO_TEXT
    input_shapes: Raw = _NO_TEXT
    flops: int | float | None = None
    python_id: int | None = None
    python_parent: int | None = None
    python_module: int | None = None
    correlation: int | None = None
    device: int | str | None = None
    stream: int | str | None = None
    bytes: int | None = None
    collective: str | None = None
    elements: int | None = None
    dtype: str | None = None
    group: str | None = None
    group_size: int | None = None
    source: int | None = None
    destination: int | None = None


class MemoryArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "reserved": "Total Reserved",
        "allocated": "Total Allocated",
        "bytes": "Bytes",
        "device": "Device Id",
        "device_type": "Device Type",
        "address": "Addr",
    },
):
    """The members of ``args`` of an allocator event."""

    address: int | None = None
    bytes: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    device: int | None = None
    device_type: int | None = None


class MetadataArgs(msgspec.Struct, gc=False):
    """The member of ``args`` that names a process or thread."""

    name: str | int | float | None = None


class Duration(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event: a call, a device task, a Python frame."""

    name: str = ""
    cat: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float = 0.0
    dur: float = 0.0
    args: DurationArgs | None = None


class Instant(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """An instant event: an allocation, a mark."""

    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float = 0.0
    args: MemoryArgs | None = None


class Metadata(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """A metadata event: the name of a process or thread."""

    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    args: MetadataArgs | None = None


class FlowStart(msgspec.Struct, gc=False, tag_field="ph", tag="s"):
    """Where an arrow starts."""

    cat: str = ""
    id: int | str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float = 0.0


class FlowEnd(msgspec.Struct, gc=False, tag_field="ph", tag="f"):
    """Where an arrow ends."""

    cat: str = ""
    id: int | str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float = 0.0


Event = Duration | Instant | Metadata | FlowStart | FlowEnd
_DECODER = msgspec.json.Decoder(list[Event])
_ONE_DECODER = msgspec.json.Decoder(Event)

_OPTIONAL_INTEGER_ARGS = (
    "python_id",
    "python_parent",
    "python_module",
    "correlation",
    "device",
    "stream",
    "bytes",
    "elements",
    "group_size",
    "source",
    "destination",
)
_OPTIONAL_TEXT_ARGS = ("collective", "dtype", "group")
_MEMORY_ARGS = ("address", "bytes", "allocated", "reserved", "device", "device_type")


class EventColumns:
    """All events of a file as a few frames of raw columns; ``ts`` and ``dur`` are still the file's microseconds.

    Attributes:
        skipped: events that could not be read, and events of kinds that carry nothing for a profile.
        damaged: events that were not valid JSON or not an event.
    """

    kinds: ClassVar[tuple[str, ...]] = ("operators", "others", "memory", "flow_starts", "flow_ends")

    def __init__(self) -> None:
        self.parts: dict[str, list[pl.DataFrame]] = {kind: [] for kind in self.kinds}
        self.thread_names: dict[tuple[int, int], str] = {}
        self.process_names: dict[int, str] = {}
        self.count = 0
        self.skipped = 0
        self.damaged = 0

    def frame(self, kind: str) -> pl.DataFrame:
        """All events of one kind, in file order."""
        parts = self.parts[kind]
        return pl.concat(parts, how="diagonal_relaxed", rechunk=True) if parts else pl.DataFrame()

    def read(self, file: JsonEventFile) -> None:
        """Add every event of ``file``."""
        for piece in file:
            self.add(piece)

    def add_first(self, other: EventColumns) -> None:
        """Put the events of ``other``, an earlier stretch of the same file, before these."""
        for kind in self.kinds:
            self.parts[kind] = other.parts[kind] + self.parts[kind]
        self.thread_names = {**other.thread_names, **self.thread_names}
        self.process_names = {**other.process_names, **self.process_names}
        self.count += other.count
        self.skipped += other.skipped
        self.damaged += other.damaged

    def add(self, piece: Piece) -> None:
        """Add the events of one piece of JSON array text."""
        try:
            events = _DECODER.decode(piece)
        except (msgspec.DecodeError, UnicodeDecodeError):
            events = list(self._tolerant(bytes(piece)))
        self.count += len(events)
        self._sort_in(events)

    def _sort_in(self, events: list[Event]) -> None:
        operators: list[Duration] = []
        others: list[Duration] = []
        memory: list[Instant] = []
        starts: list[FlowStart] = []
        ends: list[FlowEnd] = []
        for event in events:
            kind = event.__class__
            if kind is Duration:
                (operators if event.cat in OPERATOR_CATEGORIES else others).append(event)  # type: ignore[union-attr,arg-type]
            elif kind is Instant:
                if event.args is not None and event.args.bytes is not None:  # type: ignore[union-attr]
                    memory.append(event)  # type: ignore[arg-type]
            elif kind is FlowStart:
                starts.append(event)  # type: ignore[arg-type]
            elif kind is FlowEnd:
                ends.append(event)  # type: ignore[arg-type]
            else:
                self._metadata(event)  # type: ignore[arg-type]
        if operators:
            self.parts["operators"].append(_operator_frame(operators))
        if others:
            self.parts["others"].append(_other_frame(others))
        if memory:
            self.parts["memory"].append(_memory_frame(memory))
        if starts:
            self.parts["flow_starts"].append(_flow_frame(starts))
        if ends:
            self.parts["flow_ends"].append(_flow_frame(ends))

    def _metadata(self, event: Metadata) -> None:
        if event.args is None or not isinstance(event.args.name, str) or not isinstance(event.pid, int):
            return
        if event.name == "process_name":
            self.process_names[event.pid] = event.args.name
        elif event.name == "thread_name" and isinstance(event.tid, int):
            self.thread_names[event.pid, event.tid] = event.args.name

    def _tolerant(self, piece: bytes) -> Iterable[Event]:
        """Read event by event, mending what other tools write differently."""
        body = piece[1:-1]
        ends, _ = event_ends(body)
        start = 0
        for end in ends:
            text = body[start:end].lstrip(b", \t\r\n")
            start = end
            try:
                yield _ONE_DECODER.decode(text)
                continue
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass
            try:
                # invalid UTF-8 and raw control characters occur in symbol names of other runtimes
                clean = text.decode("utf-8", "replace").translate(_NO_CONTROLS)
                value = msgspec.json.decode(clean)
            except msgspec.DecodeError:
                self.damaged += 1
                continue
            event = _mended(value)
            if event is None:
                self.skipped += 1
            else:
                yield event
        if body[start:].strip(b", \t\r\n"):
            self.damaged += 1


_NO_CONTROLS = dict.fromkeys(range(32), " ")


def _mended(value: Any) -> Event | None:
    """The event in a decoded JSON value whose members have unexpected types; None where it is nothing for a profile."""
    if not isinstance(value, dict) or value.get("ph") not in ("X", "i", "I", "M", "s", "f"):
        return None
    kind = "i" if value["ph"] == "I" else value["ph"]
    value = {**value, "ph": kind}
    for key in ("ts", "dur"):
        if isinstance(value.get(key), str):
            try:
                value[key] = float(value[key])
            except ValueError:
                return None
        elif key in value and not isinstance(value[key], (int, float)):
            value.pop(key)
    for key in ("pid", "tid", "id"):
        if key in value and not isinstance(value[key], (int, str)):
            value.pop(key)
    for key in ("name", "cat"):
        if key in value:
            value[key] = str(value[key])
    args = value.get("args")
    value["args"] = {key: item for key, item in args.items() if _fits(key, item)} if isinstance(args, dict) else None
    try:
        event: Event = _ONE_DECODER.decode(msgspec.json.encode(value))
    except (msgspec.ValidationError, msgspec.DecodeError, msgspec.EncodeError):
        return None
    return event


_INTEGER_KEYS = {
    *("External id", "Sequence number", "Fwd thread id", "Python id", "Python parent id", "Python module id"),
    *("correlation", "bytes", "In msg nelems", "Group size", "Src Rank", "Dst Rank"),
    *("Total Reserved", "Total Allocated", "Bytes", "Device Id", "Device Type", "Addr"),
}
_TEXT_KEYS = {"Collective name", "dtype", "Process Group Name"}


def _fits(key: str, item: Any) -> bool:
    """Whether the value of a used ``args`` member has the type the columns need; unused members always fit."""
    if key in _INTEGER_KEYS:
        return isinstance(item, int) and not isinstance(item, bool)
    if key in _TEXT_KEYS:
        return isinstance(item, str)
    if key in ("device", "stream"):
        return isinstance(item, (int, str))
    if key == "flops":
        return isinstance(item, (int, float))
    if key == "name":
        return isinstance(item, (str, int, float))
    return True


def _lane_series(name: str, values: list[Any]) -> pl.Series:
    """A column of integers that some traces write as text; text that is no number becomes null."""
    try:
        return pl.Series(name, values, dtype=pl.Int64)
    except (OverflowError, TypeError, pl.exceptions.PolarsError):
        return _series(name, [_integer(value) if value.__class__ is str else value for value in values], pl.Int64)


def _integer(value: str) -> int | None:
    try:
        return int(value)
    except ValueError:
        return None


def _series(name: str, values: list[Any], dtype: Any) -> pl.Series:
    """A column; integers beyond 64 bits (hostile or wrapped) become null instead of an error."""
    try:
        return pl.Series(name, values, dtype=dtype)
    except (OverflowError, TypeError, pl.exceptions.PolarsError):
        return pl.Series(name, values, dtype=dtype, strict=False)


_NO_ARGS = DurationArgs()


def _common_columns(events: list[Duration]) -> list[pl.Series]:
    """The columns that every event with a duration has. Attributes are named outright: this is the hot path."""
    return [
        pl.Series("name", [event.name for event in events], dtype=pl.String).cast(pl.Categorical),
        pl.Series("cat", [event.cat for event in events], dtype=pl.String).cast(pl.Categorical),
        _lane_series("pid", [event.pid for event in events]),
        _lane_series("tid", [event.tid for event in events]),
        pl.Series("ts", [event.ts for event in events], dtype=pl.Float64),
        pl.Series("dur", [event.dur for event in events], dtype=pl.Float64),
    ]


def _operator_frame(events: list[Duration]) -> pl.DataFrame:
    all_args = [event.args or _NO_ARGS for event in events]
    columns = _common_columns(events)
    columns.append(_series("external_id", [args.external_id for args in all_args], pl.Int64))
    columns.append(_series("sequence", [args.sequence for args in all_args], pl.Int64))
    columns.append(_series("forward_tid", [args.forward_tid for args in all_args], pl.Int64))
    for name, raws in (
        ("input_shapes", [args.input_shapes for args in all_args]),
        ("input_types", [args.input_types for args in all_args]),
    ):
        if raws.count(_NO_TEXT) != len(raws):
            columns.append(pl.Series(name, list(map(bytes, raws)), dtype=pl.Binary).cast(pl.String).cast(pl.Categorical))
    flops = [args.flops for args in all_args]
    if flops.count(None) != len(flops):
        columns.append(_series("flops", [None if value is None else int(value) for value in flops], pl.Int64))
    return pl.DataFrame(columns)


def _other_frame(events: list[Duration]) -> pl.DataFrame:
    all_args = [event.args or _NO_ARGS for event in events]
    columns = _common_columns(events)
    columns.append(_series("external_id", [args.external_id for args in all_args], pl.Int64))
    # most members occur in few kinds of event, and a column of nulls costs as much as one of values
    for name in _OPTIONAL_INTEGER_ARGS:
        values = list(map(attrgetter(name), all_args))
        if values.count(None) != len(values):
            columns.append(_lane_series(name, values))
    for name in _OPTIONAL_TEXT_ARGS:
        values = list(map(attrgetter(name), all_args))
        if values.count(None) != len(values):
            columns.append(pl.Series(name, values, dtype=pl.String).cast(pl.Categorical))
    return pl.DataFrame(columns)


def _flow_frame(events: list[FlowStart] | list[FlowEnd]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            pl.Series("cat", [event.cat for event in events], dtype=pl.String).cast(pl.Categorical),
            _lane_series("id", [event.id for event in events]),
            _lane_series("pid", [event.pid for event in events]),
            _lane_series("tid", [event.tid for event in events]),
            pl.Series("ts", [event.ts for event in events], dtype=pl.Float64),
        ]
    )


def _memory_frame(events: list[Instant]) -> pl.DataFrame:
    columns = [
        _lane_series("pid", [event.pid for event in events]),
        _lane_series("tid", [event.tid for event in events]),
        pl.Series("ts", [event.ts for event in events], dtype=pl.Float64),
    ]
    all_args = [event.args for event in events]
    columns += [_series(name, list(map(attrgetter(name), all_args)), pl.Int64) for name in _MEMORY_ARGS]
    return pl.DataFrame(columns)
