"""Frames of columns from the decoded events of one kind. Attributes are named outright: this is the hot path."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import polars as pl
from msgspec import Raw

from steplens.formats.kineto import ANNOTATION
from steplens.readers.kineto.kineto_lanes import lane_column
from steplens.readers.kineto.kineto_structs import (
    NO_TEXT,
    ArgsDecoder,
    CallArgs,
    CollectiveArgs,
    Layout,
    OperatorArgs,
    PythonArgs,
    TaskArgs,
)
from steplens.readers.kineto.kineto_times import time_column, time_columns
from steplens.trace.building.communication_marks import CALLS_TO_PEERS
from steplens.trace.schema import NAME

#: where, in Kineto's order, the ``args`` of a kernel begin that depend on nothing but how it is launched
LAUNCH_BEGINS = b'"registers per thread"'
#: members that differ from task to task; behind the mark above they would be missed
OF_ONE_TASK = (b'"External id"', b'"correlation"', b'"stream"', b'"device"', b'"context"', b'"bytes"')
#: members that tell what is launched, where the mark above is missing
OF_LAUNCH = (b'"grid"', b'"block"', b'"Collective name"', b'"core"')
#: no JSON text holds this character
_BETWEEN = b"\0"

#: in the names of calls whose arguments are kept
WITH_ARGUMENTS = ("conv", *CALLS_TO_PEERS)

_OPERATOR_ARGS = ArgsDecoder(OperatorArgs)
_COLLECTIVE_ARGS = ArgsDecoder(CollectiveArgs)
_CALL_ARGS = ArgsDecoder(CallArgs)
_TASK_ARGS = ArgsDecoder(TaskArgs)
_PYTHON_ARGS = ArgsDecoder(PythonArgs)


def operator_frames(events: list[Any], layout: Layout) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Operator calls and user annotations; and those of them that describe a communication operation, None where none does."""
    args = _OPERATOR_ARGS([event.args for event in events])
    columns = _common_columns(events, layout)
    columns.append(pl.Series("annotation", [event.cat == ANNOTATION for event in events], dtype=pl.Boolean))
    columns.append(_integer_column("external_id", [item.external_id for item in args]))
    # what no event of the piece has would cost as much as what all have
    count = len(args)
    for name, numbers in (
        ("sequence", [item.sequence for item in args]),
        ("forward_tid", [item.forward_tid for item in args]),
    ):
        if numbers.count(None) != count:
            columns.append(_integer_column(name, numbers))
    for name, raws in (
        ("input_shapes", [item.input_shapes for item in args]),
        ("input_types", [item.input_types for item in args]),
    ):
        if raws.count(NO_TEXT) != count:
            columns.append(_json_texts(name, raws))
    # of all other calls the shapes say enough
    are_wanted = [any(name in event.name for name in WITH_ARGUMENTS) for event in events]
    if any(are_wanted):
        raws = [item.arguments if is_wanted else NO_TEXT for item, is_wanted in zip(args, are_wanted, strict=True)]
        if raws.count(NO_TEXT) != count:
            columns.append(_json_texts("arguments", raws))
    stacks = [item.stack for item in args]
    if stacks.count(None) != count:
        columns.append(pl.Series("stack", stacks, dtype=pl.String).cast(NAME))
    flops = [item.flops for item in args]
    if flops.count(None) != count:
        columns.append(_integer_column("flops", [None if value is None else int(value) for value in flops]))
    frame = pl.DataFrame(columns)
    collectives = [item.collective for item in args]
    if collectives.count(None) == count:
        return frame, None
    rows = [row for row, name in enumerate(collectives) if name is not None]
    return frame, collective_frame(decode_collectives([events[row].args for row in rows]), frame[rows])


