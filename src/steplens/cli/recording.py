"""The recording of ``steplens run``: a profile that starts when the script first steps, and what is left of it afterwards."""

from __future__ import annotations

import dataclasses
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steplens import rundir
from steplens.cli.text import clean


def say(message: str) -> None:
    """One line on stderr; stdout belongs to the script."""
    print(f"steplens: {clean(message)}", file=sys.stderr, flush=True)


@dataclasses.dataclass
class Recording:
    """Profiles the process from the first step on.

    Step 0 is everything up to the end of the first optimizer step. It cannot be recorded, so it counts as the first
    step of ``wait``; with ``wait`` 0 steps are counted from the next one.

    Args:
        out: folder of the run directories, absolute because the script may change directory.
        profile: arguments of ``steplens.profile``.
        schedule: arguments of ``steplens.schedule``.
        experimental: arguments of ``steplens._ExperimentalConfig``.
        worker_name: first part of the run directories' names.
    """

    out: Path
    profile: Mapping[str, Any]
    schedule: Mapping[str, Any]
    experimental: Mapping[str, Any]
    worker_name: str | None = None
    failed: bool = False
    _profiler: Any = None

    def on_step(self) -> None:
        """Start with the first step; go on with every later one. Never raises: this is inside the training loop."""
        if self.failed:
            return
        try:
            if self._profiler is None:
                self._start()
            else:
                self._profiler.step()
        except Exception as error:  # the boundary to somebody's training: it goes on, whatever happens to the profile
            self.failed = True
            say(f"recording failed, the script goes on: {type(error).__name__}: {error}")

    def _start(self) -> None:
        import steplens

        schedule = steplens.schedule(**self.schedule)
        handler = steplens.tensorboard_trace_handler(str(self.out), worker_name=self.worker_name, analyse_flag=False)
        self._profiler = steplens.profile(
            **self.profile,
            schedule=schedule,
            on_trace_ready=handler,
            experimental_config=steplens._ExperimentalConfig(**self.experimental),
        )
        self._profiler.start()
        if schedule(0) is steplens.ProfilerAction.NONE:
            self._profiler.step()

    def stop(self) -> None:
        """Close the window that is open, if any."""
        if self._profiler is None or self.failed:
            return
        try:
            self._profiler.stop()
        except Exception as error:  # as above: the exit code of the script is not ours to change
            self.failed = True
            say(f"the recording could not be closed: {type(error).__name__}: {error}")

    def run_directories(self) -> list[Path]:
        """The run directories that this process has made in ``out``."""
        if not self.out.is_dir():
            return []
        return [path for path in rundir.find_run_directories(self.out) if f"_{os.getpid()}_" in path.name]


def analyse(directories: list[Path], *, wait: bool) -> bool:
    """Turn ``directories`` into results in another process each, because the script may have left anything in this one.

    Returns:
        whether all of them succeeded; True without ``wait``.
    """
    from steplens.collect.handler import offline_command, offline_environment

    nowhere = subprocess.DEVNULL
    environment = offline_environment()
    commands = [offline_command("analyse", directory) for directory in directories]
    if wait:
        done = [subprocess.run(command, env=environment, stdin=nowhere, stdout=nowhere, check=False) for command in commands]
        return not any(process.returncode for process in done)
    for command in commands:
        subprocess.Popen(command, env=environment, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)
    return True


def report(recording: Recording, steps: int, needed: int) -> list[Path]:
    """Say what was recorded, or why nothing was.

    Args:
        recording: the closed recording.
        steps: how many steps the script took.
        needed: how many of them pass before the first one is recorded.
    """
    directories = recording.run_directories()
    if directories:
        for directory in directories:
            say(f"recorded {directory}")
    elif recording.failed:
        say("nothing was recorded")
    elif steps == 0:
        say(
            "nothing was recorded, because torch.optim.Optimizer.step was never called; "
            "in a script without an optimizer use steplens.profile, see the README"
        )
    else:
        say(
            f"nothing was recorded: the script took {steps} optimizer steps and recording begins after {needed}; "
            "let it run longer or lower --wait and --warmup"
        )
    return directories


def say_next(out: Path, directories: list[Path], start: Path, *, complete: bool) -> None:
    """Where the results are, and the command that shows them, for a shell that is still in ``start``."""
    alone = len(directories) == 1 and os.environ.get("WORLD_SIZE", "1") == "1"
    shown = shlex.quote(os.path.relpath(directories[0] if alone else out, start))
    if complete:
        for directory in directories:
            say(f"results in {directory / rundir.OUTPUT_DIRECTORY}")
        say(f"next: steplens summary {shown}")
    else:
        say(f"next: steplens analyse {shown}")
