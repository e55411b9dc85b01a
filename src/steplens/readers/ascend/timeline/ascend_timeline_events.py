"""Events of Ascend's timelines (msprof_*.json, trace_view.json) from JSON text to columns.

One pass of msgspec over typed structs, no dictionary per event. Events with a duration are kept apart by category, or,
as msprof's have none, by process id: what a process is, its name says, which may stand behind its events.

The files are one long line. They are cut where the text between two events stands; a piece cut elsewhere, inside a
string or a list, is no valid JSON and fails to decode. Then the whole file is read again the exact way, which also
mends what single events have wrong.
"""

from __future__ import annotations

import operator
from collections import Counter as Count
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from steplens.common.errors import InputError
from steplens.common.storage.files import open_file, size_of
from steplens.formats.ascend_results import TIME_BASE_KEY
from steplens.formats.trace_view import COLLECTION
from steplens.readers.ascend.timeline import ascend_timeline_structs as structs
from steplens.readers.ascend.timeline.ascend_timeline_structs import Duration, DurationArgs, FlowEnd, FlowStart, Metadata, Sample
from steplens.readers.common.event_decoder import DAMAGED, one_by_one
from steplens.readers.common.json_events import EVENT_LIMIT_BYTES, PIECE_BYTES, JsonEventFile
from steplens.readers.common.microseconds import float_ns, text_ns
from steplens.readers.common.reading import tell
from steplens.trace.health import HealthFinding
from steplens.trace.schema import NAME

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
        stopped: why reading compressed ones ended before they did.
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
        self.stopped: list[HealthFinding] = []

    @classmethod
    def read(cls, path: Path) -> TimelineColumns:
        """All events of one file.

        Raises:
            InputError: the file is missing, empty or no array of events.
        """
        try:
            fast = cls()
            for text in _fast_pieces(path):
                fast._sort_in(structs.DECODER.decode(text))
            return fast
        except (ValueError, _UnknownLayoutError):
            pass
        except OSError as error:
            raise InputError(path, f"cannot be read ({error.strerror or error})") from error
        exact = cls()
        file = JsonEventFile(path)
        for piece in file:
            exact._add(bytes(piece))
        if file.stopped:
            exact.stopped.append(file.stopped)
        else:
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
        self.stopped += other.stopped

    def frame(self, parts: list[pl.DataFrame]) -> pl.DataFrame:
        """The frames of one kind of event as one, in file order; ``ts_ns`` and ``dur_ns`` in ns, null where unreadable."""
        if not parts:
            return pl.DataFrame()
        all_parts = pl.concat(parts, how="diagonal")
        columns = [text_ns(all_parts["ts"]).alias("ts_ns")]
        if "dur" in all_parts.columns:
            columns.append(float_ns(all_parts["dur"]).alias("dur_ns"))
        return all_parts.drop("ts", "dur", strict=False).with_columns(columns)

    def _add(self, piece: bytes) -> None:
        try:
            events = structs.DECODER.decode(piece)
        except ValueError:
            decoded = list(one_by_one(piece, structs.one_event))
            events = [event for event in decoded if event is not DAMAGED]
            self.damaged += len(decoded) - len(events)
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
        if structs.COLLECTION_ALIAS in durations:
            durations[COLLECTION] += durations.pop(structs.COLLECTION_ALIAS)
        for category in [lane for lane in durations if isinstance(lane, str) and lane not in structs.LANE_MEMBERS]:
            for call in durations.pop(category):
                durations[call.pid].append(call)
        self.damaged += len(durations.pop(None, ())) + len(counters.pop(None, ()))
        for lane, calls in durations.items():
            assert lane is not None
            self.durations[lane].append(_duration_frame(calls, self._argument_members(lane)))
        for category, tails in starts.items():
            self.starts[category].append(_flow_frame(tails))
        for category, heads in ends.items():
            self.ends[category].append(_flow_frame(heads))
        for pid, samples in counters.items():
            assert pid is not None
            self.counters[pid].append(_counter_frame(samples))

    def _argument_members(self, lane: Lane) -> tuple[str, ...]:
        """Members of ``args`` that the events of a lane can have."""
        if isinstance(lane, str):
            return structs.LANE_MEMBERS[lane]
        return structs.PROCESS_MEMBERS.get(self.process_names.get(lane, ""), structs.DEVICE_MEMBERS)

    def _metadata(self, event: Metadata) -> None:
        args = event.args
        if args is None:
            return
        if event.name == TIME_BASE_KEY and isinstance(args.base_time_ns, int) and 0 <= args.base_time_ns < 1 << 62:
            self.base_ns = args.base_time_ns
        if event.pid is None:
            return
        if event.name == "process_name" and isinstance(args.name, str):
            self.process_names[event.pid] = args.name
        elif event.name == "process_labels" and isinstance(args.labels, str):
            self.process_labels[event.pid] = args.labels
        elif event.name == "thread_name" and isinstance(args.name, str) and event.tid is not None:
            self.thread_names[event.pid, event.tid] = args.name


