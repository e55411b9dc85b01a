"""Kineto events from JSON text to columns: no dictionary and, beyond decoding, no object per event.

Where the library for it is there (``native_decoder``), it makes none at all; what follows does the same, and does the pieces that
the library leaves. The fast path trusts the types that Kineto writes. A piece that does not fit it (another tool's trace, a
damaged event) goes through a tolerant path, event by event; what cannot be read even so is counted, never guessed.
"""

from __future__ import annotations

import gc
import math
from collections import defaultdict
from itertools import islice
from typing import Any, ClassVar

import polars as pl

from steplens.formats.kineto import COPY_CATEGORIES, KERNEL_CATEGORIES
from steplens.readers.common.event_decoder import DAMAGED
from steplens.readers.common.json_events import JsonEventFile, Piece
from steplens.readers.kineto import kineto_frames as frames
from steplens.readers.kineto.kineto_categories import (
    CALLS,
    DEVICE_RANGES,
    KNOWN_CATEGORIES,
    OPERATOR_CATEGORIES,
    PYTHON_FRAMES,
    UNPLACED,
    kind_of_category,
    native_kind,
)
from steplens.readers.kineto.kineto_halves import calls_of, halves_frame, pair_halves
from steplens.readers.kineto.kineto_lanes import has_text_lanes, lane_names, lane_number, lane_texts
from steplens.readers.kineto.kineto_structs import FLOAT_TIMES, TEXT_TIMES, Layout, Metadata, decode_tolerantly
from steplens.readers.kineto.kineto_times import needs_text, with_ns
from steplens.readers.kineto.native_decoder import NativeDecoder, load_library, take_frames

#: how many calls of a piece are looked at to find how its times are written, and which events are calls
_FIRST_CALLS = 256
_CALL_CLASSES: tuple[Any, ...] = (FLOAT_TIMES.duration, FLOAT_TIMES.begin, FLOAT_TIMES.end)

#: kinds whose events lie on threads of the host
_ON_THREADS = ("operators", "calls", "python", "memory", "collectives", "halves")
#: beginnings and ends of calls that are written as two events, until they are brought together
_HALVES = "halves"
_TASKS = "tasks"
_DEVICE_LANES = frozenset(("pid", "tid", "device", "stream"))
_REPEATED = "collectives"


