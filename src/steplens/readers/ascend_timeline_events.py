"""Events of Ascend's timelines (msprof_*.json, trace_view.json) from JSON text to columns.

One pass of msgspec over typed structs, no dictionary per event. Events with a duration are kept apart by category, or,
as msprof's have none, by process id: what a process is, its name says, which may stand behind its events.

The files are one long line. They are cut where the text between two events stands; a piece cut elsewhere, inside a
string or a list, is no valid JSON and fails to decode. Then the whole file is read again the exact way, which also
mends what single events have wrong.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter as Count
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import polars as pl

from steplens.errors import InputError
from steplens.readers.json_events import EVENT_LIMIT_BYTES, PIECE_BYTES, JsonEventFile, event_ends
from steplens.readers.microseconds import float_ns, text_ns
from steplens.trace.schema import NAME

OPERATOR = "cpu_op"
PYTHON = "python_function"
ENQUEUE = "enqueue"
DEQUEUE = "dequeue"
COLLECTION = "GC"

#: steplens puts its time base into a metadata event of this name
BASE_EVENT = "base_time_ns"


#: a process or thread; an event whose id does not fit is mended apart
Id = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]


class DurationArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "sequence": "Sequence number",
        "forward_tid": "Fwd thread id",
        "input_shapes": "Input Dims",
        "input_types": "Input type",
        "stack": "Call stack",
        "module": "Module Hierarchy",
        "python_id": "Python id",
        "python_parent": "Python parent id",
        "python_module": "Python module id",
        "task_type": "Task Type",
        "physical_stream": "Physic Stream Id",
        "stream": "Stream Id",
        "task": "Task Id",
        "subtask": "Subtask Id",
        "model": "Model Id",
        "elements": "count",
        "bytes": "size(Byte)",
        "event": "event_type",
        "event_old": "Event Type",
        "domain_old": "Domain",
    },
):
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
    python_module: Any = None
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


class MetadataArgs(msgspec.Struct, gc=False):
    """The members of ``args`` of a metadata event."""

    name: Any = None
    labels: Any = None
    base_time_ns: Any = None


class Duration(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event: a call, a device task, a collective."""

    name: str = ""
    cat: str = ""
    pid: Id | None = None
    tid: Id | None = None
    ts: Any = None
    dur: float | str | None = None
    args: DurationArgs | None = None


class Sample(msgspec.Struct, gc=False, tag_field="ph", tag="C"):
    """One sample of a counter."""

    name: str = ""
    pid: Id | None = None
    ts: Any = None
    args: dict[str, float | str | None] | None = None


