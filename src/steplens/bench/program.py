"""One run of a version: its steps are timed at full speed, then a few are recorded, then it is ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steplens.bench.checkouts import ProgramError, Version
from steplens.collect.dynamic import launched_processes, step_timer
from steplens.common.errors import SteplensError

#: how often is looked whether a program has done what is needed
_LOOK_S = 0.05
#: a program that is asked to end gets so long
_GRACE_S = 10.0
#: lines of a program's output that are shown where it failed
_SHOWN_LINES = 12
_LEAST_STEPS = 3
_WARMUP = 1


@dataclass(frozen=True)
class Plan:
    """What is done with each run.

    Attributes:
        skip: steps at the beginning that count for nothing.
        timed: steps whose time is taken, at full speed.
        recorded: steps behind them that are recorded, for what explains a difference; 0 for none.
        step_on: what ends a step, as of ``steplens run``.
        profile: arguments of ``steplens.profile``.
        to_the_end: let each run come to its end by itself.
        patience_s: so long may a run take.
    """

    skip: int
    timed: int
    recorded: int
    step_on: str
    profile: Mapping[str, Any]
    to_the_end: bool
    patience_s: float

    @property
    def recording_schedule(self) -> dict[str, int]:
        """When it is recorded: arguments of ``steplens.schedule``."""
        # timing begins with the end of a step, and needs one more
        return {"skip_first": 0, "wait": self.skip + self.timed + 1, "warmup": _WARMUP, "active": self.recorded, "repeat": 1}

    @property
    def steps_needed(self) -> int:
        """How many steps a program has to take."""
        return self.skip + self.timed + 1 + (_WARMUP + self.recorded if self.recorded else 0)


@dataclass(frozen=True)
class TimedRun:
    """What one run of a program took.

    Attributes:
        step_ns: of a step: the median, or with an accelerator, ahead of which the host runs, the mean; over ranks the geometric
            mean.
        steps: how many steps it is of.
        step_times_ns: of each process that took steps, in order of time.
        waited_share: the share of its time that it was ready to run and waited for a processor, 0 to 1.
        foreign_modules: what it imported from another checkout than its own.
    """

    step_ns: float
    steps: int
    step_times_ns: tuple[tuple[int, ...], ...]
    waited_share: float
    foreign_modules: tuple[str, ...]


def run_program(version: Version, command: Sequence[str], plan: Plan, out: Path) -> TimedRun:
    """Run a version once, and end it when its steps are timed and recorded.

    Args:
        version: where and with which variables.
        command: what is run; the name of a Python script stands for Python with it.
        plan: how many steps.
        out: a folder for the run directories of what is recorded.

    Raises:
        ProgramError: it failed, took too long or too few steps.
        SteplensError: it cannot be started.
    """
    notes = Path(tempfile.mkdtemp(prefix="steplens_bench_notes_"))
    try:
        order = launched_processes.Order(
            out=str(out),
            answers=str(notes),
            profile=plan.profile,
            schedule=plan.recording_schedule,
            experimental={},
            step_on=plan.step_on,
            timing={"folder": str(notes), "skip": plan.skip, "steps": plan.timed, "foreign": version.foreign},
        )
        log = notes / "output.txt"
        code = _run_until_recorded(version, command, order, plan, log)
        return _measure_run(version, step_timer.read_step_times(notes), plan, code, log)
    finally:
        shutil.rmtree(notes, ignore_errors=True)


def _run_until_recorded(version: Version, command: Sequence[str], order: launched_processes.Order, plan: Plan, log: Path) -> int:
    """Run the program; its exit code, 0 where it was ended because all is there."""
    environment = {**os.environ, **version.environment, launched_processes.VARIABLE: order.text()}
    arguments = [sys.executable, *command] if command[0].endswith(".py") else list(command)
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                arguments,
                cwd=version.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # ended with all that it started
                start_new_session=True,
            )
        except OSError as error:
            raise SteplensError(f"{arguments[0]} cannot be started in {version.folder}: {error.strerror}") from None
        try:
            deadline = time.monotonic() + plan.patience_s
            while process.poll() is None:
                if not plan.to_the_end and _is_recorded(Path(order.answers)):
                    return 0
                if time.monotonic() > deadline:
                    raise ProgramError(
                        f"{version.full_name}: took more than {plan.patience_s:.0f} s and had not timed and recorded its steps; "
                        "lower --steps and --record, or allow more with --patience",
                        _last_lines(log),
                    )
                time.sleep(_LOOK_S)
            return process.returncode
        finally:
            _end_session(process)


def _is_recorded(answers: Path) -> bool:
    """Whether every process that took steps has closed its window."""
    stepping = [answer for answer in launched_processes.read_answers(answers) if answer["steps"] > 0]
    return bool(stepping) and all(answer.get("closed") is True for answer in stepping)


def _end_session(process: subprocess.Popen[bytes]) -> None:
    for number, patience in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
        # its children may live on where it ended by itself
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            if number == signal.SIGTERM and not _session_lives(process.pid):
                return


def _session_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _measure_run(version: Version, documents: Sequence[Mapping[str, Any]], plan: Plan, code: int, log: Path) -> TimedRun:
    timed = [document for document in documents if len(document["step_ns"]) >= _LEAST_STEPS]
    if not timed:
        raise ProgramError(_why_untimed(version, documents, plan, code), _last_lines(log))
    usual = []
    for document in timed:
        lengths = np.array(document["step_ns"], dtype=np.float64)
        usual.append(float(np.mean(lengths) if document.get("synchronized") is True else np.median(lengths)))
    times = [times for document in timed if isinstance(times := document.get("processor_time"), dict)]
    ran, waited = (sum(int(time_.get(name, 0)) for time_ in times) for name in ("ran_ns", "waited_ns"))
    return TimedRun(
        step_ns=float(np.exp(np.mean(np.log(np.maximum(usual, 1.0))))),
        steps=min(len(document["step_ns"]) for document in timed),
        step_times_ns=tuple(tuple(document["step_ns"]) for document in timed),
        waited_share=waited / (ran + waited) if ran + waited > 0 else 0.0,
        foreign_modules=tuple(sorted({str(name) for document in timed for name in document.get("foreign_modules", ())})),
    )


def _why_untimed(version: Version, documents: Sequence[Mapping[str, Any]], plan: Plan, code: int) -> str:
    if code:
        ended = f"ended with exit code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
        return f"{version.full_name}: the command {ended}"
    if documents:
        steps = max(len(document["step_ns"]) for document in documents)
        return (
            f"{version.full_name}: took {plan.skip + steps + 1} steps at most, and {plan.steps_needed} are needed; let it run "
            "longer, or lower --skip, --steps and --record"
        )
    return (
        f"{version.full_name}: took no step that was noticed: no optimizer of PyTorch stepped more than {plan.skip} times; where "
        f"nothing is trained give --step-on forward; PyTorch has to be 2.5 or newer, in an environment that has steplens"
    )


def _last_lines(log: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:]
    return []
