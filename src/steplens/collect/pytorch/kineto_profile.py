"""The profiler object without steps, and what it shares with the one that has them. Nothing here raises into training."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from steplens.collect.ascend import frameworks
from steplens.collect.common import interrupts, log, metadata, profiler_environment
from steplens.collect.common.exception_text import plain_text
from steplens.collect.common.experimental_config import _ExperimentalConfig
from steplens.collect.common.health import INFO, WARNING, Health
from steplens.collect.common.never_raise import never_raise
from steplens.collect.common.recording_settings import RecordingSettings
from steplens.collect.handoff import handler
from steplens.collect.handoff.path_creator import ProfPathCreator
from steplens.collect.loaders import loader
from steplens.collect.pytorch import actions
from steplens.collect.pytorch.actions import RECORDING, ActionController, ProfilerAction
from steplens.collect.pytorch.activities import choose_activities, not_collected
from steplens.collect.pytorch.budgets import Budget, Limits
from steplens.collect.pytorch.device_recorder_session import DeviceRecorderSession
from steplens.collect.pytorch.export_methods import ExportMethods
from steplens.collect.pytorch.kineto import KinetoSession
from steplens.collect.pytorch.recorder_session import RecorderSession
from steplens.collect.pytorch.schedule_text import describe_schedule, size_text
from steplens.collect.recorder.recorder_choice import sampling_rate, uses_recorder
from steplens.collect.torch_internals import backward, child_threads
from steplens.common import options, rundir
from steplens.common.options import ProfilerActivity

#: name of the range around a step
STEP_PREFIX = "ProfilerStep#"

_WORK_PATH = "ASCEND_WORK_PATH"


class _KinetoProfile(ExportMethods):
    """Records everything between :meth:`start` and :meth:`stop`, without steps.

    Args:
        activities: what to record, members of ``ProfilerActivity``; everything supported by default.
        record_shapes: shapes and types of operator inputs.
        profile_memory: every allocation and release of tensor memory.
        with_stack: Python calls and operator call stacks.
        with_flops: estimated floating point operations of operators.
        with_modules: which ``nn.Module`` an operator was called from.
        experimental_config: extended options.
        custom_trace_id_callback: returns the id of a window.
        stack_sampling_hz: how often a second the Python stacks of all threads are sampled; 0: never.
    """

    _budget: Budget | None = None
    #: nothing is recorded, because there is no folder for it; this was said at the start
    off = False

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: _ExperimentalConfig | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        stack_sampling_hz: float = 0.0,
    ) -> None:
        self._prepare_windows(options.call_arguments(locals()))

    def _prepare_windows(self, arguments: dict[str, Any]) -> None:
        self._health = Health()
        self._lock = threading.RLock()
        self._metadata = metadata.UserMetadata()
        self._running = False
        self._enabled = False
        self._stop_requested = False
        # a function of the program runs that the profiler calls: its handler, its schedule
        self._inside = False
        self._process = os.getpid()
        self._temporary: Path | None = None
        self._session: KinetoSession
        self.step_num = 0
        try:
            self._apply_options(arguments)
            self._enabled = not profiler_environment.disabled_by_environment()
        except Exception as exception:  # the boundary to the training
            self._health.report_failure(type(self).__name__, exception)

    def _apply_options(self, arguments: dict[str, Any]) -> None:
        values, warnings = options.resolve_options(options.PROFILE, arguments)
        for warning in warnings:
            log.warning(warning)
        self._schedule: Callable[[int], Any] | None = values["schedule"]
        self._on_trace_ready: Callable[..., Any] | None = values["on_trace_ready"]
        self._observer: Any = values["execution_trace_observer"]
        self._trace_id_callback: Callable[[], str] | None = values["custom_trace_id_callback"]
        self._step_offset = 0
        self._step_range: Any = None
        self._action = ProfilerAction.NONE
        experimental = values["experimental_config"]
        if experimental is None:
            experimental = _ExperimentalConfig()
        elif not isinstance(experimental, _ExperimentalConfig):
            log.warning("Parameter experimental_config should be an _ExperimentalConfig, reset it to the default.")
            experimental = _ExperimentalConfig()
        activities = choose_activities(values["activities"], values["use_cuda"], self._health)
        if ProfilerActivity.CPU not in activities and experimental.gc_detect_threshold is not None:
            log.warning("gc_detect_threshold needs ProfilerActivity.CPU, no garbage collection is recorded.")
        on_npu = ProfilerActivity.NPU in activities
        if experimental.needs_npu and not on_npu:
            not_collected(", ".join(experimental.needs_npu), self._health)
        settings = RecordingSettings(
            activities=tuple(activities),
            experimental=experimental,
            schedule=_schedule_attributes(self._schedule),
            stack_sampling_hz=sampling_rate(values),
            **{name: values[name] for name in options.SWITCHES},
        )
        limits = Limits(**{name: values[name] for name in options.LIMITS})
        self._show_plan: bool = values["show_plan"]
        # where nothing will be recorded nothing is built
        by_recorder = not profiler_environment.disabled_by_environment() and uses_recorder(
            settings, self._health, observes=self._observer is not None
        )
        session_type = KinetoSession
        if by_recorder:
            session_type = DeviceRecorderSession if ProfilerActivity.CUDA in activities else RecorderSession
        session = session_type(
            settings,
            parent=self._run_parent_directory,
            worker_name=getattr(self._on_trace_ready, "worker_name", None) or ProfPathCreator.worker_name,
            user_metadata=self._metadata,
            new_trace_id=lambda: metadata.trace_id(self._trace_id_callback),
            health=self._health,
            device=frameworks.device_session(settings, self._health) if on_npu else None,
            probes=self._show_plan,
            max_bytes=limits.max_bytes,
            close_range=self._close_range,
        )
        self._session = session
        self._budget = Budget(limits, session.size) if limits else None
        # the window was ended early, and the schedule has not come to its end yet
        self._cut_short = False
        # the window in which a step of another thread was not counted
        self._skipped_in: Any = None
        self._range_type: Any = importlib.import_module("torch.autograd.profiler").record_function
        self._controller = ActionController(
            {
                actions.WARN: self._report_schedule_problem,
                actions.INIT: self._init_trace,
                actions.WARM: session.warmup_trace,
                actions.START: self._start_trace,
                actions.STOP: self._stop_trace,
                actions.FINALIZE: session.finalize_trace,
                actions.READY: self._trace_ready,
                actions.DELETE: session.delete_prof_dir,
            },
            self._health.report_failure,
        )

    def _run_parent_directory(self) -> Path:
        """The folder for run directories, by the handler, the environment or the current directory, in this order."""
        handler_folder = getattr(self._on_trace_ready, "dir_name", None)
        if handler_folder:
            return Path(handler_folder)
        if (folder := ProfPathCreator.folder) is not None and self._on_trace_ready is not None:
            return folder
        work_path = os.environ.get(_WORK_PATH)
        if work_path:
            return rundir.absolute_path(work_path) / "profiling_data"
        if self._on_trace_ready is not None:
            return Path.cwd()
        # Nobody asked for a result folder: the data only lives until this object is gone.
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="steplens_"))
        return self._temporary

    # --- the interface

    @never_raise
    def start(self) -> None:
        """Begin: with a schedule at its step 0, else recording at once."""
        with self._lock:
            if self._called_inside("start"):
                return
            self._finish_requested_stop()
            if not self._enabled:
                return
            if self._running:
                log.warning("start() has no effect, the profiler is already running.")
                return
            self.off = self._say_unusable_folder()
            if self.off:
                return
            handler.finish_at_exit(self)
            try:
                with interrupts.hold_signals():
                    self._start()
            except BaseException as error:  # goes on: nothing is left open first
                if not isinstance(error, Exception) or interrupts.of_the_program(error):
                    # a with block that was not entered is not left either
                    self._stop_recording()
                raise

    def _say_unusable_folder(self) -> bool:
        """Say why nothing can be written where run directories go; whether that is so."""
        try:
            unusable = rundir.why_unusable(self._run_parent_directory())
            reason = " ".join(map(str, unusable)) if unusable is not None else ""
        except OSError as error:
            reason = f"no folder can be made for what is recorded ({error.strerror or error})"
        if reason:
            log.error(f"Nothing is recorded, the training goes on: {reason}.")
        return bool(reason)

    def _start(self) -> None:
        self._running = True
        child_threads.profiler_starts()
        backward.watch_backward()
        if self._session.settings.experimental.data_loader:
            self._guarded("data_loader", loader.profiler_starts)
        self._stop_requested = False
        self.step_num = 0
        self._session.step = self._step_offset
        self._session.ended_step = self._step_offset - 1
        action = self._asked = self._next_action(0)
        if self._observer is not None:
            self._guarded("execution_trace_observer.start", self._observer.start)
        self._cut_short = False
        if self._show_plan:
            log.info(f"The profiler {describe_schedule(self._schedule, self._step_offset, self._session.size.bytes_per_step)}.")
        self._transit(ProfilerAction.NONE, action)
        self._open_step()
        if self._budget is not None:
            self._budget.step_begins()

    @never_raise
    def stop(self) -> None:
        """End, and close the window that is open. Safe from any thread.

        Kineto can only be stopped by the thread that started it. From another thread, recording ends when
        that thread next calls :meth:`step`, :meth:`start` or :meth:`stop`, or when the program ends. From a hook
        of a gradient, recording ends when the backward pass is over, unless it began in the same pass. From a handler or a
        schedule, which :meth:`step` calls, it ends with that call.
        """
        if not self._running or os.getpid() != self._process:
            return
        window = self._session.window
        if window is not None and window.recording and backward.is_running() and backward.backward_number() != window.began_in:
            backward.call_after_backward(self.stop)
            return
        if self._session.recorded_elsewhere:
            self._stop_requested = True
            message = "stop() was called from another thread than start(): recording ends at the next step()."
            self._health.report("late_stop", WARNING, message)
            return
        with self._lock:
            if self._inside:
                self._stop_requested = True
            else:
                self._stop_recording()

    def _stop_recording(self) -> None:
        if not self._running:
            return
        with interrupts.hold_signals():
            self._running = False
            self._stop_requested = False
            try:
                self._end_recording()
            except BaseException:
                # what an interrupt has left to do is done at the end of the program
                self._running = self._session.window is not None
                raise

    def _end_recording(self) -> None:
        child_threads.profiler_stops()
        self._close_step()
        self._session.ended_step = self.step_num + self._step_offset
        try:
            self._transit(self._action, None)
        finally:
            if self._session.settings.experimental.data_loader:
                self._guarded("data_loader", loader.profiler_stops)
            if self._observer is not None:
                self._guarded("execution_trace_observer.stop", self._observer.stop)

    def _transit(self, previous: ProfilerAction, following: ProfilerAction | None) -> None:
        """Do what has to be done between two steps; None: behind the last one."""
        window, action = self._session.window, ProfilerAction.NONE if following is None else following
        self._inside = True
        try:
            self._controller.transit(previous, following)
            if self._stop_requested and self._session.window is None:
                action = ProfilerAction.NONE
        except BaseException:  # goes on: the window is left in a state that can be closed first
            if interrupts.is_abandoned():
                self._session.give_up()
            if window is not None and window is self._session.window and following not in RECORDING:
                # stop() closes what an interrupt has left open
                action = previous
            raise
        finally:
            self._inside = False
            self._action = action

    @never_raise
    def add_metadata(self, key: str, value: str) -> None:
        """Add a text to the metadata of the windows that are closed after this.

        Args:
            key: at most 4096 characters.
            value: at most 4096 characters; all metadata together stays below 50 KiB.
        """
        self._metadata.add(key, value)

    @never_raise
    def add_metadata_json(self, key: str, value: str) -> None:
        """Add a value, given as JSON text, to the metadata of the windows that are closed after this.

        Args:
            key: at most 4096 characters.
            value: JSON, at most 4096 characters; all metadata together stays below 50 KiB.
        """
        self._metadata.add(key, value, is_json=True)

    @never_raise
    def preset_metadata_json(self, key: str, value: str) -> None:
        """Add a value, given as JSON text, before the window opens; as in ``torch.profiler``, it is also in Kineto's trace.

        Args:
            key: at most 4096 characters.
            value: JSON, at most 4096 characters; all metadata together stays below 50 KiB.
        """
        name = plain_text(key)
        self._metadata.add(name, value, is_json=True)
        if name is not None:
            self._session.preset[name] = self._metadata.entries.get(name)

    @never_raise
    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[Any]) -> None:
        """Begin or cease to collect activities while a window is open.

        Args:
            enable: whether they are collected from here on.
            activities: members of ``ProfilerActivity``, ours or those of ``torch.profiler``.
        """
        self._session.toggle_collection(enable, [str(activity).rpartition(".")[2] for activity in activities])

    @never_raise
    def set_custom_trace_id_callback(self, callback: Callable[[], str] | None) -> None:
        """Set what returns the id of a window; it is asked when a window opens."""
        self._trace_id_callback, warning = options.find_option(options.PROFILE, "custom_trace_id_callback").accept(callback)
        if warning:
            log.warning(warning)

    @never_raise
    def get_trace_id(self) -> str | None:
        """The id of the open window, else of the last one; None before the first."""
        if not self._enabled:
            return None
        window = self._session.window or self._session.closed
        return window.trace_id if window is not None else None

    # --- for handlers

    def _relocate(self, parent: Path) -> None:
        self._session.relocate(parent)

    def _closed_window(self) -> Any:
        return self._session.closed

    # --- inside

    def _next_action(self, step: int) -> ProfilerAction:
        if self._schedule is None:
            return ProfilerAction.RECORD
        try:
            self._inside = True
            return actions.to_action(self._schedule(step))
        finally:
            self._inside = False

    def _called_inside(self, method: str) -> bool:
        """Whether a method is called by what the profiler itself calls, in the middle of a step; says so."""
        if self._inside:
            log.warning(f"{method}() has no effect in a function that the profiler calls, such as on_trace_ready.")
        return self._inside

    def _open_step(self) -> None:
        if self._schedule is not None:
            if self._session.may_open_range():
                self._step_range = self._range_type(f"{STEP_PREFIX}{self.step_num + self._step_offset}")
                self._step_range.__enter__()
            self._session.mark_step(self.step_num + self._step_offset)

    def _close_step(self) -> None:
        opened, self._step_range = self._step_range, None
        if self._schedule is not None:
            self._session.mark_step(None)
        if opened is not None:
            opened.__exit__(None, None, None)

    def _close_range(self) -> None:
        """End the range of the step, which goes on without one."""
        opened, self._step_range = self._step_range, None
        if opened is not None:
            opened.__exit__(None, None, None)

    def _finish_requested_stop(self) -> bool:
        """Stop if that was asked for where it could not be done; whether it was."""
        requested = self._stop_requested
        if requested:
            self._stop_recording()
        return requested

    def _init_trace(self) -> None:
        # a handler that stops the profiler wants no other window
        if not self._stop_requested:
            self._session.init_trace()

    def _start_trace(self) -> None:
        self._session.start_trace()
        if self._budget is not None:
            self._budget.window_opens()
        if self._show_plan and self._session.size.bytes_per_step is not None:
            self._show_plan = False
            free = size_text(rundir.free_bytes(self._run_parent_directory()))
            plan = describe_schedule(self._schedule, self._step_offset, self._session.size.bytes_per_step)
            log.info(f"The profiler {plan}; {free} are free.")

    def _stop_trace(self) -> None:
        if self._budget is not None and (unjudged := self._budget.unjudged()):
            self._health.add("budget", INFO, unjudged)
        self._session.stop_trace()

    def _trace_ready(self) -> None:
        window = self._session.closed
        if self._on_trace_ready is None or window is None or window.saving.handed_over:
            return
        window.saving.handed_over = True
        try:
            self._on_trace_ready(self)
        except Exception as exception:  # the boundary to the program's handler
            if interrupts.of_the_program(exception):
                raise
            self._health.report_failure("on_trace_ready", exception)
            self._session.add_late_findings()

    def _report_schedule_problem(self, message: str) -> None:
        # Without a schedule there is no plan to be shorter than: every recording ends like this.
        if self._schedule is not None:
            if message.startswith(actions.STOPPED_INSIDE):
                self._health.report("stopped_inside_step", WARNING, message, unsafe="averages over steps")
            else:
                self._health.report("schedule", WARNING, message)

    def _guarded(self, name: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as exception:  # the boundary to what the profiler calls beside Kineto
            self._health.report_failure(name, exception)

    def _end_of_program(self) -> None:
        if os.getpid() == self._process and self._running:
            self._stop_requested = False
            self.stop()

    def _remove_temporary(self) -> None:
        temporary = getattr(self, "_temporary", None)
        # A forked worker has a copy of this object, but the folder is not its.
        if temporary is not None and os.getpid() == self._process:
            self._temporary = None
            shutil.rmtree(temporary, ignore_errors=True)

    def __del__(self) -> None:
        self._remove_temporary()


def _schedule_attributes(schedule: Callable[[int], Any] | None) -> dict[str, Any] | None:
    """The attributes of a schedule that JSON can hold; a plain function has none."""
    if schedule is None:
        return None
    attributes = getattr(schedule, "__dict__", {})
    return {name: value for name, value in attributes.items() if isinstance(value, bool | int | float | str)}
