"""Windows that steplens' own recorder fills: what runs on the host, at a fraction of what Kineto takes.

It records every thread, streams to the run directory while the window is open, so that a process that is killed keeps what it
has recorded, and is in nobody's way: the program may use ``torch.profiler`` at the same time. What it does not record, such as
devices, is left to Kineto: see ``why_not_recorder``.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from steplens.collect.common import clock, log
from steplens.collect.common.health import INFO, Health
from steplens.collect.common.recording_settings import RecordingSettings
from steplens.collect.pytorch.kineto import KinetoSession
from steplens.collect.pytorch.window import Window, WindowState
from steplens.collect.recorder import python_calls, recorder_library
from steplens.collect.recorder.recorder_library import (
    ON,
    WITH_FLOPS,
    WITH_MEMORY,
    WITH_PYTHON,
    WITH_SHAPES,
    RecorderError,
    RecordingTotals,
)
from steplens.collect.torch_internals import child_threads, other_profilers
from steplens.common import rundir
from steplens.common.options import ProfilerActivity


def uses_recorder(settings: RecordingSettings, health: Health) -> bool:
    """Whether the recorder records, by what is wanted and what the environment says of it; it is built where it is not yet.

    Args:
        settings: what is to be recorded.
        health: gets why Kineto records where the recorder was asked for.
    """
    if recorder_library.wanted_recorder() != ON:
        return False
    reason = why_not_recorder(settings)
    if not reason:
        if not recorder_library.is_built():
            log.info("The recorder is built for this PyTorch, once; that takes some ten seconds.")
        try:
            recorder_library.load_recorder()
            return True
        except RecorderError as error:
            reason = str(error)
    message = f"Kineto records in place of the recorder that {recorder_library.VARIABLE}=on asks for: {reason}."
    log.warning(message)
    health.add("not_collected", INFO, message)
    return False


def why_not_recorder(settings: RecordingSettings) -> str:
    """What of ``settings`` the recorder does not record; empty where it records all of it."""
    if tuple(settings.activities) != (ProfilerActivity.CPU,):
        return "it records the host alone, and a device is to be recorded"
    if settings.with_stack and settings.categorises_memory:
        return "with_stack=True with record_shapes and profile_memory asks for what memory is used for, which it does not record"
    return python_calls.why_not_recorded() if settings.with_stack else ""


class RecorderSession(KinetoSession):
    """Opens and closes windows as the session does that it is of, with the recorder in place of Kineto."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # what a window costs is known without a trial: its file grows while it is recorded
        super().__init__(*arguments, **{**options, "probes": False})

    def warmup_trace(self) -> None:
        """The recorder has nothing to prepare."""
        if self.window is not None:
            self._prepare_window(self.window)

    def _is_prepared(self, window: Window) -> bool:
        return window.threads is not None

    def _prepare_window(self, window: Window) -> None:
        thread_options = {**self.settings.switches, "cpu": True}
        window.threads = child_threads.Joinable(thread_options, self._health, all_threads=True)
        window.state = WindowState.OPEN

    def _begin_recording(self, window: Window) -> None:
        switches = {
            "record_shapes": WITH_SHAPES,
            "profile_memory": WITH_MEMORY,
            "with_flops": WITH_FLOPS,
            "with_stack": WITH_PYTHON,
        }
        options = sum(option for name, option in switches.items() if self.settings.switches.get(name))
        path = window.run_directory / rundir.RAW_DIRECTORY / rundir.RAW_OPERATORS
        # for a process that is killed: else it is written beside the file when the window closes
        if self.settings.with_stack:
            child_threads.lose_control()
        about_window = {"config": self.settings.recorded(), "host_name": socket.gethostname(), "rank": window.rank}
        recorder_library.start_recorder(path, options, {**about_window, **self._recorded_metadata()})

    def _describe_in_trace(self) -> None:
        # its file begins with that
        pass

    def may_open_range(self) -> bool:
        """Whether a range may stay open until the next step: not while a profiler of the program may end inside of it."""
        return (
            super().may_open_range()
            if self.window is None or not self.window.recording
            else not other_profilers.another_is_recording()
        )

    @property
    def recorded_elsewhere(self) -> bool:
        """Any thread may end a window."""
        return False

    def _end_recording(self, window: Window) -> None:
        window.held = True
        child_threads.close_window(window.threads, recorder_library.stop_recorder)

    def _has_result(self, window: Window) -> bool:
        return window.process == os.getpid()

    def _is_saved(self, window: Window) -> bool:
        return window.saving.outcome == rundir.STATE_COLLECTED and rundir.raw_recording(window.run_directory) is not None

    def _finish_recording(self, window: Window) -> RecordingTotals:
        """Wait for what is on its way to the disk, once; another window can record from then on."""
        if window.totals is None:
            begin = clock.monotonic_ns()
            window.totals = recorder_library.finish_recorder(self._recorded_metadata())
            window.counters["save_ns"] = clock.monotonic_ns() - begin
            window.counters["trace_bytes"] = window.totals.file_bytes
        totals: RecordingTotals = window.totals
        return totals

    def _save_trace(self, window: Window) -> None:
        totals = self._finish_recording(window)
        if totals.error_number:
            raise OSError(totals.error_number, f"the recorder could not write all of it ({os.strerror(totals.error_number)})")
        lost = totals.dropped_calls + totals.dropped_memory_events + totals.dropped_python_calls
        if lost:
            # what that makes doubtful is said by whoever reads the file, which knows of it
            records = lost + totals.calls + totals.memory_events + totals.python_calls
            log.warning(f"{lost} of {records} records were lost: they came faster than they could be written.")
        if threads := totals.refused_python_threads + totals.lost_python_threads:
            log.warning(f"A profiler of the program (sys.setprofile) had {threads} threads, whose calls of Python are missing.")
        has_steps = self.settings.schedule is not None and window.span.last_step is not None
        self.size.window_saved(totals.file_bytes, (window.span.last_step or 0) - window.span.first_step + 1 if has_steps else 0)
        self._expected_bytes = totals.file_bytes

    def _abandon_recording(self, window: Window) -> None:
        child_threads.close_window(window.threads, recorder_library.stop_recorder)
        self._finish_recording(window)

    def _cancel_warmup(self, window: Window) -> None:
        window.threads = None
