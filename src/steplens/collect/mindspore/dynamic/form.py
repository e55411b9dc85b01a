"""How a MindSpore process captures on request: its ``profiler_config.json``, and one profiler per capture."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steplens.collect.dynamic.job import process
from steplens.collect.dynamic.plan import NEVER, NEXT, Identity, Outcome, Plan
from steplens.collect.mindspore.interfaces.profiler import Profiler
from steplens.collect.mindspore.recording import framework
from steplens.collect.mindspore.recording.window import open_window

TEMPLATE: dict[str, Any] = {
    "start_step": -1,
    "stop_step": -1,
    "aicore_metrics": -1,
    "profiler_level": -1,
    "profile_framework": -1,
    "analyse_mode": -1,
    "profile_communication": False,
    "parallel_strategy": False,
    "with_stack": False,
    "data_simplification": True,
}

_JOB_VARIABLES = ("MS_SCHED_HOST", "MS_SCHED_PORT", "RANK_SIZE", "RANK_TABLE_FILE")
_SYNC, _ASYNC = "sync", "async"
_MODES = {0: _SYNC, 1: _ASYNC, _SYNC: _SYNC, _ASYNC: _ASYNC}


@dataclass(frozen=True)
class Settings:
    """What to record, checked.

    Attributes:
        mode: "sync", "async" or "" for no analysis.
        memory: record the memory pool.
        data_simplification: remove raw data once the results are there.
    """

    mode: str
    memory: bool
    data_simplification: bool


class MindsporeForm:
    """MindSpore as a ``plan.Form``.

    Args:
        output: folder for the captures.
    """

    name = "mindspore"

    def __init__(self, output: Path) -> None:
        self._output = output
        #: the capture that runs
        self.current: StepCapture | None = None
        #: number of the step that a training ends with, while it does; 0 otherwise
        self.last_step = 0

    def template(self) -> Mapping[str, Any]:
        """What a new configuration file holds."""
        return TEMPLATE

    def plan(self, document: Mapping[str, Any], rank: int) -> Plan:
        """Read a configuration. A wrong value is reset to its default with a warning."""
        warnings: list[str] = []

        def read_integer(name: str) -> int:
            value = document.get(name, TEMPLATE[name])
            if type(value) is int:
                return value
            warnings.append(f"Parameter {name} should be a whole number, reset it to {TEMPLATE[name]}.")
            return int(TEMPLATE[name])

        def read_boolean(name: str, default: bool) -> bool:
            value = document.get(name, default)
            if isinstance(value, bool):
                return value
            warnings.append(f"Parameter {name} is of boolean type, reset it to {default}.")
            return default

        for name in ("profile_communication", "parallel_strategy", "with_stack"):
            read_boolean(name, bool(TEMPLATE[name]))
        mode = document.get("analyse_mode", TEMPLATE["analyse_mode"])
        if mode not in (-1, *_MODES) or isinstance(mode, bool):
            warnings.append("Parameter analyse_mode should be 0, 1, 'sync', 'async' or -1, reset it to -1.")
            mode = -1
        analysed = _MODES.get(mode, "")
        if read_boolean("analyse", False) and not analysed:
            analysed = _SYNC
        memory = read_boolean("profile_memory", False)
        simplified = read_boolean("data_simplification", True)
        start, stop = read_integer("start_step"), read_integer("stop_step")
        count = document.get("active")
        settings, refusal = Settings(analysed, memory, simplified), ""
        if type(count) is int and count > 0:
            begin = start if start > 0 or start == NEXT else NEVER
        elif start <= 0 or stop <= 0:
            begin, count = NEVER, 1
        else:
            begin, count = start, max(stop - start + 1, 1)
            refusal = f"stop_step {stop} is before start_step {start}" if stop < start else ""
        return Plan(begin, count, refusal=refusal, warnings=tuple(warnings), settings=settings)

    def identity(self) -> Identity:
        """Rank, number of ranks and job of this process."""
        rank, size = framework.mindspore_rank(), framework.world_size()
        if not size or size < 2:
            return Identity(-1, size, f"process {process.current_process().name}")
        job = " ".join(f"{name}={os.environ.get(name, '')}" for name in _JOB_VARIABLES)
        return Identity(rank, size, job if job.strip("= ") else f"children of {process.process_of_pid(os.getppid()).name}")

    def obstacle(self) -> str:
        """Why nothing can be recorded now."""
        if self.last_step:
            return f"the training ended with step {self.last_step}"
        return "another profiler is recording in this process" if open_window() is not None else ""

    def capture(self, plan: Plan, step: int) -> StepCapture:
        """Begin to record at the start of ``step``."""
        self.current = StepCapture(self._output, plan, step, self)
        return self.current


class StepCapture:
    """One capture from ``step`` on; what it records goes to ``rank<r>_start<a>_stop<b>``. The form forgets it at its end.

    Raises:
        OSError: the folder cannot be written.
        RuntimeError: MindSpore cannot record.
    """

    def __init__(self, output: Path, plan: Plan, step: int, form: MindsporeForm) -> None:
        settings: Settings = plan.settings
        last = self._last = step + plan.steps - 1
        self._mode = settings.mode
        self._form = form
        self._left = plan.steps
        self._profiler: Profiler | None = None
        self._problem = ""
        folder = output / f"rank{framework.mindspore_rank()}_start{step}_stop{last}"
        options = {"profile_memory": settings.memory, "data_simplification": settings.data_simplification}
        profiler = Profiler(output_path=str(folder), start_profile=False, **options)
        profiler.start()
        self._profiler = profiler
        self.directory: Path | None = profiler.directory

    def ends_step(self) -> None:
        """A step has ended, and what follows it until the next one begins belongs to no step."""
        self._left -= 1
        if self._left <= 0:
            self._close_profiler()

    def step(self) -> None:
        """The next step begins, or the training is over.

        Raises:
            RuntimeError: recording failed, or the training ended before the last step that was asked for.
        """
        if self._profiler is not None and self._form.last_step:
            stop, last = self._last, self._form.last_step
            self._close_profiler()
            raise RuntimeError(
                self._problem
                or f"the training ended with step {last}, before step {stop} that was asked for; it is recorded up to there"
            )
        if self._profiler is None and self._problem:
            raise RuntimeError(self._problem)

    def finish(self) -> Outcome:
        """End it, also before its last step."""
        self._close_profiler()
        return Outcome(self.directory, self._problem)

    def _close_profiler(self) -> None:
        profiler, self._profiler = self._profiler, None
        self._form.current = None
        if profiler is None:
            return
        try:
            profiler.stop()
            if self._mode:
                profiler.analyse(mode=self._mode)
        # the boundary to somebody's training: it goes on, and the request tells what happened
        except Exception as error:
            self._problem = f"{type(error).__name__}: {error}"
