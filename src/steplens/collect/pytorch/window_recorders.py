"""What a window records beside Kineto: module calls, collections of garbage, marks, samples of the host, and data loading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from steplens.collect.common import exception_text, log
from steplens.collect.common.health import ERROR, Health
from steplens.collect.common.recording_settings import RecordingSettings
from steplens.collect.host.host_sampling_process import HostSampler
from steplens.collect.loaders.loader import LoaderWindow
from steplens.collect.marks import marks
from steplens.collect.marks.automatic_marks import AutomaticMarks
from steplens.collect.torch_internals.gc_detector import GcDetector
from steplens.collect.torch_internals.modules import ModuleHooks
from steplens.common.options import ProfilerActivity

_Recorder = TypeVar("_Recorder")


class WindowRecorders:
    """Its methods never raise: without what they record, the window is still worth having.

    Args:
        settings: what to record.
        folder: the folder of the raw data.
        health: gets what is missing.
        samples_host: False where the device's own tools sample the host.
        range_type: see :class:`~steplens.collect.torch_internals.modules.ModuleHooks`.
    """

    def __init__(
        self,
        settings: RecordingSettings,
        folder: Path,
        health: Health,
        *,
        samples_host: bool,
        range_type: Callable[[str], Any] | None = None,
    ) -> None:
        self._experimental = experimental = settings.experimental
        #: where files are written
        self.folder = folder
        self._health = health
        on_cpu = ProfilerActivity.CPU in settings.activities
        self._modules = ModuleHooks(self._modules_failed, range_type) if settings.with_modules and on_cpu else None
        threshold = experimental.gc_detect_threshold
        self._garbage = GcDetector(threshold) if threshold is not None and on_cpu else None
        self._marks: marks.MarkRecorder | None = None
        self._automatic: AutomaticMarks | None = None
        self._sampler: HostSampler | None = None
        self._loaders = LoaderWindow(health) if experimental.data_loader else None
        if samples_host and experimental.host_sys:
            self._call_guarded("host_sys", self, WindowRecorders._open_sampler)

    def _open_sampler(self) -> None:
        self._sampler = HostSampler(self._experimental.host_sys, self.folder, self._health)

    def start(self) -> None:
        """Begin to record."""
        self._call_guarded("gc_detect_threshold", self._garbage, GcDetector.start)
        self._call_guarded("with_modules", self._modules, ModuleHooks.install)
        self._call_guarded("data_loader", self._loaders, LoaderWindow.start)
        self._call_guarded("host_sys", self._sampler, HostSampler.start)
        if self._experimental.mstx or self._experimental.msprof_tx:
            self._call_guarded("mstx", self, WindowRecorders._start_marks)

    def _start_marks(self) -> None:
        experimental = self._experimental
        self._marks = marks.MarkRecorder(experimental.mstx_domain_include, experimental.mstx_domain_exclude, self._health)
        self._automatic = AutomaticMarks(self._marks)
        self._automatic.install()
        marks.open_recorder(self._marks)

    def step(self, number: int | None) -> None:
        """The step of this number begins; None: the last one has ended."""
        if self._marks is not None:
            self._marks.step(number)

    def stop(self) -> None:
        """End recording."""
        self._call_guarded("with_modules", self._modules, ModuleHooks.remove)
        self._call_guarded("gc_detect_threshold", self._garbage, GcDetector.stop)
        self._call_guarded("data_loader", self._loaders, LoaderWindow.stop)
        self._call_guarded("mstx", self._automatic, AutomaticMarks.remove)
        self._call_guarded("mstx", self._marks, marks.close_recorder)
        self._call_guarded("host_sys", self._sampler, HostSampler.stop)

    @property
    def garbage_collections(self) -> list[list[int]]:
        """Start, end, generation, process and thread of every collection of garbage, Unix ns."""
        return self._garbage.records if self._garbage is not None else []

    def save(self, counters: dict[str, int]) -> None:
        """Write what was recorded; ``counters`` gets what it has cost."""
        self._call_guarded("mstx", self._marks, lambda recorder: recorder.save(self.folder))
        self._call_guarded("host_sys", self._sampler, HostSampler.finish)
        if self._sampler is not None:
            counters["host_sampler_ns"] = self._sampler.spent_ns
        self._call_guarded("data_loader", self._loaders, lambda loaders: loaders.save(self.folder))

    def cancel(self) -> None:
        """End without a result."""
        self._call_guarded("data_loader", self._loaders, LoaderWindow.cancel)
        self._call_guarded("host_sys", self._sampler, HostSampler.cancel)

    def _modules_failed(self, exception: Exception) -> None:
        log.report_failure("module hooks", exception)
        message = f"Recording modules failed: {exception_text.text_of(exception)}"
        self._health.add("modules_incomplete", ERROR, message, unsafe="modules")

    def _call_guarded(self, name: str, recorder: _Recorder | None, call: Callable[[_Recorder], None]) -> None:
        """Call with a recorder, where there is one."""
        if recorder is not None:
            try:
                call(recorder)
            except Exception as exception:  # the boundary to a recorder beside Kineto: the window is worth having without it
                self._health.report_failure(name, exception, unsafe=name)
