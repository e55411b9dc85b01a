"""``PROF_CONFIG_PATH``: dynamic profiling of a script that knows nothing of it. A step ends when ``Optimizer.step`` returns.

PyTorch calls :func:`on_torch_import` at the end of its own import, through its entry points for device back ends. A process
takes part when it builds its first optimizer. Until then it only says that it is there.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from steplens.collect.dynamic.job.process import Process
    from steplens.collect.dynamic.steps.optimizer_steps import OptimizerSteps

#: the variable of the Ascend PyTorch Profiler, and one that only steplens reads
VARIABLE = "PROF_CONFIG_PATH"
OWN_VARIABLE = "STEPLENS_CONFIG_PATH"
#: the one of ``steplens.collect.dynamic.launched_processes``, which is imported only where it is set
RUN_VARIABLE = "STEPLENS_RUN"

_watcher: Watcher | None = None


def on_torch_import() -> None:
    """Called when PyTorch has been imported; does nothing without the environment variables."""
    if os.environ.get(RUN_VARIABLE):
        _call_guarded("steplens run", _record_for_command)
    path = os.environ.get(OWN_VARIABLE) or os.environ.get(VARIABLE)
    if path:
        _call_guarded("dynamic_profile", lambda: install(path))


def _record_for_command() -> None:
    from steplens.collect.dynamic import launched_processes

    launched_processes.on_torch_import()


def _call_guarded(name: str, call: Callable[[], None]) -> None:
    try:
        call()
    except Exception as exception:  # an exception would make the import of PyTorch fail
        from steplens.collect.common import log

        log.report_failure(name, exception)


def install(path: str) -> None:
    """Take part in the dynamic profiling of the folder ``path``, unless this process only launches others."""
    global _watcher
    from steplens.collect.common import log
    from steplens.collect.dynamic.launchers import is_worker

    if _watcher is not None or not is_worker(sys.orig_argv, os.environ):
        return
    if not os.environ.get(OWN_VARIABLE) and _torch_npu_reads_it():
        log.warning(f"torch_npu reads {VARIABLE} itself; steplens leaves it to it. Set {OWN_VARIABLE} instead to use steplens.")
        return
    _watcher = Watcher(path)
    _watcher.install()


def _torch_npu_reads_it() -> bool:
    import importlib.util

    return "torch_npu" in sys.modules or importlib.util.find_spec("torch_npu") is not None


def leave_steps_to_the_script() -> None:
    """The script calls ``dp.init`` itself, so its ``dp.step`` counts and its optimizers do not."""
    if _watcher is not None:
        _watcher.retire()


class Watcher:
    """Waits for an optimizer, then counts its steps for the agent of the configuration folder ``path``."""

    def __init__(self, path: str) -> None:
        # The script may change directory before it trains.
        self._path = os.path.abspath(os.path.expanduser(path))
        self._steps: OptimizerSteps | None = None
        self._retired = False
        self._failed = False
        self._left: tuple[Path, Process] | None = None

    def install(self) -> None:
        """Watch for optimizers, and leave word that this process exists."""
        from steplens.collect.dynamic.steps.optimizer_steps import OptimizerSteps

        self._steps = OptimizerSteps(self._on_step, self._on_optimizer)
        self._steps.install()
        os.register_at_fork(after_in_child=self._on_fork)
        try:
            self._leave_word()
        except OSError as error:
            from steplens.collect.common import log

            log.report_failure(f"dynamic_profile ({VARIABLE})", error)

    def retire(self) -> None:
        """Count no more steps."""
        self._retired = True
        self._take_word_back()

    def _leave_word(self) -> None:
        from steplens.collect.dynamic.agent import RECORD_VERSION
        from steplens.collect.dynamic.job import job_folder, process
        from steplens.collect.dynamic.steps.pytorch import PytorchForm

        directory = job_folder.configuration_directory(self._path)
        folder, owner, identity = job_folder.create_folder(directory), process.current_process(), PytorchForm().identity()
        record: dict[str, Any] = {
            "version": RECORD_VERSION,
            "pid": owner.pid,
            "start": owner.start,
            "program": os.path.basename(sys.argv[0]) if sys.argv else "",
            "framework": "pytorch",
            "how": VARIABLE,
            "directory": str(directory),
            "rank": identity.rank,
            "world_size": identity.world_size,
            "group": identity.group,
            "state": "waiting",
            "bystander": True,
            "step": None,
            "eligible": False,
            "why_not": "it has built no torch.optim.Optimizer",
            "requests": [],
        }
        job_folder.write_record(folder, owner, record)
        self._left = (folder, owner)
        atexit.register(self._take_word_back)

    def _take_word_back(self) -> None:
        from steplens.collect.dynamic import process_agent
        from steplens.collect.dynamic.job import job_folder

        left, self._left = self._left, None
        if left is not None and process_agent.agent is None and left[1].pid == os.getpid():
            job_folder.remove_process_files(*left, record=True)

    def _on_optimizer(self) -> None:
        from steplens.collect.dynamic import process_agent

        if not self._retired and not self._failed and process_agent.agent is None:
            self._begin_agent()

    def _begin_agent(self) -> None:
        from steplens.collect.common import log
        from steplens.collect.dynamic import process_agent
        from steplens.collect.dynamic.steps.pytorch import PytorchForm

        try:
            process_agent.start_agent(self._path, PytorchForm(), VARIABLE, "Optimizer.step")
            self._left = None
        except Exception as error:  # the boundary to the training
            self._failed = True
            log.report_failure(f"dynamic_profile ({VARIABLE})", error)

    def _on_step(self) -> None:
        from steplens.collect.dynamic import process_agent

        if self._retired or self._failed:
            return
        if process_agent.agent is None:
            self._begin_agent()
        if process_agent.agent is not None:
            process_agent.agent.step()

    def _on_fork(self) -> None:
        # A forked worker that loads data never steps; one that trains does, and then it gets an agent of its own.
        self._left = None
        if self._steps is not None:
            self._steps.follow_fork()