class Metadata(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """The name of a process or thread."""

    name: str = ""
    pid: Id | None = None
    tid: Id | None = None
    args: MetadataArgs | None = None


class FlowStart(msgspec.Struct, gc=False, tag_field="ph", tag="s"):
    """Where an arrow starts. Ids may exceed 64 bits, so they stay text."""

    cat: str = ""
    id: Any = None
    pid: Id | None = None
    tid: Id | None = None
    ts: Any = None


class FlowEnd(msgspec.Struct, gc=False, tag_field="ph", tag="f"):
    """Where an arrow ends."""

    cat: str = ""
    id: Any = None
    pid: Id | None = None
    tid: Id | None = None
    ts: Any = None


#: phases of Chrome's format that Ascend's timelines do not use, and that do not make a piece unreadable
_OTHER_PHASES = "iItBEbenNODPRvV(){}cSTpFx"
_OTHERS = tuple(
    msgspec.defstruct(f"Other{number}", [], tag_field="ph", tag=tag, gc=False) for number, tag in enumerate(_OTHER_PHASES)
)

_EVENT: Any = functools.reduce(operator.or_, (Duration, Sample, Metadata, FlowStart, FlowEnd, *_OTHERS))
# a number that no member has a type for comes as its text: every digit of "ts" counts
_DECODER = msgspec.json.Decoder(list[_EVENT], float_hook=str)
_ONE_DECODER = msgspec.json.Decoder(_EVENT, float_hook=str)
_ANY_DECODER = msgspec.json.Decoder(float_hook=str)

_INTEGERS = (
    "connection_id", "physical_stream", "stream", "task", "subtask", "model", "sequence", "forward_tid", "flops", "python_id",
    "python_parent", "python_module", "correlation_id", "elements", "bytes", "ranks",
)  # fmt: skip
_DEVICE_MEMBERS = (
    "connection_id", "task_type", "physical_stream", "stream", "task", "subtask", "model", "level", "elements", "data_type",
    "alg_type", "bytes", "kind", "group", "ranks", "event", "event_old", "domain", "domain_old",
)  # fmt: skip
#: members of events with a category; those without one have some of _DEVICE_MEMBERS
_MEMBERS: dict[str, tuple[str, ...]] = {
    OPERATOR: ("sequence", "forward_tid", "input_shapes", "input_types", "stack", "module", "flops"),
    PYTHON: ("python_id", "python_parent", "python_module"),
    ENQUEUE: ("correlation_id",),
    DEQUEUE: ("correlation_id",),
    COLLECTION: (),
}

CATEGORIES = tuple(_MEMBERS)

_TASK_MEMBERS = ("connection_id", "task_type", "physical_stream", "stream", "task", "subtask", "model")
_CALL_MEMBERS = ("connection_id", "level")
#: of processes whose name is known when their first event comes, which saves looking for the rest
_PROCESS_MEMBERS = {"Ascend Hardware": _TASK_MEMBERS, "CANN": _CALL_MEMBERS, "Overlap Analysis": ()}

#: between two events of a file: msprof, Python's json module, Kineto
_SEPARATORS = (b"}, {", b"},{", b"},\n{", b"}, \n{", b"},\n  {", b"},\r\n{")
_BLANKS = b"\xef\xbb\xbf \t\r\n"

Lane = str | int


class TimelineColumns:
    """The events of some files as frames of raw columns.

    Attributes:
        durations: category, or process id of events without one, -> frames; see ``frame``.
        starts: category -> the ends of arrows where they start; ``ends`` the other ends.
        counters: process id -> samples.
        process_names: process id -> name; ``process_labels`` and ``thread_names`` likewise.
        base_ns: time base that the file itself states, None where it states none.
        count: events read.
        skipped: events of phases that are not used, by phase.
        damaged: events that are no valid JSON or no event.
        truncated: files that break off inside their events.
        lost_bytes: bytes behind their last complete events.
    """

    def __init__(self) -> None:
        self.durations: dict[Lane, list[pl.DataFrame]] = defaultdict(list)
        self.starts: dict[str, list[pl.DataFrame]] = defaultdict(list)
        self.ends: dict[str, list[pl.DataFrame]] = defaultdict(list)
        self.counters: dict[int, list[pl.DataFrame]] = defaultdict(list)
        self.process_names: dict[int, str] = {}
        self.process_labels: dict[int, str] = {}
        self.thread_names: dict[tuple[int, int], str] = {}
        self.base_ns: int | None = None
        self.count = 0
        self.skipped: Count[str] = Count()
        self.damaged = 0
        self.truncated = 0
        self.lost_bytes = 0

    @classmethod
    def read(cls, path: Path) -> TimelineColumns:
        """All events of one file.

        Raises:
            InputError: the file is missing, empty or no array of events.
        """
        try:
            fast = cls()
            for text in _fast_pieces(path):
                fast._sort_in(_DECODER.decode(text))
            return fast
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, _UnknownLayoutError):
            pass
        except OSError as error:
            raise InputError(path, f"cannot be read ({error.strerror or error})") from error
        exact = cls()
        file = JsonEventFile(path)
        for piece in file:
            exact._add(bytes(piece))
        exact.truncated, exact.lost_bytes = int(file.truncated), file.lost_bytes
        base = {**file.header, **file.footer}.get("baseTimeNanoseconds")
        if isinstance(base, int) and exact.base_ns is None:
            exact.base_ns = base
        return exact

    def extend(self, other: TimelineColumns) -> None:
        """Put the events of the next file behind these."""
        for mine, theirs in ((self.durations, other.durations), (self.starts, other.starts), (self.ends, other.ends)):
            for key, frames in theirs.items():
                mine[key] += frames  # type: ignore[index]
        for pid, frames in other.counters.items():
            self.counters[pid] += frames
        self.process_names.update(other.process_names)
        self.process_labels.update(other.process_labels)
        self.thread_names.update(other.thread_names)
        self.base_ns = other.base_ns if self.base_ns is None else self.base_ns
        self.count += other.count
        self.skipped += other.skipped
        self.damaged += other.damaged
        self.truncated += other.truncated
        self.lost_bytes += other.lost_bytes

    def frame(self, parts: list[pl.DataFrame]) -> pl.DataFrame:
        """The frames of one kind of event as one, in file order; ``ts_ns`` and ``dur_ns`` in ns, null where unreadable."""
        if not parts:
            return pl.DataFrame()
        whole = pl.concat(parts, how="diagonal")
        columns = [text_ns(whole["ts"]).alias("ts_ns")]
        if "dur" in whole.columns:
            columns.append(float_ns(whole["dur"]).fill_null(0).alias("dur_ns"))
        return whole.drop("ts", "dur", strict=False).with_columns(columns)

    def _add(self, piece: bytes) -> None:
        try:
            events = _DECODER.decode(piece)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            events = list(self._tolerant(piece))
        self._sort_in(events)

    def _sort_in(self, events: list[Any]) -> None:
        self.count += len(events)
        durations: dict[Lane | None, list[Duration]] = defaultdict(list)
        starts: dict[str, list[FlowStart]] = defaultdict(list)
        ends: dict[str, list[FlowEnd]] = defaultdict(list)
        counters: dict[int | None, list[Sample]] = defaultdict(list)
        for event in events:
            kind = event.__class__
            if kind is Duration:
                durations[event.cat or event.pid].append(event)
            elif kind is FlowStart:
                starts[event.cat].append(event)
            elif kind is FlowEnd:
                ends[event.cat].append(event)
            elif kind is Sample:
                counters[event.pid].append(event)
            elif kind is Metadata:
                self._metadata(event)
            else:
                self.skipped[kind.__struct_config__.tag] += 1
        for category in [lane for lane in durations if isinstance(lane, str) and lane not in _MEMBERS]:
            for call in durations.pop(category):
                durations[call.pid].append(call)
        self.damaged += len(durations.pop(None, ())) + len(counters.pop(None, ()))
        for lane, calls in durations.items():
            assert lane is not None
            self.durations[lane].append(_duration_frame(calls, self._members(lane)))
        for category, tails in starts.items():
            self.starts[category].append(_flow_frame(tails))
        for category, heads in ends.items():
            self.ends[category].append(_flow_frame(heads))
        for pid, samples in counters.items():
            assert pid is not None
            self.counters[pid].append(_counter_frame(samples))

    def _members(self, lane: Lane) -> tuple[str, ...]:
        """Members of ``args`` that the events of a lane can have."""
        if isinstance(lane, str):
            return _MEMBERS[lane]
        return _PROCESS_MEMBERS.get(self.process_names.get(lane, ""), _DEVICE_MEMBERS)

    def _metadata(self, event: Metadata) -> None:
        args = event.args
        if args is None:
            return
        if event.name == BASE_EVENT and isinstance(args.base_time_ns, int) and 0 <= args.base_time_ns < 1 << 62:
            self.base_ns = args.base_time_ns
        if event.pid is None:
            return
        if event.name == "process_name" and isinstance(args.name, str):
            self.process_names[event.pid] = args.name
        elif event.name == "process_labels" and isinstance(args.labels, str):
            self.process_labels[event.pid] = args.labels
        elif event.name == "thread_name" and isinstance(args.name, str) and event.tid is not None:
            self.thread_names[event.pid, event.tid] = args.name

    def _tolerant(self, piece: bytes) -> Iterator[Any]:
        """Read event by event, mending what can be mended."""
        body = piece[1:-1]
        ends, _ = event_ends(body)
        start = 0
        for end in ends:
            text = body[start:end].lstrip(b", \t\r\n")
            start = end
            try:
                yield _ONE_DECODER.decode(text)
                continue
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                pass
            event = _mended(text)
            if event is None:
                self.damaged += 1
            else:
                yield event
        if body[start:].strip(b", \t\r\n"):
            self.damaged += 1


