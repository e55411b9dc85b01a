"""Keeps the last steps in memory and writes them when something happens to the training. Nothing here raises into it."""

from __future__ import annotations

import atexit
import math
import os
import signal
import sys
import threading
import weakref
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from steplens.collect.black_box import black_box_event
from steplens.collect.black_box.ring_session import KinetoRingSession, RecorderRingSession, RingSession
from steplens.collect.black_box.step_history import StepHistory
from steplens.collect.black_box.step_ring import StepRing
from steplens.collect.common import clock, exception_text, interrupts, log, metadata, profiler_environment
from steplens.collect.common.experimental_config import _ExperimentalConfig
from steplens.collect.common.health import Health
from steplens.collect.common.never_raise import never_raise
from steplens.collect.common.recording_settings import RecordingSettings
from steplens.collect.handoff import handler
from steplens.collect.loaders import loader
from steplens.collect.pytorch.activities import choose_activities
from steplens.collect.pytorch.kineto_profile import STEP_PREFIX
from steplens.collect.recorder.recorder_choice import sampling_rate, uses_recorder
from steplens.common import options, rundir
from steplens.common.options import ProfilerActivity

SLOW_STEP, EXCEPTION, SIGNAL, NAN_LOSS, REQUEST = "slow_step", "exception", "signal", "nan_loss", "request"

#: steps whose few numbers are kept, and one that the first of them is told from
_ROWS = 1025


