"""The profiler object that scripts use, with steps. Nothing here raises into training."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from steplens.collect.common import interrupts, log
from steplens.collect.common.experimental_config import _ExperimentalConfig
from steplens.collect.common.health import WARNING
from steplens.collect.common.never_raise import never_raise
from steplens.collect.pytorch.actions import RECORDING, ProfilerAction
from steplens.collect.pytorch.kineto_profile import _KinetoProfile as _KinetoProfile
from steplens.collect.torch_internals import backward, child_threads
from steplens.common import options
from steplens.common.options import ProfilerActivity


class profile(_KinetoProfile):
    """Records windows of training steps, each into a run directory.

    Use it as a context manager, or call :meth:`start` and :meth:`stop`, and call :meth:`step` after every
    training step. It can be started again after it was stopped. Wrong values are reset with a warning;
    nothing it does raises into the training.

    Args:
        activities: what to record, members of ``ProfilerActivity``; everything supported by default.
        schedule: maps a step to a ``ProfilerAction``, see :class:`~steplens.schedule`; records always by default.
        on_trace_ready: called with this object when a window is recorded, see
            :func:`~steplens.tensorboard_trace_handler`. Without it the data lives as long as this object.
        record_shapes: shapes and types of operator inputs.
        profile_memory: every allocation and release of tensor memory.
        with_stack: Python calls and operator call stacks.
        with_flops: estimated floating point operations of operators.
        with_modules: which ``nn.Module`` an operator was called from.
        experimental_config: extended options.
        execution_trace_observer: an observer with ``start``, ``stop`` and ``cleanup``, started and stopped with us.
        custom_trace_id_callback: returns the id of a window.
        use_cuda: deprecated, use ``activities``.
        max_seconds: end a window before it records longer than this; it always holds one step.
        max_bytes: end a window before its trace becomes larger than about this many bytes; likewise.
        max_overhead: end a window whose steps all take longer than those before it by this share: 0.2 allows 1.2 times as long.
        show_plan: print which steps are recorded, and about how large that becomes. The warmup is then recorded as well,
            and thrown away, to find that out; not with a GPU or NPU.
        stack_sampling_hz: sample the Python stacks of all threads so many times a second, 0.1 to 1000, where ``with_stack``
            costs too much or records too much; 0: none. steplens' own recorder does it.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], Any] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: _ExperimentalConfig | None = None,
        execution_trace_observer: Any = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        use_cuda: bool | None = None,
        max_seconds: float | None = None,
        max_bytes: int | None = None,
        max_overhead: float | None = None,
        show_plan: bool = False,
        stack_sampling_hz: float = 0.0,
    ) -> None:
        self._prepare_windows(options.call_arguments(locals()))

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            if self._enabled and self._observer is not None and hasattr(self._observer, "cleanup"):
                self._guarded("execution_trace_observer.cleanup", self._observer.cleanup)

    @never_raise
    def step(self) -> None:
        """Say that a training step has ended and the next one begins; inside of backward, when that is over."""
        if not self._enabled or self.off or os.getpid() != self._process:
            return
        if not self._running:
            log.warning("step() has no effect, the profiler is not running.")
            return
        if backward.is_running():
            backward.call_after_backward(self.step)
            return
        with self._lock:
            if self._called_inside("step"):
                return
            if self._session.recorded_elsewhere:
                self._skip_step()
                return
            if self._finish_requested_stop():
                return
            self._close_step()
            budget, previous = self._budget, self._action
            reason = budget.step_ends(recorded=previous in RECORDING) if budget is not None else ""
            try:
                planned = self._next_action(self.step_num + 1)
            except BaseException as exception:  # the boundary to the program's schedule
                # an interrupt may have come before _next_action() did it
                self._inside = False
                if not isinstance(exception, Exception) or interrupts.of_the_program(exception):
                    raise
                # A schedule that fails must not leave a window open for the rest of the training.
                planned = ProfilerAction.NONE
                self._health.report_failure("schedule", exception)
            if self._finish_requested_stop():
                return
            # An interrupt before this leaves the step that has ended as one that goes on, and the window open.
            has_work = reason or self._controller.has_work(previous, planned)
            with interrupts.hold_signals() if has_work else contextlib.nullcontext():
                self._session.ended_step = self.step_num + self._step_offset
                self._session.step = self._session.ended_step + 1
                self.step_num += 1
                if budget is not None:
                    asked, self._asked = self._asked, planned
                    previous, planned = self._within_budget(reason, previous, planned, asked)
                self._transit(previous, planned)
                if self._session.window is not None or not self._finish_requested_stop():
                    self._open_step()
            if budget is not None:
                budget.step_begins()

    def _skip_step(self) -> None:
        if self._session.window is not self._skipped_in:
            self._skipped_in = self._session.window
            message = "step() was called in another thread than the one that is recorded: it does not count in this window."
            self._health.report("other_thread", WARNING, message, unsafe="averages over steps")

    def _within_budget(
        self, reason: str, ended: ProfilerAction, planned: ProfilerAction, asked: ProfilerAction
    ) -> tuple[ProfilerAction, ProfilerAction]:
        """The actions of the step that ended and of the next one, when limits may end a window before the schedule does.

        ``reason`` is why it should end now; the schedule ``asked`` for the step that ended, and has ``planned`` the next one.
        """
        window = self._session.window
        if ended is ProfilerAction.RECORD and reason and window is not None:
            steps = self._session.step - window.span.first_step
            message = f"The window was ended after {steps} step{'s' if steps > 1 else ''}, {reason}."
            log.info(message)
            self._health.add("budget", WARNING, message)
            self._cut_short = planned in RECORDING
            return ProfilerAction.RECORD_AND_SAVE, ProfilerAction.NONE if self._cut_short else planned
        if self._cut_short:
            # nothing until the schedule itself comes to the end of this window
            self._cut_short = asked is ProfilerAction.RECORD and planned in RECORDING
            return ended, ProfilerAction.NONE if self._cut_short else planned
        return ended, planned

    def _set_step_num_offset_for_dynamic_prof(self, offset: int) -> None:
        """Number the steps of this object from ``offset``, the step of the training in which it was made."""
        self._step_offset = offset

    @classmethod
    def enable_profiler_in_child_thread(
        cls,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
    ) -> None:
        """Ask for the operators of the calling thread to be recorded.

        It is recorded by the window that is open and by those that open later, until it calls
        :meth:`disable_profiler_in_child_thread` or ends. A window records all its threads with the options of the
        profiler object. Where PyTorch offers no way to join, windows that open later record all threads of the process.

        Args:
            record_shapes: wanted of this thread; the profiler object's option counts, and its health says if they differ.
            profile_memory: likewise.
            with_stack: likewise.
            with_flops: likewise.
            with_modules: likewise.
        """
        switches = options.select_options(options.PROFILE, locals())
        try:
            child_threads.enable_thread(switches)
        except Exception as exception:  # the boundary to the training
            log.report_failure("enable_profiler_in_child_thread", exception)

    @classmethod
    def disable_profiler_in_child_thread(cls) -> None:
        """Take back :meth:`enable_profiler_in_child_thread` for the calling thread."""
        try:
            child_threads.disable_thread()
        except Exception as exception:  # the boundary to the training
            log.report_failure("disable_profiler_in_child_thread", exception)
