"""``steplens run``: recording in the processes that it starts, which know nothing of it.

The command passes an :class:`Order` on in the environment. PyTorch calls :func:`on_torch_import` at the end of its own import,
through its entry points for device back ends, so a process without PyTorch is left alone. One that takes optimizer steps records
them; each leaves an answer in a folder, from which the command tells afterwards what became of it.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from steplens.collect.common import exception_text, interrupts, log
from steplens.collect.dynamic.launchers import is_worker
from steplens.collect.dynamic.step_timer import StepTimer
from steplens.common import json_text, options, rundir

#: holds the order, as JSON
VARIABLE = "STEPLENS_RUN"

#: what a black box keeps of every step
OPERATORS, NUMBERS = "operators", "numbers"
#: what ends a step
OPTIMIZER, FORWARD = "optimizer", "forward"

#: set in a process that ``steplens run`` records itself, because its script runs in it
recorded_by_command = False

_watcher: Watcher | None = None


@dataclasses.dataclass(frozen=True)
class Order:
    """What to record, where.

    Attributes:
        out: folder for run directories, absolute.
        answers: folder for what processes say about themselves, absolute.
        profile: arguments of ``steplens.profile``.
        schedule: arguments of ``steplens.schedule``.
        experimental: arguments of ``steplens._ExperimentalConfig``.
        worker_name: first part of the run directories' names.
        black_box: write only when something happens, see :class:`~steplens.collect.black_box.black_box.BlackBox`:
            ``operators`` or ``numbers``; the schedule and ``experimental`` then do not count. None for windows by the schedule.
        step_on: what ends a step: ``optimizer``, the end of an optimizer step, or ``forward``, the next call of the model.
        timing: arguments of ``StepTimer``, which takes the time of steps before any is recorded; None for none. The schedule
            begins with the step behind them, and nothing is recorded where it has no active one.
    """

    out: str
    answers: str
    profile: Mapping[str, Any]
    schedule: Mapping[str, Any]
    experimental: Mapping[str, Any]
    worker_name: str | None = None
    black_box: str | None = None
    step_on: str = OPTIMIZER
    timing: Mapping[str, Any] | None = None

    @property
    def steps_until_timed(self) -> int:
        """How many steps end until their time is taken; 0 where it is not."""
        # timing begins with the end of a step
        return 0 if self.timing is None else int(self.timing["skip"]) + int(self.timing["steps"]) + 1

    @property
    def records_steps(self) -> bool:
        """Whether anything is to be recorded."""
        return self.timing is None or int(self.schedule.get("active", 0)) > 0

    def text(self) -> str:
        """As it stands in the environment."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def parse(text: str) -> Order:
        """The order in an environment.

        Raises:
            ValueError: it is none.
        """
        try:
            return Order(**json_text.loads(text))
        except TypeError as error:
            raise ValueError(f"{VARIABLE} does not hold what steplens run writes: {error}") from None


class StepRecording:
    """Profiles a process from its first step on. Nothing it does raises into the training.

    Step 0 is everything up to the end of the first step. It cannot be recorded, so it counts as the first
    step of ``wait``; with ``wait`` 0 steps are counted from the next one. Where steps are timed first the schedule begins
    behind them.

    Args:
        order: what to record.
        complain: gets a sentence when recording fails.
    """

    def __init__(self, order: Order, complain: Callable[[str], None]) -> None:
        self._order = order
        self._complain = complain
        self._profiler: Any = None
        self._observes_loaders = False
        self.failed = False

    def prepare(self) -> None:
        """A training is about to begin: watch its data loaders, since what the first steps use is made before the first step."""
        records_loaders = self._order.experimental.get("data_loader", True) and self._order.black_box in (None, OPERATORS)
        if self._observes_loaders or not (records_loaders and self._order.records_steps):
            return
        try:
            from steplens.collect.loaders import loader

            self._observes_loaders = True
            loader.profiler_starts()
        except Exception as error:  # the boundary to somebody's training
            self._complain(f"data loaders are not recorded: {exception_text.describe_exception(error)}")

    def on_step(self) -> None:
        """Start with the first step; go on with every later one."""
        if self.failed:
            return
        try:
            if self._profiler is None:
                self._start()
            else:
                self._profiler.step()
        except Exception as error:  # the boundary to somebody's training: it goes on, whatever happens to the profile
            if interrupts.of_the_program(error):
                raise
            self.failed = True
            self._complain(f"recording failed, the training goes on: {exception_text.describe_exception(error)}")

    def _start(self) -> None:
        if self._order.black_box is not None:
            self._start_black_box(self._order.black_box)
            return
        from steplens.collect.common.experimental_config import _ExperimentalConfig
        from steplens.collect.handoff.handler import tensorboard_trace_handler
        from steplens.collect.pytorch.actions import ProfilerAction
        from steplens.collect.pytorch.profiler import profile
        from steplens.collect.pytorch.schedule import schedule

        order = self._order
        step_schedule = schedule(**order.schedule)
        self._profiler = profile(
            **order.profile,
            schedule=step_schedule,
            on_trace_ready=tensorboard_trace_handler(order.out, worker_name=order.worker_name, analyse_flag=False, quiet=True),
            experimental_config=_ExperimentalConfig(**order.experimental),
        )
        self._profiler._set_step_num_offset_for_dynamic_prof(order.steps_until_timed)
        self._profiler.start()
        self.failed = self._profiler.off
        if not order.steps_until_timed and step_schedule(0) is ProfilerAction.NONE:
            self._profiler.step()

    def _start_black_box(self, kind: str) -> None:
        from steplens.collect.black_box.black_box import BlackBox

        names = ("activities", "stack_sampling_hz", *options.SWITCHES)
        arguments = {name: value for name, value in self._order.profile.items() if name in names}
        self._profiler = BlackBox(self._order.out, record_operators=kind == OPERATORS, analyse_flag=False, **arguments)
        self._profiler.start()
        self.failed = self._profiler.off

    def stop(self, exception: BaseException | None = None) -> None:
        """Close the window that is open, if any; ``exception`` is what ended the training."""
        self._leave_loaders()
        if self._profiler is None or self.failed:
            return
        try:
            if exception is not None and self._order.black_box is not None:
                self._profiler.on_exception(exception)
            self._profiler.stop()
        except Exception as error:  # as above: the exit code of the program is not ours to change
            if interrupts.of_the_program(error):
                raise
            self.failed = True
            self._complain(f"the recording could not be closed: {exception_text.describe_exception(error)}")

    def _leave_loaders(self) -> None:
        if not self._observes_loaders:
            return
        from steplens.collect.loaders import loader

        self._observes_loaders = False
        try:
            loader.profiler_stops()
        except Exception as error:  # as above
            self._complain(f"data loaders are still watched: {exception_text.describe_exception(error)}")


