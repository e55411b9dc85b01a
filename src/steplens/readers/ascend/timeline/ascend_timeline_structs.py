"""The events of Ascend's timelines as typed structs, and their decoders: only the members that steplens uses.

An event whose members have other types than expected is mended on its own.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from steplens.formats import trace_view
from steplens.formats.kineto import OPERATOR, OPERATOR_MEMBERS, PYTHON, PYTHON_MEMBERS
from steplens.readers.common import json_decoder
from steplens.readers.common.event_decoder import ArrowEvent, CallEvent, NamedEvent, clean_json_text, event_decoders

COLLECTION_ALIAS = "gc"

#: a process or thread; an event whose id does not fit is mended apart
Id = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]


class DurationArgs(msgspec.Struct, gc=False, rename=trace_view.MEMBERS):
    """The members of ``args`` that steplens uses from an event with a duration.

    The type of a value is checked when it becomes a column, so that an odd one costs itself and not its event; numbers
    with a fraction come as text.
    """

    connection_id: Any = None
    task_type: Any = None
    physical_stream: Any = None
    stream: Any = None
    task: Any = None
    subtask: Any = None
    model: Any = None
    level: Any = None
    sequence: Any = None
    forward_tid: Any = None
    input_shapes: Any = None
    input_types: Any = None
    stack: Any = None
    module: Any = None
    flops: Any = None
    python_id: Any = None
    python_parent: Any = None
    python_module_id: Any = None
    correlation_id: Any = None
    elements: Any = None
    data_type: Any = None
    alg_type: Any = None
    bytes: Any = None
    kind: Any = None
    group: Any = None
    ranks: Any = None
    event: Any = None
    event_old: Any = None
    domain: Any = None
    domain_old: Any = None
    notify: Any = None
    inner_type: Any = None
    inner_task_id: Any = None
    inner_context: Any = None
    source_rank: Any = None
    destination_rank: Any = None
    transport: Any = None
    inner_data_type: Any = None
    link: Any = None
    recorded: Any = None


class MetadataArgs(msgspec.Struct, gc=False):
    """The members of ``args`` of a metadata event."""

    name: Any = None
    labels: Any = None
    base_time_ns: Any = None


class Duration(CallEvent[Id], tag="X"):
    """A complete event: a call, a device task, a collective."""

    ts: Any = None
    dur: float | str | None = None
    args: DurationArgs | None = None


class Sample(msgspec.Struct, gc=False, tag_field="ph", tag="C"):
    """One sample of a counter."""

    name: str = ""
    pid: Id | None = None
    ts: Any = None
    args: dict[str, float | str | None] | None = None


class Metadata(NamedEvent[Id], tag="M"):
    """The name of a process or thread."""

    args: MetadataArgs | None = None


class FlowStart(ArrowEvent[Id, Any], tag="s"):
    """Where an arrow starts. Ids may exceed 64 bits, so they are of any type."""

    ts: Any = None


class FlowEnd(ArrowEvent[Id, Any], tag="f"):
    """Where an arrow ends."""

    ts: Any = None


#: phases of Chrome's format that Ascend's timelines do not use
_OTHER_PHASES = "iItBEbenNODPRvV(){}cSTpFx"
# a number that no member has a type for comes as its text: every digit of "ts" counts
DECODER, _ONE_DECODER = event_decoders((Duration, Sample, Metadata, FlowStart, FlowEnd), _OTHER_PHASES, float_hook=str)
_ANY_DECODER = json_decoder.Decoder[Any](float_hook=str)

INTEGERS = (
    "connection_id", "physical_stream", "stream", "task", "subtask", "model", "sequence", "forward_tid", "flops", "python_id",
    "python_parent", "python_module_id", "correlation_id", "elements", "bytes", "ranks",
    "inner_task_id", "inner_context", "source_rank", "destination_rank",
)  # fmt: skip
DEVICE_MEMBERS = (
    "connection_id", "task_type", "physical_stream", "stream", "task", "subtask", "model", "level", "elements", "data_type",
    "alg_type", "bytes", "kind", "group", "ranks", "recorded", "event", "event_old", "domain", "domain_old",
    *trace_view.PART_MEMBERS,
)  # fmt: skip
#: members of events with a category; those without one have some of DEVICE_MEMBERS
LANE_MEMBERS: dict[str, tuple[str, ...]] = {
    OPERATOR: (*OPERATOR_MEMBERS, "flops"),
    PYTHON: tuple(f"python_{column}" for column in PYTHON_MEMBERS),
    trace_view.ENQUEUE: ("correlation_id",),
    trace_view.DEQUEUE: ("correlation_id",),
    trace_view.COLLECTION: (),
}

_CALL_MEMBERS = ("connection_id", "level")
#: of processes whose name is known when their first event comes, which saves looking for the rest
PROCESS_MEMBERS = {
    trace_view.HARDWARE: ("connection_id", *trace_view.TASK_MEMBERS),
    trace_view.CANN: _CALL_MEMBERS,
    trace_view.OS_RUNTIME: _CALL_MEMBERS,
    trace_view.OVERLAP: (),
}


def one_event(text: bytes) -> Any:
    """The event in one piece of JSON, mended where its members have unexpected types or characters.

    Raises:
        ValueError: it is none.
    """
    try:
        return _ONE_DECODER.decode(text)
    except ValueError:
        return _mend_event(_ANY_DECODER.decode(clean_json_text(text)))


def _mend_event(value: Any) -> Any:
    """The event in a decoded value whose members have unexpected types or characters."""
    if not isinstance(value, dict) or not isinstance(value.get("ph"), str):
        raise ValueError("no event")
    for key in ("pid", "tid"):
        number = to_integer(value.get(key))
        value[key] = number if number is not None and abs(number) <= 1 << 62 else None
    for key in ("name", "cat"):
        if key in value:
            value[key] = str(value[key])
    if "dur" in value and not isinstance(value["dur"], (int, str)):
        value.pop("dur")
    args = value.get("args")
    if not isinstance(args, dict):
        value.pop("args", None)
    elif value["ph"] == "C":
        value["args"] = {key: item for key, item in args.items() if isinstance(item, (int, str))}
    try:
        return _ONE_DECODER.decode(msgspec.json.encode(value))
    except msgspec.EncodeError as error:
        raise ValueError(str(error)) from None


def to_integer(value: Any) -> int | None:
    """A whole number in 64 bits, also one written as text; else None."""
    try:
        number = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else None
    except ValueError:
        number = None
    return number if number is not None and -(2**63) <= number < 2**63 else None
