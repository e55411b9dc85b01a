"""The board of a job: a small file in memory, mapped by all its processes, with a row of numbers for each.

A process writes its step there at every step, which costs a few tens of nanoseconds, and notices new decisions by a counter.
The decisions themselves lie in a JSON file beside it. Both are changed under a lock that the system releases when its holder
dies, so a killed process leaves nothing that blocks.
"""

from __future__ import annotations

import array
import contextlib
import dataclasses
import fcntl
import hashlib
import mmap
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from steplens.collect.dynamic.job import agreement, job_folder
from steplens.collect.dynamic.job.agreement import Decision, Seat
from steplens.collect.dynamic.job.process import Process
from steplens.collect.dynamic.plan import Plan

SUFFIX = ".board"
DECISIONS_SUFFIX = ".decisions"

#: what a process may be doing; the board holds the index
STATES = ("waiting", "idle", "ready", "recording", "saving", "exited")

_MAGIC = 0x53544550_4C454E53
_VERSION = 1
_HEADER_WORDS = 8
_ROW_WORDS = 8
_ROWS = 512
_WORDS = _HEADER_WORDS + _ROWS * _ROW_WORDS
_BYTES = _WORDS * 8

#: word of the header that changes with every decision
GENERATION = 2
# words of a row
PID, START, RANK, STEP, STEP_NS, DECIDING, BUSY_UNTIL, STATE = range(_ROW_WORDS)

_LOCK_S = 2.0
_KEPT_DECISIONS = 32
_LARGEST_DECISIONS = 64 << 20


class BusyError(Exception):
    """Somebody else holds the lock for longer than a training step should wait."""


class Board:
    """The row of the calling process, and the decisions.

    Args:
        folder: the meeting place.
        group: names the job, see ``plan.Identity``.
        owner: the calling process.
        rank: its rank.

    Raises:
        OSError: it cannot be made.
        BusyError: the lock is held by somebody else.
    """

    def __init__(self, folder: Path, group: str, owner: Process, rank: int) -> None:
        self._path = folder / board_name(group)
        self._owner = owner
        self._descriptor = -1
        self._view: mmap.mmap | None = None
        self.words: Any = memoryview(b"")
        with self._lock_board(create=True):
            self._map_file()
            living = [row for row in range(_ROWS) if self._process(row).alive()]
            if not living:
                self._clear_words()
            row = next((row for row in range(_ROWS) if row not in living), None)
            if row is None:
                raise OSError(f"{self._path} has no room for another process")
            self._take_row(row, rank)

    def _take_row(self, row: int, rank: int) -> None:
        self.row = _HEADER_WORDS + row * _ROW_WORDS
        words = self.words
        words[self.row + PID] = 0
        for word, value in ((START, self._owner.start), (RANK, rank), (STEP, -1), (STEP_NS, 0), (DECIDING, -1)):
            words[self.row + word] = value
        words[self.row + BUSY_UNTIL] = words[self.row + STATE] = 0
        words[self.row + PID] = self._owner.pid

    def put(self, word: int, value: int) -> None:
        """Set a number of our row."""
        self.words[self.row + word] = value

    def others(self) -> list[Seat]:
        """The rows of the other living processes."""
        return [seat for seat in decode_seats(self.words) if seat.process != self._owner and seat.process.alive()]

    def decide(self, request: str, origin: str, document: Mapping[str, Any], plan: Plan, step: int, busy: int) -> None:
        """Decide about a request, unless somebody has.

        Args:
            request: its id.
            origin: of the request.
            document: the configuration.
            plan: what it asks for.
            step: the step that begins now in this process.
            busy: where our own capture ends; 0 without one.

        Raises:
            BusyError: not now; try again at the next step.
        """
        with self._lock_board():
            earlier = self._load_decisions()
            if any(decision.id == request for decision in earlier):
                return
            # First the counter, then the steps of the others: whoever ends a step after we have looked, looks at the counter.
            self.words[GENERATION] += 1
            start, refusal, supersedes = agreement.choose_start_step(
                origin, plan.start_step, plan.steps, step, busy, self.others(), earlier, time.monotonic_ns()
            )
            number = earlier[-1].number + 1 if earlier else 1
            decision = Decision(number, request, origin, document, start, start + plan.steps, refusal, supersedes)
            self._store_decisions([*earlier, decision][-_KEPT_DECISIONS:])

    def decisions_after(self, number: int) -> list[Decision]:
        """The decisions with a higher number, in order.

        Raises:
            BusyError: not now; try again at the next step.
        """
        with self._lock_board():
            return [decision for decision in self._load_decisions() if decision.number > number]

    def leave(self) -> None:
        """Give the row back; the last process takes the files away."""
        with contextlib.suppress(OSError, BusyError), self._lock_board():
            self.put(PID, 0)
            if not any(self._process(row).alive() for row in range(_ROWS)):
                for path in (self._path, self._path.with_suffix(DECISIONS_SUFFIX)):
                    with contextlib.suppress(OSError):
                        path.unlink()
        self.close()

    def close(self) -> None:
        """Let go of the file; what others read of us stays."""
        if isinstance(self.words, memoryview):
            self.words.release()
        if self._view is not None:
            self._view.close()
            self._view = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    # --- inside

    def _process(self, row: int) -> Process:
        begin = _HEADER_WORDS + row * _ROW_WORDS
        return Process(self.words[begin + PID], self.words[begin + START])

    @contextlib.contextmanager
    def _lock_board(self, *, create: bool = False) -> Iterator[None]:
        limit = time.monotonic() + _LOCK_S
        while True:
            if create and self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > limit:
                    raise BusyError(f"{self._path} is locked") from None
                time.sleep(0.0005)
                continue
            if not create or self._is_current():
                break
            # The last process of the job before us has taken the file away while we waited.
            os.close(self._descriptor)
            self._descriptor = -1
        try:
            yield
        except BaseException:  # goes on: what was half made is closed first
            if create:
                self.close()
            raise
        finally:
            if self._descriptor >= 0:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _is_current(self) -> bool:
        try:
            status = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        ours = os.fstat(self._descriptor)
        return (status.st_ino, status.st_dev) == (ours.st_ino, ours.st_dev)

    def _map_file(self) -> None:
        size = os.fstat(self._descriptor).st_size
        if size != _BYTES:
            # Writing to a mapped file that has no room on a full disk would end the training with a signal.
            os.ftruncate(self._descriptor, 0)
            os.posix_fallocate(self._descriptor, 0, _BYTES)
        self._view = mmap.mmap(self._descriptor, _BYTES)
        self.words = memoryview(self._view).cast("q")
        if (self.words[0], self.words[1]) != (_MAGIC, _VERSION):
            self._clear_words()

    def _clear_words(self) -> None:
        for word in range(_WORDS):
            self.words[word] = 0
        self.words[0], self.words[1] = _MAGIC, _VERSION
        with contextlib.suppress(FileNotFoundError):
            self._path.with_suffix(DECISIONS_SUFFIX).unlink()

    def _load_decisions(self) -> list[Decision]:
        return read_decisions(self._path)

    def _store_decisions(self, decisions: list[Decision]) -> None:
        document = {"decisions": [dataclasses.asdict(decision) for decision in decisions]}
        job_folder.write_private(self._path.with_suffix(DECISIONS_SUFFIX), self._path.with_suffix(".partial"), document)


