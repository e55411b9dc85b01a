"""Processes that must not outlive the one that started them, even if that one is killed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

#: holds the process id of the parent in the environment of a process that is to end with it
VARIABLE = "STEPLENS_PARENT"

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Ask the system to end this process when its parent does, if the parent wants that."""
    parent = os.environ.get(VARIABLE, "")
    if not parent.isdecimal():
        return
    with contextlib.suppress(OSError, AttributeError):  # systems without prctl
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # It may have ended before we asked.
    if os.getppid() != int(parent):
        os.kill(os.getpid(), signal.SIGTERM)
