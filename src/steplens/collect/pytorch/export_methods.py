"""The export methods of the profiler object. The work is done by another process, on the run directory of the window."""

from __future__ import annotations

import gzip
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from steplens.collect.common import exception_text, log, paths
from steplens.collect.common.health import Health
from steplens.collect.common.never_raise import never_raise
from steplens.collect.handoff import handler
from steplens.collect.pytorch import kineto
from steplens.collect.torch_internals import memory_categories, torch_events
from steplens.common import rundir
from steplens.common.options import ProfilerActivity
from steplens.formats.memory_categories import FILE

SELF_CPU = "self_cpu_time_total"
STACK_METRICS = (SELF_CPU, "self_npu_time_total", "self_cuda_time_total")
STACK_SUFFIX = ".log"


class ProfilerInterface:
    """The part of the reference's inner interface that its user guide calls."""

    def __init__(self, profiler: ExportMethods) -> None:
        self._profiler = profiler
        self._health = profiler._health

    @never_raise
    def analyse(self, *_: Any, async_mode: bool = False, **__: Any) -> None:
        """Analyse the last window, in another process.

        Args:
            async_mode: do not wait for it.
        """
        run_directory = self._profiler.run_directory
        if run_directory is None:
            self._profiler._say_no_window("analyse")
        elif async_mode:
            handler.analyse_beside(run_directory)
        else:
            handler.analyse_and_wait(run_directory)


