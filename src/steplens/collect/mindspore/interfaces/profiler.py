"""``mindspore.Profiler`` as of r2.2 and r2.4, for real on a CPU."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from steplens.collect.common import log
from steplens.collect.common.health import WARNING, Health
from steplens.collect.handoff import closing_line
from steplens.collect.mindspore.interfaces import analysis, parameters
from steplens.collect.mindspore.interfaces.metadata import TOTAL_LIMIT_2_4, Metadata
from steplens.collect.mindspore.interfaces.names import ProfilerLevel
from steplens.collect.mindspore.recording import framework
from steplens.collect.mindspore.recording.pipeline import pipeline
from steplens.collect.mindspore.recording.steps import install_hooks
from steplens.collect.mindspore.recording.window import Window
from steplens.common import rundir
from steplens.formats.mindspore import RAW_DIRECTORY

_SYNC, _ASYNC = "sync", "async"
#: how many windows this process has recorded into a directory, by any profiler
_recorded: dict[tuple[int, Path], int] = {}


class Profiler:
    """Records a training of MindSpore: operators, steps, the memory pool and the data pipeline.

    ``start`` and ``stop`` may be called any number of times; all windows go into one result. Results are the files of
    ``<output_path>/profiler``.

    Args:
        **kwargs: the parameters of ``mindspore.Profiler`` in r2.4, by keyword: output_path, op_time, profile_communication,
            profile_memory, parallel_strategy, start_profile, aicore_metrics, l2_cache, sync_enable, data_process, timeline_limit
            (MB), profile_framework, profiler_level, hbm_ddr, pcie, with_stack, data_simplification. A wrong value is reset to its
            default with a warning. MindInsight's parameters before r2.2 (subgraph, is_detail, is_show_op_path, optypes_to_deal,
            optypes_not_deal) are taken with a warning: they choose what the sums by operator count.

    Raises:
        TypeError: ``start_profile`` is neither True nor False.
        RuntimeError: another profiler is recording in this process, or the variable ``PROFILING_MODE`` is set.
    """

    _contract = parameters.R2_4

    def __init__(self, **kwargs: Any) -> None:
        if os.environ.get("PROFILING_MODE"):
            raise RuntimeError("PROFILING_MODE is set: another profiler is at work in this process; unset it")
        values, warnings = parameters.resolve_parameters(kwargs, self._contract)
        self._values = values
        for warning in warnings:
            log.warning(warning)
        if unused := parameters.without_effect(kwargs, values):
            log.warning(f"{', '.join(unused)}: nothing of that can be recorded on a CPU.")
        self._top = rundir.absolute_path(values["output_path"])
        self._directory = self._top / rundir.PROFILER_DIRECTORY
        self._metadata = Metadata(TOTAL_LIMIT_2_4)
        self._window: Window | None = None
        self._windows = 0
        # what the last analysis was asked for: of how many windows, and how
        self._analysed: tuple[int, bool, list[int] | None] | None = None
        self._data = bool(values["data_process"])
        install_hooks()
        if self._data:
            pipeline.want()
        if values["start_profile"]:
            self._open()

    @property
    def directory(self) -> Path:
        """The ``profiler`` directory that the results go to."""
        return self._directory

    # --- recording

    def start(self) -> None:
        """Begin to record.

        Raises:
            RuntimeError: it is recording already, or another profiler is.
        """
        if self._window is not None:
            raise RuntimeError("the profiler has already been started; call stop() first")
        self._open()

    def stop(self) -> None:
        """Stop recording; what was recorded is safe on disk.

        Raises:
            RuntimeError: it is not recording.
        """
        if self._window is None:
            raise RuntimeError("the profiler has not been started; call start() before stop()")
        window, self._window = self._window, None
        window.close()
        if self._metadata.values:
            rundir.write_json(self._directory / rundir.METADATA_FILE, self._metadata.values, indent=4)

    def _open(self) -> None:
        if framework.device_target() != "CPU":
            log.warning(f"the device target is {framework.device_target()}; steplens records what MindSpore runs on the CPU.")
        overwritten = self._remove_earlier_files()
        config = {name: value.value if isinstance(value, ProfilerLevel) else value for name, value in self._values.items()}
        self._window = Window(
            self._directory,
            operators=self._values["op_time"],
            memory=self._values["profile_memory"],
            data=self._data,
            stacks=bool(self._values.get("with_stack")),
            config={"contract": self._contract, **config},
            health=_overwritten_health(overwritten),
        )
        self._windows += 1
        own = (os.getpid(), self._directory)
        _recorded[own] = _recorded.get(own, 0) + 1

    def _remove_earlier_files(self) -> int:
        """Remove what an earlier profiler left of this rank in the same directory: windows of two runs would be added up.

        Says so wherever results that are there will be overwritten by the next ones.

        Returns:
            How many earlier windows of this process the next results will lack.
        """
        analysis.wait_for(self._directory)
        rank = framework.mindspore_rank()
        raw = self._directory / RAW_DIRECTORY
        old = [folder for kind in ("window", "pipeline") for folder in raw.glob(f"{kind}_{rank}_*") if not folder.is_symlink()]
        if self._windows and any(folder.name.startswith("window") for folder in old):
            return 0
        if not old and not (self._directory / f"{rundir.INFO_PREFIX}_{rank}.json").exists():
            # the first ones, or those of earlier windows were moved away
            return 0
        if self._windows:
            log.warning(
                f"{self._directory} holds results of earlier windows, whose raw data is removed; "
                "the next analysis overwrites them. With data_simplification=False all windows go into one result."
            )
        else:
            for folder in old:
                shutil.rmtree(folder)
            log.warning(f"{self._directory} holds results already; they are overwritten.")
        return _recorded.get((os.getpid(), self._directory), 0)

    # --- results

    def analyse(
        self, offline_path: str | None = None, pretty: bool = False, step_list: list[int] | None = None, mode: str = _SYNC
    ) -> None:
        """Write the results; stops the profiler if it still records. Asked for the same again, they stay as they are.

        Args:
            offline_path: the directory above ``profiler`` of an earlier run, to analyse that instead.
            pretty: indent the JSON files.
            step_list: only these of the recorded steps, counted from 1; they must be consecutive.
            mode: "sync" waits for the results, "async" lets the training go on.

        Raises:
            TypeError: ``step_list`` is no list of whole numbers.
            ValueError: its numbers are not consecutive or do not count from 1.
            RuntimeError: nothing was recorded, or the analysis failed; the message says why.
        """
        if mode not in (_SYNC, _ASYNC):
            log.warning(f"mode should be 'sync' or 'async', not {mode!r}; 'sync' is used.")
            mode = _SYNC
        steps = analysis.step_list_of(step_list)
        simplifies = self._values.get("data_simplification", False)
        run = partial(analysis.run_analysis, pretty=pretty, step_list=steps, data_simplification=simplifies, wait=mode == _SYNC)
        if offline_path is not None:
            run(Path(offline_path))
            return
        self._finish_recording()
        if not self._windows:
            raise RuntimeError("nothing was recorded: start() was never called")
        analysis.wait_for(self._directory)
        asked = (self._windows, pretty, steps)
        if asked == self._analysed and not any((self._directory / RAW_DIRECTORY).glob("window_*")):
            return
        closing_line.add_results(self._directory, framework.mindspore_rank())
        run(self._directory, timeline_limit_mb=self._values["timeline_limit"])
        self._analysed = asked

    def op_analyse(self, op_name: str | list[str], device_id: int | None = None) -> str:
        """Times of operators by their type, as JSON text: for each shape of inputs occurrences, total and average (us).

        Args:
            op_name: type of an operator ("Conv2D"), or several.
            device_id: rank whose data is read; 0 by default.

        Raises:
            TypeError: an argument is of the wrong type, or ``op_name`` is empty.
            RuntimeError: nothing was recorded, or no such operator ran.
        """
        names = [op_name] if isinstance(op_name, str) else op_name
        if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
            raise TypeError(f"op_name should be the name of an operator or a list of names, not {op_name!r}")
        if device_id is not None and type(device_id) is not int:
            raise TypeError(f"device_id should be a whole number, not {device_id!r}")
        self._finish_recording()
        return analysis.operators(self._directory, names, device_id)

    @classmethod
    def offline_analyse(
        cls, path: str, pretty: bool = False, step_list: list[int] | None = None, data_simplification: bool = True
    ) -> None:
        """Write the results of data that was recorded earlier, of one rank or of several.

        Args:
            path: the directory above ``profiler`` (one rank), or above directories that have one each.
            pretty: indent the JSON files.
            step_list: only these of the recorded steps, counted from 1; they must be consecutive.
            data_simplification: remove the raw data once the results are there.

        Raises:
            TypeError: an argument is of the wrong type.
            ValueError: the numbers of ``step_list`` are not consecutive or do not count from 1.
            RuntimeError: there is no data, or some rank's analysis failed; the message says why.
        """
        if not isinstance(path, str):
            raise TypeError(f"path should be a text, not {path!r}")
        steps = analysis.step_list_of(step_list)
        analysis.run_analysis(Path(path), pretty=bool(pretty), step_list=steps, data_simplification=bool(data_simplification))

    def _finish_recording(self) -> None:
        if self._window is not None:
            self.stop()
        if self._data:
            # the data engine cannot start again on this pipeline, so its recording lasts until somebody wants to see it
            pipeline.finish()

    # --- metadata

    def add_metadata(self, key: str, value: str) -> None:
        """Add a text to ``profiler_metadata.json``; see ``Metadata``."""
        self._metadata.add(key, value)

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add a JSON text to ``profiler_metadata.json``; see ``Metadata``."""
        self._metadata.add_json(key, value)


def _overwritten_health(earlier: int) -> Health:
    """What the health says of results that lack earlier windows of their process: what they show would pass for all of it."""
    health = Health()
    if earlier:
        windows = f"the {earlier} windows before it" if earlier > 1 else "the window before it"
        message = (
            f"these results begin with window {earlier + 1} that the process recorded here; they replaced those of {windows}. "
            "data_simplification=False adds up the windows of one Profiler, another output_path keeps those of several apart"
        )
        health.add("window_lost", WARNING, message, count=earlier)
    return health