class PrivateBoard(Board):
    """A board for a process that cannot share one: it decides for itself."""

    def __init__(self, owner: Process, rank: int) -> None:
        self._path = Path()
        self._owner = owner
        self._descriptor = -1
        self._view = None
        self._decisions: list[Decision] = []
        self.words = array.array("q", bytes(_BYTES))
        self._take_row(0, rank)

    def leave(self) -> None:
        """Nothing to give back."""

    @contextlib.contextmanager
    def _lock_board(self, *, create: bool = False) -> Iterator[None]:
        yield

    def _load_decisions(self) -> list[Decision]:
        return self._decisions

    def _store_decisions(self, decisions: list[Decision]) -> None:
        self._decisions = decisions


def board_name(group: str) -> str:
    """The file name of the board of a job."""
    return hashlib.sha256(group.encode(errors="replace")).hexdigest()[:12] + SUFFIX


def decode_seats(words: Any) -> list[Seat]:
    """All rows that a process has taken, dead ones too."""
    taken = []
    for row in range(_ROWS):
        begin = _HEADER_WORDS + row * _ROW_WORDS
        if words[begin + PID]:
            pid, start, rank, step, step_ns, deciding, busy, state = words[begin : begin + _ROW_WORDS]
            taken.append(Seat(Process(pid, start), rank, step, step_ns, deciding, busy, state))
    return taken


def read_seats(folder: Path, group: str) -> list[Seat]:
    """The rows of a job's board, for a process outside of it; empty where there is none."""
    try:
        with open(folder / board_name(group), "rb") as handle:
            data = handle.read(_BYTES)
    except OSError:
        return []
    if len(data) != _BYTES:
        return []
    words = array.array("q", data)
    return decode_seats(words) if (words[0], words[1]) == (_MAGIC, _VERSION) else []


def read_decisions(board: Path) -> list[Decision]:
    """The decisions beside a board; damaged ones count as none."""
    document = job_folder.read_json(board.with_suffix(DECISIONS_SUFFIX), _LARGEST_DECISIONS) or {}
    try:
        return [Decision(**{**item, "supersedes": tuple(item["supersedes"])}) for item in document.get("decisions", [])]
    except (TypeError, KeyError, AttributeError):
        return []
