"""``mindspore.profiler.profile`` with a schedule, ``tensorboard_trace_handler`` and ``analyse``: the newer interface."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from steplens.collect.common import log
from steplens.collect.handoff import closing_line
from steplens.collect.mindspore.interfaces import analysis
from steplens.collect.mindspore.interfaces.experimental import _ExperimentalConfig, boolean_or_default
from steplens.collect.mindspore.interfaces.metadata import TOTAL_LIMIT_2_10, Metadata
from steplens.collect.mindspore.interfaces.names import ProfilerActivity
from steplens.collect.mindspore.interfaces.schedule import ProfilerAction
from steplens.collect.mindspore.recording import framework
from steplens.collect.mindspore.recording.pipeline import pipeline
from steplens.collect.mindspore.recording.steps import install_hooks, steps
from steplens.collect.mindspore.recording.window import Window
from steplens.common import rundir

_DEFAULT_DIRECTORY = "data"
_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class tensorboard_trace_handler:
    """Writes the results of every window into a run directory of its own; for ``on_trace_ready``.

    Args:
        dir_name: folder of the run directories; ``./data`` by default.
        worker_name: replaces the host name in their names; at most 219 bytes, which is what a folder's name has room for.
        analyse_flag: write results, not only raw data.
        async_mode: let the training go on meanwhile.
    """

    def __init__(
        self, dir_name: str | None = None, worker_name: str | None = None, analyse_flag: bool = True, async_mode: bool = False
    ) -> None:
        given: Any = dir_name
        if given is not None and not isinstance(given, str):
            log.warning(f"dir_name should be a path, not {dir_name!r}; ./{_DEFAULT_DIRECTORY} is used.")
            dir_name = None
        if worker_name is not None and (
            not isinstance(worker_name, str) or len(worker_name.encode(errors="replace")) > rundir.WORKER_BYTES
        ):
            log.warning(f"worker_name should be a text of at most {rundir.WORKER_BYTES} bytes; the host's name is used.")
            worker_name = None
        self.directory = rundir.absolute_path(dir_name or _DEFAULT_DIRECTORY)
        self.worker_name = worker_name
        self._analyse = boolean_or_default("analyse_flag", analyse_flag, True)
        self._wait = not boolean_or_default("async_mode", async_mode, False)

    def __call__(self, profiler: profile) -> None:
        """Analyse the window that ``profiler`` has just closed."""
        if self._analyse and profiler.run_directory is not None:
            closing_line.add_window(self.directory, framework.mindspore_rank())
            analysis.run_analysis(
                profiler.run_directory, data_simplification=profiler.experimental_config.data_simplification, wait=self._wait
            )


class profile:
    """Records steps of a training; by default it starts at once, and ``start`` then has nothing to do.

    Args:
        activities: what to observe; everything by default.
        with_stack: record the Python calls of the thread that trains.
        profile_memory: record the memory pool.
        data_process: record the data pipeline.
        parallel_strategy: without effect on a CPU.
        start_profile: start when it is made.
        hbm_ddr: without effect on a CPU.
        pcie: without effect on a CPU.
        sync_enable: without effect on a CPU.
        record_shapes: write the shapes of every launch's inputs.
        schedule: which steps to record; all from ``start`` to ``stop`` by default. With one, :meth:`step` ends a step.
        on_trace_ready: called with this object whenever a window has closed.
        experimental_config: what is asked of an Ascend device.

    Raises:
        RuntimeError: another profiler is recording in this process.
    """

    def __init__(
        self,
        activities: Sequence[ProfilerActivity] | None = None,
        with_stack: bool = False,
        profile_memory: bool = False,
        data_process: bool = False,
        parallel_strategy: bool = False,
        start_profile: bool = True,
        hbm_ddr: bool = False,
        pcie: bool = False,
        sync_enable: bool = True,
        record_shapes: bool = False,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        experimental_config: _ExperimentalConfig | None = None,
    ) -> None:
        self._memory = boolean_or_default("profile_memory", profile_memory, False)
        self._data = boolean_or_default("data_process", data_process, False)
        self._stacks = boolean_or_default("with_stack", with_stack, False)
        self._shapes = boolean_or_default("record_shapes", record_shapes, False)
        start: Any = start_profile
        if not isinstance(start, bool):
            raise TypeError(f"start_profile should be True or False, not {start!r}")
        self._activities = _valid_activities(activities)
        unused = {"parallel_strategy": parallel_strategy, "hbm_ddr": hbm_ddr, "pcie": pcie}
        if asked := [name for name, value in unused.items() if boolean_or_default(name, value, False)]:
            log.warning(f"{', '.join(asked)}: nothing of that can be recorded on a CPU.")
        if self._shapes and ProfilerActivity.CPU not in self._activities:
            log.warning("record_shapes has no effect without ProfilerActivity.CPU.")
            self._shapes = False
        experimental: Any = experimental_config
        if experimental is not None and not isinstance(experimental, _ExperimentalConfig):
            log.warning("experimental_config should be an _ExperimentalConfig; the defaults are used.")
            experimental = None
        self.experimental_config: _ExperimentalConfig = experimental or _ExperimentalConfig()
        self._sync = boolean_or_default("sync_enable", sync_enable, True)
        self._schedule = _callable_or_none("schedule", schedule, "every step is recorded")
        self._handler = _callable_or_none("on_trace_ready", on_trace_ready, "no results are written")
        self._metadata = Metadata(TOTAL_LIMIT_2_10)
        self._window: Window | None = None
        self._started = False
        self.step_num = 0
        #: run directory of the window that is open or was the last one
        self.run_directory: Path | None = None
        self._previous: Path | None = None
        install_hooks()
        if self._data:
            pipeline.want()
        if start_profile:
            self.start()

    def __enter__(self) -> profile:
        """Start, unless it has been started when it was made."""
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop, unless it has been stopped."""
        if self._started:
            self.stop()

    def start(self) -> None:
        """Begin; nothing happens when it has begun.

        Raises:
            RuntimeError: another profiler is recording in this process.
        """
        if self._started:
            return
        if self._current_action() in _RECORDING:
            self._open()
        self._started = True

    def stop(self) -> None:
        """End; a window that is open is closed and handed to ``on_trace_ready``.

        Raises:
            RuntimeError: it has not been started.
        """
        if not self._started:
            raise RuntimeError("the profiler has not been started; call start() before stop()")
        self._started = False
        try:
            self._close_window()
        finally:
            steps.end_manual()

    def step(self) -> None:
        """A step has ended, the next one begins.

        Raises:
            RuntimeError: it has not been started.
        """
        if not self._started:
            raise RuntimeError("the profiler has not been started; call start() before step()")
        before = self._current_action()
        self.step_num += 1
        steps.manual(self.step_num)
        now = self._current_action()
        if self._window is not None and (before is ProfilerAction.RECORD_AND_SAVE or now not in _RECORDING):
            steps.pause()
            self._close_window()
        if self._window is None and now in _RECORDING:
            self._open()
            steps.begin_manual(self.step_num, time.time_ns())

    def add_metadata(self, key: str, value: str) -> None:
        """Add a text to ``profiler_metadata.json`` of every window."""
        self._metadata.add(key, value)

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add a JSON text to ``profiler_metadata.json`` of every window."""
        self._metadata.add_json(key, value)

    def _current_action(self) -> ProfilerAction:
        return self._schedule(self.step_num) if self._schedule is not None else ProfilerAction.RECORD

    def _open(self) -> None:
        handler = self._handler if isinstance(self._handler, tensorboard_trace_handler) else tensorboard_trace_handler()
        self._previous = self.run_directory
        self.run_directory = rundir.create_run_directory(
            handler.directory, handler.worker_name, suffix=rundir.MINDSPORE_RUN_SUFFIX
        )
        config = {
            "contract": "2.10",
            "activities": [item.value for item in self._activities],
            "profile_memory": self._memory,
            "data_process": self._data,
            "record_shapes": self._shapes,
            "with_stack": self._stacks,
            "sync_enable": self._sync,
            **self.experimental_config.record(),
        }
        self._window = Window(
            self.run_directory,
            operators=ProfilerActivity.CPU in self._activities,
            memory=self._memory,
            data=self._data,
            stacks=self._stacks,
            config=config,
            wants_marks=self.experimental_config.wants,
        )
        if self._schedule is not None:
            steps.begin_manual(self.step_num, time.time_ns())

    def _close_window(self) -> None:
        if self._window is None:
            return
        window, self._window = self._window, None
        window.close()
        if self._data:
            pipeline.finish()
        if window.holds_nothing and isinstance(self._handler, tensorboard_trace_handler):
            self._drop_window(window)
            return
        if self._metadata.values and self.run_directory is not None:
            rundir.write_json(self.run_directory / rundir.METADATA_FILE, self._metadata.values, indent=4)
        if self._handler is not None:
            self._handler(self)

    def _drop_window(self, window: Window) -> None:
        """Remove a window with nothing in it, such as the one that the last ``step()`` of a training opens."""
        shutil.rmtree(window.run, ignore_errors=True)
        self.run_directory = self._previous
        log.warning("nothing was launched in the last window of the profiler; it has no results.")


def _valid_activities(activities: Any) -> list[ProfilerActivity]:
    """The activities that are meant; all of them where none is given."""
    if activities is None:
        return list(ProfilerActivity)
    given = list(activities) if isinstance(activities, (list, tuple, set, frozenset)) else [activities]
    known = [item for item in given if isinstance(item, ProfilerActivity)]
    if len(known) < len(given):
        recorded = "the rest" if known else "everything"
        log.warning(f"activities should be of ProfilerActivity, not {activities!r}; {recorded} is recorded.")
    return known or list(ProfilerActivity)


def _callable_or_none(name: str, value: Any, otherwise: str) -> Any:
    if value is None or callable(value):
        return value
    log.warning(f"{name} should be a function, not {value!r}; {otherwise}.")
    return None


def analyse(
    profiler_path: str,
    max_process_number: int | None = None,
    pretty: bool = False,
    step_list: list[int] | None = None,
    data_simplification: bool = True,
) -> None:
    """Write the results of data that was recorded earlier: a run directory, or a folder of several.

    Args:
        profiler_path: a ``*_ascend_ms`` directory or the folder of several.
        max_process_number: how many ranks are analysed at a time; half of the cores by default.
        pretty: indent the JSON files.
        step_list: only these of the recorded steps, counted from 1; they must be consecutive.
        data_simplification: remove the raw data once the results are there.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: the numbers of ``step_list`` are not consecutive or do not count from 1.
        RuntimeError: there is no data, or some run's analysis failed; the message says why.
    """
    if not isinstance(profiler_path, str):
        raise TypeError(f"profiler_path should be a text, not {profiler_path!r}")
    analysis.run_analysis(
        Path(profiler_path),
        pretty=bool(pretty),
        step_list=analysis.step_list_of(step_list),
        data_simplification=bool(data_simplification),
        processes=max_process_number if type(max_process_number) is int and max_process_number > 0 else None,
    )
