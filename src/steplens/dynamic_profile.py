"""Capture a running training on request, controlled by a file.

In the script::

    from steplens import dynamic_profile as dp

    dp.init("profiler_config_path")
    for batch in loader:
        train_one_step(batch)
        dp.step()

While it runs, edit ``profiler_config_path/profiler_config.json``, or ``steplens trigger profiler_config_path --steps 3``.
Nothing here raises into training.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steplens.collect.common import log, paths
from steplens.collect.dynamic import process_agent
from steplens.collect.dynamic.job import job_folder
from steplens.collect.dynamic.steps.pytorch import PytorchForm
from steplens.collect.dynamic.watched_file import WatchedFile

__all__ = ["init", "set_state", "start", "step"]

_said = False


def init(path: str | os.PathLike[str]) -> None:
    """Watch a folder for requests; ``profiler_config.json`` is made in it if it is missing.

    Args:
        path: the folder. All ranks give the same one, on storage that they share.
    """
    try:
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            log.error("dynamic_profile.init: the path must be a string, nothing is watched.")
            return
        from steplens.collect.dynamic import environment

        environment.leave_steps_to_the_script()
        process_agent.start_agent(path, PytorchForm(), "dp.init", "dp.step()")
    except Exception as exception:  # the boundary to the training
        log.report_failure("dynamic_profile.init", exception)


def step() -> None:
    """Say that a training step has ended and the next one begins."""
    agent = process_agent.agent
    if agent is not None:
        agent.step()
        return
    try:
        agent = process_agent.begin_in_fork()
        if agent is not None:
            agent.step()
            return
    except Exception as exception:  # the boundary to the training
        log.report_failure("dynamic_profile.step", exception)
    _not_initialised("step")


def start(config_path: str | os.PathLike[str] | None = None) -> None:
    """Capture once, from here on; the next call of :func:`step` ends the first captured step.

    The fields ``start_step`` and changes of the file are ignored. It has no effect while a capture is running.

    Args:
        config_path: a configuration file; if it cannot be read, and by default, the one of the folder given to :func:`init`.
    """
    try:
        agent = process_agent.agent or process_agent.begin_in_fork()
        if agent is None:
            _not_initialised("start")
            return
        if config_path is not None:
            paths.warn_if_unusual(config_path, "config_path of dynamic_profile.start")
        document = _read_configuration(config_path) if config_path is not None else None
        if document is None:
            document = _read_configuration(agent.directory / job_folder.CONFIGURATION_FILE)
        if document is not None:
            agent.start(document)
    except Exception as exception:  # the boundary to the training
        log.report_failure("dynamic_profile.start", exception)


def set_state(state: Mapping[str, Any]) -> None:
    """Set the number of the step that runs, for a training that was resumed.

    Args:
        state: ``{"cur_step": n}`` with n not negative.
    """
    try:
        agent = process_agent.agent or process_agent.begin_in_fork()
        if agent is None:
            _not_initialised("set_state")
            return
        step = state.get("cur_step") if isinstance(state, Mapping) else None
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            log.warning('set_state takes {"cur_step": n} with n not negative, the step stays as it is.')
            return
        agent.set_step(step)
    except Exception as exception:  # the boundary to the training
        log.report_failure("dynamic_profile.set_state", exception)


def _read_configuration(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    change = WatchedFile(Path(path)).poll(settle=False)
    if change is None or change.document is None:
        problem = change.problem if change is not None else "changes while it is read"
        log.warning(f"dynamic_profile.start: {path} {problem}.")
        return None
    return change.document


def _not_initialised(call: str) -> None:
    global _said
    if not _said:
        _said = True
        log.error(f"dynamic_profile.{call} has no effect, because dynamic_profile.init was not called.")