class _UnknownLayoutError(Exception):
    """The text between two events is none of the known ones."""


def _fast_pieces(path: Path) -> Iterator[memoryview]:
    """The file as array texts of about 2 MiB, cut at what separates events; whoever decodes them proves the cuts.

    Raises:
        _UnknownLayoutError: the file is no plain array of many events.
        OSError: it cannot be read.
    """
    with open_file(path) as handle:
        first = handle.read(PIECE_BYTES).lstrip(_BLANKS)
        if first[:1] != b"[":
            raise _UnknownLayoutError
        separator = max(_SEPARATORS, key=lambda text: first.count(text, 0, 1 << 16))
        buffer = bytearray(first)
        size = size_of(handle)
        while more := handle.read(PIECE_BYTES):
            tell(path, handle.tell(), size)
            # what has been searched once holds no separator, but may hold the beginning of one
            searched = max(len(buffer) - len(separator), 0)
            buffer += more
            if len(buffer) > EVENT_LIMIT_BYTES:
                raise _UnknownLayoutError
            end = buffer.rfind(separator, searched)
            if end > 0:
                remainder = buffer[end + len(separator) - 1 :]
                buffer[end + 1] = ord("]")
                yield memoryview(buffer)[: end + 2]
                buffer = bytearray(b"[") + remainder
        yield memoryview(buffer)


def _typed_column(name: str, values: Sequence[Any], dtype: type[pl.DataType], mend: Callable[[Any], Any]) -> pl.Series:
    """Values as a column; where one is of another type, what ``mend`` makes of each."""
    try:
        return pl.Series(name, values, dtype=dtype)
    except (OverflowError, TypeError, pl.exceptions.PolarsError):
        mended: pl.Series = pl.Series(name, list(map(mend, values))).cast(dtype, strict=False)
        return mended


def _integer_column(name: str, values: Sequence[Any]) -> pl.Series:
    return _typed_column(name, values, pl.Int64, structs.to_integer)


def _text_column(name: str, values: Sequence[Any]) -> pl.Series:
    names: pl.Series = _typed_column(name, values, pl.String, lambda value: value if isinstance(value, str) else None).cast(NAME)
    return names


def _printed_column(name: str, values: Sequence[Any]) -> pl.Series:
    """Ids of arrows, and points in time in us, as text, whether they are written as numbers or as text."""
    return _typed_column(name, values, pl.String, lambda value: str(value) if isinstance(value, (int, str)) else None)


def _number_column(name: str, values: Sequence[Any]) -> pl.Series:
    """Numbers, also those written as text."""
    return _typed_column(name, values, pl.Float64, lambda value: None if value is None else str(value).strip())


_NO_ARGS = DurationArgs()


def _duration_frame(events: list[Duration], members: Iterable[str]) -> pl.DataFrame:
    columns = [
        pl.Series("name", [event.name for event in events], dtype=pl.String).cast(NAME),
        _integer_column("pid", [event.pid for event in events]),
        _integer_column("tid", [event.tid for event in events]),
        _printed_column("ts", [event.ts for event in events]),
        _number_column("dur", [event.dur for event in events]),
    ]
    if members:
        all_args = [event.args or _NO_ARGS for event in events]
        for member in members:
            values = list(map(operator.attrgetter(member), all_args))
            # a lane has few of the members, and a column of nulls costs as much as one of values
            if values.count(None) != len(values):
                make: Callable[[str, Sequence[Any]], pl.Series] = _integer_column if member in structs.INTEGERS else _text_column
                columns.append(make(member, values))
    return pl.DataFrame(columns)


def _flow_frame(events: Sequence[FlowStart | FlowEnd]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            _printed_column("id", [event.id for event in events]),
            _integer_column("pid", [event.pid for event in events]),
            _integer_column("tid", [event.tid for event in events]),
            _printed_column("ts", [event.ts for event in events]),
        ]
    )


def _counter_frame(events: list[Sample]) -> pl.DataFrame:
    """One row per sampled value. A member that only numbers what is sampled (``acc_id``) becomes part of the name."""
    names: list[str] = []
    members: list[str] = []
    times: list[Any] = []
    numbers: list[float | str | None] = []
    for event in events:
        args = event.args or {}
        label = "".join(f" {args[key]:.0f}" for key in args if _numbers_something(key, args)) if len(args) > 1 else ""
        for key, value in args.items():
            if not (label and _numbers_something(key, args)):
                names.append(event.name + label)
                members.append(key)
                times.append(event.ts)
                numbers.append(value)
    texts = [_text_column("name", names), _text_column("member", members)]
    return pl.DataFrame([*texts, _printed_column("ts", times), _number_column("value", numbers)])


def _numbers_something(key: str, args: dict[str, float | str | None]) -> bool:
    return key.lower().endswith("id") and isinstance(args[key], float)
