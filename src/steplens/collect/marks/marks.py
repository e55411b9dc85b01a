"""Records marks and ranges: those of :mod:`steplens.mstx` and the automatic ones.

A mark is a row of integers in one array, so that recording costs little and a million of them take 48 MB. The texts, of which
there are few, are kept apart.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import struct
import sys
import threading
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from steplens.collect.common import clock, log
from steplens.collect.common.exception_text import plain_text
from steplens.collect.common.health import INFO, WARNING, Health
from steplens.collect.marks.stream_marks import StreamMarks
from steplens.common import rundir

DEFAULT_DOMAIN = "default"

#: how a range was recorded: values of the column "kind"
MARKER, PUSHED, STARTED = 0, 1, 2

#: columns of the rows, in order; stream is -1 on the host
COLUMNS = ("text", "kind", "start_ns", "end_ns", "tid", "stream")
_HOST = -1
_row = struct.Struct(f"{len(COLUMNS)}q").pack

#: the most marks of a window, and the most bytes of different texts
LIMIT = 1 << 20
TEXT_LIMIT = 32 << 20

#: what findings call the table
_USER_MARKS = "user marks"

#: what records marks now; None when nothing does
recorder: MarkRecorder | None = None

#: numbers of ranges, never used twice in a process
_numbers = itertools.count(1)


class _Thread(threading.local):
    """What belongs to a thread: its number and its pushed ranges."""

    def __init__(self) -> None:
        self.native_id = threading.get_native_id()
        self.pushed: dict[str, list[int]] = {}


class MarkRecorder:
    """The marks of one window. Its methods may be called by any thread at any time, and do not raise.

    Args:
        include: only these domains; all when empty.
        exclude: not these domains.
        health: gets what is lost.
    """

    def __init__(self, include: Iterable[str], exclude: Iterable[str], health: Health) -> None:
        self._include = frozenset(include)
        self._exclude = frozenset(exclude)
        self._health = health
        self._process = os.getpid()
        self._thread = _Thread()
        self._rows = array("q")
        #: the number of each text in its domain; a number may be passed over
        self._texts: dict[tuple[str, str], int] = {}
        self._text_numbers = itertools.count()
        self._text_bytes = 0
        self._open: dict[int, tuple[int, int, int, int, int]] = {}
        #: ends of ranges that count unless they are ended later
        self._ends: dict[int, int] = {}
        self._first = next(_numbers)
        self._dropped = 0
        self._without_text = 0
        self._strange = 0
        self._said: set[str] = set()
        self._step: int = 0
        self._streams = StreamMarks(self._warn_once)
        #: number of checkpoints whose size is known, and their bytes
        self._checkpoints, self._checkpoint_bytes = 0, 0

    def mark(self, message: str, stream: Any, domain: str) -> None:
        """Record a moment."""
        now = clock.now_ns()
        text = self._text_number(message, domain)
        if text >= 0:
            self._add_row(text, MARKER, now, now, self._thread.native_id)
            if stream is not None:
                self._streams.start(text, self._thread.native_id, stream)

    def start(self, message: str, stream: Any, domain: str, kind: int = STARTED) -> int:
        """Begin a range; returns its number, or 0 when it is not recorded."""
        text = self._text_number(message, domain)
        if text < 0:
            return 0
        if len(self._open) >= LIMIT:
            self._dropped += 1
            return 0
        number = next(_numbers)
        on_stream = 0 if stream is None else self._streams.start(text, self._thread.native_id, stream)
        # the time last: what comes before it is not the user's
        self._open[number] = (text, kind, clock.now_ns(), self._thread.native_id, on_stream)
        return number

    def end(self, number: int) -> None:
        """End a range; one that began before this window is passed over."""
        now = clock.now_ns()
        if type(number) is not int:
            # a range that was not begun has no number
            self._strange += number is not None
            return
        begun = self._open.pop(number, None)
        self._ends.pop(number, None)
        if begun is None:
            self._strange += number > self._first
            return
        self._add_ended_range(begun, now)

    def ends_at(self, number: int, time_ns: int) -> None:
        """Let a range end at a time, unless :meth:`end` comes later."""
        if number in self._open:
            self._ends[number] = time_ns

    def _add_ended_range(self, begun: tuple[int, int, int, int, int], end: int) -> None:
        text, kind, start, tid, on_stream = begun
        self._add_row(text, kind, start, end, tid)
        if on_stream:
            self._streams.end(on_stream)

    def push(self, message: str, stream: Any, domain: str) -> int:
        """Begin a range inside those of this thread and domain; returns how many those are, or -1."""
        number = self.start(message, stream, domain, PUSHED)
        if not number:
            return -1
        pushed = self._thread.pushed.setdefault(plain_text(domain) or "", [])
        pushed.append(number)
        return len(pushed) - 1

    def pop(self, domain: str) -> int:
        """End the innermost of the pushed ranges of this thread and domain; returns how many are left, or -1."""
        pushed = self._thread.pushed.get(plain_text(domain) or "")
        if not pushed:
            return -1
        self.end(pushed.pop())
        return len(pushed)

    def step(self, number: int | None) -> None:
        """End the range of the step that runs, and begin that of the next; None: there is none."""
        if self._step:
            self.end(self._step)
        self._step = 0 if number is None else self.start(f"step {number}", None, DEFAULT_DOMAIN)

    def saved(self, path: Any) -> None:
        """A checkpoint was written to a path; one that went elsewhere has no size."""
        if isinstance(path, str | os.PathLike):
            with contextlib.suppress(OSError, ValueError):
                self._checkpoint_bytes += os.stat(path).st_size
                self._checkpoints += 1

    # --- at the end of the window

    def finish(self) -> None:
        """End what is still open, with the window."""
        self.step(None)
        now, unfinished = clock.now_ns(), 0
        for number in list(self._open):
            end = self._ends.pop(number, 0)
            begun = self._open.pop(number, None)
            if begun is not None:
                unfinished += not end
                self._add_ended_range(begun, end or now)
        self._streams.finish()
        for text, kind, start, end, tid, stream in self._streams.rows:
            self._add_row(text, kind, start, end, tid, stream)
        too_long = f"marks are missing: the texts of a window have at most {TEXT_LIMIT} bytes"
        for check, severity, count, message in (
            ("marks_dropped", WARNING, self._dropped, f"marks are missing: a window keeps {LIMIT} of them"),
            ("marks_dropped", WARNING, self._without_text, too_long),
            ("marks_unfinished", INFO, unfinished, "ranges were open when the window ended, and end with it"),
            ("marks_unmatched", INFO, self._strange, "calls of range_end had no range to end"),
        ):
            if count:
                self._health.add(check, severity, message, unsafe=_USER_MARKS if severity == WARNING else "", count=count)

    def texts(self) -> list[tuple[str, str]]:
        """Domain and text of each number; empty ones for numbers that no mark has."""
        # at one go: other threads may still set marks
        numbered = list(self._texts.items())
        texts = [("", "")] * (max((number for _, number in numbered), default=-1) + 1)
        for text, number in numbered:
            texts[number] = text
        return texts

    def save(self, folder: Path) -> None:
        """Write the marks, if there are any."""
        if not self._rows:
            return
        rows = self._rows
        if sys.byteorder == "big":
            rows = rows[:]
            rows.byteswap()
        rundir.write_bytes(folder / rundir.MARKS, rows.tobytes())
        texts = {"pid": self._process, "columns": COLUMNS, "texts": self.texts()}
        if self._checkpoints:
            texts["checkpoint_bytes"] = self._checkpoint_bytes // self._checkpoints
        rundir.write_bytes(folder / rundir.MARK_TEXTS, json.dumps(texts).encode())

    # --- inside

    def _add_row(self, text: int, kind: int, start: int, end: int, tid: int, stream: int = _HOST) -> None:
        if len(self._rows) >= LIMIT * len(COLUMNS):
            self._dropped += 1
            return
        # one call, which no other thread interrupts; four times as fast as to extend the array by a tuple
        self._rows.frombytes(_row(text, kind, start, end, tid, stream))

    def _text_number(self, message: str, domain: str) -> int:
        """The number of a text in a domain; -1 when it is not to be recorded."""
        if type(message) is not str or type(domain) is not str:
            message, domain = plain_text(message) or "", plain_text(domain) or ""
        try:
            return self._texts[domain, message]
        except KeyError:
            pass
        if not message:
            self._warn_once("The message of a mark should be a string that is not empty: the mark is left out.")
            return -1
        if not domain:
            self._warn_once("The domain of a mark should be a string that is not empty: the mark is left out.")
            return -1
        if domain in self._exclude or (self._include and domain not in self._include):
            return -1
        # No lock: the handler of a signal may set a mark inside of this, and would wait for its own thread for ever.
        size = len(message) + len(domain)
        if self._text_bytes + size <= TEXT_LIMIT:
            size = sum(len(text.encode(errors="surrogatepass")) for text in (message, domain))
        if self._text_bytes + size > TEXT_LIMIT:
            self._without_text += 1
            return -1
        self._text_bytes += size
        return self._texts.setdefault((domain, message), next(self._text_numbers))

    def _warn_once(self, message: str) -> None:
        """Warn, once per window."""
        if message not in self._said:
            self._said.add(message)
            log.warning(message)
        self._health.add("marks_rejected", INFO, message)


def open_recorder(new: MarkRecorder) -> None:
    """Record marks from now on."""
    global recorder
    recorder = new


def close_recorder(old: MarkRecorder) -> None:
    """Record marks no longer, if this is what records them."""
    global recorder
    if recorder is old:
        recorder = None
    old.finish()


def _after_fork() -> None:
    """A forked process has no window: its marks would be lost."""
    global recorder
    recorder = None


os.register_at_fork(after_in_child=_after_fork)
