"""Calls of a process to the operating system, recorded by strace.

strace stops the process at every call, which makes each some ten times slower. Nothing gentler is at hand everywhere:
what ``perf trace`` writes cannot be put on the clock of the other data.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
from pathlib import Path

from steplens.common import rundir

#: strace is ended when its file is as large as this
LIMIT_BYTES = 64 << 20

#: how long strace may take to let go and to write what it has
_PATIENCE_S = 10.0

_PR_SET_PDEATHSIG = 1
_PR_SET_PTRACER = 0x59616D61
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


class SystemCalls:
    """Records the calls of a process, from the constructor to :meth:`stop`.

    Args:
        pid: the process.
        folder: for the file.

    Raises:
        OSError: they cannot be recorded; the message is the reason.
    """

    def __init__(self, pid: int, folder: Path) -> None:
        program = shutil.which("strace")
        if program is None:
            raise OSError("strace is not installed")
        self._path = folder / rundir.SYSTEM_CALLS
        command = [
            program,
            "--follow-forks",
            "--attach",
            str(pid),
            "--absolute-timestamps=format:unix,precision:ns",
            "--syscall-times=ns",
            # Arguments as bare numbers: contents of files and messages are nobody's business, and decoding costs time.
            "-e",
            "raw=all",
            "-e",
            "signal=none",
            "--output",
            str(self._path),
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=_end_with_parent
        )

    def check(self) -> str:
        """Why it no longer records; empty when it does."""
        if self._process.poll() is not None:
            return self._reason()
        with contextlib.suppress(OSError):
            if self._path.stat().st_size > LIMIT_BYTES:
                self._end_strace()
                return f"their file reached {LIMIT_BYTES >> 20} MiB, so that later ones are missing"
        return ""

    def stop(self) -> str:
        """End it; returns why something is missing, or nothing."""
        problem = self.check()
        self._end_strace()
        with contextlib.suppress(OSError):
            self._path.chmod(rundir.FILE_MODE)
        return problem

    def _end_strace(self) -> None:
        if self._process.poll() is not None:
            return
        # It lets go of the process on an interrupt. Killed, it does so too, and may lose what it has not written.
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _reason(self) -> str:
        lines = (self._process.stderr.read() if self._process.stderr else b"").decode(errors="replace").splitlines()
        reason = next((line for line in lines if "ptrace" in line or "attach:" in line), lines[-1] if lines else "")
        return reason.strip() or f"strace ended with exit code {self._process.returncode}"


def _end_with_parent() -> None:
    """In the new process: do not go on to trace when what reads the result is gone."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    # Ctrl-C is meant for the training
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)


def permit_tracing(tracer: int) -> None:
    """Let a process, and those that it starts, trace this one, where the system reserves that to parents; 0 takes it back."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if int(_YAMA.read_text()) == 1:
            ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(tracer), 0, 0, 0)
