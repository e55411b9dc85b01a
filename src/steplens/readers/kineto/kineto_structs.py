"""The events of a Kineto trace as typed structs, and how JSON text becomes them.

An event is decoded in two passes. The first one takes what all events have and leaves ``args`` as text; the second one
decodes the ``args`` of all events of one kind at once, into a struct with the members of that kind alone, so that no
event carries the members of all the others. What does not fit goes through a tolerant path, event by event.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from steplens.formats.kineto import COLLECTIVE_MEMBERS, EXTERNAL_ID, MEMORY_MEMBERS, OPERATOR_MEMBERS, PYTHON_MEMBERS
from steplens.readers.common import json_decoder
from steplens.readers.common.event_decoder import ArrowEvent, CallEvent, NamedEvent, clean_json_text, event_decoders, one_by_one
from steplens.readers.common.json_events import Piece

NO_TEXT = Raw(b"")
NO_ARGS = Raw(b"null")
#: of an event whose time is missing or is none
NO_TIME = float("nan")

Identifier = int | str | None


class OperatorArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "external_id": EXTERNAL_ID,
        "arguments": "Concrete Inputs",
        "collective": COLLECTIVE_MEMBERS["collective"],
        **OPERATOR_MEMBERS,
    },
):
    """``args`` of an operator call or user annotation."""

    external_id: int | None = None
    sequence: int | None = None
    forward_tid: int | None = None
    input_types: Raw = NO_TEXT
    input_shapes: Raw = NO_TEXT
    arguments: Raw = NO_TEXT
    stack: str | None = None
    flops: int | float | None = None
    collective: str | None = None


class CollectiveArgs(msgspec.Struct, gc=False, rename=COLLECTIVE_MEMBERS):
    """What PyTorch records of a communication operation: in ``args`` of its call and of its kernels."""

    collective: str | None = None
    elements_in: int | None = None
    elements_out: int | None = None
    dtype: str | None = None
    group: str | int | None = None
    group_number: int | None = None
    group_description: str | None = None
    group_ranks: Raw = NO_TEXT
    group_size: int | None = None
    source: int | None = None
    destination: int | None = None


class CallArgs(msgspec.Struct, gc=False, rename={"external_id": EXTERNAL_ID}):
    """``args`` of a runtime or driver call, and of a range on a device: a user annotation as it saw it, a wait of the host."""

    external_id: int | None = None
    correlation: int | None = None


class TaskArgs(msgspec.Struct, gc=False, rename={"external_id": EXTERNAL_ID, "bandwidth": "memory bandwidth (GB/s)"}):
    """``args`` of a device task (a kernel, a copy) that differ from task to task."""

    external_id: int | None = None
    device: Identifier = None
    context: Identifier = None
    stream: Identifier = None
    correlation: int | None = None
    bytes: int | None = None
    bandwidth: int | float | None = None


class LaunchArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "registers": "registers per thread",
        "shared_memory": "shared memory",
        "blocks_per_sm": "blocks per SM",
        "warps_per_sm": "warps per SM",
        "occupancy": "est. achieved occupancy %",
    },
):
    """``args`` of a kernel that are the same whenever it is launched in the same way; of a HIP call, which has them there.

    Core and type are those that steplens writes of the tasks of an NPU.
    """

    registers: int | float | None = None
    shared_memory: int | float | None = None
    blocks_per_sm: int | float | None = None
    warps_per_sm: int | float | None = None
    grid: list[int] | None = None
    block: list[int] | None = None
    occupancy: int | float | None = None
    size: int | str | None = None
    core: str | None = None
    type: str | None = None


class PythonArgs(msgspec.Struct, gc=False, rename=PYTHON_MEMBERS):
    """``args`` of a Python frame or module call."""

    id: int | None = None
    parent: int | None = None
    module_id: int | None = None


class MemoryArgs(msgspec.Struct, gc=False, rename={"bytes": "Bytes", "address": "Addr", **MEMORY_MEMBERS}):
    """``args`` of an allocator event."""

    address: int | None = None
    bytes: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    device: int | None = None
    device_type: int | None = None


class MetadataArgs(msgspec.Struct, gc=False):
    """``args`` of the event that names a process or thread, or labels a process."""

    name: str | int | float | None = None
    labels: str | int | float | None = None


class Duration(CallEvent[int | str], tag="X"):
    """A complete event: a call, a device task, a Python frame."""

    ts: float = NO_TIME
    dur: float = NO_TIME
    args: Raw = NO_ARGS


class Begin(Duration, gc=False, tag="B"):
    """Where a call begins that is written as two events, neither of which has a duration."""


class End(Begin, gc=False, tag="E"):
    """Where it ends; a name is not needed."""


class Instant(NamedEvent[int | str], tag="i"):
    """An instant event: an allocation, a mark."""

    ts: float = NO_TIME
    args: MemoryArgs | None = None


class Metadata(NamedEvent[int | str], tag="M"):
    """A metadata event: the name of a process or thread."""

    args: MetadataArgs | None = None


class FlowStart(ArrowEvent[int | str, int | str], tag="s"):
    """Where an arrow starts."""

    ts: float = NO_TIME


class FlowEnd(FlowStart, gc=False, tag="f"):
    """Where an arrow ends."""


#: phases of the Chrome format that carry nothing for a profile; a phase outside the format is a damaged event
OTHER_PHASES = ("C", "b", "n", "e", "S", "T", "p", "F", "t", "P", "N", "O", "D", "R", "c", "v", "V", "(", ")")


@dataclass(frozen=True)
class Layout:
    """One way to decode events: their classes, and decoders of an array of events and of one event.

    Attributes:
        text_times: times are text, because a double cannot hold them or they are quoted.
    """

    text_times: bool
    many: json_decoder.Decoder[list[Any]]
    one: json_decoder.Decoder[Any]
    duration: type[Any]
    begin: type[Any]
    end: type[Any]
    instant: type[Any]
    flow_start: type[Any]
    flow_end: type[Any]


def _with_text_times(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A class of the same events whose times are JSON text."""
    fields = [
        (field.name, Raw, NO_TEXT) if field.type is float else (field.name, field.type, field.default)
        for field in msgspec.structs.fields(kind)
    ]
    return msgspec.defstruct(f"Text{kind.__name__}", fields, gc=False, tag_field="ph", tag=kind.__struct_config__.tag)


