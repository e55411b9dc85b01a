"""How a PyTorch process captures on request: with :class:`steplens.profile`, one object per capture."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steplens.collect.common import metadata, profiler_environment
from steplens.collect.dynamic import configuration
from steplens.collect.dynamic.configuration import Settings
from steplens.collect.dynamic.job import process
from steplens.collect.dynamic.plan import Identity, Outcome, Plan
from steplens.common import rundir

#: what makes processes ranks of one job, as launchers set it
_JOB_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID")


class PytorchForm:
    """PyTorch as a ``plan.Form``."""

    name = "pytorch"

    def template(self) -> Mapping[str, Any]:
        """What a new configuration file holds."""
        return configuration.TEMPLATE

    def plan(self, document: Mapping[str, Any], rank: int) -> Plan:
        """Read a configuration."""
        return configuration.read_plan(document, rank)

    def identity(self) -> Identity:
        """Rank, number of ranks and job of this process."""
        rank, world_size = metadata.process_rank(), metadata.world_size()
        if not world_size or world_size < 2 or rank < 0:
            return Identity(rank, world_size, f"process {process.current_process().name}")
        if os.environ.get("RANK", "").isdecimal():
            return Identity(rank, world_size, " ".join(f"{name}={os.environ.get(name, '')}" for name in _JOB_VARIABLES))
        # Started by a function of the program itself, which told only torch.distributed who is who.
        return Identity(rank, world_size, f"children of {process.process_of_pid(os.getppid()).name}")

    def obstacle(self) -> str:
        """Why nothing can be recorded now."""
        others = profiler_environment.variables_of_other_profilers()
        if others:
            return f"{' and '.join(others)} is set: another profiler is at work in this process"
        if "torch" in sys.modules:
            from steplens.collect.torch_internals.other_profilers import another_is_recording

            if another_is_recording():
                return "another profiler is recording in this process"
        return ""

    def capture(self, plan: Plan, step: int) -> WindowCapture:
        """Begin to record at the start of ``step``."""
        return WindowCapture(plan.settings, step)


class WindowCapture:
    """One window of :class:`steplens.profile`.

    Args:
        settings: what to record.
        step: the number of its first step.

    Raises:
        OSError: the folder for the result cannot be written.
        RuntimeError: the profiler did not begin.
    """

    def __init__(self, settings: Settings, step: int) -> None:
        from steplens.collect.common.experimental_config import _ExperimentalConfig
        from steplens.collect.handoff.handler import tensorboard_trace_handler
        from steplens.collect.pytorch.profiler import profile
        from steplens.collect.pytorch.schedule import schedule

        folder = rundir.make_directory(rundir.absolute_path(settings.prof_dir))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise OSError(f"{folder} cannot be written")
        recorded: dict[str, Any] = dict(settings.recorded)
        self._profiler = profile(
            activities=settings.activities,
            schedule=schedule(wait=0, warmup=settings.warmup, active=settings.active, repeat=1),
            on_trace_ready=tensorboard_trace_handler(str(folder), analyse_flag=settings.analyse, async_mode=settings.async_mode),
            experimental_config=_ExperimentalConfig(**settings.experimental) if settings.experimental is not None else None,
            **settings.limits,
            **recorded,
        )
        self._profiler._set_step_num_offset_for_dynamic_prof(step)
        for key, value in settings.metadata.items():
            self._profiler.add_metadata_json(key, json.dumps(value))
        self._profiler.start()
        window = self._profiler._session.window
        if window is None or window.failed:
            self._profiler.stop()
            raise RuntimeError("the profiler did not begin, see its messages")
        self.directory: Path | None = window.run_directory

    def step(self) -> None:
        """A step has ended; the last one closes the window."""
        self._profiler.step()

    def finish(self) -> Outcome:
        """Close the window if it is open, and say where it is."""
        self._profiler.stop()
        run_directory = self._profiler.run_directory
        if run_directory is None:
            return Outcome(self.directory, "no raw data of it was kept, see its messages")
        return Outcome(run_directory)
