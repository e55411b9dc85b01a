"""Starts the analysis of what was recorded: in a process of its own, waited for or not."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steplens.collect.common import log
from steplens.collect.handoff import closing_line
from steplens.collect.handoff.handler import offline_environment
from steplens.common import json_text

_MODULE = "steplens.mindspore_results"
#: its exit code when the other ranks and files are there
_SOME_FAILED = 3

#: analyses that are not waited for, with the process that started each and what it reads
_running: list[tuple[int, Path, subprocess.Popen[str]]] = []


def step_list_of(steps: Any) -> list[int] | None:
    """A checked ``step_list``.

    Raises:
        TypeError: it is no list of whole numbers.
        ValueError: its numbers are not consecutive, or do not count from 1.
    """
    if steps is None:
        return None
    if not isinstance(steps, list) or not all(type(step) is int for step in steps):
        raise TypeError(f"step_list should be a list of whole numbers, not {steps!r}")
    if not steps or min(steps) < 1 or sorted(steps) != list(range(min(steps), max(steps) + 1)):
        raise ValueError(f"step_list should be consecutive numbers that count the recorded steps from 1, not {steps!r}")
    return sorted(steps)


def run_analysis(
    path: Path, *, pretty: bool = False, step_list: Sequence[int] | None = None, data_simplification: bool = True,
    timeline_limit_mb: int | None = None, wait: bool = True, processes: int | None = None,
) -> None:  # fmt: skip
    """Write the results of a directory, or of all ranks in it, ``processes`` at a time; the options are those of ``analyse``.

    Raises:
        RuntimeError: it failed; the message says why. Never raised when it is not waited for: the reason is then printed at
            the end of the program.
    """
    arguments = ["analyse", str(path)]
    if pretty:
        arguments.append("--pretty")
    if step_list is not None:
        arguments += ["--steps", ",".join(map(str, step_list))]
    if not data_simplification:
        arguments.append("--keep-raw")
    if timeline_limit_mb is not None:
        arguments += ["--timeline-limit", str(timeline_limit_mb)]
    if processes is not None:
        arguments += ["--processes", str(processes)]
    wait_for(path)
    process = _start_process(arguments)
    if not wait:
        _running.append((os.getpid(), path.absolute(), process))
        return
    _, problem = process.communicate()
    if process.returncode:
        what = "a part of the analysis" if process.returncode == _SOME_FAILED else "the analysis"
        raise RuntimeError(f"{what} of {path} failed: {_failure_reason(problem, process.returncode)}")


def operators(path: Path, names: Sequence[str], device: int | None) -> str:
    """The JSON text of ``op_analyse``.

    Raises:
        RuntimeError: there are no such operators, or nothing was recorded.
    """
    wait_for(path)
    device_arguments = [] if device is None else ["--device", str(device)]
    process = _start_process(["operators", str(path), *device_arguments, "--", *names])
    text, problem = process.communicate()
    if process.returncode:
        raise RuntimeError(_failure_reason(problem, process.returncode))
    json_text.loads_stored(text)
    return text.strip()


def _start_process(arguments: Sequence[str]) -> subprocess.Popen[str]:
    environment = offline_environment()
    environment.pop("MS_PROFILER_OPTIONS", None)
    return subprocess.Popen(
        [sys.executable, "-m", _MODULE, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, encoding="utf-8", errors="replace", env=environment,
    )  # fmt: skip


def _failure_reason(problem: str, code: int) -> str:
    lines = [line for line in problem.splitlines() if line.strip()]
    return lines[-1].removeprefix("steplens: ") if lines else f"it ended with code {code}"


def wait_for(path: Path) -> None:
    """Wait for the analyses beside the training that read ``path``, and say which failed.

    One that runs removes the raw data at its end: nothing may be recorded there meanwhile, nor analysed again.
    """
    path = path.absolute()
    for running in tuple(_running):
        if running[1] == path or path in running[1].parents or running[1] in path.parents:
            _running.remove(running)
            _finish_analysis(running)


@atexit.register
def _end_of_program() -> None:
    wait_for_all()
    closing_line.say_next_command()


def wait_for_all() -> None:
    """Wait for every analysis that runs beside the training, and say which failed."""
    while _running:
        _finish_analysis(_running.pop())


def _finish_analysis(running: tuple[int, Path, subprocess.Popen[str]]) -> None:
    starter, _, process = running
    if starter != os.getpid():
        return
    _, problem = process.communicate()
    if process.returncode:
        log.error(f"the analysis beside the training failed: {_failure_reason(problem, process.returncode)}")