def kernel_frame(events: list[Any], layout: Layout) -> pl.DataFrame:
    """Kernels. ``launch`` is JSON text, without its opening brace, with the members of ``LaunchArgs`` and ``CollectiveArgs``."""
    raws = [event.args for event in events]
    text = _BETWEEN.join(raws)
    cut = text.replace(LAUNCH_BEGINS, _BETWEEN + LAUNCH_BEGINS).split(_BETWEEN)
    launches = cut[1::2]
    if len(cut) == 2 * len(events) and not any(member in launch for launch in set(launches) for member in OF_ONE_TASK):
        args = _TASK_ARGS(raws, b'"":0},'.join(cut[::2]) + b'"":0}')
    else:
        # another order of members: all of it is kept, and decoded twice
        args = _TASK_ARGS(raws)
        keep = any(member in text for member in (LAUNCH_BEGINS, *OF_LAUNCH))
        launches = [each.lstrip()[1:] for each in text.split(_BETWEEN)] if keep else [b""] * len(events)
    return pl.DataFrame([*_task_columns(events, args, layout), _json_texts("launch", launches)])


def copy_frame(events: list[Any], layout: Layout) -> pl.DataFrame:
    """Device tasks that copy or set memory."""
    args = _TASK_ARGS([event.args for event in events])
    columns = _task_columns(events, args, layout)
    columns.append(_integer_column("bytes", [item.bytes for item in args]))
    columns.append(_lenient_series("bandwidth", [item.bandwidth for item in args], pl.Float64))
    return pl.DataFrame(columns)


def _task_columns(events: list[Any], args: list[TaskArgs], layout: Layout) -> list[pl.Series]:
    columns = _common_columns(events, layout)
    columns.append(pl.Series("category", [event.cat for event in events], dtype=pl.String).cast(NAME))
    columns.append(_integer_column("external_id", [item.external_id for item in args]))
    columns.append(lane_column("device", [item.device for item in args]))
    columns.append(_integer_column("context", [item.context for item in args]))
    columns.append(lane_column("stream", [item.stream for item in args]))
    columns.append(_integer_column("correlation", [item.correlation for item in args]))
    return columns


def task_lanes(events: list[Any]) -> list[Any]:
    """What tasks or ranges of a device call their processes, threads, devices and streams."""
    args = _TASK_ARGS([event.args for event in events])
    return [
        *(lane for event in events for lane in (event.pid, event.tid)),
        *(lane for item in args for lane in (item.device, item.stream)),
    ]


def call_frame(category: str, events: list[Any], layout: Layout) -> pl.DataFrame:
    """Calls of a runtime or driver. Those of HIP have ``launch`` besides: what CUDA records of the task they launch."""
    frame = device_range_frame(category, events, layout)
    if not any(event.name.startswith("hip") for event in events[:64]):
        return frame
    launches = [each.lstrip()[1:] for each in _BETWEEN.join([event.args for event in events]).split(_BETWEEN)]
    return frame.with_columns(_json_texts("launch", launches))


def device_range_frame(category: str, events: list[Any], layout: Layout) -> pl.DataFrame:
    """Ranges on a device: a user annotation as the device saw it, a wait of the host for the device."""
    args = _CALL_ARGS([event.args for event in events])
    columns = [*_common_columns(events, layout), constant_column("category", category, len(events))]
    columns.append(_integer_column("external_id", [item.external_id for item in args]))
    columns.append(_integer_column("correlation", [item.correlation for item in args]))
    return pl.DataFrame(columns)


def python_frame(events: list[Any], layout: Layout) -> pl.DataFrame:
    """Python frames and module calls."""
    args = _PYTHON_ARGS([event.args for event in events])
    columns = _common_columns(events, layout)
    columns.append(_integer_column("id", [item.id for item in args]))
    columns.append(_integer_column("parent", [item.parent for item in args]))
    columns.append(_integer_column("module_id", [item.module_id for item in args]))
    return pl.DataFrame(columns)


def flow_frame(category: str, events: list[Any], layout: Layout) -> pl.DataFrame:
    """Halves of arrows of one category."""
    return pl.DataFrame(
        [
            constant_column("category", category, len(events)),
            _integer_column("id", [event.id for event in events]),
            lane_column("pid", [event.pid for event in events]),
            lane_column("tid", [event.tid for event in events]),
            time_column(events, text=layout.text_times),
        ]
    )


