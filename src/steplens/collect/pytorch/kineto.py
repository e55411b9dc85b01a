"""One recording session after the other with Kineto, PyTorch's own tracer, each into its own run directory.

Kineto records in C++ and saves in C++; its result is never turned into Python objects, which would cost
many times the recording itself.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steplens.collect.ascend import operator_arguments
from steplens.collect.ascend.device_session import DeviceSession
from steplens.collect.common import clock, exception_text, log, metadata, processor_times
from steplens.collect.common.health import ERROR, WARNING, Health
from steplens.collect.common.recording_settings import RecordingSettings
from steplens.collect.pytorch import saving
from steplens.collect.pytorch.kineto_arguments import KinetoArguments
from steplens.collect.pytorch.schedule_text import size_text
from steplens.collect.pytorch.trace_size import KinetoProbe, SizeProbe, TraceSize
from steplens.collect.pytorch.window import Span, SpareFiles, Window, WindowState
from steplens.collect.pytorch.window_recorders import WindowRecorders
from steplens.collect.torch_internals import backward, child_threads, kineto_messages, other_profilers
from steplens.common import json_text, partial, rundir
from steplens.common.options import ProfilerActivity

#: A window that did not end well: its raw data is not complete on disk.
STATE_FAILED = "failed"

#: Free space that a save should find when nothing better is known.
_LEAST_FREE_BYTES = 16 << 20

#: Results are kept after saving up to this size of the trace: they take about 7 times as much memory as it has bytes,
#: and telling what memory was used for takes a minute.
KEPT_TRACE_BYTES = 64 << 20


class KinetoSession(KinetoArguments):
    """Opens and closes windows. Its methods are the calls of the action table; they raise, the caller reports.

    Args:
        settings: what to record.
        parent: returns the folder for run directories; asked when a window opens.
        worker_name: first part of a run directory's name.
        user_metadata: what the user adds to every window.
        new_trace_id: returns the id of a new window.
        health: gets what goes wrong.
        device: records the NPU beside Kineto; None where there is none to record.
        probes: record the steps of the warmup too, and throw them away, to tell how large the window becomes.
        max_bytes: what a trace should not be larger than; said if it is.
        close_range: ends the range of the step that runs, if one is open.
    """

    _keeps_spare_files = True
    #: what Kineto's file is called in the folder of the raw data
    _kineto_file = rundir.RAW_TRACE
    #: what ranges around modules are made of; None for those of PyTorch that Kineto sees
    _range_type: Callable[[str], Any] | None = None

    def __init__(
        self,
        settings: RecordingSettings,
        *,
        parent: Callable[[], Path],
        worker_name: str | None,
        user_metadata: metadata.UserMetadata,
        new_trace_id: Callable[[], str],
        health: Health,
        device: DeviceSession | None = None,
        probes: bool = False,
        max_bytes: int | None = None,
        close_range: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self._parent = parent
        self._worker_name = worker_name
        self._user_metadata = user_metadata
        self._new_trace_id = new_trace_id
        self._health = health
        self._device = device
        self._probes = probes and device is None and ProfilerActivity.CUDA not in settings.activities
        self._probe: SizeProbe | None = None
        self._max_bytes = max_bytes
        self._close_range = close_range
        self._expected_bytes: int | None = None
        self.size: TraceSize = TraceSize(settings)
        #: what Kineto's trace gets when a window opens, by key
        self.preset: dict[str, Any] = {}
        #: the step that runs, and the last one that has ended or been cut short
        self.step = 0
        self.ended_step = -1
        self.window: Window | None = None
        #: the last window that was closed
        self.closed: Window | None = None

    # --- the calls of the action table

    def init_trace(self) -> None:
        """Open a window: create its run directory and say in it that the window is open."""
        self.window = self.closed = None
        (now, monotonic), parent = clock.both_ns(), self._parent()
        if not self._has_room(parent):
            return
        directory = self._new_directory(parent)
        try:
            self._open_window(directory, now, monotonic)
        except BaseException:
            # what it would say of itself is that the window is open
            self.window = None
            rundir.remove_new(directory)
            raise

    def _open_window(self, directory: Path, now: int, monotonic: int) -> None:
        window = Window(
            run_directory=directory,
            span=Span(self.step, now, monotonic),
            trace_id=self._new_trace_id(),
            rank=metadata.process_rank(),
            process=os.getpid(),
            thread=threading.current_thread(),
        )
        self._write_state(window, rundir.STATE_RECORDING, [])
        window.saving.spare = SpareFiles() if self._keeps_spare_files else None
        raw = window.run_directory / rundir.RAW_DIRECTORY
        window.recorders = WindowRecorders(
            self.settings, raw, self._health, samples_host=self._device is None, range_type=self._range_type
        )
        self.window = window
        if self._device is not None:
            self._device.open(window.run_directory)

    def warmup_trace(self) -> None:
        """Let Kineto allocate its buffers and start its devices, without keeping what they deliver."""
        window = self.window
        if window is None:
            return
        if self._probes and not self.size.measured and not other_profilers.another_is_recording():
            self._probe = KinetoProbe(self._new_kineto(window), self.size, self.step)
        else:
            self._prepare_window(window)
        if self._device is not None:
            self._device.warm_up()

    def end_probe(self) -> None:
        """End the recording of the warmup, if there is one."""
        if self._probe is not None:
            probe, self._probe = self._probe, None
            probe.end(self.step)

    def _is_prepared(self, window: Window) -> bool:
        """Whether recording may begin in a window."""
        return window.kineto is not None

    def _prepare_window(self, window: Window) -> None:
        window.state = WindowState.FAILED
        child_threads.end_abandoned_windows()
        begin = clock.monotonic_ns()
        window.kineto = self._new_kineto(window)
        kineto_messages.prepare_recording(window.kineto)
        window.counters["prepare_ns"] = clock.monotonic_ns() - begin
        window.state = WindowState.OPEN

    def start_trace(self) -> None:
        """Begin to record."""
        window = self.window
        # What failed before has been reported; the training goes on without this window.
        if window is None or window.failed:
            return
        self.end_probe()
        if not self._is_prepared(window):
            self._prepare_window(window)
        if self.step != window.span.first_step:
            window.span.first_step = self.step
            # it is written again in the end
            with contextlib.suppress(OSError):
                self._write_state(window, rundir.STATE_RECORDING, [])
        # The NPU first: it records when this returns, so that no kernel of the first step is missed.
        self._call_device(window, "device_start_ns", DeviceSession.start)
        # between two steps: the last one has ended and the next one has not begun
        window.span.whole_steps = self.step > self.ended_step
        # The window begins here, not where warmup began.
        window.thread, window.began_in = threading.current_thread(), backward.backward_number()
        window.span.thread_times = processor_times.thread_times()
        window.span.start_ns, window.span.start_monotonic_ns = clock.both_ns()
        try:
            self._begin_recording(window)
        except Exception:  # the window says so, and the caller reports it
            window.state = WindowState.FAILED
            raise
        child_threads.open_window(window.threads)
        window.state = WindowState.RECORDING
        window.counters["enable_ns"] = clock.monotonic_ns() - window.span.start_monotonic_ns
        self._describe_in_trace()
        window.recorders.start()

    def _begin_recording(self, window: Window) -> None:
        """Let Kineto record from now on."""
        window.kineto._start_trace()
        self.size.window_opens()

    def may_open_range(self) -> bool:
        """Whether a range may stay open until the next step.

        PyTorch ends a range in the recording that it began in, and the program with it where that one is gone: another profiler
        of the process may change its window at any moment of a step.
        """
        window = self.window
        own_kineto = None if window is None else window.kineto
        return (window is not None and window.recording) or not other_profilers.another_is_recording(own_kineto)

    def mark_step(self, number: int | None) -> None:
        """The step of this number begins; None: the last one has ended."""
        if self.window is not None:
            self.window.recorders.step(number)

    def stop_trace(self) -> None:
        """End recording; the data is in memory still."""
        window = self.window
        if window is None or not window.recording:
            return
        try:
            self._stop_trace(window)
        except Exception:  # the window says so, and the caller reports it
            window.state = WindowState.STOPPED
            raise
        # not before: what an interrupt cuts off here is begun again
        window.state = WindowState.STOPPED

    def _stop_trace(self, window: Window) -> None:
        window.span.last_step = self.ended_step
        window.span.whole_steps &= self.step > self.ended_step
        window.recorders.stop()
        if self._device is not None:
            self._device.wait()
        window.span.end_ns, window.span.end_monotonic_ns = clock.both_ns()
        window.span.processor_time = processor_times.time_between(window.span.thread_times, processor_times.thread_times())
        self._end_recording(window)
        window.counters["stop_ns"] = clock.monotonic_ns() - window.span.end_monotonic_ns
        window.counters["thread_wait_ns"] = window.threads.waited_ns
        self._call_device(window, "device_stop_ns", DeviceSession.stop)

    def _end_recording(self, window: Window) -> None:
        """Take the result from Kineto."""
        kineto = window.kineto
        if window.held is None:
            window.held = window.can_be_ended()
        try:
            if kineto.kineto_results is None:
                child_threads.close_window(window.threads, functools.partial(kineto.__exit__, None, None, None))
        except Exception as exception:  # the window says why, and the caller reports it
            window.kineto, window.reason = None, f": {exception_text.text_of(exception)}"
            raise
        # PyTorch hands out an empty result where the recording is not this thread's, and to save that ends the program.
        if not window.held:
            window.kineto = None
            self._not_held(window)

    def finalize_trace(self) -> None:
        """Write everything to the run directory and close the window."""
        window = self.window
        if window is None:
            return
        self.closed = window
        if window.saving.spare is not None:
            window.saving.spare.give_back()
        try:
            self._finalize_window(window)
        except Exception:  # the window is closed anyway, and the caller reports it
            self.window = None
            raise
        # not before: what an interrupt cuts off here is begun again
        self.window = None

    def _finalize_window(self, window: Window) -> None:
        self.end_probe()
        self._call_device(window, "device_close_ns", DeviceSession.close)
        if not window.started:
            window.recorders.cancel()
            self._cancel_warmup(window)
            self._close_window(window, STATE_FAILED)
            return
        name = window.run_directory.name
        if not window.saving.outcome:
            try:
                if not self._has_result(window):
                    raise RuntimeError(f"it was given up when the window ended{window.reason}")
                self._save_trace(window)
                window.saving.outcome = rundir.STATE_COLLECTED
            except Exception as exception:  # the boundary to Kineto and the file system
                message = f"The raw data of {name} could not be saved: {exception_text.text_of(exception)}"
                self._health.report("save_failed", ERROR, message, unsafe="everything")
                window.saving.outcome = STATE_FAILED
                # and with it the file that Kineto keeps open, which may be what fills the disk
                window.kineto = None
        try:
            device = self._device.summary() if self._device is not None else None
            saving.write_side_files(window, self.settings, device, self._user_metadata, self._health)
        except Exception as exception:  # without these files the trace is still worth having
            reason = exception_text.text_of(exception)
            self._health.report("save_failed", ERROR, f"What belongs to the trace of {name} was not saved: {reason}")
        self._close_window(window, window.saving.outcome)
        # Kineto's result is as large as the trace itself.
        window.kineto = None

    def _has_result(self, window: Window) -> bool:
        """Whether what a window recorded is there to be saved."""
        return window.kineto is not None

    def _close_window(self, window: Window, state: str) -> None:
        """Say what became of a window, with everything that was found in it."""
        if window.saving.findings is None:
            window.saving.findings = self._health.take()
        self._write_state(window, state, window.saving.findings)

    def give_up(self) -> None:
        """Close the window that is open without its data, because an interrupt that came twice broke that off."""
        window, self.window = self.window, None
        if window is None:
            return
        self.closed = window
        saved = self._is_saved(window)
        what = "is on disk, but perhaps not all of what belongs to it" if saved else "is given up"
        message = f"The window that began at step {window.span.first_step} {what}: the program was interrupted twice meanwhile."
        log.error(message)
        self._health.add("save_failed", WARNING if saved else ERROR, message, unsafe="" if saved else "everything")
        if window.recording:
            window.state = WindowState.STOPPED
            with contextlib.suppress(Exception):
                self._abandon_recording(window)
        other_profilers.give_back_recording(window.kineto)
        window.kineto = None
        window.recorders.cancel()
        self._close_window(window, rundir.STATE_COLLECTED if saved else STATE_FAILED)

    def _is_saved(self, window: Window) -> bool:
        """Whether all that a window recorded is on disk."""
        return (window.run_directory / rundir.RAW_DIRECTORY / self._kineto_file).is_file()

    def _abandon_recording(self, window: Window) -> None:
        """End a recording whose result nobody will see."""
        if window.kineto is not None:
            child_threads.close_window(window.threads, functools.partial(window.kineto.__exit__, None, None, None))

    def delete_prof_dir(self) -> None:
        """Remove the run directory of a window in which nothing was recorded."""
        # A schedule may go from recording straight to warmup: then the last window is the recorded one, and stays.
        if self.closed is not None and not self.closed.started:
            shutil.rmtree(self.closed.run_directory, ignore_errors=True)
            self.closed = None

    # --- for the profiler object

    @property
    def recorded_elsewhere(self) -> bool:
        """Whether the window that is open records another thread, which alone can end it and still can."""
        window = self.window
        if window is None or not window.recording or window.can_be_ended():
            return False
        return window.thread is not threading.current_thread() and window.thread.is_alive()

    def collected_run(self) -> Path | None:
        """The run directory of the last window, if its raw data is safe."""
        return None if self.closed is None or not self._is_saved(self.closed) else self.closed.run_directory

    def relocate(self, parent: Path) -> None:
        """Move the last run directory below ``parent``; for a handler that is only known once the window is closed."""
        if self.closed is not None and self.closed.run_directory.parent != parent:
            rundir.make_directory(parent)
            arguments = operator_arguments.folder_of(self.closed.run_directory)
            if arguments.is_dir():
                shutil.move(arguments, parent / arguments.name)
            self.closed.run_directory = Path(shutil.move(self.closed.run_directory, parent / self.closed.run_directory.name))

    def add_late_findings(self) -> None:
        """Add findings that came up after the last window was closed to its state file."""
        if self.closed is None:
            return
        path = self.closed.run_directory / rundir.RAW_DIRECTORY / rundir.STATE_FILE
        state = json_text.loads(path.read_bytes())
        recorded = {json.dumps(finding, sort_keys=True) for finding in state["health"]}
        state["health"] += [item for item in self._health.take() if json.dumps(item, sort_keys=True) not in recorded]
        rundir.write_json(path, state)

    # --- inside

    def _new_directory(self, parent: Path) -> Path:
        """The run directory of a window that opens."""
        path = rundir.create_run_directory(parent, self._worker_name)
        rundir.make_directory(path / rundir.RAW_DIRECTORY)
        return path

    def give_way(self) -> None:
        """End or cancel the window that is open, because another profiler begins."""
        window = self.window
        if window is None or window.failed or (window.recording and not window.can_be_ended()):
            return
        message = "Another profiler of the program begins: "
        if window.recording:
            # it would end in the other recording, and PyTorch write to what this one has given back
            self._close_range()
            message += f"the window that began at step {window.span.first_step} ends here."
        elif window.kineto is not None and not window.started:
            other_profilers.give_back_recording(window.kineto)
            window.state, window.kineto = WindowState.FAILED, None
            message += "nothing is recorded in this window."
        else:
            return
        log.warning(message)
        severity, unsafe = (ERROR, "everything") if window.failed else (WARNING, "averages over steps")
        self._health.add("other_profiler", severity, message, unsafe=unsafe)
        self.stop_trace()
        if ProfilerActivity.CUDA in self.settings.activities and window.kineto is not None:
            # what a result holds of a GPU lies in buffers of Kineto, which the other recording clears; a failure is met again
            # when the window is closed
            with contextlib.suppress(OSError):
                self._write_kineto_file(window)

    def _call_device(self, window: Window, counter: str, call: Callable[[DeviceSession], Any]) -> None:
        """Let the device's session do something, where there is one, and count what that takes."""
        if self._device is not None:
            begin = clock.monotonic_ns()
            call(self._device)
            window.counters[counter] = clock.monotonic_ns() - begin

    def _not_held(self, window: Window) -> None:
        ended = not window.thread.is_alive()
        reason = "the thread in which it began has ended" if ended else "something else, such as another profiler, ended it"
        message = f"The window that began at step {window.span.first_step} is given up, because {reason}."
        self._health.report("save_failed", ERROR, message, unsafe="everything")

    def _cancel_warmup(self, window: Window) -> None:
        """Bring Kineto back from warmup to rest: it only does so through a recording."""
        if (
            window.kineto is not None
            and not window.failed
            and window.thread is threading.current_thread()
            and not other_profilers.another_is_recording(window.kineto)
        ):
            window.kineto._start_trace()
            window.kineto.__exit__(None, None, None)
        other_profilers.give_back_recording(window.kineto)
        window.kineto = None

    def _write_kineto_file(self, window: Window) -> int:
        """Write Kineto's result, once; its size in bytes. See ``saving.save_trace`` for what is raised."""
        target = window.run_directory / rundir.RAW_DIRECTORY / self._kineto_file
        begin = clock.monotonic_ns()
        window.saving.unfinished = window.saving.unfinished or partial.partial_path(target)
        size = saving.save_trace(window.kineto.kineto_results, window.saving.unfinished, target)
        window.counters["save_ns"] = window.counters.get("save_ns", 0) + clock.monotonic_ns() - begin
        return size

    def _save_trace(self, window: Window) -> None:
        """Write Kineto's result; see ``saving.save_trace`` for what is raised."""
        results = window.kineto.kineto_results
        size = window.counters["trace_bytes"] = self._write_kineto_file(window)
        # until the next window opens: whoever asks for categories of memory does so when this one is closed
        if self.settings.categorises_memory and size <= KEPT_TRACE_BYTES:
            window.results = results
        self._note_size(window, size)

    def _note_size(self, window: Window, size: int) -> None:
        """What the raw data of a window came to, in bytes: later ones are told and limited by that."""
        has_steps = self.settings.schedule is not None and window.span.last_step is not None
        self.size.window_saved(size, (window.span.last_step or 0) - window.span.first_step + 1 if has_steps else 0)
        self._expected_bytes = size
        if self._max_bytes is not None and size > self._max_bytes:
            message = f"The trace has {size} bytes, more than max_bytes={self._max_bytes}: its size was only estimated."
            self._health.report("budget", WARNING, message)

    def _has_room(self, parent: Path) -> bool:
        """Whether the disk has room for another window; says so if not."""
        free = rundir.free_bytes(parent)
        if self._expected_bytes is not None and free < self._expected_bytes:
            message = (
                f"Only {size_text(free)} are free in {parent} and the last window took {size_text(self._expected_bytes)}: "
                "nothing is recorded in this window."
            )
            self._health.report("disk_space", ERROR, message)
            return False
        if free < _LEAST_FREE_BYTES:
            self._health.report("disk_space", WARNING, f"Only {free >> 10} KiB are free in {parent}, saving may fail.")
        return True

    def _write_state(self, window: Window, state: str, health: list[dict[str, Any]]) -> None:
        value = {
            "state": state,
            "pid": window.process,
            "machine": partial.machine_identity(),
            "process_identity": metadata.process_identity(),
            "rank": window.rank,
            "first_step": window.span.first_step,
            "last_step": window.span.last_step,
            "whole_steps": window.span.whole_steps,
            "start_ns": window.span.start_ns,
            "health": health,
        }
        saving.write_state(window.run_directory / rundir.RAW_DIRECTORY / rundir.STATE_FILE, value)
