"""Runs any command, as a shell would, and passes signals on to it."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

from steplens.common.errors import SteplensError

#: what is passed on to the command
_FORWARDED = frozenset(
    (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGCONT)
)

#: a signal that the kernel sends by itself: the terminal sends its own to the whole foreground, the command included
_SI_KERNEL = 128

_EXIT_NOT_STARTED = 127

_SCRIPT_SUFFIXES = (".py", ".pyw", ".pyz")


class CommandNotFound(SteplensError):
    """The command does not exist or cannot be executed; the exit code is the shell's."""

    exit_code = _EXIT_NOT_STARTED


def is_command(target: str, explicit: bool) -> bool:
    """Whether ``target`` is a program to start, and not a Python script to run.

    Args:
        target: the first word of what is to be run.
        explicit: it follows ``--``.
    """
    path = Path(target)
    if path.suffix in _SCRIPT_SUFFIXES or path.is_dir():
        # An executable script with its own interpreter line is meant to be started as such only behind --.
        return explicit and path.is_file() and os.access(path, os.X_OK) and os.sep in target
    if path.is_file() and os.sep not in target and not os.access(path, os.X_OK):
        # A script without a suffix, or one that a program on the PATH is called like.
        return explicit and shutil.which(target) is not None
    return shutil.which(target) is not None


def is_script_name(target: str) -> bool:
    """Whether what is no command that can be started is at least called like a script, or is a file or folder."""
    return Path(target).suffix in _SCRIPT_SUFFIXES or Path(target).exists()


def run_command(arguments: list[str], environment: dict[str, str]) -> int:
    """Start a command, wait for it and pass on the signals that this process gets meanwhile.

    Args:
        arguments: the command line.
        environment: of the command.

    Returns:
        its exit status; minus the signal that ended it.

    Raises:
        CommandNotFound: it cannot be started.
    """
    watched = _FORWARDED | {signal.SIGCHLD}
    # Blocked, and waited for: a signal that comes between two lines of Python is not lost.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        try:
            # Python ignores these two, a shell does not.
            defaults = [signal.SIGPIPE, signal.SIGXFSZ]
            child = os.posix_spawnp(arguments[0], arguments, environment, setsigmask=before, setsigdef=defaults)
        except OSError as error:
            raise CommandNotFound(f"{arguments[0]} cannot be started: {error.strerror}") from None
        return _wait_for_child(child, watched)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait_for_child(child: int, watched: frozenset[signal.Signals]) -> int:
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        got = signal.sigwaitinfo(watched)
        if got.si_signo != signal.SIGCHLD and got.si_code != _SI_KERNEL:
            os.kill(child, got.si_signo)


def end_like(status: int) -> None:
    """End this process by the signal that ended the command; returns when its exit status is an ordinary one."""
    if status >= 0:
        return
    # One core file, that of the command, is enough.
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), -status)
