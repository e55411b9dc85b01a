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
from steplens.bench.signals import hold_signals
from steplens.collect.dynamic import launched_processes, step_timer
from steplens.common.errors import SteplensError

#: how often is looked whether a program has done what is needed
_LOOK_S = 0.05
#: a program that is asked to end gets so long
_GRACE_S = 10.0
#: lines of a program's output that are shown where it failed
_SHOWN_LINES = 12
_WARMUP = 1
_REMEDY = "let it run longer, or lower --skip, --steps and --record"


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
        """When it is recorded, from the last timed step on: arguments of ``steplens.schedule``."""
        return {"skip_first": 0, "wait": 0, "warmup": _WARMUP, "active": self.recorded, "repeat": 1}

    @property
    def steps_needed(self) -> int:
        """How many steps a program has to take."""
        # timing begins with the end of a step, and needs one more
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
        foreign_modules: what it imported from another checkout than its own, each as "name from file".
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
    timing = {"folder": str(notes), "skip": plan.skip, "steps": plan.timed, "own": version.checkout, "foreign": version.foreign}
    try:
        order = launched_processes.Order(
            out=str(out),
            answers=str(notes),
            profile=plan.profile,
            schedule=plan.recording_schedule,
            experimental={},
            step_on=plan.step_on,
            timing=timing,
        )
        log = notes / "output.txt"
        code = _run_until_recorded(version, command, order, plan, log)
        answers = launched_processes.read_answers(notes)
        return _measure_run(version, step_timer.read_step_times(notes), answers, plan, code, log)
    finally:
        shutil.rmtree(notes, ignore_errors=True)


def _run_until_recorded(version: Version, command: Sequence[str], order: launched_processes.Order, plan: Plan, log: Path) -> int:
    """Run the program; its exit code, 0 where it was ended because all is there."""
    process: subprocess.Popen[bytes] | None = None
    try:
        with hold_signals():
            process = _start_program(version, command, order, log)
        deadline = time.monotonic() + plan.patience_s
        while process.poll() is None:
            if not plan.to_the_end and _is_recorded(Path(order.answers), plan):
                return 0
            if time.monotonic() > deadline:
                raise ProgramError(
                    f"{version.full_name}: took more than {plan.patience_s:.0f} s and had not timed and recorded its steps; "
                    "lower --steps and --record, or allow more with --patience",
                    _last_lines(log),
                )
            time.sleep(_LOOK_S)
        # what it did behind the last step that counts is not looked at, whether or not it had the time to end
        return 0 if not plan.to_the_end and _is_recorded(Path(order.answers), plan) else process.returncode
    finally:
        if process is not None:
            _end_session(process)


def _start_program(
    version: Version, command: Sequence[str], order: launched_processes.Order, log: Path
) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, *command] if command[0].endswith(".py") else list(command)
    with log.open("wb") as output:
        try:
            return subprocess.Popen(
                arguments,
                cwd=version.folder,
                env={**os.environ, **version.environment, launched_processes.VARIABLE: order.text()},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # ended with all that it started
                start_new_session=True,
            )
        except OSError as error:
            raise SteplensError(f"{arguments[0]} cannot be started in {version.folder}: {error.strerror}") from None


def _is_recorded(answers: Path, plan: Plan) -> bool:
    """Whether every process that took steps has closed its window, one of them all that are needed."""
    stepping = [answer for answer in launched_processes.read_answers(answers) if answer["steps"] > 0]
    is_closed = all(answer.get("closed") is True for answer in stepping)
    return is_closed and any(answer["steps"] >= plan.steps_needed for answer in stepping)


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End a program with all that it started; at once where somebody who asks this one to end does so again."""
    try:
        _signal_session(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    finally:
        with hold_signals():
            # its children may live on where it ended by itself
            if process.poll() is None or _session_lives(process.pid):
                _signal_session(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)


def _signal_session(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _session_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _measure_run(
    version: Version,
    documents: Sequence[Mapping[str, Any]],
    answers: Sequence[Mapping[str, Any]],
    plan: Plan,
    code: int,
    log: Path,
) -> TimedRun:
    """What a run tells that took all its steps; the first ones of another, which end before the device does, tell nothing."""
    timed = [document for document in documents if document.get("complete") is True]
    if code or not timed or max((answer["steps"] for answer in answers), default=0) < plan.steps_needed:
        raise ProgramError(f"{version.full_name}: {_why_untimed(answers, plan, code)}", _last_lines(log))
    # processes that a rank starts have its number
    ended_early = {str(document.get("rank")) for document in documents} - {str(document.get("rank")) for document in timed}
    if ended_early:
        raise ProgramError(
            f"{version.full_name}: rank {min(ended_early)} ended before its {plan.timed} steps were timed, unlike others; "
            f"{_REMEDY}",
            _last_lines(log),
        )
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


def _why_untimed(answers: Sequence[Mapping[str, Any]], plan: Plan, code: int) -> str:
    if code:
        return f"the command ended with exit code {code}" if code > 0 else f"the command was ended by {_signal_name(-code)}"
    stepping = [answer for answer in answers if answer["steps"] > 0]
    if any(answer.get("ended") is True for answer in stepping):
        return f"took {max(answer['steps'] for answer in stepping)} steps at most, and {plan.steps_needed} are needed; {_REMEDY}"
    if stepping:
        return (
            f"ended before {plan.steps_needed} steps were timed and recorded, and left no word of how many it took, as a program "
            f"does that is killed or calls os._exit; {_REMEDY}"
        )
    return (
        "took no step that was noticed: no optimizer of PyTorch stepped; where nothing is trained give --step-on forward; "
        "PyTorch has to be 2.5 or newer, in an environment that has steplens"
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_lines(log: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:]
    return []
