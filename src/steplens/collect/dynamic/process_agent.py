"""The one agent of a process: started by a call or by an environment variable, and again in a forked child that steps."""

from __future__ import annotations

import atexit
import os

from steplens.collect.common import log, paths
from steplens.collect.dynamic.agent import Agent
from steplens.collect.dynamic.job import job_folder
from steplens.collect.dynamic.plan import Form

#: the agent of this process; read at every step
agent: Agent | None = None

#: what a forked child needs to start its own
_arguments: tuple[str | os.PathLike[str], Form, str, str] | None = None
_hooked = False


def start_agent(directory: str | os.PathLike[str], form: Form, how: str, stepper: str) -> Agent:
    """Start the agent of this process, or give back the one that runs.

    Args:
        directory: the configuration folder.
        form: the framework.
        how: what started it, for the status.
        stepper: what ends a step, for messages.

    Raises:
        OSError: the folder cannot be used.
    """
    global agent, _arguments, _hooked
    if agent is not None:
        same = agent.directory == job_folder.configuration_directory(directory)
        if not same or agent.how == how:
            log.warning(f"dynamic_profile is initialised already{'' if same else f' with {agent.directory}, which stays'}.")
        agent.how, agent.stepper = how, stepper
        return agent
    paths.warn_if_unusual(directory, "the configuration folder of dynamic_profile")
    agent = Agent(directory, form, how, stepper)
    _arguments = (agent.directory, form, how, stepper)
    if not _hooked:
        _hooked = True
        os.register_at_fork(after_in_child=_abandon_agent)
        atexit.register(end_agent)
    return agent


def begin_in_fork() -> Agent | None:
    """Start the agent of a forked child whose parent had one; None if it had none."""
    return start_agent(*_arguments) if agent is None and _arguments is not None else agent


def end_agent() -> None:
    """Take leave at the end of the program."""
    global agent, _arguments
    if agent is not None:
        ending, agent, _arguments = agent, None, None
        ending.close()


def _abandon_agent() -> None:
    global agent
    if agent is not None:
        inherited, agent = agent, None
        try:
            inherited.abandon()
        except Exception as error:  # the boundary to the program that forked
            log.report_failure("dynamic_profile in a forked process", error)