class _UnknownLayoutError(Exception):
    """The text between two events is none of the known ones."""


def _fast_pieces(path: Path) -> Iterator[memoryview]:
    """The file as array texts of about 2 MiB, cut at what separates events; whoever decodes them proves the cuts.

    Raises:
        _UnknownLayoutError: the file is no plain array of many events.
        OSError: it cannot be read.
    """
    with path.open("rb") as handle:
        first = handle.read(PIECE_BYTES).lstrip(_BLANKS)
        if first[:1] != b"[":
            raise _UnknownLayoutError
        separator = max(_SEPARATORS, key=lambda text: first.count(text, 0, 1 << 16))
        buffer = bytearray(first)
        while more := handle.read(PIECE_BYTES):
            buffer += more
            if len(buffer) > EVENT_LIMIT_BYTES:
                raise _UnknownLayoutError
            found = buffer.rfind(separator)
            if found > 0:
                rest = buffer[found + len(separator) - 1 :]
                buffer[found + 1] = ord("]")
                yield memoryview(buffer)[: found + 2]
                buffer = bytearray(b"[") + rest
        yield memoryview(buffer)


_NO_CONTROLS = dict.fromkeys(range(32), " ")


def _mended(text: bytes) -> Any | None:
    """The event in a piece of JSON whose members have unexpected types or characters; None where it is no event."""
    try:
        value = _ANY_DECODER.decode(text.decode("utf-8", "replace").translate(_NO_CONTROLS))
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("ph"), str):
        return None
    for key in ("pid", "tid"):
        number = _integer(value.get(key))
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
        value["args"] = {
            key: item for key, item in args.items() if isinstance(item, (int, str)) and abs(_integer(item) or 0) < 2**63
        }
    try:
        return _ONE_DECODER.decode(msgspec.json.encode(value))
    except (msgspec.DecodeError, msgspec.EncodeError, RecursionError):
        return None


