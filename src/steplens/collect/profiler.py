"""The profiler objects that scripts use. Nothing here raises into training."""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from steplens import options
from steplens.collect import child_threads, handler, log, metadata, support
from steplens.collect.actions import INIT, READY, START, WARM, WARN, ActionController, ProfilerAction, to_action
from steplens.collect.activities import choose_activities, not_collected
from steplens.collect.ascend import pytorch
from steplens.collect.experimental import _ExperimentalConfig
from steplens.collect.exporting import Exporting
from steplens.collect.harmless import harmless
from steplens.collect.health import ERROR, WARNING, Health
from steplens.collect.kineto import KinetoSession, Recording
from steplens.options import ProfilerActivity

#: name of the range around a step
STEP_PREFIX = "ProfilerStep#"

_WORK_PATH = "ASCEND_WORK_PATH"


class _KinetoProfile(Exporting):
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
    """

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
    ) -> None:
        self._prepare(
            {
                "activities": activities,
                "record_shapes": record_shapes,
                "profile_memory": profile_memory,
                "with_stack": with_stack,
                "with_flops": with_flops,
                "with_modules": with_modules,
                "experimental_config": experimental_config,
                "custom_trace_id_callback": custom_trace_id_callback,
            }
        )

    def _prepare(self, given: dict[str, Any]) -> None:
        self._health = Health()
        self._lock = threading.RLock()
        self._metadata = metadata.UserMetadata()
        self._running = False
        self._enabled = False
        self._stop_requested = False
        self._process = os.getpid()
        self._temporary: Path | None = None
        self._session: KinetoSession
        self.step_num = 0
        try:
            self._configure(given)
            self._enabled = not support.disabled_by_environment()
        except Exception as exception:
            self._call_failed(type(self).__name__, exception)

    def _configure(self, given: dict[str, Any]) -> None:
        values, warnings = options.resolve(options.PROFILE, given)
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
        unserved = [name for name in experimental.needs_npu if not on_npu or name in pytorch.NOT_COLLECTED]
        if unserved:
            not_collected(", ".join(unserved), self._health)
        recording = Recording(
            activities=tuple(activities),
            record_shapes=values["record_shapes"],
            profile_memory=values["profile_memory"],
            with_stack=values["with_stack"],
            with_flops=values["with_flops"],
            with_modules=values["with_modules"],
            experimental=experimental,
            schedule=_attributes(self._schedule),
        )
        session = KinetoSession(
            recording,
            parent=self._parent,
            worker_name=getattr(self._on_trace_ready, "worker_name", None),
            user_metadata=self._metadata,
            new_trace_id=lambda: metadata.trace_id(self._trace_id_callback),
            health=self._health,
            device=pytorch.device_session(recording, self._health) if on_npu else None,
        )
        self._session = session
        self._range_type: Any = importlib.import_module("torch.autograd.profiler").record_function
        self._controller = ActionController(
            {
                WARN: self._incorrect,
                INIT: session.init_trace,
                WARM: session.warmup_trace,
                START: session.start_trace,
                "stop_trace": session.stop_trace,
                "finalize_trace": session.finalize_trace,
                READY: self._trace_ready,
                "delete_prof_dir": session.delete_prof_dir,
            },
            self._call_failed,
        )

    def _parent(self) -> Path:
        """The folder for run directories, by the handler, the environment or the current directory, in this order."""
        chosen = getattr(self._on_trace_ready, "dir_name", None)
        if chosen:
            return Path(chosen)
        work_path = os.environ.get(_WORK_PATH)
        if work_path:
            return Path(work_path).expanduser().absolute() / "profiling_data"
        if self._on_trace_ready is not None:
            return Path.cwd()
        # Nobody asked for a result folder: the data only lives until this object is gone.
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="steplens_"))
        return self._temporary

    # --- the interface

    @harmless
    def start(self) -> None:
        """Begin: with a schedule at its step 0, else recording at once."""
        with self._lock:
            self._finish_requested_stop()
            if not self._enabled:
                return
            if self._running:
                log.warning("start() has no effect, the profiler is already running.")
                return
            _finish_at_exit(self)
            self._running = True
            child_threads.profiler_starts()
            self._stop_requested = False
            self.step_num = 0
            self._session.step = self._step_offset
            self._action = self._next_action(0)
            if self._observer is not None:
                self._guarded("execution_trace_observer.start", self._observer.start)
            self._controller.transit(ProfilerAction.NONE, self._action)
            self._open_step()

    @harmless
    def stop(self) -> None:
        """End, and close the window that is open. Safe from any thread.

        Kineto can only be stopped by the thread that started it. From another thread, recording ends when
        that thread next calls :meth:`step`, :meth:`start` or :meth:`stop`, or when the program ends.
        """
        if not self._running or os.getpid() != self._process:
            return
        window = self._session.window
        if window is not None and window.recording and window.owner != threading.get_ident():
            self._stop_requested = True
            message = "stop() was called from another thread than start(): recording ends at the next step()."
            log.warning(message)
            self._health.add("late_stop", WARNING, message)
            return
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        if not self._running:
            return
        self._running = False
        self._stop_requested = False
        child_threads.profiler_stops()
        self._close_step()
        self._session.ended_step = self.step_num + self._step_offset
        self._controller.transit(self._action, None)
        self._action = ProfilerAction.NONE
        if self._observer is not None:
            self._guarded("execution_trace_observer.stop", self._observer.stop)

    @harmless
    def add_metadata(self, key: str, value: str) -> None:
        """Add a text to the metadata of the windows that are closed after this.

        Args:
            key: at most 4096 characters.
            value: at most 4096 characters; all metadata together stays below 50 KiB.
        """
        self._metadata.add(key, value)

    @harmless
    def add_metadata_json(self, key: str, value: str) -> None:
        """Add a value, given as JSON text, to the metadata of the windows that are closed after this.

        Args:
            key: at most 4096 characters.
            value: JSON, at most 4096 characters; all metadata together stays below 50 KiB.
        """
        self._metadata.add(key, value, is_json=True)

    @harmless
    def set_custom_trace_id_callback(self, callback: Callable[[], str] | None) -> None:
        """Set what returns the id of a window; it is asked when a window opens."""
        self._trace_id_callback, warning = next(
            option for option in options.options(options.PROFILE) if option.name == "custom_trace_id_callback"
        ).accept(callback)
        if warning:
            log.warning(warning)

    @harmless
    def get_trace_id(self) -> str | None:
        """The id of the open window, else of the last one; None before the first."""
        if not self._enabled:
            return None
        window = self._session.window or self._session.closed
        return window.trace_id if window is not None else None

    # --- for handlers

    @property
    def run_directory(self) -> Path | None:
        """The run directory of the last window whose raw data is safe; None before the first."""
        return self._collected_run() if self._enabled else None

    def _collected_run(self) -> Path | None:
        return self._session.collected_run()

    def _relocate(self, parent: Path) -> None:
        self._session.relocate(parent)

    # --- inside

    def _next_action(self, step: int) -> ProfilerAction:
        return ProfilerAction.RECORD if self._schedule is None else to_action(self._schedule(step))

    def _open_step(self) -> None:
        if self._schedule is not None:
            self._step_range = self._range_type(f"{STEP_PREFIX}{self.step_num + self._step_offset}")
            self._step_range.__enter__()
            self._session.mark_step(self.step_num + self._step_offset)

    def _close_step(self) -> None:
        opened, self._step_range = self._step_range, None
        if opened is not None:
            self._session.mark_step(None)
            opened.__exit__(None, None, None)

    def _finish_requested_stop(self) -> None:
        if self._stop_requested:
            self._stop()

    def _trace_ready(self) -> None:
        if self._on_trace_ready is None or self._session.closed is None:
            return
        try:
            self._on_trace_ready(self)
        except Exception as exception:
            self._call_failed("on_trace_ready", exception)
            self._session.add_late_findings()

    def _incorrect(self, message: str) -> None:
        # Without a schedule there is no plan to be shorter than: every recording ends like this.
        if self._schedule is not None:
            log.warning(message)
            self._health.add("schedule", WARNING, message)

    def _guarded(self, name: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as exception:
            self._call_failed(name, exception)

    def _call_failed(self, name: str, exception: BaseException) -> None:
        log.failed(name, exception)
        self._health.add("call_failed", ERROR, f"{name} failed: {type(exception).__name__}: {exception}", unsafe="everything")

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
    ) -> None:
        self._prepare(
            {
                "activities": activities,
                "schedule": schedule,
                "on_trace_ready": on_trace_ready,
                "record_shapes": record_shapes,
                "profile_memory": profile_memory,
                "with_stack": with_stack,
                "with_flops": with_flops,
                "with_modules": with_modules,
                "experimental_config": experimental_config,
                "execution_trace_observer": execution_trace_observer,
                "custom_trace_id_callback": custom_trace_id_callback,
                "use_cuda": use_cuda,
            }
        )

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        if self._enabled and self._observer is not None and hasattr(self._observer, "cleanup"):
            self._guarded("execution_trace_observer.cleanup", self._observer.cleanup)

    @harmless
    def step(self) -> None:
        """Say that a training step has ended and the next one begins."""
        if not self._enabled or os.getpid() != self._process:
            return
        if not self._running:
            log.warning("step() has no effect, the profiler is not running.")
            return
        with self._lock:
            if self._stop_requested:
                self._finish_requested_stop()
                return
            self._close_step()
            previous = self._action
            self._session.ended_step = self.step_num + self._step_offset
            self._session.step = self._session.ended_step + 1
            try:
                self._action = self._next_action(self.step_num + 1)
            except Exception as exception:
                # A schedule that fails must not leave a window open for the rest of the training.
                self._action = ProfilerAction.NONE
                self._call_failed("schedule", exception)
            self.step_num += 1
            self._controller.transit(previous, self._action)
            self._open_step()

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
        wanted = {
            "record_shapes": record_shapes,
            "profile_memory": profile_memory,
            "with_stack": with_stack,
            "with_flops": with_flops,
            "with_modules": with_modules,
        }
        try:
            child_threads.enable(wanted)
        except Exception as exception:
            log.failed("enable_profiler_in_child_thread", exception)

    @classmethod
    def disable_profiler_in_child_thread(cls) -> None:
        """Take back :meth:`enable_profiler_in_child_thread` for the calling thread."""
        try:
            child_threads.disable()
        except Exception as exception:
            log.failed("disable_profiler_in_child_thread", exception)


def _attributes(schedule: Callable[[int], Any] | None) -> dict[str, Any] | None:
    """The attributes of a schedule that JSON can hold; a plain function has none."""
    if schedule is None:
        return None
    attributes = getattr(schedule, "__dict__", {})
    return {name: value for name, value in attributes.items() if isinstance(value, bool | int | float | str)}


#: profilers that were started, to be finished when the program ends
_started: weakref.WeakSet[_KinetoProfile] = weakref.WeakSet()


def _finish_at_exit(profiler: _KinetoProfile) -> None:
    if not _started:
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)
    _started.add(profiler)


def _at_exit() -> None:
    """Close windows that are still open, then wait for the analyses, then remove data nobody asked to keep."""
    profilers = list(_started)
    for profiler in profilers:
        profiler._end_of_program()
    handler.wait_for_analyses()
    for profiler in profilers:
        profiler._remove_temporary()
