"""Windows that two fill at once: the recorder what runs on the host, Kineto what runs on a GPU.

What Kineto costs in a training with a GPU, where the host is often what everything waits for, are the operator calls. Here it
records none of them: it brings the tasks of the device, the calls that launched them, ranges of the user as the device saw them,
and memory. Whoever reads a run joins both by thread and time (``readers.recorder.recorder_device``).
"""

from __future__ import annotations

from typing import Any

from steplens.collect.common.health import WARNING
from steplens.collect.pytorch.kineto import KinetoSession
from steplens.collect.pytorch.recorder_session import RecorderFile
from steplens.collect.pytorch.trace_size import RecorderSize
from steplens.collect.pytorch.window import Window
from steplens.collect.recorder import recorder_library
from steplens.collect.torch_internals import child_threads, device_profile
from steplens.common import rundir

#: of what is to be recorded, what the recorder does in Kineto's place
_OF_THE_RECORDER = ("record_shapes", "with_flops", "with_stack")


class DeviceRecorderSession(RecorderFile, KinetoSession):
    """Opens and closes windows as the session does that it is of; Kineto's rules of threads and other profilers hold here too."""

    _kineto_file = rundir.RAW_DEVICE
    _takes_memory = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.size = RecorderSize(self.settings)

    def _kineto_switches(self) -> dict[str, bool]:
        return {name: is_on and name not in _OF_THE_RECORDER for name, is_on in self.settings.switches.items()}

    def _needs_all_threads(self) -> bool:
        return False

    def _joinable_threads(self, *, all_threads: bool) -> child_threads.Joinable:
        if self.settings.profile_memory and child_threads.has_asked():
            message = "Memory of threads that asked to be recorded is not, beside a GPU: STEPLENS_RECORDER=off lets Kineto do it."
            self._health.report("not_collected", WARNING, message, unsafe="memory")
        # the recorder sees all of them: none has to join
        return super()._joinable_threads(all_threads=True)

    def _begin_recording(self, window: Window) -> None:
        self._record_operators(window)
        try:
            device_profile.begin_device_profile(window.kineto)
        except BaseException:  # without its other half this one is none; whoever called says why
            self._finish_recording(window)
            raise
        self.size.window_opens()

    def _end_recording(self, window: Window) -> None:
        # at once: Kineto waits for the device first
        recorder_library.stop_recorder()
        super()._end_recording(window)

    def _save_trace(self, window: Window) -> None:
        try:
            super()._save_trace(window)
        finally:
            totals = self._finish_recording(window)
        self._check_recording(totals)
        window.counters["trace_bytes"] += totals.file_bytes

    def _abandon_recording(self, window: Window) -> None:
        super()._abandon_recording(window)
        self._finish_recording(window)

    def _finalize_window(self, window: Window) -> None:
        super()._finalize_window(window)
        if window.started:
            # also of a window whose other half was given up: the next one can record from here on
            self._finish_recording(window)

    def _toggle_recording(self, window: Window, enable: bool, names: list[str]) -> list[str]:
        if "CPU" in names:
            recorder_library.watch_calls(enable)
        if of_devices := [name for name in names if name != "CPU"]:
            super()._toggle_recording(window, enable, of_devices)
        return names

    def _is_saved(self, window: Window) -> bool:
        return window.saving.outcome == rundir.STATE_COLLECTED and rundir.raw_device(window.run_directory) is not None

    def torch_options(self) -> dict[str, Any]:
        """See ``KinetoArguments.torch_options``: what is read is written of both halves."""
        return {**super().torch_options(), **{name: self.settings.switches[name] for name in _OF_THE_RECORDER}}