def _integer(value: Any) -> int | None:
    """A whole number in 64 bits, also one written as text; else None."""
    try:
        number = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else None
    except ValueError:
        number = None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _integers(name: str, values: Sequence[Any]) -> pl.Series:
    try:
        return pl.Series(name, values, dtype=pl.Int64)
    except (OverflowError, TypeError, pl.exceptions.PolarsError):
        return pl.Series(name, [_integer(value) for value in values], dtype=pl.Int64)


def _texts(name: str, values: Sequence[Any]) -> pl.Series:
    try:
        texts = pl.Series(name, values, dtype=pl.String)
    except (TypeError, pl.exceptions.PolarsError):
        texts = pl.Series(name, [value if isinstance(value, str) else None for value in values], dtype=pl.String)
    names: pl.Series = texts.cast(NAME)
    return names


def _ids(values: Sequence[Any]) -> pl.Series:
    """Ids of arrows as text, whether they are numbers or text."""
    try:
        return pl.Series("id", values, dtype=pl.String)
    except (TypeError, pl.exceptions.PolarsError):
        return pl.Series("id", [str(value) if isinstance(value, (int, str)) else None for value in values], dtype=pl.String)


def _times(values: Sequence[Any]) -> pl.Series:
    """Points in time in us, written as text or as numbers, as text."""
    try:
        return pl.Series("ts", values, dtype=pl.String)
    except (TypeError, pl.exceptions.PolarsError):
        return pl.Series("ts", [str(value) if isinstance(value, (int, str)) else None for value in values], dtype=pl.String)


def _numbers(name: str, values: Sequence[Any]) -> pl.Series:
    """Numbers, also those written as text."""
    try:
        return pl.Series(name, values, dtype=pl.Float64)
    except (TypeError, pl.exceptions.PolarsError):
        texts = pl.Series(name, [None if value is None else str(value) for value in values], dtype=pl.String)
        numbers: pl.Series = texts.str.strip_chars().cast(pl.Float64, strict=False)
        return numbers


_NO_ARGS = DurationArgs()


def _duration_frame(events: list[Duration], members: Iterable[str]) -> pl.DataFrame:
    columns = [
        pl.Series("name", [event.name for event in events], dtype=pl.String).cast(NAME),
        _integers("pid", [event.pid for event in events]),
        _integers("tid", [event.tid for event in events]),
        _times([event.ts for event in events]),
        _numbers("dur", [event.dur for event in events]),
    ]
    if members:
        all_args = [event.args or _NO_ARGS for event in events]
        for member in members:
            values = list(map(operator.attrgetter(member), all_args))
            # a lane has few of the members, and a column of nulls costs as much as one of values
            if values.count(None) != len(values):
                make: Callable[[str, Sequence[Any]], pl.Series] = _integers if member in _INTEGERS else _texts
                columns.append(make(member, values))
    return pl.DataFrame(columns)


def _flow_frame(events: Sequence[FlowStart | FlowEnd]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            _ids([event.id for event in events]),
            _integers("pid", [event.pid for event in events]),
            _integers("tid", [event.tid for event in events]),
            _times([event.ts for event in events]),
        ]
    )


def _counter_frame(events: list[Sample]) -> pl.DataFrame:
    """One row per sampled value. A member that only numbers what is sampled (``acc_id``) becomes part of the name."""
    names: list[str] = []
    members: list[str] = []
    times: list[Any] = []
    found: list[float | str | None] = []
    for event in events:
        args = event.args or {}
        label = "".join(f" {args[key]:.0f}" for key in args if _numbers_something(key, args)) if len(args) > 1 else ""
        for key, value in args.items():
            if not (label and _numbers_something(key, args)):
                names.append(event.name + label)
                members.append(key)
                times.append(event.ts)
                found.append(value)
    return pl.DataFrame([_texts("name", names), _texts("member", members), _times(times), _numbers("value", found)])


def _numbers_something(key: str, args: dict[str, float | str | None]) -> bool:
    return key.lower().endswith("id") and isinstance(args[key], float)