class BlackBox:
    """Keeps the last steps, and writes them when a step is slow, on an exception, on a signal, or when the loss is not finite.

    Use it as a context manager, or call :meth:`start` and :meth:`stop`, and call :meth:`step` after every training step. An
    event leaves a folder with one or two run directories, which hold the step of the event and at least ``keep_steps`` before
    it, and with ``black_box.json``: what happened, and times, waits for data, collections of garbage and host counters of up to
    1024 steps before. Wrong values are reset with a warning.

    Args:
        directory: folder for what is written.
        keep_steps: steps before an event that are written with it, at least, if so many were taken.
        record_operators: keep the operators of these steps, which costs what recording costs; without them a step costs a few us.
        on_slow_step: write when a step is slower than its history says, see
        :class:`~steplens.collect.black_box.step_history.StepHistory`.
        on_exception: write when an exception ends the ``with`` block, or the program.
        on_nan_loss: write when the loss given to :meth:`step` is not finite.
        on_signal: write at the end of the step in which the process gets this signal; None for no signal. Whoever handled it
            before still does.
        max_captures: write no more often than this.
        analyse_flag: analyse what is written, beside the training.
        activities: what to record, members of ``ProfilerActivity``; everything supported by default.
        record_shapes: shapes and types of operator inputs.
        profile_memory: every allocation and release of tensor memory.
        with_stack: Python calls and operator call stacks.
        with_flops: estimated floating point operations of operators.
        with_modules: which ``nn.Module`` an operator was called from.
        stack_sampling_hz: how often a second the Python stacks of all threads are sampled; 0: never.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] = "black_box",
        *,
        keep_steps: int = 8,
        record_operators: bool = True,
        on_slow_step: bool = True,
        on_exception: bool = True,
        on_nan_loss: bool = False,
        on_signal: int | None = signal.SIGUSR2,
        max_captures: int = 10,
        analyse_flag: bool = True,
        activities: Iterable[ProfilerActivity] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        stack_sampling_hz: float = 0.0,
    ) -> None:
        arguments = options.call_arguments(locals())
        self._health = Health()
        self._process = os.getpid()
        self._running = False
        self._enabled = False
        #: nothing is kept, because what happens could not be written; this was said at the start
        self.off = False
        self._observes_loaders = False
        self._session: RingSession | None = None
        self.step_num = 0
        #: folders of the events that were written
        self.captures: list[Path] = []
        try:
            self._apply_options(arguments)
            self._enabled = not profiler_environment.disabled_by_environment()
        except Exception as exception:  # the boundary to the training
            self._health.report_failure(type(self).__name__, exception)

    def _apply_options(self, arguments: dict[str, Any]) -> None:
        values, warnings = options.resolve_options(options.BLACK_BOX, options.select_options(options.BLACK_BOX, arguments))
        profile, profile_warnings = options.resolve_options(options.PROFILE, options.select_options(options.PROFILE, arguments))
        for warning in (*warnings, *profile_warnings):
            log.warning(warning)
        self._values = values
        self._keep_steps: int = values["keep_steps"]
        # The script may change directory before something happens.
        self._directory = rundir.absolute_path(values["directory"])
        self._event_directory = self._directory
        self._history = StepHistory()
        self._ring = StepRing(_ROWS)
        self._in_window = 0
        self._began_ns = 0
        self._owner = 0
        self._signalled = False
        self._quiet_until = 0
        self._previous_handler: Any = None
        self._previous_hook: Any = None
        self._step_range: Any = None
        self._seen_exception: BaseException | None = None
        if values["record_operators"]:
            self._session = self._new_session(profile)

    def _new_session(self, profile: dict[str, Any]) -> RingSession:
        import torch

        activities = choose_activities(profile["activities"], None, self._health)
        experimental = _ExperimentalConfig()
        # every one; nobody asked for it, so nobody is told
        experimental.gc_detect_threshold = 0
        # CANN's library writes its files itself while it records: there is no ring to keep in memory.
        self._range_type: Any = torch.autograd.profiler.record_function
        settings = RecordingSettings(
            activities=tuple(item for item in activities if item is not ProfilerActivity.NPU),
            experimental=experimental,
            schedule={"black_box": True, "keep_steps": self._values["keep_steps"]},
            stack_sampling_hz=sampling_rate(profile),
            **{name: profile[name] for name in options.SWITCHES},
        )
        by_recorder = not profiler_environment.disabled_by_environment() and uses_recorder(
            settings, self._health, exports=False, beside_kineto=False
        )
        session_type = RecorderRingSession if by_recorder else KinetoRingSession
        return session_type(
            settings,
            parent=lambda: self._event_directory,
            worker_name=None,
            user_metadata=metadata.UserMetadata(),
            new_trace_id=lambda: metadata.trace_id(None),
            health=self._health,
        )

    # --- the interface

    def __enter__(self) -> BlackBox:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exception is not None:
            self.on_exception(exception)
        self.stop()

    @never_raise
    def start(self) -> None:
        """Begin to keep steps."""
        if not self._enabled or self._running:
            return
        unusable = rundir.why_unusable(self._directory)
        self.off = unusable is not None
        if unusable is not None:
            log.error(f"The black box is off, the training goes on: {' '.join(map(str, unusable))}.")
            return
        self._running = True
        self._owner = threading.get_ident()
        self.step_num = 0
        self._history = StepHistory()
        _recorders.add(self)
        self._install_signal()
        if self._values["on_exception"]:
            self._previous_hook, sys.excepthook = sys.excepthook, self._on_uncaught_exception
        # run in the opposite order
        atexit.unregister(handler.wait_for_analyses)
        atexit.register(handler.wait_for_analyses)
        atexit.register(self.stop)
        self._observes_loaders = self._session is not None
        if self._observes_loaders:
            loader.profiler_starts()
        self._ring.open()
        self._open_window(0)
        self._begin_step()

    @never_raise
    def step(self, loss: Any = None) -> None:
        """Say that a training step has ended and the next one begins.

        Args:
            loss: of the step, a number or a tensor of one element; looked at only with ``on_nan_loss``, where a tensor on a
                device makes the training wait for it.
        """
        if not self._running or threading.get_ident() != self._owner:
            return
        length = clock.monotonic_ns() - self._began_ns
        self._ring.end(self.step_num, length)
        self._end_range()
        event = self._classify_step(length, loss)
        if self._session is not None:
            self._session.ended_step = self.step_num
            self._session.step = self.step_num + 1
            self._in_window += 1
        elsewhere = True
        if event is not None and self._capture_event(*event):
            self._open_window(self.step_num + 1)
        elif self._in_window >= self._keep_steps and (self._session is None or self._session.may_rotate()):
            self._rotate_window()
        else:
            elsewhere = False
        self.step_num += 1
        self._begin_step(elsewhere)

    @never_raise
    def capture(self, message: str = "asked for by the program") -> None:
        """Write what is kept, now; the step that runs is cut in two.

        Args:
            message: why, for the file.
        """
        if self._running and threading.get_ident() == self._owner:
            if self._in_the_middle(REQUEST, message):
                self._open_window(self.step_num)
            self._begin_step()

    @never_raise
    def stop(self) -> None:
        """End; what is kept is thrown away."""
        if not self._running or os.getpid() != self._process:
            return
        # not among those that wait, which would be given back to it
        number = self._values["on_signal"]
        if self._previous_handler is not None and signal.getsignal(number) == self._on_signal:
            signal.signal(number, self._previous_handler)
        self._previous_handler = None
        with interrupts.hold_signals():
            self._stop_recording()

    def _stop_recording(self) -> None:
        self._running = False
        atexit.unregister(self.stop)
        self._end_range()
        self._ring.close()
        if self._session is not None:
            self._session.discard()
        if self._observes_loaders:
            loader.profiler_stops()
        if self._previous_hook is not None and sys.excepthook == self._on_uncaught_exception:
            sys.excepthook = self._previous_hook

    # --- steps

    def _begin_step(self, elsewhere: bool = True) -> None:
        if self._session is not None:
            self._step_range = self._range_type(f"{STEP_PREFIX}{self.step_num}")
            self._step_range.__enter__()
        self._ring.begin(again=elsewhere)
        self._began_ns = clock.monotonic_ns()

    def _end_range(self) -> None:
        opened, self._step_range = self._step_range, None
        if opened is not None:
            opened.__exit__(None, None, None)

    def _classify_step(self, length: int, loss: Any) -> tuple[str, str] | None:
        """What happened in the step that ended, and the sentence about it; None for a step like any other."""
        slow = self._history.add(length)
        if self._signalled:
            self._signalled = False
            return SIGNAL, f"the process got {signal.Signals(self._values['on_signal']).name}"
        if loss is not None and self._values["on_nan_loss"] and not math.isfinite(number := _to_number(loss)):
            return NAN_LOSS, f"the loss of step {self.step_num} is {number}"
        # An analysis of ours beside the training, and what writing has left in the caches, are no event.
        if slow and self._values["on_slow_step"] and self.step_num >= self._quiet_until and not handler.is_analysing():
            return SLOW_STEP, self._about_slow_step(length)
        return None

    def _about_slow_step(self, length: int) -> str:
        usual = self._history.median_ns
        row = self._ring.rows()[-1]
        parts = [
            f"{row[column] / 1e6:.3g} ms {what}"
            for column, what in (("data_wait_ns", "waiting for data"), ("gc_ns", "collecting garbage"))
            if row[column] > (length - usual) / 2
        ]
        text = f"step {self.step_num} took {length / 1e6:.3g} ms, {length / usual:.3g} times the usual {usual / 1e6:.3g} ms"
        return ", ".join([text, *parts])

    # --- windows

    def _open_window(self, step: int) -> None:
        session, self._in_window = self._session, 0
        if session is None:
            return
        try:
            session.step = step
            session.init_trace()
            session.start_trace()
        except Exception as exception:  # the boundary to the training
            self._give_up_operators(exception)

    def _rotate_window(self) -> None:
        self._in_window = 0
        if self._session is None:
            return
        try:
            with interrupts.hold_signals():
                self._session.rotate()
        except Exception as exception:  # the boundary to the training
            if interrupts.of_the_program(exception):
                raise
            self._give_up_operators(exception)

    def _give_up_operators(self, reason: object) -> None:
        """Go on without operators, as when another profiler of the program needs Kineto."""
        session, self._session = self._session, None
        if session is not None:
            session.discard()
        log.warning(f"The black box goes on with the times of steps alone: {reason}")

    def _capture_event(self, kind: str, message: str) -> bool:
        """Write what is kept; whether the window that was open is closed by that."""
        left = self._values["max_captures"] - len(self.captures)
        if left <= 0:
            return False
        begin = clock.monotonic_ns()
        with interrupts.hold_signals():
            saved = self._save_event(kind, message)
        if saved is None:
            return True
        folder, runs = saved
        spent = (clock.monotonic_ns() - begin) / 1e6
        log.info(f"Black box: {message}; the last steps are in {folder}, the training waited {spent:.3g} ms.")
        if self._values["analyse_flag"]:
            for run in runs:
                handler.analyse_beside(run)
        self._quiet_until = self.step_num + self._keep_steps
        if left == 1:
            log.warning(f"Black box: max_captures={self._values['max_captures']} are written, nothing else will be.")
            if self._session is not None:
                self._session.discard()
                self._session = None
        return True

    def _save_event(self, kind: str, message: str) -> tuple[Path, list[Path]] | None:
        """Write what is kept; the folder of the event and its run directories, or None when that failed."""
        try:
            folder = self._event_directory = black_box_event.new_directory(self._directory, self.step_num, kind)
            self.captures.append(folder)
            runs = self._session.save() if self._session is not None else []
            median = int(self._history.median_ns)
            black_box_event.write_event(folder, kind, message, self.step_num, median, runs, self._ring.rows())
        except Exception as exception:  # the boundary to the training
            self._health.report_failure("black box", exception)
            if self._session is not None:
                self._session.discard()
            return None
        return folder, runs

    def _in_the_middle(self, kind: str, message: str) -> bool:
        """Write what is kept in the middle of a step."""
        self._ring.end(self.step_num, clock.monotonic_ns() - self._began_ns)
        self._end_range()
        if self._session is not None:
            self._session.ended_step = self.step_num
        return self._capture_event(kind, message)

    # --- exceptions and signals

    @never_raise
    def on_exception(self, exception: BaseException) -> None:
        """Write what is kept because of an exception; for those who catch it before the program ends."""
        unwanted = not self._running or not self._values["on_exception"] or exception is self._seen_exception
        if unwanted or isinstance(exception, SystemExit | GeneratorExit):
            return
        if os.getpid() != self._process or threading.get_ident() != self._owner:
            return
        self._seen_exception = exception
        text = " ".join(exception_text.describe_exception(exception).split())[:1000]
        self._in_the_middle(EXCEPTION, f"step {self.step_num} ended with {text}")

    def _on_uncaught_exception(
        self, kind: type[BaseException], exception: BaseException, traceback: TracebackType | None
    ) -> None:
        self.on_exception(exception)
        self._previous_hook(kind, exception, traceback)

    def _install_signal(self) -> None:
        number = self._values["on_signal"]
        if number is None:
            return
        if threading.current_thread() is not threading.main_thread():
            log.warning("on_signal has no effect: only the main thread of a program can handle signals.")
            return
        self._previous_handler = signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: Any) -> None:
        self._signalled = True
        if callable(self._previous_handler):
            self._previous_handler(number, frame)


def _to_number(loss: Any) -> float:
    # PyTorch warns of a number that is made of what still has its graph
    detach = getattr(loss, "detach", None)
    return float(detach() if callable(detach) else loss)


#: black boxes of this process, for its forked children
_recorders: weakref.WeakSet[BlackBox] = weakref.WeakSet()


def _stop_recorders_in_child() -> None:
    # A worker that loads data inherits these objects; the steps are its parent's.
    for recorder in _recorders:
        recorder._running = False


os.register_at_fork(after_in_child=_stop_recorders_in_child)