def on_torch_import() -> None:
    """Called when PyTorch has been imported; does nothing unless ``steplens run`` has started this process."""
    global _watcher
    text = os.environ.get(VARIABLE)
    if not text or recorded_by_command or _watcher is not None:
        return
    if is_worker(sys.orig_argv, os.environ):
        _watcher = Watcher(Order.parse(text))
        _watcher.install()


class Watcher:
    """Waits for steps and records them as ordered."""

    def __init__(self, order: Order) -> None:
        from steplens.collect.dynamic.steps.forward_steps import ForwardSteps
        from steplens.collect.dynamic.steps.optimizer_steps import OptimizerSteps

        self._order = order
        steps = ForwardSteps if order.step_on == FORWARD else OptimizerSteps
        self._steps = steps(self._on_step, lambda: self._recording.prepare())
        self._recording = StepRecording(order, log.error)
        self._timer = _make_timer(order)

    def install(self) -> None:
        """Watch for steps, and say that this process exists."""
        self._steps.install()
        os.register_at_fork(after_in_child=self._on_fork)
        self._write_answer()

    def _on_step(self) -> None:
        if self._steps.count == 1:
            self._first_step()
        if self._timer is None:
            self._recording.on_step()
            return
        self._timer.on_step()
        # while steps are timed there is no profiler
        if self._timer.is_done:
            if self._order.records_steps:
                self._recording.on_step()
            if self._steps.count == self._steps_until_closed:
                self._write_answer(closed=True)

    def _first_step(self) -> None:
        self._write_answer()
        atexit.register(self._end_process, os.getpid())
        multiprocessing = sys.modules.get("multiprocessing.process")
        if multiprocessing is not None and multiprocessing.parent_process() is not None:
            # A process of multiprocessing that was forked ends without atexit.
            from multiprocessing.util import Finalize

            Finalize(None, self._end_process, args=(os.getpid(),), exitpriority=100)

    def _end_process(self, process: int) -> None:
        if process == os.getpid():
            self.end()

    def end(self, exception: BaseException | None = None) -> None:
        """Close the window that is open, if any, and leave word of what became of this process; see ``StepRecording.stop``."""
        if self._timer is not None:
            self._timer.write_times()
        self._recording.stop(exception)
        self._write_answer(ended=True, closed=True)

    @property
    def _steps_until_closed(self) -> int:
        """After how many ends of steps their time is taken and the first window behind them closed, where there is one."""
        names = ("skip_first", "wait", "warmup", "active") if self._order.records_steps else ()
        return self._order.steps_until_timed + sum(int(self._order.schedule.get(name, 0)) for name in names)

    def _write_answer(self, *, ended: bool = False, closed: bool = False) -> None:
        """Leave word of this process, without which the command's report is poorer.

        Args:
            ended: it takes no further steps.
            closed: its window has been written, or there is none to write.
        """
        answer = {
            "pid": os.getpid(),
            "steps": self._steps.count,
            "failed": self._recording.failed,
            "ended": ended,
            "closed": closed or self._recording.failed,
        }
        with contextlib.suppress(OSError):
            rundir.write_json(Path(self._order.answers) / f"{os.getpid()}.json", answer)

    def _on_fork(self) -> None:
        # A forked worker that loads data never steps; one that trains records like its parent.
        self._steps.follow_fork()
        self._recording = StepRecording(self._order, log.error)
        self._timer = _make_timer(self._order)


def _make_timer(order: Order) -> StepTimer | None:
    return None if order.timing is None else StepTimer(**order.timing)


def read_answers(folder: Path) -> list[dict[str, Any]]:
    """What processes have said about themselves; one that cannot be read is left out."""
    answers = []
    for path in sorted(folder.glob("*.json")):
        try:
            answer = json_text.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(answer, dict) and isinstance(answer.get("pid"), int) and isinstance(answer.get("steps"), int):
            answers.append(answer)
    return answers