class ExportMethods:
    """Methods that write the last window in formats of other tools; a part of the profiler object."""

    _enabled: bool
    _running: bool
    _health: Health
    _session: kineto.KinetoSession

    @property
    def run_directory(self) -> Path | None:
        """The run directory of the last window whose raw data is safe; None before the first."""
        return self._session.collected_run() if self._enabled else None

    @never_raise
    def export_chrome_trace(self, output_path: str | os.PathLike[str]) -> None:
        """Write the last window as a Chrome trace, readable by Perfetto, MindStudio Insight and others.

        Args:
            output_path: the file; with suffix ``.gz`` it is compressed.
        """
        run_directory = self._last_window("export_chrome_trace", output_path)
        if run_directory is None:
            return
        target = rundir.absolute_path(output_path)
        problem = _export_run("chrome", run_directory, target)
        if not problem:
            return
        # What is there is better than nothing, unless there is no room for anything.
        raw = run_directory / rundir.RAW_DIRECTORY / rundir.RAW_TRACE
        if not raw.is_file():
            log.error(f"export_chrome_trace: {problem}")
            return
        log.warning(f"export_chrome_trace: the trace could not be converted, Kineto's own is written: {problem}")
        rundir.make_directory(target.parent)
        with rundir.atomic_path(target) as temporary:
            if target.suffix == ".gz":
                with raw.open("rb") as source, gzip.open(temporary, "wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
            else:
                shutil.copyfile(raw, temporary)

    @never_raise
    def export_stacks(self, output_path: str | os.PathLike[str], metric: str = SELF_CPU) -> None:
        """Write the call stacks of the last window and the time spent in each, for FlameGraph and speedscope.

        A line is the frames from outermost to innermost, joined by ";", a space and whole microseconds; equal stacks are added
        up. The window must have been recorded with ``with_stack=True``.

        Args:
            output_path: the file; its suffix becomes ``.log``.
            metric: ``self_cpu_time_total``, or ``self_npu_time_total`` / ``self_cuda_time_total`` for the time of the device
                tasks that the calls launched.
        """
        run_directory = self._last_window("export_stacks", output_path)
        if run_directory is None:
            return
        if not self._session.settings.with_stack:
            log.warning("export_stacks needs with_stack=True, nothing is written.")
            return
        if metric not in STACK_METRICS:
            log.warning(f"export_stacks: metric should be one of {', '.join(STACK_METRICS)}, reset it to {SELF_CPU}.")
            metric = SELF_CPU
        target = rundir.absolute_path(output_path)
        if target.suffix != STACK_SUFFIX:
            target = target.with_suffix(STACK_SUFFIX)
            log.warning(f"export_stacks: the file should end in {STACK_SUFFIX}, it is written to {target}.")
        problem = _export_run("stacks", run_directory, target, "--metric", metric)
        if problem:
            log.error(f"export_stacks: {problem}")

    @never_raise
    def export_memory_timeline(self, output_path: str | os.PathLike[str], device: str | None = None) -> None:
        """Write the memory of one device over the last window, by what it is used for.

        The categories are computed at the first call for a window, in this process; training waits for that. The window must
        have been recorded with ``record_shapes``, ``profile_memory`` and ``with_stack`` or ``with_modules``.

        Args:
            output_path: the file. ``.html`` is a page with a picture; ``raw.json.gz`` are the events ``[ns, action, bytes,
                category]``; everything else are points ``[[us ...], [[0, bytes per category ...] ...]]``, compressed when the
                name ends in ``.gz``.
            device: "cpu", "cuda:0", "npu:0"; the current accelerator by default, or the CPU where there is none.
        """
        run_directory = self._last_window("export_memory_timeline", output_path)
        if run_directory is None:
            return
        settings = self._session.settings
        if not settings.profile_memory:
            log.warning("export_memory_timeline needs profile_memory=True, nothing is written.")
            return
        if not settings.categorises_memory:
            log.warning(
                "export_memory_timeline needs record_shapes=True and with_stack=True or with_modules=True: without them the "
                "categories of memory are unknown."
            )
        else:
            self._write_categories(run_directory)
        target = rundir.absolute_path(output_path)
        device_arguments = ["--device", device] if device is not None else []
        if not device_arguments and (current := _current_accelerator()):
            device_arguments = ["--device", current]
        problem = _export_run("memory", run_directory, target, *device_arguments)
        if problem and device is None and device_arguments:
            # nothing was allocated there
            problem = _export_run("memory", run_directory, target)
        if problem:
            log.error(f"export_memory_timeline: no memory timeline data: {problem}")

    def events(self) -> Any:
        """Every event of the last window, as an ``EventList`` of PyTorch.

        They are made of the saved trace when they are first asked for, in this process: some 50 us and ten kilobytes each.
        A window of which nobody asks costs nothing.
        """
        window = self._session.closed if self._enabled else None
        run_directory = self.run_directory
        if window is None or run_directory is None:
            self._say_no_window("events")
            return torch_events.no_events()
        if window.events is None:
            try:
                window.events = self._make_events(run_directory)
            except Exception as exception:  # the boundary to PyTorch, which makes the events
                log.report_failure("events", exception)
                return torch_events.no_events()
        return window.events

    def _make_events(self, run_directory: Path) -> Any:
        """The events of a window, from Kineto's file, or from one like it that is made of the recorder's."""
        raw = run_directory / rundir.RAW_DIRECTORY / rundir.RAW_TRACE
        if raw.is_file():
            return torch_events.function_events(raw, self._session.torch_options())
        with tempfile.TemporaryDirectory(prefix="steplens-") as folder:
            made = Path(folder) / rundir.RAW_TRACE
            problem = _export_run("kineto", run_directory, made)
            if problem:
                raise OSError(problem)
            host_only = ProfilerActivity.CUDA not in self._session.settings.activities
            return torch_events.function_events(made, self._session.torch_options(), host_only=host_only)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> Any:
        """The operators of the last window added up, as an ``EventList`` of PyTorch with its ``table(sort_by=...)``.

        Args:
            group_by_input_shape: calls with other shapes apart; needs ``record_shapes``.
            group_by_stack_n: calls from other places apart, by so many frames; needs ``with_stack``.
            group_by_overload_name: other overloads apart; a trace does not tell them.
        """
        events = self.events()
        more = (group_by_overload_name,) if group_by_overload_name else ()
        return events.key_averages(group_by_input_shape, group_by_stack_n, *more)

    @property
    def prof_if(self) -> ProfilerInterface:
        """What handlers of scripts for the Ascend PyTorch Profiler call, as ``prof.prof_if.analyse()``."""
        return ProfilerInterface(self)

    # --- inside

    def _last_window(self, method: str, output_path: str | os.PathLike[str]) -> Path | None:
        paths.warn_if_unusual(output_path, f"output_path of {method}")
        run_directory = self.run_directory
        if run_directory is None:
            self._say_no_window(method)
        return run_directory

    def _say_no_window(self, method: str) -> None:
        log.error(f"{method}: there is no recorded window{'; call stop() first' if self._running else ''}.")

    def _write_categories(self, run_directory: Path) -> None:
        """Write the categories of the last window, once; without them the timeline has none."""
        if (run_directory / rundir.RAW_DIRECTORY / FILE).is_file():
            return
        window = self._session.closed
        if window is None or window.results is None:
            if window is not None and window.totals is not None:
                why = "because the recorder recorded the window, and they need what Kineto keeps: set STEPLENS_RECORDER=off"
            elif window is not None and window.counters.get("trace_bytes", 0) > kineto.KEPT_TRACE_BYTES:
                why = "because the window is too large for them: record fewer steps"
            else:
                why = "and the window's events are gone"
            log.warning(f"export_memory_timeline: the categories of memory are unknown, {why}.")
            return
        log.info("Computing what memory was used for; training waits.")
        results, window.results = window.results, None
        try:
            memory_categories.write_categories(results, run_directory)
        except Exception as exception:  # the boundary to PyTorch, which finds the categories
            reason = " ".join(exception_text.describe_exception(exception).split())[:300]
            log.warning(f"export_memory_timeline: the categories of memory are unknown, PyTorch could not find them: {reason}")


def _current_accelerator() -> str | None:
    """The current accelerator of this process, if its allocator is in use."""
    torch: Any = importlib.import_module("torch")
    for name in ("cuda", "npu"):
        module = getattr(torch, name, None)
        if module is not None and module.is_available() and module.is_initialized():
            return f"{name}:{module.current_device()}"
    return None


def _export_run(to: str, run_directory: Path, target: Path, *options: str) -> str:
    """Export a run directory in another process; what went wrong, in one sentence, and empty when nothing did."""
    command = [sys.executable, "-m", "steplens.writers.exports", to, str(run_directory), str(target), *options]
    done = subprocess.run(
        command,
        env=handler.offline_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        # Ctrl-C is meant for the training, which waits for this where it hands a window over.
        start_new_session=True,
    )
    if not done.returncode:
        return ""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("steplens: ") if lines else f"exit code {done.returncode}"
