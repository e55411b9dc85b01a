"""The part of a training process that captures on request. Nothing here raises into training, and nothing knows a framework.

A request is seen by the watching thread, decided about for the whole job at the end of a step (see ``agreement``), and carried
out by every process that takes part when it gets to the step decided. Between requests, ``step()`` writes two numbers and
compares one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steplens.collect.common import log
from steplens.collect.dynamic.job import job_folder, process, shared_board
from steplens.collect.dynamic.job.agreement import EACH, Decision
from steplens.collect.dynamic.job.ledger import Ledger
from steplens.collect.dynamic.job.shared_board import GENERATION, Board, BusyError, PrivateBoard
from steplens.collect.dynamic.plan import CALL, MISSED, NEVER, REFUSED, SAVING, SCHEDULED, SUPERSEDED, Form, Identity, Request
from steplens.collect.dynamic.recorder import Recorder
from steplens.collect.dynamic.service import Service

RECORD_VERSION = 1

#: requests that may wait
_LARGEST_QUEUE = 16
#: a process whose steps fail so often in a row leaves the training alone
_GIVE_UP_AFTER = 3

_NEVER_DUE = 1 << 62

#: the reference's own words, which scripts look for
_READ = "Dynamic profiler process load json success"
_DONE = "Dynamic profiler process done"

_PROFILER_STATUS = {"waiting": "-1", "idle": "0", "recording": "1", "saving": "1", "ready": "2", "exited": "-1"}


class Agent:
    """Watches a configuration folder for this process and captures what is asked for.

    Args:
        directory: the folder of ``profiler_config.json``; made if it is missing, and the file with it.
        form: the framework.
        how: what started this, for the status: ``dp.init``, ``PROF_CONFIG_PATH`` ...
        stepper: what ends a step, for messages.

    Raises:
        OSError: the folder cannot be made or read.
    """

    def __init__(self, directory: str | os.PathLike[str], form: Form, how: str, stepper: str) -> None:
        self.directory = job_folder.configuration_directory(directory)
        self.process = process.current_process()
        self._form = form
        self.how = how
        self.stepper = stepper
        self._identity: Identity = form.identity()
        self._step = 0
        self._stepped = False
        # the numbers of this job's board, once this process has stepped, and where ours are among them
        self._board: Board | None = None
        self._words: Any = None
        self._at_step = self._at_time = 0
        self._generation = 0
        # something to do at the end of the next step, or of a later one
        self._attention = True
        self._due = _NEVER_DUE
        self._heard = 0
        self._over: set[int] = set()
        self._offers: deque[Request] = deque()
        self._scheduled: list[Request] = []
        self._state = "waiting"
        self._written: Any = None
        self._problem = ""
        self._failures = 0
        self._closed = self._broken = False
        self._calls = 0
        self._turning = threading.RLock()
        self._writing = threading.Lock()
        job_folder.create_configuration(self.directory, form.template())
        self._ledger = Ledger(self.directory, form, self._identity.rank)
        self._recorder = Recorder(form, self._ledger, self._publish_state)
        self.job_folder: Path | None = self._meeting_place()
        self._service = Service(self)
        self._ledger.logs.actions.info("%s %s: waiting for requests", how, self.directory)
        self._service.first_look()
        try:
            self._service.start()
        except (OSError, RuntimeError) as error:
            self.failed("watching", error)
        self._write_record()

    def _meeting_place(self) -> Path | None:
        try:
            folder = job_folder.create_folder(self.directory)
            job_folder.remove_dead_processes(folder)
            job_folder.remove_old_folders(folder)
            return folder
        except OSError as error:
            self.failed("meeting other processes", error)
            return None

    # --- called by the training

    def step(self) -> None:
        """A step has ended, the next one begins."""
        try:
            step = self._step = self._step + 1
            words = self._words
            if words is not None:
                words[self._at_step] = step
                words[self._at_time] = time.monotonic_ns()
                if not self._attention and step < self._due and words[GENERATION] == self._generation:
                    return
            if not (self._closed or self._broken):
                self._enter_step(step)
        except Exception as error:  # the boundary to somebody's training
            self._step_failed(error)

    def start(self, document: Mapping[str, Any]) -> None:
        """Capture from here on, whatever ``start_step`` says; the step that runs counts as the first one."""
        with self._turning:
            if self._closed or self._broken:
                return
            if self.capturing:
                self._ledger.complain("start() has no effect, a capture is running.")
                return
            board = self._board or self._join_board()
            self._calls += 1
            request = Request(f"call-{self.process.name}-{self._calls}", CALL, document)
            self._ledger.add(request)
            plan = self._ledger.plan(request)
            if plan.refusal:
                self._ledger.end(request, REFUSED, plan.refusal)
            else:
                request.span(self._step, plan)
                self._recorder.begin(request, plan, self._step)
                board.put(shared_board.BUSY_UNTIL, self._recorder.busy_until)
            self._attention = True
            self._publish_state()

    def set_step(self, step: int) -> None:
        """Count on from ``step``, for a training that was resumed."""
        with self._turning:
            if self.capturing:
                self._ledger.complain("set_state() has no effect while a capture is running.")
                return
            self._step = step
            self._ledger.logs.actions.info("cur_step is set to %d", step)
            if self._board is not None:
                self._board.put(shared_board.STEP, step)

    def close(self) -> None:
        """The program ends: close the capture that is open and take leave."""
        if self._closed or os.getpid() != self.process.pid:
            return
        self._service.stop()
        self._closed = True
        # Another thread may hang in a step for ever; the end of the program must not.
        if self._turning.acquire(timeout=1.0):
            try:
                self._recorder.cut_short(self._step, "the program ends")
            finally:
                self._turning.release()
        self._ledger.end_all("the program ended")
        self._state = "exited"
        self._words = None
        for logger in (self._ledger.logs.actions, self._ledger.logs.file):
            logger.info(_DONE)
        self._write_record()
        if self.job_folder is not None:
            job_folder.remove_process_files(self.job_folder, self.process, record=not self._ledger.states())
        if self._board is not None:
            self._board.leave()
        self._ledger.logs.close()

    def abandon(self) -> None:
        """Let go in a forked child, where none of this is ours."""
        self._closed = True
        self._words = None
        self._service.abandon()
        if self._board is not None:
            self._board.close()

    # --- called by the watching thread

    @property
    def capturing(self) -> bool:
        """Whether a capture is running."""
        return self._recorder.current is not None

    def offer(self, id: str, origin: str, document: Mapping[str, Any]) -> None:
        """A request was found."""
        self._problem = ""
        logs = self._ledger.logs
        request = Request(id, origin, document)
        plan = self._ledger.plan(request)
        if plan.start_step == NEVER and not self._scheduled and not self._offers:
            # A file that asks for nothing, such as a new one, is no request; but it may take one back.
            logs.file.info("%s: %s, start_step is %d: nothing is captured", _READ, job_folder.CONFIGURATION_FILE, NEVER)
            return
        with self._ledger.lock:
            if not self._ledger.add(request):
                return
            if len(self._offers) >= _LARGEST_QUEUE:
                self._ledger.end(request, REFUSED, f"{_LARGEST_QUEUE} requests are waiting already")
            else:
                # Who takes no part still helps to decide, since it may be the first to end a step.
                self._offers.append(request)
                self._attention = True
            if plan.refusal:
                self._ledger.end(request, REFUSED, plan.refusal)
        logs.file.info("%s: request %s by %s", _READ, id, origin)
        self._write_record()

    def cannot_read(self, name: str, problem: str) -> None:
        """A file does not hold what it should."""
        self._problem = f"{name} {problem}"
        self._ledger.logs.file.warning("%s", self._problem)
        log.warning(f"dynamic_profile: {self.directory / name} {problem}")
        self._write_record()

    def failed(self, what: str, error: BaseException) -> None:
        """Something went wrong in here: say so once."""
        self._ledger.failed(what, error)

    def record(self) -> dict[str, Any]:
        """What others may know about this process."""
        request = self._recorder.current or next(iter(self._scheduled), None)
        words, why_not, step_ns = self._words, self._why_not(), 0
        with contextlib.suppress(ValueError):  # the board may be let go of meanwhile
            step_ns = words[self._at_time] if words is not None else 0
        return {
            "version": RECORD_VERSION,
            "pid": self.process.pid,
            "start": self.process.start,
            "host": socket.gethostname(),
            "program": os.path.basename(sys.argv[0]) if sys.argv else "",
            "framework": self._form.name,
            "how": self.how,
            "directory": str(self.directory),
            "log": str(self._ledger.logs.path),
            "rank": self._identity.rank,
            "world_size": self._identity.world_size,
            "group": self._identity.group,
            "state": self._state,
            "step": self._step if self._stepped else None,
            "step_ns": step_ns,
            "eligible": not why_not,
            "why_not": why_not,
            "problem": self._problem,
            "profiler_status": _PROFILER_STATUS[self._state],
            "current_step": str(self._step),
            "start_step": str(request.start_step if request else NEVER),
            "stop_step": str(request.stop_step if request else NEVER),
            "requests": self._ledger.records(),
        }

    def _why_not(self) -> str:
        if self._closed:
            return "the program has ended"
        if self._broken:
            return "its dynamic profile failed, see its log"
        if not self._stepped:
            return f"{self.stepper} was never called"
        if self.capturing:
            return ""
        try:
            return self._form.obstacle()
        except Exception as error:  # the boundary to the framework
            return f"{type(error).__name__}: {error}"

    # --- at the end of a step

    def _enter_step(self, step: int) -> None:
        with self._turning:
            self._attention = False
            board = self._board or self._join_board(listening=True)
            self._stepped = True
            board.put(shared_board.STEP, step)
            board.put(shared_board.DECIDING, step)
            try:
                self._recorder.step()
                board.put(shared_board.BUSY_UNTIL, self._recorder.busy_until)
                self._hear(board, step)
            except BusyError:
                self._attention = True
            finally:
                board.put(shared_board.DECIDING, -1)
            self._begin_due(step)
            board.put(shared_board.BUSY_UNTIL, self._recorder.busy_until)
            self._failures = 0
            self._due = min((request.start_step for request in self._scheduled), default=_NEVER_DUE)
            if self.capturing or self._offers:
                self._attention = True
            self._publish_state()

    def _join_board(self, *, listening: bool = False) -> Board:
        """Join the others at their board; ``listening`` where the decisions about the step that begins are still to be heard."""
        self._identity = self._form.identity()
        self._ledger.rank = self._identity.rank
        try:
            if self.job_folder is None:
                raise OSError("there is no folder to meet in")
            board = Board(self.job_folder, self._identity.group, self.process, self._identity.rank)
        except (OSError, BusyError, ValueError) as error:
            self.failed("sharing steps with other processes", error)
            board = PrivateBoard(self.process, self._identity.rank)
        # Of the decisions before our time those count that nobody has reached, also where our own count begins anew.
        reached = max([self._step, *(seat.step for seat in board.others())])
        with contextlib.suppress(BusyError):
            self._over = {item.number for item in board.decisions_after(0) if item.start < reached}
        if listening:
            # Before we are seen at this step: nobody may think that we are past its beginning.
            board.put(shared_board.DECIDING, self._step)
        board.put(shared_board.STEP_NS, time.monotonic_ns())
        board.put(shared_board.STEP, self._step)
        self._at_step, self._at_time = board.row + shared_board.STEP, board.row + shared_board.STEP_NS
        self._words, self._board = board.words, board
        return board

    def _hear(self, board: Board, step: int) -> None:
        while self._offers:
            request = self._offers[0]
            plan = self._ledger.plan(request)
            board.decide(request.id, request.origin, request.document, plan, step, self._recorder.busy_until)
            self._offers.popleft()
        while True:
            # First we say that we no longer listen, then we look whether somebody has counted on it.
            board.put(shared_board.DECIDING, -1)
            generation = board.words[GENERATION]
            if generation == self._generation:
                return
            for decision in board.decisions_after(self._heard):
                self._heard = decision.number
                self._obey(decision, step)
            self._generation = generation

    def _obey(self, decision: Decision, step: int) -> None:
        with self._ledger.lock:  # the watching thread may learn of it at this moment
            request = self._ledger.get(decision.id)
            if decision.number in self._over:
                if request is not None:
                    self._ledger.end(request, MISSED, "the other processes were past it before this one stepped")
                return
            if request is None:
                request = Request(decision.id, decision.origin, decision.document)
                self._ledger.add(request)
        for waiting in [item for item in self._scheduled if item.id in decision.supersedes]:
            self._scheduled.remove(waiting)
            self._ledger.end(waiting, SUPERSEDED, "the configuration was saved again before it began")
        plan = self._ledger.plan(request)
        start = decision.start if decision.start != EACH else max(step, self._recorder.busy_until)
        reason = plan.refusal or decision.refusal
        if reason:
            if (request.state, request.reason) != (REFUSED, reason):
                self._ledger.end(request, REFUSED, reason)
        elif start < step:
            self._ledger.end(request, MISSED, f"this process was at step {step} already when it heard of a start at {start}")
        else:
            request.span(start, plan)
            request.state = SCHEDULED
            self._scheduled.append(request)
            self._ledger.logs.actions.info("request %s will begin at step %d, step %d runs", request.id, start, step)

    def _begin_due(self, step: int) -> None:
        for request in [item for item in self._scheduled if item.start_step <= step]:
            self._scheduled.remove(request)
            if self.capturing:
                self._ledger.end(request, MISSED, "another capture was running at its first step")
            elif request.start_step < step:
                self._ledger.end(request, MISSED, f"this process went past step {request.start_step} without coming here")
            else:
                self._recorder.begin(request, self._ledger.plan(request), step)

    # --- what others see

    def _step_failed(self, error: Exception) -> None:
        self._failures += 1
        self.failed("step", error)
        if self._failures >= _GIVE_UP_AFTER:
            self._broken, self._words = True, None
            log.error("dynamic_profile: its steps fail, so it does nothing more in this process.")

    def _publish_state(self) -> None:
        current = self._recorder.current
        if current is not None:
            self._state = "saving" if current.state == SAVING else "recording"
        elif self._scheduled:
            self._state = "ready"
        else:
            self._state = "idle" if self._stepped else "waiting"
        if self._board is not None:
            self._board.put(shared_board.STATE, shared_board.STATES.index(self._state))
        published = (self._state, self._ledger.states())
        if published != self._written:
            self._written = published
            self._write_record()

    def _write_record(self) -> None:
        if self.job_folder is None:
            return
        with self._writing:
            try:
                job_folder.write_record(self.job_folder, self.process, self.record())
            except OSError as error:
                self.failed("telling others about this process", error)