def _make_layout(*, text_times: bool) -> Layout:
    kinds: list[type[Any]] = [Duration, Begin, End, Instant, FlowStart, FlowEnd]
    if text_times:
        kinds = [_with_text_times(kind) for kind in kinds]
    return Layout(text_times, *event_decoders((*kinds, Metadata), OTHER_PHASES), *kinds)


FLOAT_TIMES, TEXT_TIMES = _make_layout(text_times=False), _make_layout(text_times=True)

#: phases of events whose ``args`` differ with their category
_CALLS = ("X", "B", "E")
#: phases that are something for a profile
_USED = (*_CALLS, "i", "I", "M", "s", "f")

_Args = TypeVar("_Args", bound=msgspec.Struct)


class ArgsDecoder(Generic[_Args]):
    """Decodes the ``args`` of all events of one kind at once."""

    def __init__(self, kind: type[_Args]) -> None:
        self.kind = kind
        self._empty = kind()
        optional: Any = kind | None
        self._many: json_decoder.Decoder[list[Any]] = json_decoder.Decoder(list[optional])

    def __call__(self, raws: Sequence[Raw] | Sequence[bytes], joined: bytes | None = None) -> list[_Args]:
        """The ``args`` of each event; members of an unexpected type are left out.

        Args:
            raws: JSON text of the ``args`` of each event.
            joined: all of it, with commas between, where that is at hand.
        """
        try:
            decoded = self._many.decode(b"[" + (b",".join(raws) if joined is None else joined) + b"]")
        except ValueError:
            return [self._mend_arguments(bytes(raw)) for raw in raws]
        empty = self._empty
        return [empty if args is None else args for args in decoded] if None in decoded else decoded

    def _mend_arguments(self, raw: bytes) -> _Args:
        try:
            members = json_decoder.decode(clean_json_text(raw))
        except ValueError:
            return self._empty
        mended: dict[str, Any] = {}
        for field in msgspec.structs.fields(self.kind):
            if isinstance(members, dict) and field.encode_name in members:
                value = members[field.encode_name]
                try:
                    mended[field.name] = (
                        Raw(msgspec.json.encode(value)) if field.type is Raw else msgspec.convert(value, field.type, strict=False)
                    )
                except (ValueError, msgspec.ValidationError):
                    continue
        return self.kind(**mended)


def decode_tolerantly(piece: Piece) -> Iterator[Any | None]:
    """The events of a piece one by one, mending what other tools write differently.

    Yields:
        events of ``FLOAT_TIMES``; None for one that is no event of a profile; ``DAMAGED`` for one that is not valid JSON.
    """
    return one_by_one(piece, _decode_event)


def _decode_event(text: bytes) -> Any | None:
    try:
        return FLOAT_TIMES.one.decode(text)
    except ValueError:
        return _mend_event(json_decoder.decode(clean_json_text(text)))


def _mend_event(value: Any) -> Any | None:
    """The event in a decoded JSON value whose members have unexpected types; None where it is nothing for a profile."""
    if not isinstance(value, dict) or value.get("ph") not in _USED:
        return None
    value = {**value, "ph": "i" if value["ph"] == "I" else value["ph"]}
    for key in ("ts", "dur"):
        if key in value and (time := _to_time(value.pop(key))) is not None:
            value[key] = time
    for key in ("pid", "tid", "id"):
        if isinstance(value.get(key), float) and value[key].is_integer():
            value[key] = int(value[key])
        if key in value and (isinstance(value[key], bool) or not isinstance(value[key], (int, str))):
            value.pop(key)
        elif isinstance(value.get(key), int) and abs(value[key]) >= 1 << 63:
            value[key] = str(value[key])
    for key in ("name", "cat"):
        if key in value:
            value[key] = str(value[key])
    args = value.get("args")
    if value["ph"] not in _CALLS:
        kind = MemoryArgs if value["ph"] == "i" else MetadataArgs
        value["args"] = _fitting_members(args, kind) if isinstance(args, dict) else None
    try:
        return FLOAT_TIMES.one.decode(msgspec.json.encode(value))
    except (ValueError, msgspec.EncodeError):
        return None


def _to_time(value: Any) -> float | None:
    """A time as other tools may write it, None where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        time = float(value)
    except (ValueError, OverflowError):
        return None
    return time if math.isfinite(time) else None


def _fitting_members(args: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The members of ``args`` that ``kind`` has, of the types it needs."""
    fitting = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name in args:
            try:
                fitting[field.encode_name] = msgspec.convert(args[field.encode_name], field.type)
            except msgspec.ValidationError:
                continue
    return fitting
