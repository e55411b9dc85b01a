"""``mindspore.profiler.DynamicProfilerMonitor``: captures steps of a training that runs, as a file asks for them."""

from __future__ import annotations

import threading
import time
from typing import Any

from mindspore.train import Callback

from steplens.collect.common import log
from steplens.collect.dynamic import process_agent
from steplens.collect.mindspore.dynamic.form import MindsporeForm
from steplens.collect.mindspore.recording import framework
from steplens.collect.mindspore.recording.steps import install_hooks, steps
from steplens.common import rundir

_OUTPUT = "./dyn_profile_data"
_POLL_S = 2


class DynamicProfilerMonitor(Callback):  # type: ignore[misc]
    """Watches ``<cfg_path>/profiler_config.json`` during a training: a callback for ``Model.train``, or :meth:`step` in a loop.

    ``start_step`` and ``stop_step`` count the steps of the training from 1. In a loop the first step begins when the script asks
    an iterator of MindSpore for a batch, once this object was made; without such an iterator nothing tells that it begins, and
    the second step is the first that can be captured. A capture goes to
    ``<output_path>/rank<rank>_start<start>_stop<stop>``. Nothing here raises into training.

    Args:
        cfg_path: folder of the file, which is made if it is missing; all ranks give the same one.
        output_path: folder of the captures.
        poll_interval: seconds between two looks at the file; steplens looks more often, and at no cost for the training.
        **kwargs: without effect.

    Raises:
        TypeError: ``cfg_path`` is no text.
        OSError: the folder cannot be used.
    """

    def __init__(self, cfg_path: str, output_path: str = _OUTPUT, poll_interval: int = _POLL_S, **kwargs: Any) -> None:
        super().__init__()
        paths: list[Any] = [cfg_path, output_path]
        if not isinstance(paths[0], str):
            raise TypeError(f"cfg_path should be a text, not {cfg_path!r}")
        if not isinstance(paths[1], str):
            log.warning(f"output_path should be a text, not {output_path!r}; {_OUTPUT} is used.")
            output_path = _OUTPUT
        if type(poll_interval) is not int or poll_interval < 1:
            log.error(f"poll_interval should be a whole number of seconds above 0, not {poll_interval!r}; {_POLL_S} is used.")
        if kwargs:
            log.warning(f"{', '.join(sorted(kwargs))}: without effect.")
        install_hooks()
        self._form = MindsporeForm(rundir.absolute_path(output_path))
        self._in_step = False
        #: number of the step that runs; 0 before the first
        self._count = 0
        self._agent = process_agent.start_agent(cfg_path, self._form, "DynamicProfilerMonitor", "the training step")
        self._thread = threading.get_ident()
        steps.loop_begins = self._loop_begins

    # --- Model.train

    def on_train_begin(self, run_context: Any) -> None:
        """Model tells its steps itself."""
        steps.loop_begins = None

    def on_train_step_begin(self, run_context: Any) -> None:
        """A step begins."""
        number = getattr(run_context.original_args(), "cur_step_num", None)
        self._begin_step(number if isinstance(number, int) and number > 0 else self._count + 1)

    def on_train_step_end(self, run_context: Any) -> None:
        """A step has ended."""
        self._end_step()

    def on_train_end(self, run_context: Any) -> None:
        """The training has ended, and with it a capture that still runs."""
        self._end_step()
        if not self._agent.capturing:
            return
        self._form.last_step = self._count
        try:
            # the agent ends a capture where the next step begins; there is none, so its count is put back
            self._agent.step()
            self._agent.set_step(self._count)
        finally:
            self._form.last_step = 0

    # --- a loop of the script's own

    def _loop_begins(self) -> None:
        """The script asks for its first batch, with which the first step begins."""
        if threading.get_ident() != self._thread:
            return
        steps.loop_begins = None
        if self._count:
            return
        self._begin_step(1)
        if self._agent.capturing:
            # what was asked of MindSpore before is no part of it; up to the first step() all is, however many batches it takes
            framework.wait_for_eager_work()
            steps.begin_manual(1, time.time_ns())

    def step(self) -> None:
        """A step has ended, the next one begins. To be called at the end of every step."""
        framework.wait_for_eager_work()
        steps.loop_begins = None
        number = self._count + 1 if self._count else 2
        with steps.in_callbacks("ending"):
            self._end_step()
        steps.manual(number)
        with steps.in_callbacks("beginning"):
            self._begin_step(number)

    def _begin_step(self, number: int) -> None:
        if number != self._count + 1:
            # a training that was resumed, a second one in this process, or a loop, whose first step nobody announces
            self._agent.set_step(number - 1)
        self._count = number
        self._in_step = True
        self._agent.step()

    def _end_step(self) -> None:
        if not self._in_step:
            return
        self._in_step = False
        if self._form.current is not None:
            self._form.current.ends_step()
