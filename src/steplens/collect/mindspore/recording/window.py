"""One window: from opening MindSpore's profiler of operators to its files and ``window.json`` in a folder of their own.

MindSpore has one such profiler per process, so one window is open at a time.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from steplens.collect.common import log, metadata
from steplens.collect.common.health import WARNING, Health
from steplens.collect.mindspore.recording import framework
from steplens.collect.mindspore.recording.pipeline import pipeline
from steplens.collect.mindspore.recording.python_calls import PythonCalls
from steplens.collect.mindspore.recording.steps import install_hooks, steps
from steplens.common import partial, rundir
from steplens.common.step_points import recorded_options
from steplens.formats.mindspore import RAW_DIRECTORY, WINDOW_FILE

#: how the name of MindSpore's file of launches begins
_LAUNCHES = "cpu_op_execute_timestamp_"

_lock = threading.RLock()
_open: Window | None = None


class Window:
    """A window that records.

    Args:
        run: the run directory; the window's folder is made in its ``FRAMEWORK``.
        operators: record every launch of an operator.
        memory: record the memory pool.
        data: record the data pipeline.
        stacks: record the Python calls of the thread that opens it.
        config: what to write down of the profiler's options.
        wants_marks: whether marks of a domain are kept.
        health: what is known of this window when it opens; it gets what comes up meanwhile.

    Raises:
        RuntimeError: another window is open, or MindSpore cannot record.
        OSError: the folder cannot be written.
    """

    def __init__(
        self,
        run: Path,
        *,
        operators: bool = True,
        memory: bool = False,
        data: bool = False,
        stacks: bool = False,
        config: Mapping[str, Any] | None = None,
        wants_marks: Callable[[str], bool] = lambda domain: True,
        health: Health | None = None,
    ) -> None:
        global _open
        with _lock:
            if _open is not None:
                raise RuntimeError("another profiler is recording in this process; stop it first")
            self._profiler: Any = framework.operator_profiler() if operators else None
            if framework.other_profiler():
                log.warning("MindSpore's own profiler is at work too; whichever begins last gets the data of both.")
            install_hooks()
            self.run = run
            self._data = data
            self._calls = PythonCalls() if stacks else None
            self._marks: list[list[Any]] = []
            self._health = health or Health()
            self.wants_marks = wants_marks
            rank = framework.mindspore_rank()
            raw = rundir.make_directory(run / RAW_DIRECTORY)
            count = 0
            while (folder := raw / f"window_{rank}_{count}").exists():
                count += 1
            self.path = rundir.make_directory(folder)
            self._state: dict[str, Any] = {
                "state": "recording",
                "machine": partial.machine_identity(),
                "pid": os.getpid(),
                "process_identity": metadata.process_identity(),
                "hostname": socket.gethostname(),
                "rank": rank,
                "world_size": framework.world_size(),
                "operators": operators,
                "memory": memory,
                "context_mode": framework.execution_mode(),
                "ms_version": framework.mindspore_version(),
                "steplens_version": sys.modules["steplens"].__version__,
                # the names of a step's points belong to the run: whoever analyses it may have another environment
                "config": {**(config or {}), **recorded_options(os.environ)},
            }
            self._begin_recording(operators, memory)
            _open = self

    def _begin_recording(self, operators: bool, memory: bool) -> None:
        if steps.number:
            # work that is still on its way began before; a script that has not run a step may still choose its device
            framework.wait_for_eager_work()
        begin_ns = time.time_ns()
        self._state["begin_ns"] = begin_ns
        rundir.write_json(self.path / WINDOW_FILE, self._state)
        if operators:
            self._profiler.init(str(self.path.absolute()))
            self._profiler.step_profiling_enable(True)
            self._profiler.enable_op_time()
            if memory:
                self._profiler.enable_profile_memory()
        if self._data:
            pipeline.window_opens(self.path.parent)
        steps.open_window(begin_ns)
        if self._calls is not None:
            self._calls.start()

    def _is_empty(self) -> bool:
        """Whether nothing was launched: MindSpore wrote nothing, and no whole step passed without its launches."""
        whole = any(number not in steps.partial for number, _, _ in steps.recorded)
        return self._profiler is not None and not whole and not any(self.path.glob(f"{_LAUNCHES}*"))

    @property
    def holds_nothing(self) -> bool:
        """Whether nothing at all was recorded, now that it is closed."""
        recorded = self._state.get("waits") or self._marks or any(self.path.parent.glob("pipeline_*"))
        return self._state.get("empty") is True and not recorded

    def mark(self, row: list[Any]) -> None:
        """Keep a mark: domain, message, start and end (Unix ns), thread."""
        self._marks.append(row)

    def close(self) -> Path:
        """Close the window and write everything it recorded; gives its folder.

        Raises:
            OSError: something could not be written.
            Exception: what eager work of the script failed with, once everything is written.
        """
        with _lock:
            if _open is not self:
                return self.path
            try:
                # raises what an operator of the script failed with that was still on its way; the window is closed all the same
                framework.wait_for_eager_work()
            finally:
                self._end_recording()
            return self.path

    def _end_recording(self) -> None:
        global _open
        if self._calls is not None:
            self._calls.stop()
        steps.close_window()
        try:
            if self._profiler is not None:
                self._profiler.stop()
        finally:
            _open = None
        if self._data:
            pipeline.window_closes()
        self._state.update(
            state="collected",
            end_ns=time.time_ns(),
            context_mode=framework.execution_mode(),
            tid=steps.tid,
            step_source=steps.source,
            steps=steps.recorded,
            partial_steps=steps.partial,
            unended_steps=steps.unended,
            waits=steps.waits,
            marks=self._marks,
            empty=self._is_empty(),
        )
        for problem in pipeline.problems() if self._data else ():
            self._health.add("missing_data_pipeline", WARNING, problem, unsafe="phases of steps")
        if self._calls is not None:
            self._calls.save(self.path)
            if self._calls.problem:
                self._health.add("missing_python_calls", WARNING, self._calls.problem, unsafe="call stacks")
        self._state["health"] = self._health.take()
        for file in self.path.iterdir():
            file.chmod(rundir.FILE_MODE)
        rundir.write_json(self.path / WINDOW_FILE, self._state)


def open_window() -> Window | None:
    """The window that is open in this process."""
    return _open


@atexit.register
def _at_exit() -> None:
    window = _open
    if window is None or window._state["pid"] != os.getpid():
        return
    try:
        window.close()
        log.warning(
            f"the profiler was not stopped; what it recorded up to here is in {window.run}, steplens analyse makes results of it."
        )
    except Exception as error:  # the boundary to the end of the interpreter
        log.report_failure("closing the window at the end of the program", error)