class EventColumns:
    """All events of a file as a few frames of columns. Times are integer ns relative to the file's base time.

    Attributes:
        count: events read.
        skipped: events that could not be read, and events of phases that carry nothing for a profile.
        damaged: events that were not valid JSON or not an event, or, as far as ``convert`` or ``frame`` was asked for them,
            without a time or, on the host, a thread.
        beyond: those of them that start when no profile in microseconds does.
        timed: events with a time.
        unended: calls that begin and have no end, as far as ``convert`` was asked for them; they are no events of any kind.
        unbegun: ends of calls that have no beginning, likewise.
        lane_names: of the threads of the host that the file names with text (``kineto_lanes``).
        lane_texts: what devices, their streams and ranges are called, of those that have a text for a number.
        process_labels: of the processes that have one, such as "GPU 0" for a device.
    """

    kinds: ClassVar[tuple[str, ...]] = (
        "operators",
        _REPEATED,
        _TASKS,
        CALLS,
        DEVICE_RANGES,
        PYTHON_FRAMES,
        UNPLACED,
        "memory",
        "flow_starts",
        "flow_ends",
        _HALVES,
    )

    def __init__(self) -> None:
        self.parts: dict[str, list[pl.DataFrame]] = {kind: [] for kind in self.kinds}
        self.thread_names: dict[tuple[int, int], str] = {}
        self.lane_names: dict[tuple[int, int], str] = {}
        self.lane_texts: dict[int, str] = {}
        self.count = 0
        self.skipped = 0
        self.damaged = 0
        self.beyond = 0
        self.timed = 0
        self.unended = 0
        self.unbegun = 0
        self.process_labels: dict[int, str] = {}
        self._layout = FLOAT_TIMES
        library = load_library()
        self._native = None if library is None else NativeDecoder(library, native_kind, KNOWN_CATEGORIES)
        # of earlier stretches of the file, whose rows wait as those of ``_native`` do
        self._earlier: list[NativeDecoder] = []

    @property
    def is_native(self) -> bool:
        """Whether the library decodes."""
        return self._native is not None

    def convert(self) -> None:
        """Bring calls in two events together, make the times of all events numbers of ns, and count what has none."""
        halves = self.take(_HALVES)
        if halves.height:
            pairs = pair_halves(halves)
            self.unended, self.unbegun = pairs.unended, pairs.unbegun
            for events in calls_of(halves, pairs):
                self._sort_in(events, TEXT_TIMES)
        for kind in self.kinds:
            height = self.frame(kind).height
            self.timed += 0 if kind == _REPEATED else height

    def frame(self, kind: str) -> pl.DataFrame:
        """All events of one kind, in file order."""
        timed = with_ns(self.as_read(kind))
        frame = timed.frame.drop_nulls(["pid", "tid"]) if kind in _ON_THREADS and timed.frame.width else timed.frame
        # of the calls that are described again as communication, the loss is counted already
        if kind != _REPEATED:
            self.damaged += timed.lost + timed.frame.height - frame.height
            self.beyond += timed.beyond
        # kept, so that asking again costs nothing
        self.parts[kind] = [frame] if frame.width else []
        return frame

    def as_read(self, kind: str) -> pl.DataFrame:
        """All events of one kind, in file order, with times as they were read (see ``kineto_times``)."""
        self._take_native()
        parts = self.parts[kind]
        if len(parts) > 1:
            return pl.concat(parts, how="diagonal_relaxed", rechunk=True)
        return parts[0] if parts else pl.DataFrame()

    def take(self, kind: str) -> pl.DataFrame:
        """All events of one kind, in file order; they are forgotten here."""
        frame = self.frame(kind)
        self.parts[kind] = []
        return frame

    def replace_events(self, kind: str, frame: pl.DataFrame) -> None:
        """Put other events of one kind in place of those that were read.

        Args:
            kind: one of ``kinds``.
            frame: with the columns of that kind and times as ``convert`` makes them.
        """
        self._take_native()
        self.parts[kind] = [frame] if frame.width else []

    def read(self, file: JsonEventFile) -> None:
        """Add every event of ``file``."""
        collects = gc.isenabled()
        # events have no cycles, and looking for them among a million costs a twentieth of the time
        gc.disable()
        try:
            for piece in file:
                self.add(piece)
        finally:
            if collects:
                gc.enable()

    def add_first(self, other: EventColumns) -> None:
        """Put the events of ``other``, an earlier stretch of the same file, before these."""
        if any(self.parts.values()):
            for columns in (other, self):
                columns._take_native()
        elif other._native is not None:
            # the rows of both become frames together, without a copy of each in between
            self._earlier = [*other._earlier, other._native, *self._earlier]
        for kind in self.kinds:
            self.parts[kind] = other.parts[kind] + self.parts[kind]
        self.thread_names = {**other.thread_names, **self.thread_names}
        self.lane_names = {**other.lane_names, **self.lane_names}
        self.lane_texts = {**other.lane_texts, **self.lane_texts}
        self.count += other.count
        self.skipped += other.skipped
        self.damaged += other.damaged
        self.process_labels = {**other.process_labels, **self.process_labels}

    def add(self, piece: Piece) -> None:
        """Add the events of one piece of JSON array text."""
        if self._native is not None and self._add_natively(piece, self._native):
            return
        events, layout = self._decode(piece)
        if events:
            # rows stay in the order of the file
            self._take_native()
        self.count += len(events)
        self._sort_in(events, layout)

    def _add_natively(self, piece: Piece, native: NativeDecoder) -> bool:
        """Add a piece by the library; False where it is one for Python, and nothing of it was added."""
        if not native.decode_piece(piece, text_times=self._layout.text_times):
            return False
        if native.counts.has_coarse_times and not self._layout.text_times and needs_text((math.inf,), piece):
            self._layout = TEXT_TIMES
            if not native.decode_piece(piece, text_times=True):
                return False
        try:
            text = native.metadata_text(piece)
            metadata = self._layout.many.decode(text) if text else []
        except ValueError:
            return False
        counts = native.counts
        if not native.commit_piece(piece):
            return False
        self.count += counts.events
        self.skipped += counts.skipped
        for event in metadata:
            self._metadata(event)
        return True

    def _take_native(self) -> None:
        """Make frames of what the library has."""
        if self._native is not None:
            for kind, its_frames in take_frames([*self._earlier, self._native]).items():
                self.parts[kind] += its_frames
            self._earlier = []

    def _decode(self, piece: Piece) -> tuple[list[Any], Layout]:
        try:
            events = self._layout.many.decode(piece)
            if not self._layout.text_times:
                # a file may begin with any number of names of processes and threads, which have no time
                times = list(islice((event.ts for event in events if event.__class__ in _CALL_CLASSES), _FIRST_CALLS))
                if needs_text(times, piece):
                    self._layout = TEXT_TIMES
                    events = TEXT_TIMES.many.decode(piece)
            return events, self._layout
        except ValueError:
            pass
        try:
            # times in quotes are the usual reason
            return TEXT_TIMES.many.decode(piece), TEXT_TIMES
        except ValueError:
            pass
        events = []
        for event in decode_tolerantly(piece):
            if event is DAMAGED:
                self.damaged += 1
            elif event is None:
                self.skipped += 1
            else:
                events.append(event)
        return events, FLOAT_TIMES

    def _sort_in(self, events: list[Any], layout: Layout) -> None:
        operators: list[Any] = []
        kernels: list[Any] = []
        copies: list[Any] = []
        by_category: defaultdict[str, list[Any]] = defaultdict(list, dict.fromkeys(OPERATOR_CATEGORIES, operators))
        by_category.update({**dict.fromkeys(KERNEL_CATEGORIES, kernels), **dict.fromkeys(COPY_CATEGORIES, copies)})
        starts: defaultdict[str, list[Any]] = defaultdict(list)
        ends: defaultdict[str, list[Any]] = defaultdict(list)
        memory: list[Any] = []
        parts_of_calls: list[Any] = []
        duration, start, end, instant = layout.duration, layout.flow_start, layout.flow_end, layout.instant
        for event in events:
            kind = event.__class__
            if kind is duration:
                by_category[event.cat].append(event)
            elif kind is start:
                starts[event.cat].append(event)
            elif kind is end:
                ends[event.cat].append(event)
            elif kind is instant:
                if event.args is not None and event.args.bytes is not None:
                    memory.append(event)
            elif kind is Metadata:
                self._metadata(event)
            elif kind is layout.begin or kind is layout.end:
                parts_of_calls.append(event)
            else:
                self.skipped += 1
        if operators:
            frame, collectives = frames.operator_frames(operators, layout)
            self._host("operators", frame, operators)
            if collectives is not None:
                self.parts["collectives"].append(collectives)
        if kernels:
            self._device(_TASKS, frames.kernel_frame(kernels, layout), kernels)
        if copies:
            self._device(_TASKS, frames.copy_frame(copies, layout), copies)
        for category, events_of_category in by_category.items():
            if events_of_category is not operators and events_of_category is not kernels and events_of_category is not copies:
                self._add_category(category, events_of_category, layout)
        if memory:
            self._host("memory", frames.memory_frame(memory, layout), memory)
        if parts_of_calls:
            self._host(_HALVES, halves_frame(parts_of_calls, layout), parts_of_calls)
        for name, halves in (("flow_starts", starts), ("flow_ends", ends)):
            self.parts[name].extend(
                frames.flow_frame(category, events_of_category, layout) for category, events_of_category in halves.items()
            )

    def _add_category(self, category: str, events: list[Any], layout: Layout) -> None:
        kind = kind_of_category(category)
        if kind is None:
            self._device(UNPLACED, frames.kernel_frame(events, layout), events)
        elif kind == PYTHON_FRAMES:
            self._host(kind, frames.python_frame(events, layout), events)
        elif kind == CALLS:
            self._host(kind, frames.call_frame(category, events, layout), events)
        elif kind == DEVICE_RANGES:
            self._device(kind, frames.device_range_frame(category, events, layout), events)

    def _device(self, kind: str, frame: pl.DataFrame, events: list[Any]) -> None:
        self.parts[kind].append(frame)
        if has_text_lanes(frame, _DEVICE_LANES.intersection(frame.columns)):
            self.lane_texts.update(lane_texts(frames.task_lanes(events)))

    def _host(self, kind: str, frame: pl.DataFrame, events: list[Any]) -> None:
        self.parts[kind].append(frame)
        if has_text_lanes(frame):
            self.lane_names.update(lane_names(events))

    def _metadata(self, event: Metadata) -> None:
        pid, tid, args = lane_number(event.pid), lane_number(event.tid), event.args
        if args is None or pid is None:
            return
        if event.name == "process_labels" and isinstance(args.labels, str):
            self.process_labels[pid] = args.labels
        if event.name == "thread_name" and isinstance(args.name, str) and tid is not None:
            self.thread_names[pid, tid] = args.name
