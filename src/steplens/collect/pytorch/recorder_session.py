"""Windows that steplens' own recorder fills: what runs on the host, at a fraction of what Kineto takes.

It records every thread, streams to the run directory while the window is open, so that a process that is killed keeps what it
has recorded, and is in nobody's way: the program may use ``torch.profiler`` at the same time. What it does not record, such as
devices, is left to Kineto: see ``recorder_choice``.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any

from steplens.collect.common import clock, log
from steplens.collect.pytorch.kineto import KinetoSession
from steplens.collect.pytorch.kineto_arguments import KinetoArguments
from steplens.collect.pytorch.trace_size import RecorderProbe, RecorderSize
from steplens.collect.pytorch.window import Window, WindowState
from steplens.collect.recorder import recorder_library
from steplens.collect.recorder.recorder_library import (
    WITH_FLOPS,
    WITH_MEMORY,
    WITH_PYTHON,
    WITH_SHAPES,
    RecordingTotals,
)
from steplens.collect.torch_internals import child_threads, other_profilers
from steplens.common import rundir


class RecorderFile(KinetoArguments):
    """Begins and completes the recorder's file of a window; a part of a session."""

    #: whether the recorder records memory
    _takes_memory = True

    def _record_operators(self, window: Window) -> None:
        """Record every thread into the run directory of a window; see ``start_recorder`` for what is raised."""
        path = window.run_directory / rundir.RAW_DIRECTORY / rundir.RAW_OPERATORS
        # for a process that is killed: else it is written beside the file when the window closes
        about_window = {"config": self.settings.recorded(), "host_name": socket.gethostname(), "rank": window.rank}
        self._start_recorder(path, {**about_window, **self._recorded_metadata()})

    def _start_recorder(self, path: Path, described: dict[str, Any]) -> None:
        switches = {"record_shapes": WITH_SHAPES, "with_flops": WITH_FLOPS, "with_stack": WITH_PYTHON}
        if self.settings.with_stack:
            child_threads.lose_control()
        if self._takes_memory:
            switches["profile_memory"] = WITH_MEMORY
        options = sum(option for name, option in switches.items() if self.settings.switches.get(name))
        recorder_library.start_recorder(path, options, described, stack_sampling_hz=self.settings.stack_sampling_hz)

    def _finish_recording(self, window: Window) -> RecordingTotals:
        """Wait for what is on its way to the disk, once; another window can record from then on."""
        if window.totals is None:
            begin = clock.monotonic_ns()
            try:
                window.totals = recorder_library.finish_recorder(self._recorded_metadata())
            except Exception:  # of what is added: it is worth less than the window, and than those after it
                window.totals = recorder_library.finish_recorder({})
            window.counters["save_ns"] = window.counters.get("save_ns", 0) + clock.monotonic_ns() - begin
        totals: RecordingTotals = window.totals
        return totals

    def _check_recording(self, totals: RecordingTotals) -> None:
        """Say what the recorder lost.

        Raises:
            OSError: it could not write all of it.
        """
        if totals.error_number:
            raise OSError(totals.error_number, f"the recorder could not write all of it ({os.strerror(totals.error_number)})")
        lost = totals.dropped_calls + totals.dropped_memory_events + totals.dropped_python_calls + totals.dropped_python_samples
        if lost:
            # what that makes doubtful is said by whoever reads the file, which knows of it
            records = lost + totals.calls + totals.memory_events + totals.python_calls + totals.python_samples
            log.warning(f"{lost} of {records} records were lost: they came faster than they could be written.")
        if threads := totals.refused_python_threads + totals.lost_python_threads:
            log.warning(f"A profiler of the program (sys.setprofile) had {threads} threads, whose calls of Python are missing.")


class RecorderSession(RecorderFile, KinetoSession):
    """Opens and closes windows as the session does that it is of, with the recorder in place of Kineto."""

    _range_type = recorder_library.RecorderRange

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.size = RecorderSize(self.settings)

    def warmup_trace(self) -> None:
        """The recorder has nothing to prepare; the warmup is recorded where its size is to be told."""
        window = self.window
        if window is None:
            return
        if self._probes and not self.size.measured:
            path = window.run_directory / rundir.RAW_DIRECTORY / f"warmup_{rundir.RAW_OPERATORS}"
            self._start_recorder(path, {})
            self._probe = RecorderProbe(path, self.size, self.step)
        else:
            self._prepare_window(window)

    def _is_prepared(self, window: Window) -> bool:
        return window.threads is not None

    def _prepare_window(self, window: Window) -> None:
        thread_options = {**self.settings.switches, "cpu": True}
        window.threads = child_threads.Joinable(thread_options, self._health, all_threads=True)
        window.ends_anywhere = True
        window.state = WindowState.OPEN

    def _begin_recording(self, window: Window) -> None:
        self._record_operators(window)
        self.size.window_opens()

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

    def _save_trace(self, window: Window) -> None:
        totals = self._finish_recording(window)
        window.counters["trace_bytes"] = totals.file_bytes
        self._check_recording(totals)
        self._note_size(window, totals.file_bytes)

    def give_up(self) -> None:
        """End the window that is open, because an interrupt came twice: all but what belongs to it is on disk already."""
        window = self.window
        if window is not None and window.started:
            window.state = WindowState.STOPPED
            with contextlib.suppress(Exception):
                # no other window could begin else
                self._abandon_recording(window)
                if not self._finish_recording(window).error_number:
                    window.saving.outcome = rundir.STATE_COLLECTED
        super().give_up()

    def _abandon_recording(self, window: Window) -> None:
        child_threads.close_window(window.threads, recorder_library.stop_recorder)
        self._finish_recording(window)

    def _cancel_warmup(self, window: Window) -> None:
        window.threads = None

    def _toggle_recording(self, window: Window, enable: bool, names: list[str]) -> list[str]:
        if not_recorded := [name for name in names if name != "CPU"]:
            log.warning(
                f"toggle_collection_dynamic has no effect on {', '.join(not_recorded)}: this window records the CPU alone."
            )
        if "CPU" not in names:
            return []
        recorder_library.watch_calls(enable)
        return ["CPU"]