def memory_frame(events: list[Any], layout: Layout) -> pl.DataFrame:
    """Allocator events."""
    columns = [
        lane_column("pid", [event.pid for event in events]),
        lane_column("tid", [event.tid for event in events]),
        time_column(events, text=layout.text_times),
    ]
    all_args = [event.args for event in events]
    for name in ("address", "bytes", "allocated", "reserved", "device", "device_type"):
        columns.append(_integer_column(name, list(map(attrgetter(name), all_args))))
    return pl.DataFrame(columns)


def constant_column(name: str, text: str, count: int) -> pl.Series:
    """A column with the same text everywhere."""
    column: pl.Series = pl.Series(name, [text], dtype=NAME).new_from_index(0, count)
    return column


def decode_collectives(raws: Sequence[Raw] | Sequence[bytes]) -> list[CollectiveArgs]:
    """What ``args`` say of communication."""
    return _COLLECTIVE_ARGS(raws)


def collective_frame(args: list[CollectiveArgs], frame: pl.DataFrame) -> pl.DataFrame:
    """What PyTorch records of communication operations: of their calls (``correlation`` null) and of their kernels.

    Args:
        args: what it records.
        frame: the calls or kernels.
    """
    if "correlation" not in frame.columns:
        frame = frame.with_columns(correlation=pl.lit(None, dtype=pl.Int64))
    times = [name for name in ("ts", "dur", "start_ns", "end_ns") if name in frame.columns]
    columns = frame.select("name", "pid", "tid", *times, "external_id", "correlation").get_columns()
    for name in ("elements_in", "elements_out", "group_number", "group_size", "source", "destination"):
        columns.append(_integer_column(name, list(map(attrgetter(name), args))))
    for name in ("collective", "dtype", "group_description"):
        columns.append(pl.Series(name, list(map(attrgetter(name), args)), dtype=pl.String))
    groups = [None if item.group is None else str(item.group) for item in args]
    columns.append(pl.Series("group", groups, dtype=pl.String))
    return pl.DataFrame(columns)


def _common_columns(events: list[Any], layout: Layout) -> list[pl.Series]:
    """The columns that every event with a duration has."""
    return [
        pl.Series("name", [event.name for event in events], dtype=pl.String).cast(NAME),
        lane_column("pid", [event.pid for event in events]),
        lane_column("tid", [event.tid for event in events]),
        *time_columns(events, text=layout.text_times),
    ]


def _json_texts(name: str, texts: Sequence[Raw] | Sequence[bytes]) -> pl.Series:
    """A column of JSON text. Joining and splitting is much faster than asking each ``Raw`` for its bytes."""
    if texts and texts[0].__class__ is Raw:
        texts = _BETWEEN.join(texts).split(_BETWEEN)
    raw = pl.Series(name, texts, dtype=pl.Binary)
    try:
        column = raw.cast(pl.String)
    except pl.exceptions.ComputeError:
        # nobody has looked at the bytes of a Raw yet, and a damaged file's need not be text
        column = pl.Series(name, [bytes(text).decode("utf-8", "replace") for text in texts], dtype=pl.String)
    names: pl.Series = column.cast(NAME)
    return names


def _integer_column(name: str, values: list[Any]) -> pl.Series:
    """A column of integers that some traces write as text; text that is no number becomes null, as do more than 64 bits."""
    try:
        return pl.Series(name, values, dtype=pl.Int64)
    except (OverflowError, TypeError, pl.exceptions.PolarsError):
        return _lenient_series(name, [_to_integer(value) if value.__class__ is str else value for value in values], pl.Int64)


def _to_integer(value: str) -> int | None:
    try:
        return int(value)
    except ValueError:
        return None


def _lenient_series(name: str, values: list[Any], dtype: Any) -> pl.Series:
    try:
        return pl.Series(name, values, dtype=dtype)
    except (OverflowError, TypeError, pl.exceptions.PolarsError):
        return pl.Series(name, values, dtype=dtype, strict=False)
